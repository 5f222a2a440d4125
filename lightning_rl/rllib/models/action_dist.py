"""RLlib's base of action distributions, and its tuples of actions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from lightning_rl.errors import ConfigError
from lightning_rl.models import distributions

__all__ = ["ActionDistribution", "TupleActions"]


class ActionDistribution(distributions.ActionDistribution):
    """A base for classes that define only `sample`, `logp` and `entropy`; other methods raise an error that says so."""

    last_sample: Any = None

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Remember what is sampled."""
        super().__init_subclass__(**keywords)
        for name in {"sample", "deterministic_sample"} & set(vars(cls)):
            setattr(cls, name, _keep_last_sample(vars(cls)[name]))

    def deterministic_sample(self) -> Any:
        """Needed for `explore=False`.

        Raises:
            ConfigError: always; a class that acts greedily defines it.
        """
        raise ConfigError(
            f"{type(self).__name__} does not define deterministic_sample(), which explore=False (evaluation) needs"
        )

    def sampled_action_logp(self) -> Tensor:
        """Of what was sampled last, `[N]`."""
        return self.logp(self.last_sample)

    def kl(self, other: Any) -> Tensor:
        """Needed for a KL penalty.

        Raises:
            ConfigError: always; a class for such algorithms defines it.
        """
        raise ConfigError(f"{type(self).__name__} does not define kl(other), which a KL penalty needs")


def _keep_last_sample(sample: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(sample)
    def sample_and_keep(self: Any, *arguments: Any) -> Any:
        self.last_sample = sample(self, *arguments)
        return self.last_sample

    return sample_and_keep


def TupleActions(batches: Sequence[Tensor]) -> tuple[Tensor, ...]:  # noqa: N802
    """The components `[N, …]` of sampled actions of a Tuple space, which are a plain tuple here."""
    return tuple(batches)
