"""The constructor is the schema: which keywords a class takes, of which types, read from its signature."""

from __future__ import annotations

import inspect
import types
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from lightning_rl.schedules import Share, is_share

__all__ = ["Keyword", "called", "fits", "keywords_of", "spelled"]

Keyword = inspect.Parameter


def keywords_of(target: Any) -> dict[str, Keyword]:
    """The keywords that a class or function takes, with their type hints resolved where that is possible.

    A constructor that ends in `**keywords` hands them to its base class, whose keywords follow, and so on.
    """
    found: dict[str, Keyword] = {}
    for function in _constructors(target):
        parameters = list(inspect.signature(function).parameters.values())
        hints = _hints(function)
        for parameter in parameters:
            if parameter.name != "self" and parameter.kind in (Keyword.POSITIONAL_OR_KEYWORD, Keyword.KEYWORD_ONLY):
                found.setdefault(parameter.name, parameter.replace(annotation=hints.get(parameter.name, Any)))
        if not any(parameter.kind == Keyword.VAR_KEYWORD for parameter in parameters):
            break
    return found


def _constructors(target: Any) -> list[Any]:
    if not isinstance(target, type):
        return [target]
    return [cls.__dict__["__init__"] for cls in target.__mro__ if "__init__" in cls.__dict__ and cls is not object]


def _hints(function: Any) -> dict[str, Any]:
    try:
        return get_type_hints(inspect.unwrap(function))
    except (NameError, TypeError):
        return {}  # names that are imported for type checkers only: nothing to compare with


def fits(value: Any, hint: Any) -> bool:
    """Whether a plain config value can be what the type hint says; True where the hint says nothing."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(fits(value, argument) for argument in arguments)
    if origin is Literal:
        return value in arguments
    if hint is None or hint is type(None):
        return value is None
    kind = origin or hint
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if kind in (str, bool):
        return isinstance(value, kind)
    if kind is Share:
        return is_share(value)
    if kind in (list, tuple, Sequence):
        # A string is a sequence too, but never what a list keyword means.
        inner = next((argument for argument in arguments if argument is not Ellipsis), Any)
        return isinstance(value, list | tuple) and all(fits(entry, inner) for entry in value)
    return isinstance(value, kind) if isinstance(kind, type) and kind is not Any else True


WORDS = {
    float: "number",
    int: "integer",
    str: "text",
    bool: "true or false",
    Share: "a share of the run such as 10%",
    type(None): "null",
    list: "list",
    tuple: "list",
    Sequence: "list",
    dict: "mapping",
    Mapping: "mapping",
}


def spelled(hint: Any) -> str:
    """A type hint in the words of a config, as "number or list"; classes that no config can write are left out."""
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(word for argument in get_args(hint) if (word := spelled(argument))))
    if get_origin(hint) is Literal:
        return " or ".join(repr(argument) for argument in get_args(hint))
    return WORDS.get(get_origin(hint) or hint, "")


def called(function: Any, *arguments: Any) -> Any:
    """What a user's function returns, given as many of the arguments as it takes."""
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return function(*arguments)
    taken = sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)
    return function(*arguments[:taken])
