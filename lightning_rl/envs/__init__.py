"""Environments: creation from an id, import path or registered name, checks, and vector environments."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lightning_rl.envs.creator import EnvCreator
    from lightning_rl.envs.registry import EnvContext, register_env

__all__ = ["EnvContext", "EnvCreator", "register_env"]

_HOMES = {"EnvContext": "registry", "EnvCreator": "creator", "register_env": "registry"}


def __getattr__(name: str) -> Any:
    """Import a name on first use, so that processes of an asynchronous vector environment import little."""
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
