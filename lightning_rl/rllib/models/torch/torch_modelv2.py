"""Bases for models and action distributions that were written for RLlib."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from gymnasium import Space
from torch import Tensor

from lightning_rl.errors import ConfigError
from lightning_rl.models.distributions import ActionDistribution
from lightning_rl.models.model import Model
from lightning_rl.models.preprocessors import make_preprocessor

__all__ = ["ClassicActionDistribution", "TorchModelV2"]


class TorchModelV2:
    """All of a `Model` but the module: mixed with `nn.Module` in either order, both constructors called by the class.

    Args:
        obs_space, action_space: of one environment.
        num_outputs: width of the outputs.
        model_config: the whole of it.
        name: that it was registered under.
    """

    def __init__(
        self,
        obs_space: Space[Any],
        action_space: Space[Any],
        num_outputs: int,
        model_config: Mapping[str, Any],
        name: str,
    ) -> None:
        self.obs_space, self.action_space, self.num_outputs = obs_space, action_space, num_outputs
        self.model_config, self.name, self.preprocessor = model_config, name, make_preprocessor(obs_space)


for _name, _member in vars(Model).items():  # every default of a model, those that will be added among them
    if not _name.startswith("_"):
        setattr(TorchModelV2, _name, _member)


class ClassicActionDistribution(ActionDistribution):
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
