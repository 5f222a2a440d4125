"""Dotted keys of nested mappings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["dotted_keys", "merged", "place_of", "value_at"]


def value_at(config: Mapping[str, Any], name: str) -> Any:
    """The value at a dotted key; `None` if there is none."""
    value: Any = config
    for key in name.split("."):
        if not isinstance(value, Mapping) or key not in value:
            return None
        value = value[key]
    return value


def place_of(config: Mapping[str, Any]) -> Any:
    """Where a run learns: the environment's id or import path, or with `env=none` its data; `None` if unknown."""
    env = value_at(config, "env.id")
    return value_at(config, "data.input") if str(env).endswith(":NoEnv") else env


def dotted_keys(config: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """All dotted keys of nested mappings."""
    for key, value in config.items():
        yield f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from dotted_keys(value, f"{prefix}{key}.")


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Nested keys with changes put into them; a mapping changes a mapping key by key, unless it is of another `type`.

    Dicts and lists are new, around the same objects.
    """
    found = {key: copied(value) for key, value in base.items()}
    for key, value in changes.items():
        mine = found.get(key)
        if isinstance(value, Mapping) and isinstance(mine, dict) and value.get("type") in (None, mine.get("type")):
            found[key] = merged(mine, value)
        else:
            found[key] = copied(value)
    return found


def copied(value: Any) -> Any:
    """New dicts and lists around the same objects: a caller's callback is the one that is called."""
    if isinstance(value, dict):
        return {key: copied(child) for key, child in value.items()}
    return [copied(child) for child in value] if isinstance(value, list) else value
