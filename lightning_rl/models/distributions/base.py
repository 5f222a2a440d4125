"""Base class of the action distributions.

Methods are a few fused tensor operations each, because the number of operations is the cost of acting in 8
environments. Sampling takes an explicit generator; inputs are never changed. `N` rows, `K` inputs per row, `A` action
entries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from gymnasium import Space
from torch import Tensor

from lightning_rl.errors import UnsupportedSpaceError

if TYPE_CHECKING:
    from lightning_rl.models.model import Model

__all__ = ["ActionDistribution", "DistFactory", "fitting_mask", "require_sample", "split_mask"]

DistFactory = Callable[..., "ActionDistribution"]


class ActionDistribution:
    """The action distribution π(·|s) of `N` rows.

    Args:
        inputs: `[N, K]`, the model's outputs.
        model: the model that computed the inputs; autoregressive distributions call it again.
        mask: bool `[N, sum of choices]`, which discrete actions are allowed, components side by side in the space's
            order. A mask that allows nothing (after an episode's end, or without a mask in the info) is ignored.

    Raises:
        UnsupportedSpaceError: a mask for actions that are not discrete.
    """

    maskable: ClassVar[bool] = False

    def __init__(self, inputs: Tensor, model: Any = None, mask: Tensor | None = None) -> None:
        if mask is not None and not self.maskable:
            raise UnsupportedSpaceError(
                f"{type(self).__name__} got an action_mask; only discrete actions can be masked: drop the mask, or "
                "make the action space Discrete"
            )
        self.inputs, self.model, self.mask = inputs, model, mask

    @staticmethod
    def required_model_output_shape(action_space: Space[Any], model_config: Mapping[str, Any] | None = None) -> int:
        """K, the number of inputs per row that the model has to compute."""
        raise NotImplementedError  # abstract

    @classmethod
    def for_space(cls, action_space: Space[Any]) -> DistFactory:
        """A factory of this distribution, called with `(inputs, model, mask)`, with sizes and bounds computed once.

        Args:
            action_space: space of the policy's actions (`ActionTransform.policy_space`): integers from 0, Boxes in [−1,
                1] if they are normalized.
        """
        return cls

    @classmethod
    def serves(cls, leaf: Space[Any]) -> bool:
        """Whether this is a distribution for single leaves of that kind.

        If so, and it is chosen for a Dict or Tuple, it replaces the built-in distribution of each such leaf. Otherwise
        it gets the whole space.
        """
        return False

    @classmethod
    def check_space(cls, action_space: Space[Any]) -> None:
        """Raise `UnsupportedSpaceError` if this does not support the environment's action space (or a leaf of it)."""
        for_leaves = cls.serves.__func__ is not ActionDistribution.serves.__func__
        if for_leaves and not cls.serves(action_space):
            raise UnsupportedSpaceError(
                f"{cls.__name__} is not a distribution for {action_space}: leave model.custom_action_dist out, and the "
                "one for this space is taken"
            )

    @classmethod
    def prepare_model(cls, model: Model) -> None:
        """Add layers to a new model that this distribution needs beside the outputs; the catalog calls this once."""

    def sample(self, generator: torch.Generator | None = None) -> Any:
        """Actions in the policy's space, `[N, …]`."""
        raise NotImplementedError  # abstract

    def rsample(self, generator: torch.Generator | None = None) -> Any:
        """Reparametrized samples, through which a gradient flows, for losses that differentiate a critic, as SAC's.

        `sampled_action_logp` then carries the gradient as well. Discrete actions come as one-hot vectors `[N, n]`.

        Raises:
            UnsupportedSpaceError: this distribution is not reparametrized.
        """
        raise UnsupportedSpaceError(
            f"{type(self).__name__} has no reparametrized sample, which this algorithm needs: set "
            "model.custom_action_dist to SquashedGaussian (Box) or GumbelSoftmax (Discrete)"
        )

    def log_probs(self) -> Tensor:
        """Log π of every action, `[N, n]`, for losses that take expectations over them, as discrete SAC.

        Raises:
            UnsupportedSpaceError: this distribution does not provide them.
        """
        raise UnsupportedSpaceError(
            f"{type(self).__name__} does not give the probabilities of all actions, which this algorithm needs: leave "
            "model.custom_action_dist out, or define log_probs() -> [N, n]"
        )

    def uniform_sample(self, generator: torch.Generator | None = None) -> tuple[Any, Tensor] | None:
        """Uniform actions `[N, …]` and their log density `[N]`; `None` if the whole action space is allowed."""
        return None

    def deterministic_sample(self) -> Any:
        """The most likely actions, `[N, …]`."""
        raise NotImplementedError  # abstract

    def logp(self, actions: Any) -> Tensor:
        """Log π(a|s), `[N]`; a density for continuous actions."""
        raise NotImplementedError  # abstract

    def sampled_action_logp(self) -> Tensor:
        """Log π, `[N]`, of the actions that `sample` or `deterministic_sample` returned last."""
        raise NotImplementedError  # abstract

    def entropy(self) -> Tensor:
        """H(π(·|s)) in nats, `[N]`; differential for continuous actions."""
        raise NotImplementedError  # abstract

    def kl(self, other: Any) -> Tensor:
        """KL(self‖other) in nats, `[N]`."""
        raise NotImplementedError  # abstract


def require_sample(last: Tensor | None) -> Tensor:
    """The stored last sample; raises an error if `sample` was not called."""
    if last is None:
        raise RuntimeError(
            "sampled_action_logp: nothing was sampled yet; call sample() or deterministic_sample() first"
        )
    return last


def fitting_mask(mask: Tensor, rows: int, width: int) -> Tensor:
    """Check that a mask has a bool for each alternative of every choice, and return it.

    Raises:
        ValueError: it has another shape: `[N, 1]` would silently be broadcast to all alternatives.
    """
    if tuple(mask.shape) != (rows, width):
        raise ValueError(
            f"action_mask has shape {list(mask.shape)}; expected [{rows}, {width}]: one bool for each alternative of "
            "every choice, side by side"
        )
    return mask


def split_mask(mask: Tensor | None, rows: int, widths: Sequence[int]) -> Sequence[Tensor | None]:
    """The masks of an action's parts, with that many columns; `None` for a part of width 0, or without a mask."""
    if mask is None:
        return [None] * len(widths)
    pieces = fitting_mask(mask, rows, sum(widths)).split(list(widths), dim=1)
    return [piece if width else None for piece, width in zip(pieces, widths, strict=True)]
