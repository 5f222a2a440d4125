"""The contract of every action distribution.

A few fused tensor operations each, because acting in 8 environments costs what its operations count. Sampling takes an
explicit generator, and nothing changes its inputs. `N` rows, `K` inputs per row, `A` action entries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from gymnasium import Space
from torch import Tensor

from lightning_rl.errors import UnsupportedSpaceError

__all__ = ["ActionDistribution", "DistFactory", "sampled"]

DistFactory = Callable[..., "ActionDistribution"]


class ActionDistribution:
    """π(·|s) of `N` rows.

    Args:
        inputs: `[N, K]`, the model's outputs.
        model: that made them; autoregressive distributions call it again.
        mask: bool `[N, sum of choices]`, which discrete actions are allowed, components side by side in the space's
            order. A row that allows nothing (after an episode's end) allows everything.

    Raises:
        UnsupportedSpaceError: a mask for actions that are not discrete.
    """

    maskable: ClassVar[bool] = False

    def __init__(self, inputs: Tensor, model: Any = None, mask: Tensor | None = None) -> None:
        if mask is not None and not self.maskable:
            raise UnsupportedSpaceError(
                f"{type(self).__name__} got an action_mask; only discrete actions can be masked: drop the mask, or "
                "make "
                "the action space Discrete"
            )
        self.inputs, self.model, self.mask = inputs, model, mask

    @staticmethod
    def required_model_output_shape(action_space: Space[Any], model_config: Mapping[str, Any] | None = None) -> int:
        """K, how many numbers per row the model has to give."""
        raise NotImplementedError  # abstract

    @classmethod
    def for_space(cls, action_space: Space[Any]) -> DistFactory:
        """What makes this distribution for a space, called with `(inputs, model, mask)`; sizes are found here, once."""
        return cls

    def sample(self, generator: torch.Generator | None = None) -> Any:
        """Actions in the policy's space, `[N, …]`."""
        raise NotImplementedError  # abstract

    def deterministic_sample(self) -> Any:
        """The most likely actions, `[N, …]`."""
        raise NotImplementedError  # abstract

    def logp(self, actions: Any) -> Tensor:
        """Log π(a|s), `[N]`; a density for continuous actions."""
        raise NotImplementedError  # abstract

    def sampled_action_logp(self) -> Tensor:
        """Log π, `[N]`, of the actions that `sample` or `deterministic_sample` gave last."""
        raise NotImplementedError  # abstract

    def entropy(self) -> Tensor:
        """H(π(·|s)) in nats, `[N]`; differential for continuous actions."""
        raise NotImplementedError  # abstract

    def kl(self, other: Any) -> Tensor:
        """KL(self‖other) in nats, `[N]`."""
        raise NotImplementedError  # abstract


def sampled(last: Tensor | None) -> Tensor:
    """What `sample` kept; a clear error when it was not called."""
    if last is None:
        raise RuntimeError(
            "sampled_action_logp: nothing was sampled yet; call sample() or deterministic_sample() first"
        )
    return last
