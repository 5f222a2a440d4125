"""Output layer for generalized state-dependent exploration (gSDE): the noise scale is a function of the features."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lightning_rl.fast_torch import lean_linear
from lightning_rl.models.layers import ActionHead
from lightning_rl.models.model import LastForward

__all__ = ["StateDependentHead"]

FLOOR = 1e-6  # added to the variance, so that the density exists for features of zero


class StateDependentHead(nn.Module):
    """Computes means and log σ(s) of a `DiagGaussian` over A actions; gSDE noise is θ · z(s) with θᵢⱼ ~ N(0, σᵢⱼ²).

    z are the features that the head reads, and σⱼ(s)² = Σᵢ zᵢ(s)² σᵢⱼ². Raffin, Kober & Stulp 2022, arXiv:2005.05719,
    section 3.

    Args:
        head: head of a `DiagGaussian` that this one replaces, with or without free log σ; the weights of its means are
            copied.
        log_std_init: initial log σᵢⱼ.
        full_std: use a σ for each feature and action, instead of one for each feature.
        use_expln: use σ = 1 + log(1 + x) instead of exp x for parameters x > 0, which grows more slowly.
        learn_features: whether the gradient of σ(s) reaches the features.

    Attributes:
        log_std: the parameters, `[L, A]`, or `[L, 1]` without `full_std`.
        last: features `[N, L]` of the last forward.
    """

    def __init__(
        self,
        head: ActionHead,
        *,
        log_std_init: float,
        full_std: bool = True,
        use_expln: bool = False,
        learn_features: bool = False,
    ) -> None:
        super().__init__()
        before = head.linear
        assert before is not None
        self.size = before.in_features
        self.actions = before.out_features // 2 if head.free is None else before.out_features
        self.mean = nn.Linear(self.size, self.actions)
        with torch.no_grad():
            self.mean.weight.copy_(before.weight[: self.actions])
            self.mean.bias.copy_(before.bias[: self.actions])
        self.log_std = nn.Parameter(torch.full((self.size, self.actions if full_std else 1), float(log_std_init)))
        self.use_expln, self.learn_features = use_expln, learn_features
        self.last = LastForward()

    def stddev(self) -> Tensor:
        """σᵢⱼ, `[L, A]` or `[L, 1]`."""
        if not self.use_expln:
            return self.log_std.exp()
        positive = self.log_std.clamp(min=0.0)
        return torch.where(self.log_std > 0, positive.log1p() + 1.0, (self.log_std - positive).exp())

    def forward(self, features: Tensor) -> Tensor:
        """`[N, L]` → means and log σ(s), `[N, 2 A]`."""
        self.last.features = features
        z = features if self.learn_features else features.detach()
        variance = z.square() @ self.stddev().square() + FLOOR
        log_std = 0.5 * variance.log()
        return torch.cat([lean_linear(self.mean, features), log_std.expand(-1, self.actions)], dim=1)

    def noise(self, standard: Tensor) -> Tensor:
        """Noise θ · z(s), `[N, A]`, for the features of the last forward, with θ = σ · `standard [N, L, A]`."""
        return torch.einsum("nl,nla->na", self.last.get(), self.stddev() * standard)
