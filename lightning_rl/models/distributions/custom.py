"""Adapts custom distributions in RLlib's form: `__init__(inputs, model)` and `sample()`, no mask, no generator."""

from __future__ import annotations

import inspect
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor

from lightning_rl.errors import UnsupportedSpaceError
from lightning_rl.models.distributions.base import ActionDistribution, DistFactory

__all__ = ["ClassicDistribution", "adapt"]


class ClassicDistribution(ActionDistribution):
    """Wraps a distribution in RLlib's form, so that it takes a generator and can be seeded.

    Its `sample()` draws from torch's global generators; around the call they are seeded from the explicit generator,
    and restored after it. So acting is reproducible and does not change other random streams.

    Args:
        inputs, model, mask: see `ActionDistribution`.
        factory: builds the distribution.
        takes_mask: whether `factory` is called with three arguments instead of two.
        takes_generator: whether its `sample` takes the generator.

    Raises:
        UnsupportedSpaceError: a mask is given, which the distribution does not take.
    """

    maskable = True

    def __init__(
        self,
        inputs: Tensor,
        model: Any = None,
        mask: Tensor | None = None,
        *,
        factory: DistFactory,
        takes_mask: bool,
        takes_generator: bool,
    ) -> None:
        super().__init__(inputs, model, mask)
        if mask is not None and not takes_mask:
            raise UnsupportedSpaceError(
                f"there is an action_mask, which {factory} does not take: let its __init__ be (inputs, model, mask)"
            )
        self.dist = factory(inputs, model, mask) if takes_mask else factory(inputs, model)
        self.takes_generator = takes_generator

    def sample(self, generator: torch.Generator | None = None) -> Any:
        """Actions `[N, …]`."""
        if self.takes_generator:
            return self.dist.sample(generator)
        device = self.inputs.device
        seed = int(torch.randint(2**62, (), generator=generator, device=device))
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.default_generator.manual_seed(seed)  # not torch.manual_seed, which costs 0.6 ms
            if device.type == "cuda":
                torch.cuda.manual_seed(seed)
            return self.dist.sample()

    def deterministic_sample(self) -> Any:
        """Calls the wrapped distribution, as all methods below do."""
        return self.dist.deterministic_sample()

    def logp(self, actions: Any) -> Tensor:
        """`[N]`."""
        return self.dist.logp(actions)

    def sampled_action_logp(self) -> Tensor:
        """`[N]`."""
        return self.dist.sampled_action_logp()

    def entropy(self) -> Tensor:
        """`[N]`."""
        return self.dist.entropy()

    def kl(self, other: Any) -> Tensor:
        """`[N]`."""
        return self.dist.kl(other.dist)


def adapt(dist_class: type[ActionDistribution], factory: DistFactory) -> DistFactory:
    """Adapt a factory of `dist_class.for_space` so that it takes `(inputs, model, mask)`, whatever its class takes."""
    takes_mask = _takes(dist_class.__init__, 4, "mask")
    takes_generator = _takes(dist_class.sample, 2, "generator")
    if takes_mask and takes_generator:
        return factory
    return partial(ClassicDistribution, factory=factory, takes_mask=takes_mask, takes_generator=takes_generator)


@lru_cache(maxsize=256)  # called at every step for random actions
def _takes(function: Any, positional: int, name: str) -> bool:
    """Whether a method takes that many positional arguments, including self, or a keyword of that name."""
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_POSITIONAL or parameter.name == name for parameter in parameters):
        return True
    return sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters) >= positional
