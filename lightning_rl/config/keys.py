"""Dotted keys of nested mappings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["dotted_keys", "plain_keys", "value_at"]


def value_at(config: Mapping[str, Any], name: str) -> Any:
    """The value at a dotted key; `None` if there is none."""
    value: Any = config
    for key in name.split("."):
        if not isinstance(value, Mapping) or key not in value:
            return None
        value = value[key]
    return value


def dotted_keys(config: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """All dotted keys of nested mappings."""
    for key, value in config.items():
        yield f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from dotted_keys(value, f"{prefix}{key}.")


def plain_keys(container: Any) -> dict[str, Any]:
    """A mapping from OmegaConf with its keys as text, for the type checker."""
    return {str(key): value for key, value in container.items()}
