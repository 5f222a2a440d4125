"""Builds exploration strategies from a config."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from gymnasium import Space

from lightning_rl.errors import ConfigError, did_you_mean, import_object, short_repr
from lightning_rl.exploration.exploration import Exploration
from lightning_rl.schema.signatures import ImportPath, coerce, keywords_of

__all__ = ["SPACES", "STRATEGIES", "make_exploration", "strategy_class"]

ROOM = "lightning_rl.exploration"
STRATEGIES: dict[str, str] = {
    "stochastic_sampling": f"{ROOM}.stochastic_sampling:StochasticSampling",
    "random": f"{ROOM}.random:Random",
    "epsilon_greedy": f"{ROOM}.epsilon_greedy:EpsilonGreedy",
    "per_worker_epsilon_greedy": f"{ROOM}.per_worker:PerWorkerEpsilonGreedy",
    "soft_q": f"{ROOM}.soft_q:SoftQ",
    "gaussian_noise": f"{ROOM}.gaussian_noise:GaussianNoise",
    "per_worker_gaussian_noise": f"{ROOM}.per_worker:PerWorkerGaussianNoise",
    "ornstein_uhlenbeck_noise": f"{ROOM}.ornstein_uhlenbeck_noise:OrnsteinUhlenbeckNoise",
    "group_noise": f"{ROOM}.group_noise:GroupNoise",
    "gsde": f"{ROOM}.gsde:GSDE",
    "noisy_network": f"{ROOM}.noisy_network:NoisyNetwork",
    "parameter_noise": f"{ROOM}.parameter_noise:ParameterNoise",
    "curiosity": f"{ROOM}.curiosity:Curiosity",
    "rnd": f"{ROOM}.rnd:RND",
}
SPACES = ("action_space", "observation_space")  # arguments that do not come from a config


def make_exploration(
    exploration: Mapping[str, Any] | None, action_space: Space[Any], observation_space: Space[Any] | None = None
) -> Exploration:
    """Build the strategy that a config describes.

    Args:
        exploration: `{type: name, import path or class, **keywords}`; `None` samples from the action distribution.
        action_space: that the policy acts in (`ActionTransform.policy_space`).
        observation_space: the observation space of one environment, for strategies that ask for it.

    Raises:
        ConfigError: there is no such strategy, or it does not take these keywords.
        UnsupportedSpaceError: it does not take these actions.
    """
    keywords = dict(exploration or {})
    named = keywords.pop("type", "stochastic_sampling")
    strategy = strategy_class(named)
    taken = keywords_of(strategy)
    for key in keywords:
        if key in SPACES or (key not in taken and not _takes_all(strategy)):
            known = [name for name in taken if name not in SPACES]
            raise ConfigError(
                f"exploration.type={named!r} has no key {key!r}.{did_you_mean(key, known)} "
                f"Its keys: {', '.join(known) or 'none'}"
            )
    if "observation_space" in taken:
        if observation_space is None and taken["observation_space"].default is inspect.Parameter.empty:
            raise ConfigError(f"exploration.type={named!r} judges observations: pass observation_space")
        keywords["observation_space"] = observation_space
    try:
        inspect.signature(strategy).bind(action_space, **keywords)
    except TypeError as error:
        raise ConfigError(f"exploration.type={named!r} with {sorted(keywords)}: {error}") from error
    return strategy(action_space, **keywords)


def strategy_class(named: Any, key: str = "exploration") -> type[Exploration]:
    """The class for a name ("epsilon_greedy", or RLlib's "EpsilonGreedy"), an import path, or the class itself.

    Args:
        named: one of these.
        key: the key of the config section, for messages.

    Raises:
        ConfigError: there is no such strategy.
    """
    found = named
    if isinstance(named, str):
        by_class = {path.partition(":")[2]: path for path in STRATEGIES.values()}
        path = STRATEGIES.get(named) or by_class.get(named) or named
        if path == named and "." not in named and ":" not in named:
            raise ConfigError(
                f"{key}.type={short_repr(named)} is neither one of {', '.join(STRATEGIES)} nor an import path "
                f"'package.module:Name'.{did_you_mean(named[:100], [*STRATEGIES, *by_class])}"
            )
        coerce(f"{key}.type", path, ImportPath)
        found = import_object(path)
    if not (isinstance(found, type) and issubclass(found, Exploration)):
        raise ConfigError(
            f"{key}.type={short_repr(named)} is {short_repr(found)}; expected a subclass of "
            "lightning_rl.exploration.Exploration"
        )
    return found


def _takes_all(strategy: type[Exploration]) -> bool:
    """Whether the constructor takes any keyword without passing it to this package's base class."""
    parameters = inspect.signature(strategy).parameters.values()
    return any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters)
