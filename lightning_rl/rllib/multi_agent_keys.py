"""RLlib's section `multiagent` as the keys of several agents of this package."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from lightning_rl.errors import ConfigError, did_you_mean, short_repr
from lightning_rl.schema.signatures import call_with_accepted_args
from lightning_rl.spaces import space_difference

__all__ = ["PolicySpec", "check_policy_spaces", "multi_agent_keys", "policy_classes"]

SECTION = ("policies", "policy_mapping_fn", "policies_to_train", "count_steps_by", "replay_mode")
NO_EFFECT = ("policy_map_capacity", "policy_map_cache", "observation_fn")


class PolicySpec(NamedTuple):
    """A policy of the section `multiagent`, as RLlib's class of that name; `None`: what trainer and environment say."""

    policy_class: Any = None
    observation_space: Any = None
    action_space: Any = None
    config: Any = None


Translate = Callable[[Any, Mapping[str, Any]], Mapping[str, Any]]


def multi_agent_keys(section: Mapping[str, Any], translate: Translate, own_class: Any = None) -> dict[str, Any]:
    """The section as changes to a composed config.

    The spaces of a policy are those of its agents in the environment: those of its tuple may be `None`.

    Args:
        section: `multiagent` of RLlib's config: policies `{id: (class, observation space, action space, config)}`
            (`None` for the trainer's own class; a list of ids takes it for all), policy_mapping_fn, policies_to_train
            (ids, or a function of an id and a batch, which is asked once for each id, with `None` as batch),
            count_steps_by.
        translate: a policy's class or `None`, and RLlib's keys of its config → the entry's keys.
        own_class: the trainer's policy class; a policy that names it has the trainer's keys, as with `None`.

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
    out: dict[str, Any] = {"policies": {}}
    for name, spec in given.items():
        policy_class, _, _, config = _unpack(str(name), spec)
        policy_class = None if policy_class is own_class else policy_class
        entry = dict(translate(policy_class, config or {}))
        out["policies"][str(name)] = entry if policy_class is None else {"policy": policy_class, **entry}
    if section.get("policy_mapping_fn") is not None:
        out["policy_mapping"] = section["policy_mapping_fn"]
    trained = section.get("policies_to_train")
    if callable(trained):
        if not given:
            raise ConfigError(
                f"multiagent.policies_to_train={short_repr(trained)} needs multiagent.policies: name them"
            )
        trained = [name for name in given if call_with_accepted_args(trained, name, None)]
    if trained is not None:
        out["policies_to_train"] = [str(name) for name in trained]
    if section.get("count_steps_by") is not None:
        out["count_steps_by"] = section["count_steps_by"]
    return out


def check_policy_spaces(section: Mapping[str, Any], policies: Mapping[str, Any]) -> None:
    """Check the spaces that the section gives to policies against those of their agents.

    Args:
        section: `multiagent`, as `multi_agent_keys` takes it.
        policies: id → the policy that was built.

    Raises:
        ConfigError: two differ; names the policy.
    """
    given = section.get("policies")
    for name, spec in given.items() if isinstance(given, Mapping) else ():
        _, *spaces, _ = _unpack(str(name), spec)
        for what, space in zip(("observation_space", "action_space"), spaces, strict=True):
            if space is not None and (difference := space_difference(space, getattr(policies[str(name)], what))):
                raise ConfigError(
                    f"multiagent.policies[{name!r}]: its {what} is not that of its agents: {difference}; give None, "
                    "which takes theirs"
                )


def policy_classes(section: Mapping[str, Any]) -> Iterator[type]:
    """The classes that the section `multiagent` names, in order."""
    given = section.get("policies")
    found = (_unpack(str(name), spec)[0] for name, spec in given.items()) if isinstance(given, Mapping) else ()
    return (each for each in found if each is not None)


def _unpack(name: str, spec: Any) -> tuple[Any, Any, Any, Any]:
    """Class, observation space, action space and config of a policy; `None` for what the trainer or the env decides."""
    if spec is None:
        return None, None, None, None
    if isinstance(spec, tuple) and len(spec) == 4:
        return spec
    if isinstance(spec, type):
        return spec, None, None, None
    if {"policy_class", "config"} <= set(dir(spec)):  # RLlib's PolicySpec, or an object like it
        names = ("policy_class", "observation_space", "action_space", "config")
        policy_class, observed, acted, config = (getattr(spec, name, None) for name in names)
        return policy_class, observed, acted, config
    raise ConfigError(
        f"multiagent.policies[{name!r}]={short_repr(spec)}; expected (class or None, observation space, action "
        "space, config)"
    )
