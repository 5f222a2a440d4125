"""What an error says about a config: the key and the value, which tests compare instead of its words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
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


def not_refused(
    call: Callable[..., Any], cases: Iterable[tuple[Any, ...]], error: Any = ConfigError
) -> list[tuple[Any, ...]]:
    """The cases in which a call raises no error, or one that does not name what it should; each with what was said.

    Args:
        call: takes the arguments of a case.
        cases: the arguments, and last a pattern of what the message names.
        error: the types of the error.
    """
    wrong: list[tuple[Any, ...]] = []
    for *arguments, pattern in cases:
        try:
            call(*arguments)
        except error as refusal:
            if not re.search(pattern, str(refusal)):
                wrong.append((*arguments, pattern, str(refusal)))
        else:
            wrong.append((*arguments, pattern, "no error"))
    return wrong
