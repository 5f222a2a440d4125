"""The configuration of a run: Hydra composes it, this package checks it as a whole and describes it to the user."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lightning_rl.config.check import check_config
    from lightning_rl.config.compose import compose_config

__all__ = ["check_config", "compose_config"]

_HOMES = {"check_config": "check", "compose_config": "compose"}


def __getattr__(name: str) -> Any:
    """Import a name on first use, so that code which only reads a config does not import Hydra."""
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
