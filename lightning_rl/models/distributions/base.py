"""The contract of every action distribution.

A few fused tensor operations each, because acting in 8 environments costs what its operations count. Sampling takes an
explicit generator, and nothing changes its inputs. `N` rows, `K` inputs per row, `A` action entries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from gymnasium import Space
from torch import Tensor

from lightning_rl.errors import UnsupportedSpaceError

if TYPE_CHECKING:
    from lightning_rl.models.model import Model

__all__ = ["ActionDistribution", "DistFactory", "fitting_mask", "require_sample"]

DistFactory = Callable[..., "ActionDistribution"]


class ActionDistribution:
    """π(·|s) of `N` rows.

    Args:
        inputs: `[N, K]`, the model's outputs.
        model: that made them; autoregressive distributions call it again.
        mask: bool `[N, sum of choices]`, which discrete actions are allowed, components side by side in the space's
            order. A choice that allows nothing (after an episode's end, or where the info held no mask) is not masked.

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
        """K, how many numbers per row the model has to give."""
        raise NotImplementedError  # abstract

    @classmethod
    def for_space(cls, action_space: Space[Any]) -> DistFactory:
        """What makes this distribution, called with `(inputs, model, mask)`; sizes and bounds are found here, once.

        Args:
            action_space: that the policy acts in (`ActionTransform.policy_space`): integers from 0, Boxes in [−1, 1]
                when they are normalised.
        """
        return cls

    @classmethod
    def serves(cls, leaf: Space[Any]) -> bool:
        """Whether this is a distribution for single leaves of that kind.

        If so, and it is chosen for a Dict or Tuple, it takes the place of the built-in one of each such leaf. Otherwise
        it gets the whole space.
        """
        return False

    @classmethod
    def check_space(cls, action_space: Space[Any]) -> None:
        """Raise `UnsupportedSpaceError` for an environment's action space (or leaf) that this cannot act in."""
        for_leaves = cls.serves.__func__ is not ActionDistribution.serves.__func__
        if for_leaves and not cls.serves(action_space):
            raise UnsupportedSpaceError(
                f"{cls.__name__} is no distribution for {action_space}: leave model.custom_action_dist out, and the "
                "one for this space is taken"
            )

    @classmethod
    def prepare_model(cls, model: Model) -> None:
        """Add to a new model what this distribution needs of it beside the outputs; called once, by the catalog."""

    def sample(self, generator: torch.Generator | None = None) -> Any:
        """Actions in the policy's space, `[N, …]`."""
        raise NotImplementedError  # abstract

    def rsample(self, generator: torch.Generator | None = None) -> Any:
        """Actions through which the gradient flows (reparametrised), for losses that differentiate a critic, as SAC.

        `sampled_action_logp` then carries the gradient, too. Discrete actions come as one-hot vectors `[N, n]`.

        Raises:
            UnsupportedSpaceError: this distribution has no such form.
        """
        raise UnsupportedSpaceError(
            f"{type(self).__name__} has no reparametrised sample, which this algorithm needs: set "
            "model.custom_action_dist to SquashedGaussian (Box) or GumbelSoftmax (Discrete)"
        )

    def log_probs(self) -> Tensor:
        """Log π of every action, `[N, n]`, for losses that take expectations over them, as discrete SAC.

        Raises:
            UnsupportedSpaceError: this distribution does not say.
        """
        raise UnsupportedSpaceError(
            f"{type(self).__name__} does not give the probabilities of all actions, which this algorithm needs: leave "
            "model.custom_action_dist out, or define log_probs() -> [N, n]"
        )

    def uniform_sample(self, generator: torch.Generator | None = None) -> tuple[Any, Tensor] | None:
        """Uniform actions `[N, …]` and their log density `[N]`; `None` where all of the action space is possible."""
        return None

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


def require_sample(last: Tensor | None) -> Tensor:
    """What `sample` kept; a clear error when it was not called."""
    if last is None:
        raise RuntimeError(
            "sampled_action_logp: nothing was sampled yet; call sample() or deterministic_sample() first"
        )
    return last


def fitting_mask(mask: Tensor, rows: int, width: int) -> Tensor:
    """The mask, if it has a bool for each alternative of every choice.

    Raises:
        ValueError: it does not: `[N, 1]` would be spread over all alternatives without a word.
    """
    if tuple(mask.shape) != (rows, width):
        raise ValueError(
            f"action_mask has shape {list(mask.shape)}; expected [{rows}, {width}]: one bool for each alternative of "
            "every choice, side by side"
        )
    return mask
