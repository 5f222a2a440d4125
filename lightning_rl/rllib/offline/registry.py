"""Functions that make readers, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lightning_rl.rllib.offline.input_reader import InputReader

__all__ = ["register_input", "registered_input"]

CREATORS: dict[str, Callable[[Any], InputReader]] = {}


def register_input(name: str, input_creator: Callable[[Any], InputReader]) -> None:
    """Let `input=name` stand for the function `context -> InputReader`."""
    CREATORS[name] = input_creator


def registered_input(name: Any) -> Callable[[Any], InputReader] | None:
    """The function of that name; `None` if there is none."""
    return CREATORS.get(name) if isinstance(name, str) else None
