"""Exploration strategies: how an action distribution becomes actions while training. One file per strategy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gymnasium import Space

from lightning_rl.errors import ConfigError, did_you_mean, import_object
from lightning_rl.exploration.exploration import Exploration
from lightning_rl.exploration.random import Random
from lightning_rl.exploration.stochastic_sampling import StochasticSampling

__all__ = ["Exploration", "Random", "StochasticSampling", "make_exploration"]

STRATEGIES: dict[str, type[Exploration]] = {"stochastic_sampling": StochasticSampling, "random": Random}


def make_exploration(exploration: Mapping[str, Any] | None, action_space: Space[Any]) -> Exploration:
    """The strategy that a config names.

    Args:
        exploration: `{type: name, import path or class, **keywords}`; `None` samples from the action distribution.
        action_space: that the policy acts in (`ActionTransform.policy_space`).

    Raises:
        ConfigError: there is no such strategy, or it does not take these keywords.
    """
    keywords = dict(exploration or {})
    named = keywords.pop("type", "stochastic_sampling")
    strategy = _strategy(named)
    try:
        return strategy(action_space, **keywords)
    except TypeError as error:
        raise ConfigError(f"exploration.type={named!r} with {sorted(keywords)}: {error}") from error


def _strategy(named: Any) -> type[Exploration]:
    found = named
    if isinstance(named, str):
        # RLlib writes class names: StochasticSampling
        by_class = {cls.__name__: cls for cls in STRATEGIES.values()}
        found = STRATEGIES.get(named) or by_class.get(named)
        if found is None and "." not in named and ":" not in named:
            raise ConfigError(
                f"exploration.type={named!r} is neither one of {', '.join(STRATEGIES)} nor an import path "
                f"'package.module:Name'.{did_you_mean(named, [*STRATEGIES, *by_class])}"
            )
        found = found or import_object(named)
    if not (isinstance(found, type) and issubclass(found, Exploration)):
        raise ConfigError(
            f"exploration.type={named!r} is {found!r}; expected a subclass of lightning_rl.exploration.Exploration"
        )
    return found
