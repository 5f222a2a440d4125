"""Beta distributions: bounded without a squashing function, so without its bias towards the bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from gymnasium import Space
from torch import Tensor

from lightning_rl.models.distributions.base import require_sample
from lightning_rl.models.distributions.bounds import Bound, Bounded, log_volume, span
from lightning_rl.models.distributions.continuous import DiagGaussian

__all__ = ["Beta", "standard_gamma"]

EDGE = 1e-6  # samples in [0, 1] keep this distance from the ends, so that their density is finite
MAX_LOG = 9.2  # log of the largest concentration, 10⁴: a deviation of 0.5 % of the range


class Beta(Bounded):
    """Independent beta distributions, stretched to the bounds.

    Chou et al. 2017, "Improving stochastic policy gradients in continuous control with deep reinforcement learning
    using the beta distribution".

    The inputs are A logits of the modes m and then A logarithms of the concentrations κ: α = 1 + κ m and
    β = 1 + κ (1 − m), so there is always one mode, inside. The paper's α = 1 + softplus(x) has the same distributions,
    but there the mode moves with the width, which grows only linearly, and near α = 1 the gradient vanishes.

    Args:
        inputs, model, mask: as `ActionDistribution`.
        shape: of one action; `None`: `(A,)`.
        low, high: bounds of the actions, in the policy's space.
    """

    def __init__(
        self,
        inputs: Tensor,
        model: Any = None,
        mask: Tensor | None = None,
        *,
        shape: Sequence[int] | None = None,
        low: Bound = -1.0,
        high: Bound = 1.0,
    ) -> None:
        super().__init__(inputs, model, mask)
        self.shape, self.low, self.high = shape, low, high
        mode, concentration = inputs.chunk(2, dim=1)
        self.mode, concentration = mode.sigmoid(), concentration.clamp(-MAX_LOG, MAX_LOG).exp()
        self.alpha, self.beta = 1.0 + concentration * self.mode, 1.0 + concentration * (1.0 - self.mode)
        self._last: Tensor | None = None

    @staticmethod
    def required_model_output_shape(action_space: Space[Any], model_config: Mapping[str, Any] | None = None) -> int:
        """Two numbers per entry."""
        return 2 * math.prod(action_space.shape or ())

    @classmethod
    def serves(cls, leaf: Space[Any]) -> bool:
        """True for float Boxes."""
        return DiagGaussian.serves(leaf)

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """Actions `[N, *shape]`."""
        with torch.no_grad():
            return self.rsample(generator)

    def rsample(self, generator: torch.Generator | None = None) -> Tensor:
        """Actions `[N, *shape]`, differentiated implicitly. Figurnov et al. 2018, arXiv:1805.08498."""
        first, second = (standard_gamma(rate, generator) for rate in (self.alpha, self.beta))
        return self._stretch(first / (first + second))

    def deterministic_sample(self) -> Tensor:
        """The modes (α − 1) / (α + β − 2), `[N, *shape]`."""
        return self._stretch(self.mode)

    def _stretch(self, fractions: Tensor) -> Tensor:
        low, width, _ = span(self.low, self.high, fractions.device)
        actions = low + fractions.clamp(EDGE, 1.0 - EDGE) * width
        actions = actions if self.shape is None else actions.view(actions.shape[0], *self.shape)
        self._last = actions
        return actions

    def logp(self, actions: Tensor) -> Tensor:
        """Log density, `[N]`, of `[N, *shape]`; at a bound, the density a millionth of the range inside it."""
        low, _, divisor = span(self.low, self.high, actions.device)
        fractions = ((actions.reshape(self.alpha.shape) - low) / divisor).clamp(EDGE, 1.0 - EDGE)
        alpha, beta = self.alpha.double(), self.beta.double()  # differences of large numbers
        exponent = (alpha - 1.0) * fractions.log() + (beta - 1.0) * (-fractions).log1p() - _log_beta(alpha, beta)
        return (exponent.sum(1) - self._log_volume()).to(self.alpha.dtype)

    def sampled_action_logp(self) -> Tensor:
        """Log density of the last sample, `[N]`."""
        return self.logp(require_sample(self._last))

    def entropy(self) -> Tensor:
        """Σ (log B(α, β) − (α−1) ψ(α) − (β−1) ψ(β) + (α+β−2) ψ(α+β) + log(high − low)), `[N]`."""
        alpha, beta = self.alpha.double(), self.beta.double()
        means = (alpha - 1.0) * alpha.digamma() + (beta - 1.0) * beta.digamma()
        terms = _log_beta(alpha, beta) - means + (alpha + beta - 2.0) * (alpha + beta).digamma()
        return (terms.sum(1) + self._log_volume()).to(self.alpha.dtype)

    def kl(self, other: Beta) -> Tensor:
        """KL(self‖other) in closed form, `[N]`; stretching does not change it."""
        alpha, beta, theirs = self.alpha.double(), self.beta.double(), (other.alpha.double(), other.beta.double())
        above, below = alpha - theirs[0], beta - theirs[1]
        means = above * alpha.digamma() + below * beta.digamma() - (above + below) * (alpha + beta).digamma()
        return (_log_beta(*theirs) - _log_beta(alpha, beta) + means).sum(1).to(self.alpha.dtype)

    def _log_volume(self) -> float:
        return log_volume(self.low, self.high, self.alpha.shape[1])


def standard_gamma(rate: Tensor, generator: torch.Generator | None) -> Tensor:
    """Γ(rate, 1) samples with a gradient; torch.distributions takes no generator, so it cannot be used here."""
    return torch._standard_gamma(rate, generator)  # pyright: ignore[reportPrivateImportUsage]


def _log_beta(alpha: Tensor, beta: Tensor) -> Tensor:
    return alpha.lgamma() + beta.lgamma() - (alpha + beta).lgamma()
