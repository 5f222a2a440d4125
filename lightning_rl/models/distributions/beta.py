"""Beta distributions: bounded without a squashing function, so without its bias towards the bounds."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lightning_rl.models.distributions.bounds import Bounded, log_volume, span

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
        inputs, model, mask, shape, low, high: see `Bounded`.
    """

    def __init__(self, inputs: Tensor, model: Any = None, mask: Tensor | None = None, **form: Any) -> None:
        super().__init__(inputs, model, mask, **form)
        mode, concentration = inputs.chunk(2, dim=1)
        self.mode, concentration = mode.sigmoid(), concentration.clamp(-MAX_LOG, MAX_LOG).exp()
        self.alpha, self.beta = 1.0 + concentration * self.mode, 1.0 + concentration * (1.0 - self.mode)

    def rsample(self, generator: torch.Generator | None = None) -> Tensor:
        """Actions `[N, *shape]`, differentiated implicitly. Figurnov et al. 2018, arXiv:1805.08498."""
        first, second = (standard_gamma(rate, generator) for rate in (self.alpha, self.beta))
        return self._stretch(first / (first + second))

    def deterministic_sample(self) -> Tensor:
        """The modes (α − 1) / (α + β − 2), `[N, *shape]`."""
        return self._stretch(self.mode)

    def _stretch(self, fractions: Tensor) -> Tensor:
        low, width, _ = span(self.low, self.high, fractions.device)
        self._last = self._reshape(low + fractions.clamp(EDGE, 1.0 - EDGE) * width)
        return self._last

    def logp(self, actions: Tensor) -> Tensor:
        """Log density, `[N]`, of `[N, *shape]`; at a bound, the density a millionth of the range inside it."""
        low, _, divisor = span(self.low, self.high, actions.device)
        fractions = ((actions.reshape(self.alpha.shape) - low) / divisor).clamp(EDGE, 1.0 - EDGE)
        alpha, beta = self.alpha.double(), self.beta.double()  # differences of large numbers
        exponent = (alpha - 1.0) * fractions.log() + (beta - 1.0) * (-fractions).log1p() - _log_beta(alpha, beta)
        return (exponent.sum(1) - self._log_volume()).to(self.alpha.dtype)

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
