"""Gaussians between bounds, for algorithms that differentiate through their actions."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from lightning_rl.models.distributions.base import require_sample
from lightning_rl.models.distributions.bounds import Bounded, log_volume, span
from lightning_rl.models.distributions.continuous import LOG_2PI, Deterministic, DiagGaussian

__all__ = ["SquashedDeterministic", "SquashedGaussian"]

INSIDE = 1.0 - 1e-6  # largest |tanh| of a sample: closer to ±1, float32 cannot resolve it
QUADRATURE = 24  # points of the entropy's quadrature


class SquashedGaussian(Bounded, DiagGaussian):
    """Tanh of a `DiagGaussian`, stretched to the bounds. Haarnoja et al. 2018, arXiv:1812.05905, appendix C.

    `sample` returns actions to record: they stay a millionth inside the bounds, and their density is computed from the
    rounded number that is recorded, so a loss computes the same value again and the first importance ratio is 1.
    `rsample` returns actions for a loss: they reach the bounds, and their density is computed before tanh.

    Args:
        inputs, model, mask, shape: see `DiagGaussian`, of the Gaussian before tanh; log σ is at most 2, as in SB3 and
            RLlib: beyond, nearly all actions are at the bounds.
        low, high: bounds of the actions, in the policy's space.
    """

    highest_log_std = 2.0
    _raw: Tensor | None = None  # the last `rsample` before tanh; `_last` is the last `sample`

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """Actions `[N, *shape]`."""
        noise = torch.empty_like(self.mean).normal_(generator=generator)
        return self._squash(torch.addcmul(self.mean, self.log_std.exp(), noise))

    def sample_with(self, noise: Tensor) -> Tensor:
        """Actions `[N, *shape]` for given noise `[N, A]` before tanh."""
        return self._squash(self.mean + noise)

    def rsample(self, generator: torch.Generator | None = None) -> Tensor:
        """Actions `[N, *shape]` with a gradient that does not vanish where they saturate."""
        self._noise = torch.empty_like(self.mean).normal_(generator=generator)
        self._raw, self._last = torch.addcmul(self.mean, self.log_std.exp(), self._noise), None
        return self._unsquash(self._raw.tanh())

    def deterministic_sample(self) -> Tensor:
        """Tanh of the means, the median of every entry, `[N, *shape]`."""
        return self._squash(self.mean)

    def _squash(self, raw: Tensor) -> Tensor:
        self._last = self._unsquash(raw.tanh().clamp(-INSIDE, INSIDE))
        return self._last

    def _log_half_widths(self) -> float:
        """Σ log((high − low) / 2): stretching lowers the log density by this."""
        if self.low == -1.0 and self.high == 1.0:
            return 0.0
        return log_volume(self.low, self.high, self.mean.shape[1]) - self.mean.shape[1] * math.log(2.0)

    def _density_at(self, raw: Tensor, standardized: Tensor) -> Tensor:
        # `_density` − Σ `_log_slope` as one sum: on small batches the cost is the number of operations.
        exponent = torch.addcmul(self.log_std, standardized, standardized, value=0.5).sub(raw, alpha=2.0)
        exponent = exponent.add(F.softplus(raw, beta=-2.0), alpha=4.0).sum(1)
        constant = (0.5 * LOG_2PI + math.log(4.0)) * raw.shape[1] + self._log_half_widths()
        return torch.rsub(exponent, -constant)

    def logp(self, actions: Tensor) -> Tensor:
        """Log density, `[N]`, of `[N, *shape]`; beyond the range of `sample`, that of the nearest sample."""
        squashed = actions.reshape(self.mean.shape)
        if self.low != -1.0 or self.high != 1.0:
            low, _, divisor = span(self.low, self.high, actions.device)
            squashed = (squashed - low) * 2.0 / divisor - 1.0
        raw = squashed.clamp(-INSIDE, INSIDE).atanh()
        return self._density_at(raw, (raw - self.mean) * (-self.log_std).exp())

    def sampled_action_logp(self) -> Tensor:
        """Log density of the last sample, `[N]`."""
        if self._last is not None:
            return self.logp(self._last)
        return self._density_at(require_sample(self._raw), require_sample(self._noise))

    def entropy(self) -> Tensor:
        """H of the Gaussian + Σ E[log(1 − tanh² u)] + Σ log((high − low) / 2), `[N]`.

        The expectation has no closed form; Gauss-Hermite quadrature computes it and its gradient without noise: within
        1e-3 nats per entry for σ ≤ 2, and within 3 % above, where most actions are at the bounds.
        """
        points, weights = _quadrature(self.mean.device)
        raw = self.mean.unsqueeze(-1) + self.log_std.exp().unsqueeze(-1) * points
        slopes = (_log_slope(raw) * weights).sum((1, 2))
        return super().entropy() + slopes + self._log_half_widths()

    # kl is inherited: both sides are squashed by the same function, which does not change KL.


class SquashedDeterministic(Bounded, Deterministic):
    """Tanh of the inputs, between bounds: the actor of DDPG and TD3. Lillicrap et al. 2016, arXiv:1509.02971."""

    def deterministic_sample(self) -> Tensor:
        """The actions `[N, *shape]`."""
        return self._unsquash(self.inputs.tanh())


def _log_slope(raw: Tensor) -> Tensor:
    """log(1 − tanh² u) = 2 (log 2 − u − softplus(−2u)), finite for every u.

    Torch's softplus of β = −2 is −½ softplus(−2u).
    """
    return torch.rsub(raw, math.log(2.0)).add(F.softplus(raw, beta=-2.0), alpha=2.0) * 2.0


@lru_cache(maxsize=8)
def _quadrature(device: torch.device) -> tuple[Tensor, Tensor]:
    """Points z and weights with E[f(z)] ≈ Σ w f(z) for a standard normal z."""
    points, weights = np.polynomial.hermite_e.hermegauss(QUADRATURE)
    with torch.inference_mode(False):
        nodes, shares = (torch.tensor(values, dtype=torch.float32, device=device) for values in (points, weights))
        return nodes, shares / shares.sum()
