"""Linear layers with learned noise on their weights, by which a network explores (NoisyNet)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["NoisyLinear", "resample_noise", "with_noise"]


class NoisyLinear(nn.Module):
    """y = (μ_w + σ_w ⊙ f(ε_out) f(ε_in)ᵀ) x + μ_b + σ_b ⊙ f(ε_out), with f(ε) = sign(ε) √|ε| and ε ~ N(0, 1).

    Fortunato et al. 2018, arXiv:1706.10295, eq. 9 to 11 (factorised noise). The noise is drawn when the layer is
    created
    and by `resample`, never by `forward`: a loss and its targets use the same network. In eval mode only the means are
    used, except inside `with_noise`.

    Args:
        in_features: width of the input.
        out_features: width of the output.
        bias: whether the layer has a bias.
        sigma: σ₀; σ starts at σ₀ / √in_features.
    """

    noise_in: Tensor
    noise_out: Tensor

    def __init__(self, in_features: int, out_features: int, bias: bool = True, sigma: float = 0.5) -> None:
        super().__init__()
        self.in_features, self.out_features, self.sigma = in_features, out_features, sigma
        self.weight_mean = nn.Parameter(torch.empty(out_features, in_features))
        self.weight_sigma = nn.Parameter(torch.empty(out_features, in_features))
        self.bias_mean = nn.Parameter(torch.empty(out_features)) if bias else None
        self.bias_sigma = nn.Parameter(torch.empty(out_features)) if bias else None
        # Not part of the weights: an actor that receives the learner's weights keeps its own noise.
        self.register_buffer("noise_in", torch.empty(in_features), persistent=False)
        self.register_buffer("noise_out", torch.empty(out_features), persistent=False)
        self.noisy_in_eval = False
        self.reset_parameters()
        self.resample()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Set initial values: μ uniform within ± 1/√in_features, σ = σ₀/√in_features."""
        bound = 1.0 / math.sqrt(self.in_features)
        for mean in (self.weight_mean, self.bias_mean):
            if mean is not None:
                mean.uniform_(-bound, bound)
        for sigma in (self.weight_sigma, self.bias_sigma):
            if sigma is not None:
                sigma.fill_(self.sigma * bound)

    @torch.no_grad()
    def resample(self, generator: torch.Generator | None = None) -> None:
        """Draw new noise: first for the inputs, then for the outputs.

        Args:
            generator: on the layer's device; `None` draws from the global one.
        """
        for noise in (self.noise_in, self.noise_out):
            noise.normal_(generator=generator)
            noise.copy_(noise.sign() * noise.abs().sqrt())

    def forward(self, x: Tensor) -> Tensor:
        """`[N, in_features]` → `[N, out_features]`."""
        if not (self.training or self.noisy_in_eval):
            return F.linear(x, self.weight_mean, self.bias_mean)
        weight = self.weight_mean + self.weight_sigma * torch.outer(self.noise_out, self.noise_in)
        if self.bias_mean is None or self.bias_sigma is None:
            return F.linear(x, weight)
        return F.linear(x, weight, self.bias_mean + self.bias_sigma * self.noise_out)

    def extra_repr(self) -> str:
        """Sizes, for `print`."""
        return f"{self.in_features}, {self.out_features}, bias={self.bias_mean is not None}, sigma={self.sigma}"


def resample_noise(module: nn.Module, generator: torch.Generator | None = None) -> None:
    """Draw new noise for every `NoisyLinear` in `module`, in the order of its modules."""
    for layer in module.modules():
        if isinstance(layer, NoisyLinear):
            layer.resample(generator)


@contextmanager
def with_noise(module: nn.Module) -> Iterator[None]:
    """Context in which noise is also used in eval mode, in which policies act."""
    layers = [layer for layer in module.modules() if isinstance(layer, NoisyLinear)]
    before = [layer.noisy_in_eval for layer in layers]
    for layer in layers:
        layer.noisy_in_eval = True
    try:
        yield
    finally:
        for layer, was in zip(layers, before, strict=True):
            layer.noisy_in_eval = was
