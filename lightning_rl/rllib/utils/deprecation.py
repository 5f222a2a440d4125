"""RLlib's mark of keys without meaning, and its warning of old names."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

__all__ = ["DEPRECATED_VALUE", "Deprecated", "deprecation_warning"]

DEPRECATED_VALUE = -1


def deprecation_warning(
    old: str, new: str | None = None, *, help: str | None = None, error: bool | type[Exception] | None = None
) -> None:
    """Warn of an old name.

    Args:
        old, new: the old name, and the one to use instead.
        help: what to do instead, if there is no new name.
        error: raise this error, or with True a DeprecationWarning, in place of the warning.
    """
    message = f"{old} is deprecated.{f' Use {new} instead.' if new else f' {help}' if help else ''}"
    if error:
        raise (DeprecationWarning if error is True else error)(message)
    warnings.warn(message, DeprecationWarning, stacklevel=2)


def Deprecated(  # noqa: N802
    old: str | None = None,
    *,
    new: str | None = None,
    help: str | None = None,
    error: bool | type[Exception] | None = None,
) -> Callable[[Any], Any]:
    """Mark a function or a class whose calls warn; the arguments are those of `deprecation_warning`."""

    def mark(decorated: Any) -> Any:
        called = decorated.__init__ if isinstance(decorated, type) else decorated

        @functools.wraps(called)
        def warn_and_call(*arguments: Any, **keywords: Any) -> Any:
            deprecation_warning(old or decorated.__name__, new, help=help, error=error)
            return called(*arguments, **keywords)

        if not isinstance(decorated, type):
            return warn_and_call
        decorated.__init__ = warn_and_call  # type: ignore[misc]
        return decorated

    return mark
