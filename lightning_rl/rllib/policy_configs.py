"""What the policies of a trainer get of RLlib's keys."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import cache
from typing import Any

from lightning_rl.config import compose_config
from lightning_rl.errors import ConfigError, object_at
from lightning_rl.models.catalog import MODEL_DEFAULTS
from lightning_rl.rllib.keys import KNOWN, classic_keys, over_defaults, translate_keys
from lightning_rl.rllib.merge import merge_configs
from lightning_rl.rllib.multi_agent_keys import multi_agent_keys
from lightning_rl.rllib.replay_keys import ROW_COUNTS
from lightning_rl.rllib.torch_policy import RLlibMethods, TorchPolicy
from lightning_rl.runs.algorithm import policy_choice

__all__ = [
    "config_of_policy",
    "defaults_of",
    "plain_values",
    "takes_whole_config",
    "torch_policy",
    "translate_section",
]

NO_EXPLORATION = "lightning_rl.rllib.no_exploration:NoExploration"


def takes_whole_config(policy: type) -> bool:
    """Whether a policy's constructor is RLlib's (observation space, action space, config), which gets all keys."""
    parameters = inspect.signature(policy).parameters
    return list(parameters)[2:] == ["config"] and issubclass(policy, RLlibMethods)


def config_of_policy(
    defaults: Mapping[str, Any], given: Mapping[str, Any], keywords: Mapping[str, Any]
) -> dict[str, Any]:
    """The config of a policy whose constructor takes all keys.

    Args:
        defaults: its composed config.
        given: RLlib's keys.
        keywords: what they are as keywords of the algorithm's constructor; those that are counted in another way there,
            such as "minibatches", are in the config as well.
    """
    model = {name: value for name, value in defaults["model"].items() if name in MODEL_DEFAULTS}
    common = {"framework": "torch", "explore": True, "gamma": 0.99, "lr": 1e-4, "model": model}
    counts = {name: value for name, value in keywords.items() if name not in KNOWN}
    return plain_values(over_defaults({**common, **classic_keys(defaults), **counts}, given))


def translate_section(
    given: Mapping[str, Any], defaults: Mapping[str, Any], out: Mapping[str, Any], own_class: Any
) -> dict[str, Any]:
    """The section `multiagent` as changes to a composed config; {} without one.

    Args:
        given: RLlib's keys.
        defaults: the composed config of the trainer's policy.
        out: what the other keys are here.
        own_class: the trainer's policy class.

    Raises:
        ConfigError: a key or value that means nothing here.
    """

    def entry_of(policy_class: Any, config: Mapping[str, Any]) -> dict[str, Any]:
        if config.get("explore") is False:
            config = {**config, "exploration_config": {"type": NO_EXPLORATION}}
        elif config.get("explore") and given.get("explore") is False:
            raise ConfigError(
                "multiagent.policies: a policy has 'explore'=True, but the trainer has False: give the trainer True, "
                "and False to the policies that shall not explore"
            )
        base = defaults if policy_class is None else defaults_of(policy_class)
        if isinstance(policy_class, type) and takes_whole_config(policy_class):
            own = merge_configs({key: value for key, value in given.items() if key != "multiagent"}, config)
            changes = translate_keys({key: own[key] for key in own if key in KNOWN}, base, {})
            return {"config": config_of_policy(base, own, changes.get("policy", {}))}
        base = {**base, "workers": {**base["workers"], **out.get("workers", {})}}
        replays = "batch_size" in defaults["data"] and "batch_size" in base["data"]
        counts = {key: given[key] for key in ROW_COUNTS if key in given and replays}
        changes = translate_keys({**counts, **config}, base, {})
        parts = {name: changes[name] for name in ("model", "exploration", "data") if changes.get(name)}
        acts = own_class if policy_class is None else policy_class
        kept = {key: config[key] for key in ("explore", "sgd_minibatch_size") if key in config}
        own = {"config": kept} if kept and isinstance(acts, type) and issubclass(acts, TorchPolicy) else {}
        return {**changes.get("policy", {}), **parts, **own}

    return multi_agent_keys(given["multiagent"], entry_of, own_class) if given.get("multiagent") else {}


def plain_values(config: Mapping[str, Any]) -> dict[str, Any]:
    """The keys whose values a checkpoint may hold: no classes and functions."""

    def is_plain(value: Any) -> bool:
        if isinstance(value, Mapping | list | tuple):
            return all(map(is_plain, value.values() if isinstance(value, Mapping) else value))
        return isinstance(value, int | float | str | None)

    return {key: value for key, value in config.items() if is_plain(value)}


@cache
def torch_policy(option: str) -> type[TorchPolicy]:
    """The class of that option of `conf/policy`, with RLlib's methods, as `lightning_rl.rllib.PPOTorchPolicy`.

    Raises:
        ConfigError: there is none.
    """
    base = object_at(defaults_of(option)["policy"]["_target_"])
    spelled = option.replace("_", "")
    name = base.__name__ if base.__name__.lower() == spelled else spelled.upper()
    namespace = {"__module__": "lightning_rl.rllib", "__doc__": base.__doc__}
    return type(f"{name}TorchPolicy", (TorchPolicy, base), namespace)


def defaults_of(policy: Any) -> dict[str, Any]:
    """The config of a policy as it is shipped, without an experiment's tuned values.

    As in RLlib, policies that imitate learn from workers unless the key `input` names files. A class that takes all
    keys has those of the algorithm that it derives from.
    """
    if isinstance(policy, type) and takes_whole_config(policy):
        shipped = (each for each in policy.__mro__ if each.__module__.startswith("lightning_rl.policies."))
        policy = next((each for each in shipped if getattr(each, "has_loss", False)), policy)
    choices = [policy_choice(policy), "experiment=none", "logger=none"]
    found = compose_config(choices)
    return compose_config([*choices, "data=on_policy"]) if "rows_per_iteration" in found["data"] else found
