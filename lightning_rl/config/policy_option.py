"""Builds the config option of a policy class without a YAML file, from its constructor's keywords and defaults."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

import yaml

from lightning_rl.config.constructors import FROM_ELSEWHERE, lists_for_tuples
from lightning_rl.config.groups import group_options
from lightning_rl.errors import import_object, import_path
from lightning_rl.schema.signatures import keywords_of

__all__ = ["policy_option", "space_arguments", "takes_config"]


def policy_option(policy_class: Any, shipped: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """A config node for the class: its own file, or that of its nearest base with the defaults that the class changes.

    A class that takes one `config` in place of its base's keywords has only the groups that the base's file chooses.

    Args:
        policy_class: a subclass of `Policy`.
        shipped: (name, YAML text) of the options of the group.
    """
    named: dict[Any, list[str]] = {}
    texts = dict(shipped)
    for name, text in texts.items():
        named.setdefault(import_object(yaml.safe_load(text).get("_target_", "builtins.object")), []).append(name)
    base = next((each for each in policy_class.__mro__[:-1] if each in named), None)
    if base is None:
        data = policy_class.data
        workers = data if data in group_options("workers") else "default"
        defaults: list[Any] = [{_override("data"): data}, {_override("workers"): workers}]
    else:
        name = _option_of(base, named[base])
        only_config = keywords_of(policy_class).keys() - space_arguments(policy_class) == {"config"}
        overrides = [entry for entry in yaml.safe_load(texts[name]).get("defaults", []) if isinstance(entry, dict)]
        defaults = overrides if only_config else [name, "_self_"]
    in_file = {} if base is None else keywords_of(base)  # its defaults, over which the file's values go
    node: dict[str, Any] = {"defaults": defaults, "_target_": import_path(policy_class)}
    for name, keyword in keywords_of(policy_class).items():
        if name in space_arguments(policy_class) or (name in in_file and in_file[name].default == keyword.default):
            continue
        if name == "config":
            node[name] = dict(keyword.default) if isinstance(keyword.default, dict) else {}
        elif keyword.default is inspect.Parameter.empty:
            node[name] = "???"
        elif _is_plain(keyword.default):
            node[name] = FROM_ELSEWHERE.get(name, lists_for_tuples(keyword.default))
    if not takes_config(policy_class):
        node.pop("config", None)
    return node


def _option_of(policy_class: type, names: Iterable[str]) -> str:
    """Of the options that build this class, the one of its name: ppo (not ddppo) for PPO; if there is none, the first.

    A name may be shorter than the class's: apex, for ApexDQN.
    """
    spelled = policy_class.__name__.lower()
    return max(names, key=lambda name: len(name) if spelled.startswith(name.replace("_", "").lower()) else 0)


def _override(group: str) -> str:
    return f"override /{group}@_global_.{group}"


def space_arguments(policy_class: Any) -> set[str]:
    """Names of the constructor's arguments that are spaces: the first two, and those of `Policy`."""
    places = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    named = [name for name, each in inspect.signature(policy_class).parameters.items() if each.kind in places]
    return {"observation_space", "action_space", *named[:2]}


def takes_config(policy_class: Any) -> bool:
    """Whether a policy's constructor does something with `config`: one written from scratch, or made of functions."""
    from lightning_rl.policies.policy import Policy

    return "config" in inspect.signature(policy_class).parameters and policy_class.__init__ is not Policy.__init__


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(child) for key, child in value.items())
    return value is None or isinstance(value, bool | int | float | str)
