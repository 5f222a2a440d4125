"""Completes the entries of `policies`, one policy of several agents each, to whole configs of policies."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lightning_rl.config.compose import compose_config, store_policy
from lightning_rl.config.groups import is_path
from lightning_rl.config.keys import merged
from lightning_rl.errors import ConfigError, import_object, import_path, short_repr

__all__ = ["complete_policies"]

RANDOM = "lightning_rl.policies.RandomPolicy"
SCRIPTED = "lightning_rl.policies.ScriptedPolicy"
OFFLINE = "lightning_rl.data.offline.source:OfflineSource"

Compose = Callable[[Sequence[str]], dict[str, Any]]


def complete_policies(config: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The entries of `policies`, each with the class and all keys of its policy.

    An entry without `policy` is the run's own policy; one with a name is that algorithm with its own defaults
    file, its model, exploration and data included. Other keys of the entry replace those. Entries that are complete
    already stay as they are.

    Args:
        config: composed, as plain containers.

    Raises:
        ConfigError: an entry is not a mapping, or names no policy.
    """
    return {str(name): _complete(str(name), entry, config) for name, entry in config["policies"].items()}


def _complete(name: str, entry: Any, config: Mapping[str, Any]) -> dict[str, Any]:
    key = f"policies.{name}"
    if entry is None or isinstance(entry, str | type):
        entry = {} if entry is None else {"policy": entry}
    if not isinstance(entry, Mapping):
        raise ConfigError(f"{key}={short_repr(entry)}; expected {{policy: a name or import path, **its keys}}")
    if "_target_" in entry or "checkpoint" in entry:
        return dict(entry)
    changes = {own: value for own, value in entry.items() if own != "policy"}
    chosen = entry.get("policy")
    if chosen is None:
        base = {**copy.deepcopy(dict(config["policy"])), "data": copy.deepcopy(dict(config["data"]))}
    elif chosen == "random":
        base = {"_target_": RANDOM}
    else:
        base = _defaults_of(f"{key}.policy", chosen, config)
    base.pop("seed", None)  # each policy derives its own
    return merged(base, changes)


def _defaults_of(key: str, chosen: Any, config: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a policy by its own file, or by its constructor; a function acts as it says and learns nothing."""
    named = chosen
    if isinstance(chosen, type):
        named = import_path(chosen)
        store_policy(named, chosen)
    elif callable(chosen) or (is_path(str(chosen)) and not isinstance(import_object(chosen), type)):
        return {"_target_": SCRIPTED, "function": chosen}
    choices = [f"policy='{named}'", "env=custom", "env.id=given", "experiment=none", "logger=none"]
    if config["data"].get("_target_") == OFFLINE:  # nothing acts, so that no policy has another source
        choices.append("data=offline")
    try:
        composed = compose_config(choices)
    except ConfigError as error:
        raise ConfigError(f"{key}={short_repr(chosen)}: {error}", key=key, value=chosen) from error
    target = chosen if isinstance(chosen, type) else composed["policy"]["_target_"]
    return {**composed["policy"], "_target_": target, "data": composed["data"]}
