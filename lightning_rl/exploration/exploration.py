"""The contract of every exploration strategy."""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import Space
from torch import Tensor, nn

from lightning_rl.models.distributions import ActionDistribution

__all__ = ["Exploration"]


class Exploration(nn.Module):
    """Chooses actions from a distribution.

    Schedules follow `timestep`; other state is kept in buffers, so that checkpoints hold it.

    Args:
        action_space: that the policy acts in (`ActionTransform.policy_space`); noise is added and clipped there.
    """

    def __init__(self, action_space: Space[Any]) -> None:
        super().__init__()
        self.action_space = action_space

    def get_exploration_action(
        self, dist: ActionDistribution, *, timestep: int, explore: bool, generator: torch.Generator | None = None
    ) -> tuple[Any, Tensor]:
        """Actions `[N, …]` in the policy's space, and the log-probability (density) `[N]` they were chosen with.

        Args:
            dist: of the `N` rows.
            timestep: environment steps of the whole run so far.
            explore: False takes the best action, with its log-probability under `dist`.
            generator: on the distribution's device.
        """
        raise NotImplementedError  # abstract

    def info(self, timestep: int) -> dict[str, float]:
        """Numbers worth a curve, such as the current ε."""
        return {}
