"""RLlib's decorators."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from lightning_rl.rllib.utils.deprecation import Deprecated

__all__ = ["Deprecated", "DeveloperAPI", "ExperimentalAPI", "PublicAPI", "override"]

Decorated = TypeVar("Decorated")


def override(cls: type) -> Callable[[Decorated], Decorated]:
    """Mark a method that overrides one of `cls`.

    Raises:
        NameError: `cls` has no method of that name.
    """

    def check(method: Decorated) -> Decorated:
        name = getattr(method, "__name__", "")
        if not hasattr(cls, name):
            raise NameError(f"{name} overrides no method of {cls.__name__}")
        return method

    return check


def PublicAPI(decorated: Decorated) -> Decorated:  # noqa: N802
    """The same object."""
    return decorated


DeveloperAPI = ExperimentalAPI = PublicAPI
