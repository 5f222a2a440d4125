"""Classes with mixins, and dicts over dicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["add_mixins", "deep_update", "merge_dicts"]


def add_mixins(base: type, mixins: Sequence[type] | None) -> type:
    """A subclass of `base` whose methods those of the mixins override, the last mixin first."""
    for mixin in mixins or ():
        base = type(base.__name__, (mixin, base), {"__module__": base.__module__, "__qualname__": base.__qualname__})
    return base


def merge_dicts(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """A new dict with the entries of `under`, and those of `over` in their place; nested dicts are merged."""
    merged = dict(under)
    for key, value in over.items():
        nested = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = merge_dicts(merged[key], value) if nested else value
    return merged


def deep_update(original: dict[str, Any], new_dict: Mapping[str, Any], *_: Any, **__: Any) -> dict[str, Any]:
    """`merge_dicts`, in place; returns `original`."""
    original.update(merge_dicts(original, new_dict))
    return original
