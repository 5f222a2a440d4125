"""Keys of nested mappings, written with dots."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

__all__ = ["dotted", "plain_keys", "unknown_key", "value_at"]


RENAMED = {  # what earlier versions called it → what it is now
    "evaluation.interval": "evaluation.every_env_steps, a number of env steps or a share of the run such as 5%",
    "data.iterations_per_epoch": "evaluation.every_env_steps: an epoch lasts until the next evaluation is due",
}


def unknown_key(section: str, key: str, known: Iterable[str]) -> str:
    """What to say about a key that a section does not have: its full name, the nearest one, and all."""
    prefix = f"{section}." if section else ""
    if prefix + key in RENAMED:
        return f"no key {prefix + key!r} any more: use {RENAMED[prefix + key]}"
    near = difflib.get_close_matches(key, list(known), n=1) or [name for name in known if key.startswith(name)]
    suggestion = f" Did you mean {prefix + near[0]!r}?" if near else ""
    return f"no key {prefix + key!r}.{suggestion} Keys{f' of {section}' if section else ''}: {', '.join(known)}"


def value_at(config: Mapping[str, Any], name: str) -> Any:
    """The value of a dotted key; `None` where there is none."""
    value: Any = config
    for key in name.split("."):
        if not isinstance(value, Mapping) or key not in value:
            return None
        value = value[key]
    return value


def dotted(config: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Every key of nested mappings, written with dots."""
    for key, value in config.items():
        yield f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from dotted(value, f"{prefix}{key}.")


def plain_keys(container: Any) -> dict[str, Any]:
    """A mapping from OmegaConf with what its keys are, text, said to the type checker."""
    return {str(key): value for key, value in container.items()}
