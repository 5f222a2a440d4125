"""What an error says about a config: the key and the value, which tests compare instead of its words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lightning_rl.errors import ConfigError


def refused(call: Callable[..., Any], *args: Any, **keywords: Any) -> tuple[str | None, Any] | None:
    """The key and the value for which a call is refused, in one line; `None` if it is not."""
    try:
        call(*args, **keywords)
    except ConfigError as error:
        assert "\n" not in str(error)
        return error.key, error.value
    return None


def refused_key(call: Callable[..., Any], *args: Any, **keywords: Any) -> str | None:
    """The key alone."""
    return (refused(call, *args, **keywords) or (None, None))[0]
