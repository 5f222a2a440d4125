"""RLlib's base of action distributions, and its tuples of actions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from lightning_rl.models import distributions
from lightning_rl.sample_batch import SampleBatch, map_leaves

__all__ = ["ActionDistribution", "TupleActions"]

SAMPLES = 32  # of each row, where something is estimated


class ActionDistribution(distributions.ActionDistribution):
    """A base for classes in RLlib's form: `sample` and `logp` are enough, and the rest is estimated from samples.

    `logp(actions)` gets the actions of Dict and Tuple spaces as RLlib stores them: flat, `[N, A]`.
    """

    last_sample: Any = None

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Remember what is sampled, and flatten the actions that `logp` gets."""
        super().__init_subclass__(**keywords)
        for name in {"sample", "deterministic_sample"} & set(vars(cls)):
            setattr(cls, name, _keep_last_sample(vars(cls)[name]))
        if "logp" in vars(cls):
            cls.logp = _of_flat_actions(vars(cls)["logp"])  # type: ignore[method-assign]

    def deterministic_sample(self) -> Any:
        """The most likely of 32 samples of each row, which are the same in each call; a class may know a better way."""
        with _own_randomness():
            best = self.sample()
            highest = self.logp(best)
            for _ in range(SAMPLES - 1):
                other = self.sample()
                logp = self.logp(other)
                best = _where(logp > highest, other, best)
                highest = torch.maximum(logp, highest)
        self.last_sample = best
        return best

    def sampled_action_logp(self) -> Tensor:
        """Of what was sampled last, `[N]`."""
        return self.logp(self.last_sample)

    def entropy(self) -> Tensor:
        """The mean of −log π over 32 samples, `[N]`, without a gradient, which an entropy bonus would need."""
        with torch.no_grad(), _own_randomness():
            return -torch.stack([self.logp(self.sample()) for _ in range(SAMPLES)]).mean(0)

    def kl(self, other: Any) -> Tensor:
        """The mean of log π(a) − log π'(a) over 32 samples of this one, `[N]`; its gradient in π' is unbiased."""
        with _own_randomness():
            drawn = [self.sample() for _ in range(SAMPLES)]
        return torch.stack([self.logp(actions) - other.logp(actions) for actions in drawn]).mean(0)


def TupleActions(batches: Sequence[Tensor]) -> tuple[Tensor, ...]:  # noqa: N802
    """The components `[N, …]` of sampled actions of a Tuple space, which are a plain tuple here."""
    return tuple(batches)


@contextmanager
def _own_randomness() -> Iterator[None]:
    """A block whose random numbers are always the same, and change no others."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        yield


def _where(chosen: Tensor, then: Any, otherwise: Any) -> Any:
    if isinstance(then, tuple):
        return tuple(_where(chosen, *pair) for pair in zip(then, otherwise, strict=True))
    if isinstance(then, Mapping):
        return {name: _where(chosen, then[name], otherwise[name]) for name in then}
    return torch.where(chosen.view(-1, *[1] * (then.dim() - 1)), then, otherwise)


def _of_flat_actions(logp: Callable[..., Tensor]) -> Callable[..., Tensor]:
    @functools.wraps(logp)
    def logp_of_flat_actions(self: Any, actions: Any) -> Tensor:
        if isinstance(actions, SampleBatch | Mapping | tuple):
            parts: list[Tensor] = []
            map_leaves(lambda leaf: parts.append(leaf.reshape(len(leaf), -1)), actions)
            actions = torch.cat(parts, dim=1)
        return logp(self, actions)

    return logp_of_flat_actions


def _keep_last_sample(sample: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(sample)
    def sample_and_keep(self: Any, *arguments: Any) -> Any:
        self.last_sample = sample(self, *arguments)
        return self.last_sample

    return sample_and_keep
