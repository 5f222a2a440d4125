"""Batch normalization, and batch renormalization, of a layer's inputs or outputs."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["BatchNorm", "NormPlace"]

NormPlace = Literal["before", "after"]  # of a hidden layer's activation
MOMENTUM = 0.01  # of the running statistics
EPS = 1e-3
MAX_RATIO, MAX_SHIFT = 3.0, 5.0  # r_max and d_max of batch renormalization


class BatchNorm(nn.Module):
    """Batch normalization, Ioffe and Szegedy 2015, arXiv:1502.03167; or renormalization, Ioffe 2017, arXiv:1702.03275.

    Train mode normalizes by the statistics of the batch (of each rank's own) and updates the running ones; eval mode
    uses the running ones.

    Args:
        width: width W of the input.

    Attributes:
        renormalizes: whether train mode corrects its output towards that of the running statistics.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.renormalizes = False
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.register_buffer("running_mean", torch.zeros(width))
        self.register_buffer("running_var", torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """`[N, W]` → `[N, W]`."""
        if not self.training:
            scale = self.weight * (self.running_var + EPS).rsqrt()
            return torch.addcmul(self.bias - self.running_mean * scale, x, scale)
        x, weight, bias = x.float(), self.weight, self.bias
        if self.renormalizes:
            ratio, shift = self.corrections(x)
            weight, bias = weight * ratio, bias + weight * shift
        return F.batch_norm(x, self.running_mean, self.running_var, weight, bias, True, MOMENTUM, EPS)

    @torch.no_grad()
    def corrections(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The factor r = σ_batch / σ and shift d = (μ_batch − μ) / σ, clipped, of (x − μ_batch) / σ_batch · r + d."""
        mean, var = torch.zeros_like(self.running_mean), torch.zeros_like(self.running_var)
        F.batch_norm(x, mean, var, training=True, momentum=1.0)  # stores the batch's, ten times as fast as `var_mean`
        deviation = (self.running_var + EPS).sqrt()
        ratio, shift = (var + EPS).sqrt() / deviation, (mean - self.running_mean) / deviation
        return ratio.clamp(1 / MAX_RATIO, MAX_RATIO), shift.clamp(-MAX_SHIFT, MAX_SHIFT)
