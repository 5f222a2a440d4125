"""Joins the infos of several environments, whatever these put into them."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["add_info", "info_of", "join_infos", "sendable"]

NUMBERS = (float, int, bool, np.number, np.bool_)
PLAIN = (*NUMBERS, str, bytes, type(None))


def add_info(infos: dict[int, Any], info: Mapping[Any, Any] | None, env: int) -> dict[int, Any]:
    """Add what an environment gave to its info of this step; `None` is an empty info."""
    if info:
        infos[env] = {**infos[env], **info} if env in infos else info
    return infos


def join_infos(infos: Mapping[Any, Mapping[Any, Any]], num_envs: int) -> dict[Any, Any]:
    """The infos of a step in Gymnasium's form: "key" → a value of each environment, "_key" → which ones gave it.

    Dicts are joined in the same way. Values that no array of numbers holds as they are, such as paths of different
    lengths, stand in an array of objects; Gymnasium's own join raises an error there, or changes them.

    Args:
        infos: index of an environment → its info; those without one may be left out.
        num_envs: how many environments there are.
    """
    by_key: dict[Any, dict[int, Any]] = {}
    for env, info in infos.items():
        for key, value in info.items():
            by_key.setdefault(key, {})[env] = value
    joined: dict[Any, Any] = {}
    for key, values in by_key.items():
        kinds = {type(value) for value in values.values()}
        if kinds == {dict} and key != "final_obs":
            joined[key] = join_infos(values, num_envs)
        else:
            joined[key] = column = _empty_column(key, [*values.values()], kinds, num_envs)
            for env, value in values.items():
                column[env] = value
        joined[f"_{key}"] = given = np.zeros(num_envs, dtype=bool)
        for env in values:
            given[env] = True
    return joined


def info_of(info: Mapping[str, Any], env: int) -> dict[str, Any]:
    """The info of one environment, of Gymnasium's info of a vector of them."""
    found: dict[str, Any] = {}
    for name, values in info.items():
        given = info.get(f"_{name}")
        if name.startswith("_") and name.removeprefix("_") in info:
            continue
        if given is None or given[env]:
            found[name] = info_of(values, env) if isinstance(values, dict) else values[env]
    return found


def _empty_column(key: Any, values: Sequence[Any], kinds: set[type], num_envs: int) -> np.ndarray:
    """An array of numbers if they are all numbers, or arrays of one shape and dtype; else one of objects."""
    if key == "final_obs":  # Gymnasium keeps these apart: they may be nested
        return np.full(num_envs, None, dtype=object)
    if kinds == {np.ndarray}:
        first = values[0]
        if all(value.shape == first.shape and value.dtype == first.dtype for value in values):
            return np.zeros((num_envs, *first.shape), dtype=first.dtype)
    elif all([issubclass(kind, NUMBERS) for kind in kinds]) and not (int in kinds and _are_large(values)):
        return np.zeros(num_envs, dtype=np.result_type(*kinds) if len(kinds) > 1 else next(iter(kinds)))
    return np.full(num_envs, None, dtype=object)


def _are_large(values: Sequence[Any]) -> bool:
    """Whether one of the numbers is too large for NumPy's integers."""
    return not all(-(2**63) <= value < 2**63 for value in values)


def sendable(info: Mapping[Any, Any] | None) -> dict[Any, Any]:
    """What another process can get of an info: all but the values that cannot be pickled."""
    return {key: value for key, value in (info or {}).items() if isinstance(value, PLAIN) or _can_be_pickled(value)}


def _can_be_pickled(value: Any) -> bool:
    if isinstance(value, np.ndarray) and value.dtype != object:
        return True
    try:
        pickle.dumps(value)
    except Exception:  # pickling calls the value's own code
        return False
    return True
