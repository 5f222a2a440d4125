"""Distributions over real vectors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import torch
from gymnasium import Space
from torch import Tensor

from lightning_rl.errors import UnsupportedSpaceError
from lightning_rl.models.distributions.base import ActionDistribution, DistFactory, require_sample
from lightning_rl.spaces import is_continuous

__all__ = ["Continuous", "Deterministic", "DiagGaussian"]

LOG_2PI = math.log(2 * math.pi)


class Continuous(ActionDistribution):
    """Base class of the distributions over float Boxes; a subclass defines `rsample`, `logp` and what follows from it.

    Args:
        inputs, model, mask: see `ActionDistribution`.
        shape: shape of an action; `None`: `(A,)`.
    """

    _last: Tensor | None = None

    def __init__(
        self, inputs: Tensor, model: Any = None, mask: Tensor | None = None, *, shape: Sequence[int] | None = None
    ) -> None:
        super().__init__(inputs, model, mask)
        self.shape = shape

    @staticmethod
    def required_model_output_shape(action_space: Space[Any], model_config: Mapping[str, Any] | None = None) -> int:
        """Two numbers per entry."""
        return 2 * math.prod(action_space.shape or ())

    @classmethod
    def for_space(cls, action_space: Space[Any]) -> DistFactory:
        """A factory with the shape of the space's actions, unless they are vectors."""
        return cls if len(action_space.shape or ()) == 1 else partial(cls, shape=action_space.shape)

    @classmethod
    def serves(cls, leaf: Space[Any]) -> bool:
        """True for float Boxes."""
        return is_continuous(leaf)

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """Actions `[N, *shape]`."""
        with torch.no_grad():
            return self.rsample(generator)

    def sampled_action_logp(self) -> Tensor:
        """Log density of the last sample, `[N]`."""
        return self.logp(require_sample(self._last))

    def _reshape(self, actions: Tensor) -> Tensor:
        return actions if self.shape is None else actions.view(actions.shape[0], *self.shape)


class DiagGaussian(Continuous):
    """Independent normal distributions; the inputs are A means and then the A logarithms of the deviations.

    Args:
        inputs, model, mask, shape: see `Continuous`; `model.log_std_clip` bounds the logarithms on both sides.
    """

    highest_log_std: ClassVar[float] = math.inf
    _noise: Tensor | None = None

    def __init__(
        self, inputs: Tensor, model: Any = None, mask: Tensor | None = None, *, shape: Sequence[int] | None = None
    ) -> None:
        super().__init__(inputs, model, mask, shape=shape)
        self.mean, log_std = inputs.chunk(2, dim=1)
        clip = getattr(model, "log_std_clip", 20.0)
        self.log_std = log_std.clamp(-clip, min(clip, self.highest_log_std))

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """Actions `[N, *shape]`; the gradient flows through them."""
        self._noise = torch.empty_like(self.mean).normal_(generator=generator)
        return self._reshape(torch.addcmul(self.mean, self.log_std.exp(), self._noise))

    def rsample(self, generator: torch.Generator | None = None) -> Tensor:
        """As `sample`."""
        return self.sample(generator)

    def sample_with(self, noise: Tensor) -> Tensor:
        """The actions `[N, *shape]` for given standard normal noise `[N, A]`: means plus deviations times noise."""
        self._noise = noise * (-self.log_std).exp()
        return self._reshape(self.mean + noise)

    def deterministic_sample(self) -> Tensor:
        """The means `[N, *shape]`."""
        self._noise = torch.zeros_like(self.mean)
        return self._reshape(self.mean)

    def _density(self, standardized: Tensor) -> Tensor:
        """−Σ (z²/2 + log σ + log(2π)/2), `[N]`."""
        exponent = torch.addcmul(self.log_std, standardized, standardized, value=0.5).sum(1)
        return -0.5 * LOG_2PI * standardized.shape[1] - exponent

    def logp(self, actions: Tensor) -> Tensor:
        """Log density, `[N]`, of `[N, *shape]`."""
        return self._density((actions.reshape(self.mean.shape) - self.mean) * (-self.log_std).exp())

    def sampled_action_logp(self) -> Tensor:
        """Log density of the last sample, `[N]`."""
        return self._density(require_sample(self._noise))

    def entropy(self) -> Tensor:
        """Σ (log σ + log(2πe)/2), `[N]`."""
        return self.log_std.sum(1) + 0.5 * (1.0 + LOG_2PI) * self.mean.shape[1]

    def kl(self, other: DiagGaussian) -> Tensor:
        """Σ (log σ₂/σ₁ + (σ₁² + (μ₁ − μ₂)²) / 2σ₂² − ½), `[N]`."""
        ratio = self.log_std - other.log_std
        distance = (self.mean - other.mean) * (-other.log_std).exp()
        return (0.5 * ((2.0 * ratio).exp() + distance.square()) - ratio - 0.5).sum(1)


class Deterministic(Continuous):
    """A point mass at the inputs, for algorithms that add noise to actions themselves (DDPG, TD3)."""

    @staticmethod
    def required_model_output_shape(action_space: Space[Any], model_config: Mapping[str, Any] | None = None) -> int:
        """One number per entry."""
        return math.prod(action_space.shape or ())

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """The actions `[N, *shape]`, with their gradient."""
        return self.deterministic_sample()

    rsample = sample

    def deterministic_sample(self) -> Tensor:
        """The actions `[N, *shape]`."""
        return self._reshape(self.inputs)

    def sampled_action_logp(self) -> Tensor:
        """Zeros `[N]`: there is one possible action."""
        return self.inputs.new_zeros(self.inputs.shape[0])

    def logp(self, actions: Any) -> Tensor:
        """Raises `UnsupportedSpaceError`, as do `entropy` and `kl`: a single point has no density."""
        raise UnsupportedSpaceError(
            "Deterministic has no density, entropy or KL, which this algorithm needs: use DiagGaussian"
        )

    def entropy(self) -> Tensor:
        """Raises `UnsupportedSpaceError`, as `logp`."""
        return self.logp(None)

    def kl(self, other: ActionDistribution) -> Tensor:
        """Raises `UnsupportedSpaceError`, as `logp`."""
        return self.logp(None)
