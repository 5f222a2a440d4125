"""RLlib's way of putting one config over another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["merge_configs"]

TYPED = ("exploration_config", "replay_buffer_config")  # sections whose keys belong to their `type`


def merge_configs(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of `changes` over those of `base`; sections (dicts) are merged key by key, and `base` stays as it is.

    An `exploration_config` or `replay_buffer_config` with another `type` replaces that of `base` whole.
    """
    merged = dict(base)
    for key, value in changes.items():
        section = merged.get(key)
        if isinstance(section, Mapping) and isinstance(value, Mapping):
            other_type = key in TYPED and value.get("type", section.get("type")) != section.get("type")
            merged[key] = dict(value) if other_type else merge_configs(section, value)
        else:
            merged[key] = value
    return merged
