"""A distribution over shares that sum to a fixed total, such as portfolios, mixtures and budgets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor

from lightning_rl.errors import UnsupportedSpaceError
from lightning_rl.models.distributions.beta import standard_gamma
from lightning_rl.models.distributions.bounds import Bounded

__all__ = ["Dirichlet"]

SMALLEST = 1e-7  # smallest share, so that its logarithm is finite
MAX_LOG = 9.2  # log of the largest concentration, 10⁴


class Dirichlet(Bounded):
    """Shares x of a whole, for a Box(0, high, (A,)) with A ≥ 2: the actions for the environment sum to `high`.

    Densities are those of the first A − 1 entries, which determine the last. The inputs are A logits, whose softmax is
    the mode m, and the logarithm of the concentration κ: α = 1 + κ m, so there is always one mode, and it can move
    without a change of the concentration.

    Args:
        inputs, model, mask: see `ActionDistribution`.
        low, high: values in the policy's space for shares of 0 and 1 (−1 and 1 if actions are normalized).
    """

    low: float
    high: float

    def __init__(
        self, inputs: Tensor, model: Any = None, mask: Tensor | None = None, *, low: float = 0.0, high: float = 1.0
    ) -> None:
        super().__init__(inputs, model, mask, low=low, high=high)
        self.mode = inputs[:, :-1].softmax(1)
        self.alpha = 1.0 + inputs[:, -1:].clamp(-MAX_LOG, MAX_LOG).exp() * self.mode

    @staticmethod
    def required_model_output_shape(action_space: Space[Any], model_config: Mapping[str, Any] | None = None) -> int:
        """One number per entry, and one more."""
        return math.prod(action_space.shape or ()) + 1

    @classmethod
    def check_space(cls, action_space: Space[Any]) -> None:
        """Refuse spaces other than vectors of at least two entries that all range from 0 to the same number."""
        if isinstance(action_space, spaces.Box) and cls.serves(action_space) and len(action_space.shape) == 1:
            low, high = action_space.low, action_space.high
            if len(low) > 1 and np.all(low == 0) and np.all(high == high[0]) and 0 < high[0] < np.inf:
                return
        raise UnsupportedSpaceError(
            f"Dirichlet gives shares of a whole; {action_space} needs to be Box(0, 1, (n,)) with n ≥ 2: change the "
            "space, or leave model.custom_action_dist out"
        )

    def rsample(self, generator: torch.Generator | None = None) -> Tensor:
        """Actions `[N, A]`, differentiated implicitly. Figurnov et al. 2018, arXiv:1805.08498."""
        gammas = standard_gamma(self.alpha, generator)
        return self._stretch(gammas / gammas.sum(1, keepdim=True))

    def deterministic_sample(self) -> Tensor:
        """The modes (α − 1) / Σ (α − 1), `[N, A]`."""
        return self._stretch(self.mode)

    def uniform_sample(self, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Uniform over all shares, a Dirichlet with every α = 1; its density is (A − 1)! over the volume."""
        waits = torch.empty_like(self.alpha).exponential_(generator=generator)
        actions = self.low + waits / waits.sum(1, keepdim=True) * (self.high - self.low)
        return actions, actions.new_full((len(actions),), math.lgamma(actions.shape[1]) - self._log_volume())

    def _stretch(self, shares: Tensor) -> Tensor:
        self._last = self.low + shares * (self.high - self.low)
        return self._last

    def logp(self, actions: Tensor) -> Tensor:
        """Log density, `[N]`, of `[N, A]`."""
        shares = ((actions - self.low) / (self.high - self.low)).clamp(SMALLEST, 1.0)
        alpha = self.alpha.double()  # differences of large numbers
        exponent = ((alpha - 1.0) * shares.log()).sum(1) - _log_beta(alpha)
        return (exponent - self._log_volume()).to(self.alpha.dtype)

    def entropy(self) -> Tensor:
        """Log B(α) + (Σα − A) ψ(Σα) − Σ (α−1) ψ(α) + (A − 1) log(high − low), `[N]`."""
        alpha = self.alpha.double()
        total = alpha.sum(1)
        spread = (total - alpha.shape[1]) * total.digamma() - ((alpha - 1.0) * alpha.digamma()).sum(1)
        return (_log_beta(alpha) + spread + self._log_volume()).to(self.alpha.dtype)

    def kl(self, other: Dirichlet) -> Tensor:
        """KL(self‖other) in closed form, `[N]`."""
        alpha, theirs = self.alpha.double(), other.alpha.double()
        means = alpha.digamma() - alpha.sum(1, keepdim=True).digamma()
        exponent = _log_beta(theirs) - _log_beta(alpha) + ((alpha - theirs) * means).sum(1)
        return exponent.to(self.alpha.dtype)

    def _log_volume(self) -> float:
        return (self.alpha.shape[1] - 1) * math.log(self.high - self.low)


def _log_beta(alpha: Tensor) -> Tensor:
    return alpha.lgamma().sum(1) - alpha.sum(1).lgamma()
