"""RLlib's section `multiagent` as the keys of several agents of this package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lightning_rl.errors import ConfigError, did_you_mean, short_repr

__all__ = ["multi_agent_keys"]

SECTION = ("policies", "policy_mapping_fn", "policies_to_train", "count_steps_by", "replay_mode")
NO_EFFECT = ("policy_map_capacity", "policy_map_cache", "observation_fn")

Translate = Callable[[Any, Mapping[str, Any]], Mapping[str, Any]]


def multi_agent_keys(section: Mapping[str, Any], translate: Translate) -> dict[str, Any]:
    """The section as changes to a composed config.

    The spaces of a policy are those of its agents in the environment: those of its tuple are not needed.

    Args:
        section: `multiagent` of RLlib's config: policies `{id: (class, observation space, action space, config)}`
            (`None` for the trainer's own class; a list of ids takes it for all), policy_mapping_fn, policies_to_train,
            count_steps_by.
        translate: a policy's class or `None`, and RLlib's keys of its config → the entry's keys.

    Raises:
        ConfigError: a key has no meaning here, or a policy is described by something else.
    """
    for key, value in section.items():
        if key not in SECTION and (key not in NO_EFFECT or value is not None):
            raise ConfigError(
                f"multiagent has no key {key!r} here.{did_you_mean(key, SECTION)} Keys: {', '.join(SECTION)}"
            )
    given = section.get("policies") or {}
    given = given if isinstance(given, Mapping) else dict.fromkeys(given)
    out: dict[str, Any] = {"policies": {str(name): _entry(str(name), spec, translate) for name, spec in given.items()}}
    if section.get("policy_mapping_fn") is not None:
        out["policy_mapping"] = section["policy_mapping_fn"]
    if section.get("policies_to_train") is not None:
        out["policies_to_train"] = [str(name) for name in section["policies_to_train"]]
    if section.get("count_steps_by") is not None:
        out["count_steps_by"] = section["count_steps_by"]
    return out


def _entry(name: str, spec: Any, translate: Translate) -> dict[str, Any]:
    policy_class: Any = None
    config: Any = {}
    if spec is None:
        pass
    elif isinstance(spec, tuple) and len(spec) == 4:
        policy_class, _, _, config = spec
    elif isinstance(spec, type):
        policy_class = spec
    elif {"policy_class", "config"} <= set(dir(spec)):  # RLlib's PolicySpec, or an object like it
        policy_class, config = getattr(spec, "policy_class", None), getattr(spec, "config", None)
    else:
        raise ConfigError(
            f"multiagent.policies[{name!r}]={short_repr(spec)}; expected (class or None, observation space, action "
            "space, config)"
        )
    entry = dict(translate(policy_class, config or {}))
    return entry if policy_class is None else {"policy": policy_class, **entry}
