"""Acting: from observations to an action distribution, and the random generators of actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lightning_rl.models.distributions import ActionDistribution, Categorical
from lightning_rl.sample_batch import row_count

__all__ = ["DeviceGenerators", "can_skip_model", "run_model", "state_or_start"]


class DeviceGenerators(dict[torch.device, torch.Generator]):
    """A generator for each device, seeded when it is first asked for.

    Args:
        seed: the seed of all of them.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed

    def __missing__(self, device: torch.device) -> torch.Generator:
        self[device] = torch.Generator(device).manual_seed(self.seed)
        return self[device]


def run_model(
    policy: Any,
    obs: Any,
    state: Sequence[Tensor],
    before: Mapping[str, Any],
    action_mask: Any,
    how: Mapping[str, Any],
) -> tuple[ActionDistribution, Tensor, list[Tensor]]:
    """One step of the model: the action distribution, the outputs `[B, K]` that parametrize it, and the next state.

    Every number that acting computes before it chooses an action comes from here, in an exported file too.

    Args:
        policy: that acts.
        obs, state, action_mask: tensors, as in `Policy.compute_actions`.
        before: "prev_actions" and "prev_rewards", as in `Policy.compute_actions`.
        how: "timestep", "explore" and "generator", as `Exploration.model_outputs`.
    """
    inputs = policy.input_dict(obs, **before)
    state = state_or_start(policy, state, obs)
    outputs, state_out = policy.exploration.model_outputs(policy.model, inputs, state, **how)
    return policy.distribution(outputs, policy._mask(obs, action_mask)), outputs, state_out


def state_or_start(policy: Any, state: Sequence[Tensor], obs: Any) -> Sequence[Tensor]:
    """`state`, or the state at an episode's start if `state` is empty."""
    return state if len(state) > 0 or not policy.is_recurrent else policy.get_initial_state(row_count(obs))


def can_skip_model(policy: Any, obs: Any) -> bool:
    """Whether nothing but the actions depends on the model's outputs, and no action can be forbidden."""
    return (
        policy.dist_class is Categorical
        and isinstance(obs, Tensor | np.ndarray)
        and not (policy.reads_outputs or policy.exploration.reads_outputs)
        and not (policy.is_recurrent or policy.model.forbids_actions)
    )
