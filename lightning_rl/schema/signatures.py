"""Reads from a constructor's signature which keywords it takes, with their types and ranges: the schema of a config.

Configs are checked against it before a run starts, and constructors check themselves (`check_keywords`), so a wrong
value gives the same message on every way in. pydantic does not check them, because it would add a tenth of a second to
every start, and shares, schedules, import paths and suggestions for unknown keys would still be written here.
"""

from __future__ import annotations

import functools
import inspect
import numbers
import operator
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, is_dataclass
from typing import (
    Annotated,
    Any,
    Literal,
    ParamSpec,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from lightning_rl.errors import ConfigError, did_you_mean, import_object, short_repr, unknown_key
from lightning_rl.schedules import Schedule, Share, check_schedule, is_share, schedule_points, to_env_steps
from lightning_rl.schema.ranges import Range

__all__ = [
    "ImportPath",
    "Importable",
    "Keyword",
    "OneOf",
    "Section",
    "call_with_accepted_args",
    "check_arguments",
    "check_fields",
    "check_keywords",
    "coerce",
    "coerce_keywords",
    "constructor_arguments",
    "hints_of",
    "in_env_steps",
    "keywords_of",
    "kinds_of",
    "spell_type",
    "takes_keyword",
    "with_tuples",
]

Keyword = inspect.Parameter
SEQUENCES = {tuple, list, Sequence}
P = ParamSpec("P")
T = TypeVar("T")

UNIONS = (Union, types.UnionType)
BY_PLACE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
SCHEDULE = frozenset(get_args(Schedule))
LARGEST = (2 - 2**-23) * 2.0**127  # number of float32, in which networks and losses compute
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


class OtherKindError(ConfigError):
    """A value of another type; in a union, another member may still accept it."""


# -- keywords ----------------------------------------------------------------------------------------------------------
def keywords_of(target: Any) -> dict[str, Keyword]:
    """The keywords that a class or function takes, with resolved type hints where possible.

    A constructor with `**keywords` passes them to its base class, whose keywords follow, and so on.
    """
    found: dict[str, Keyword] = {}
    for function in _constructors(target):
        parameters = list(inspect.signature(function).parameters.values())
        hints = _hints(function)
        if is_dataclass(target):  # a field that is inherited names what its own module knows
            hints |= get_type_hints(target, include_extras=True)
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
    """Parameter → type hint, without hints whose names are imported for type checkers only."""
    function, found = inspect.unwrap(function), {}
    scope = getattr(function, "__globals__", {})
    for name, hint in getattr(function, "__annotations__", {}).items():
        with suppress(NameError, TypeError, AttributeError):
            found |= get_type_hints(types.SimpleNamespace(__annotations__={name: hint}), scope, include_extras=True)
    return found


def constructor_arguments(
    constructor: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], leading: int
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The first `leading` arguments of a call, whatever they are called, and all others by name.

    Args:
        constructor: an `__init__`.
        args, kwargs: that it was called with, without `self`.
        leading: how many arguments are matched by position.
    """
    signature = inspect.signature(constructor)
    given = dict(signature.bind(None, *args, **kwargs).arguments)
    placed: list[Any] = []
    named: dict[str, Any] = {}
    for index, (name, parameter) in enumerate(signature.parameters.items()):
        if index == 0 or name not in given:  # `self`, or a default
            continue
        if parameter.kind is parameter.VAR_POSITIONAL:
            placed.extend(given[name])
        elif parameter.kind is parameter.VAR_KEYWORD:
            named |= given[name]
        elif index <= leading and parameter.kind is not parameter.KEYWORD_ONLY:
            placed.append(given[name])
        else:
            named[name] = given[name]
    for name in ("observation_space", "action_space")[len(placed) : leading]:  # a constructor of `**keywords` alone
        placed.append(named.pop(name))
    return tuple(placed), named


def check_arguments(
    section: str, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any], owner: Any = None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call, checked against the target's annotations; 1e5 is accepted where an integer belongs.

    Arguments without an annotation, or with one that says nothing about plain values, are not checked.

    Args:
        section: the config section whose keys the keywords are, for messages.
        target: a class, whose constructor may hand keywords on to its base class; or a constructor.
        args, kwargs: that it is called with, without `self`.
        owner: the class whose keywords a message suggests; `None`: the target.

    Raises:
        ConfigError: a keyword is unknown, or a value does not fit.
    """
    by_place, hints, takes_all = _arguments_of(target)
    for name in () if takes_all else kwargs.keys() - hints.keys():
        known = [each for each in keywords_of(owner or target) if each not in by_place]
        raise ConfigError(unknown_key(section, name, known), key=f"{section}.{name}", value=kwargs[name])
    placed = [coerce(f"{section}.{name}", value, hints[name]) for name, value in zip(by_place, args, strict=False)]
    named = {name: coerce(f"{section}.{name}", value, hints.get(name, Any)) for name, value in kwargs.items()}
    return (*placed, *args[len(placed) :]), named


@functools.lru_cache(maxsize=256)
def _arguments_of(target: Any) -> tuple[list[str], dict[str, Any], bool]:
    """The names of arguments that may be passed by position; all names → type hints; whether it takes any keyword."""
    parameters = inspect.signature(_constructors(target)[0]).parameters.values()
    by_place = [p.name for p in parameters if p.kind in BY_PLACE and p.name != "self"]
    hints = {**dict.fromkeys(by_place, Any), **hints_of(target)}
    return by_place, hints, any(p.kind is p.VAR_KEYWORD for p in parameters)


def check_keywords(section: str) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Make a constructor check its arguments by `check_arguments`; `section` is the one whose keys they are."""

    def decorate(constructor: Callable[P, None]) -> Callable[P, None]:
        @functools.wraps(constructor)
        def check(*args: P.args, **kwargs: P.kwargs) -> None:
            owner = type(args[0])
            target = owner if is_dataclass(owner) else constructor
            placed, named = check_arguments(section, target, args[1:], kwargs, owner)
            constructor(args[0], *placed, **named)  # type: ignore[arg-type]  # pyright: ignore

        return check

    return decorate


def check_fields(section: str) -> Callable[[type[T]], type[T]]:
    """As `check_keywords`, for the constructor that a dataclass generates from its fields."""

    def decorate(cls: type[T]) -> type[T]:
        cls.__init__ = check_keywords(section)(cls.__init__)
        return cls

    return decorate


# -- values ------------------------------------------------------------------------------------------------------------
def coerce(key: str, value: Any, hint: Any) -> Any:
    """Check a value against a type hint and return it, in the number type of the hint; also inside lists and mappings.

    Whole floats become integers if the hint is an integer.

    Args:
        key: the dotted config key, for messages.
        value: a plain config value, or an object where a constructor is called.
        hint: a resolved annotation; a hint that says nothing about plain values accepts anything.

    Raises:
        ConfigError: the value does not fit; names the key, the value and what is expected.
    """
    marks: Iterable[Any] = ()
    if get_origin(hint) is Annotated:
        hint, *marks = get_args(hint)
    for mark in marks:
        if hasattr(mark, "coerce"):
            return mark.coerce(key, value)
    ranges = [mark for mark in marks if isinstance(mark, Range)]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in UNIONS:
        return _coerce_to_one_of(key, value, arguments, ranges)
    if origin is Literal:
        if any(type(value) is type(choice) and value == choice for choice in arguments):
            return value
        refusal = ConfigError if isinstance(value, str) else OtherKindError
        raise refusal(
            f"{key}={short_repr(value)}; expected {spell_type(hint)}.{did_you_mean(str(value)[:100], arguments)}",
            key=key,
            value=value,
        )
    kind = type(None) if hint is None else origin or hint
    if kind in (int, float):
        return _coerce_number(key, value, kind, ranges)
    if kind is Share:
        if not is_share(value):
            raise _other_kind(key, value, hint)
        return value
    if kind in (list, tuple, Sequence) and isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return _coerce_list(key, value, arguments)
    if kind in (dict, Mapping) and isinstance(value, Mapping):
        return _coerce_mapping(key, value, dict.fromkeys(value, arguments[1])) if len(arguments) == 2 else value
    # Text is a sequence as well, but no list.
    if not _is_a(value, kind) or kind is Sequence:
        raise _other_kind(key, value, hint)
    return value


def _is_a(value: Any, kind: Any) -> bool:
    """Whether a value is of a type; objects that no config can contain are accepted without a check."""
    if not isinstance(kind, type) or kind is Any or (kind not in WORDS and type(value) not in WORDS):
        return True
    try:
        return isinstance(value, kind)
    except TypeError:  # a protocol, which is for type checkers only
        return True


def _coerce_number(key: str, value: Any, kind: type, ranges: Sequence[Range]) -> Any:
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not is_number or not (kind is float or isinstance(value, numbers.Integral) or float(value).is_integer()):
        raise _other_kind(key, value, Annotated[kind, ranges[0]] if ranges else kind)
    number: Any = value
    expected = " and ".join(map(str, ranges))
    if not abs(number) <= LARGEST:  # NaN is not
        raise _unexpected(key, value, f"a finite number {expected}".rstrip())
    if not all(number in each for each in ranges):
        raise _unexpected(key, value, f"a number {expected}" if expected.startswith("above") else expected)
    return number if type(number) in (kind, int) else kind(number)


def _coerce_to_one_of(key: str, value: Any, hints: tuple[Any, ...], ranges: Sequence[Range]) -> Any:
    """Coerce a value to the first type of a union that accepts it; a schedule is a union as well."""
    if set(hints) >= SCHEDULE:
        if value is None and type(None) in hints:
            return None
        if isinstance(value, str) and str in set(hints) - SCHEDULE:
            return value
        check_schedule(key, value)
        schedule: Any = value
        for number in schedule_points(schedule):
            _coerce_number(key, number, float, ranges)
        return value
    refused: ConfigError | None = None
    for hint in hints:
        try:
            return coerce(key, value, Annotated[hint, *ranges] if ranges else hint)
        except OtherKindError:
            continue
        except ConfigError as error:  # of this type, but out of its range
            refused = refused or error
    union = functools.reduce(operator.or_, hints)
    if isinstance(value, str) and any(get_origin(hint) is Literal for hint in hints):
        raise _unexpected(key, value, spell_type(union))
    if refused is not None and type(None) in hints and str(refused).startswith(f"{key}="):
        refused = ConfigError(f"{refused}, or null", key=refused.key, value=refused.value)
    if refused is None:
        raise _other_kind(key, value, union)
    raise refused


def _coerce_list(key: str, values: Sequence[Any], hints: tuple[Any, ...]) -> Any:
    inner = next((hint for hint in hints if hint is not Ellipsis), Any)
    found = [_coerce_entry(f"{key}[{index}]", value, inner) for index, value in enumerate(values)]
    same = all(new is old for new, old in zip(found, values, strict=True))
    if same:
        return values
    return tuple(found) if isinstance(values, tuple) else found


def _coerce_mapping(key: str, values: Mapping[str, Any], hints: Mapping[str, Any]) -> Any:
    prefix = f"{key}." if key else ""
    found = {name: _coerce_entry(f"{prefix}{name}", value, hints[name]) for name, value in values.items()}
    return values if all(found[name] is value for name, value in values.items()) else found


def _coerce_entry(key: str, value: Any, hint: Any) -> Any:
    """Coerce an entry of a list or mapping; a wrong entry does not make the container another type."""
    try:
        return coerce(key, value, hint)
    except OtherKindError as error:
        raise ConfigError(str(error), key=error.key, value=error.value) from None


def coerce_keywords(section: str, values: Any, hints: Mapping[str, Any], elsewhere: Iterable[str] = ()) -> Any:
    """Check a mapping of keywords, each against its type hint, and return it.

    Args:
        section: the dotted key of the mapping, "" for a whole config.
        values: keyword → value.
        hints: keyword → type hint, for all known keywords.
        elsewhere: dotted keys of the whole config, to suggest for an unknown key.

    Raises:
        ConfigError: `values` is not a mapping, a key is unknown, or a value does not fit.
    """
    if not isinstance(values, Mapping):
        raise _other_kind(section, values, Mapping)
    for key, value in values.items():
        if key not in hints:
            full = f"{section}.{key}" if section else str(key)
            raise ConfigError(unknown_key(section, str(key), hints, elsewhere), key=full, value=value)
    return _coerce_mapping(section, values, hints)


def kinds_of(hint: Any) -> set[Any]:
    """The types that a hint allows, without their ranges."""
    if get_origin(hint) is Annotated:
        return kinds_of(get_args(hint)[0])
    return set().union(*map(kinds_of, get_args(hint))) if get_origin(hint) in UNIONS else {hint}


def with_tuples(function: Any, keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords in which a list is a tuple where the function asks for a tuple and for no list: YAML has no tuples.

    Args:
        function: someone else's class or function, which gets the keywords.
        keywords: values by name, as a config gives them.
    """
    if not any(isinstance(value, list) for value in keywords.values()):
        return dict(keywords)
    try:
        hints = hints_of(function)
    except ValueError:  # built-in classes and functions have no signature
        return dict(keywords)
    asked = {name: {get_origin(kind) or kind for kind in kinds_of(hint)} for name, hint in hints.items()}
    return {
        name: tuple(value) if isinstance(value, list) and asked.get(name, set()) & SEQUENCES == {tuple} else value
        for name, value in keywords.items()
    }


def in_env_steps(values: Mapping[str, Any], hints: Mapping[str, Any], total_env_steps: int) -> dict[str, Any]:
    """Keywords with env steps in place of shares of a run ("10%"), where type hints allow shares."""
    return {
        name: to_env_steps(value, total_env_steps) if _may_be_share(value, hints.get(name)) else value
        for name, value in values.items()
    }


def _may_be_share(value: Any, hint: Any) -> bool:
    kinds = kinds_of(hint)
    return Share in kinds if isinstance(value, str) else value is not None and kinds >= SCHEDULE


def hints_of(*targets: Any, without: Iterable[str] = ()) -> dict[str, Any]:
    """Keyword → type hint of constructors, functions or `TypedDict`s, except for the keywords in `without`.

    If several targets have a keyword, the hint of the last one counts.
    """
    return {name: hint for target in targets for name, hint in _hints_of(target).items() if name not in without}


@functools.lru_cache(maxsize=64)
def _hints_of(target: Any) -> dict[str, Any]:
    if is_typeddict(target):
        return get_type_hints(target, include_extras=True)
    return {name: keyword.annotation for name, keyword in keywords_of(target).items()}


@dataclass(frozen=True, slots=True)
class Section:
    """Hint for a mapping whose keys are keywords of a class: `model` of a policy is the section `model`.

    Args:
        name: the name of the section; "": no section of its own; messages use the keyword's name.
        targets: one or several classes; a `TypedDict` declares keys as a constructor declares keywords.
    """

    name: str
    targets: tuple[Any, ...]

    @property
    def hints(self) -> dict[str, Any]:
        """Key → type hint."""
        return hints_of(*self.targets)

    def coerce(self, key: str, value: Any) -> Any:
        """Check the mapping against the annotations of the classes, and return it."""
        return coerce_keywords(self.name or key, value, self.hints)


@dataclass(frozen=True, slots=True)
class OneOf:
    """Hint for text that is one of some names, in upper or lower case.

    Args:
        names: lower-case names.
    """

    names: tuple[str, ...]

    def coerce(self, key: str, value: Any) -> str:
        """Check the text and return it unchanged."""
        if not isinstance(value, str):
            raise _other_kind(key, value, str)
        if value.lower() not in self.names:
            near = did_you_mean(value.lower(), self.names)
            message = f"{key}={short_repr(value)} is unknown.{near} One of {', '.join(self.names)}"
            raise ConfigError(message, key=key, value=value)
        return value


class Importable:
    """Hint for an import path of a class or function, or the class or function itself."""

    def coerce(self, key: str, value: Any) -> Any:
        """Check that the path leads to something callable, and return it."""
        if not isinstance(value, str) and not callable(value):
            raise _other_kind(key, value, str)
        try:
            found = import_object(value) if isinstance(value, str) else value
        except ConfigError as error:
            message = f"{key}={error}" if isinstance(value, str) else str(error)
            raise ConfigError(message, key=key, value=value) from error
        if not callable(found):
            raise ConfigError(
                f"{key}={short_repr(value)} is {kind_of(found)}; expected the import path of a function or class",
                key=key,
                value=value,
            )
        return value


ImportPath = Annotated[Any, Importable()]


# -- words -------------------------------------------------------------------------------------------------------------
def spell_type(hint: Any) -> str:
    """A type hint in the words of a config, such as "number or list", without classes that no config can contain."""
    if get_origin(hint) is Annotated:
        inner, *marks = get_args(hint)
        names = [name for mark in marks if isinstance(mark, OneOf) for name in mark.names]
        path = "import path" if any(isinstance(mark, Importable) for mark in marks) else ""
        words = ", ".join(names) or path or spell_type(inner)
        ranges = map(str, _ranges(marks))
        return " ".join([words, *(f"of {each}" if each.startswith("at ") else each for each in ranges)])
    if get_origin(hint) in UNIONS:
        return _either(dict.fromkeys(word for argument in get_args(hint) if (word := spell_type(argument))))
    if get_origin(hint) is Literal:
        return _either(map(str, get_args(hint)))
    return WORDS.get(get_origin(hint) or hint, "")


def _either(words: Iterable[str]) -> str:
    *first, last = words or [""]
    return f"{', '.join(first)} or {last}" if first else last


def _ranges(marks: Iterable[Any]) -> list[Range]:
    return [mark for mark in marks if isinstance(mark, Range)]


def kind_of(value: Any) -> str:
    """The type of a value in the words of a config."""
    return spell_type(type(value)) or type(value).__name__


def _other_kind(key: str, value: Any, hint: Any) -> OtherKindError:
    expected = spell_type(hint) or getattr(hint, "__name__", str(hint))
    return OtherKindError(f"{key}={short_repr(value)} is {kind_of(value)}; expected {expected}", key=key, value=value)


def _unexpected(key: str, value: Any, expected: str) -> ConfigError:
    return ConfigError(f"{key}={short_repr(value)}; expected {expected}", key=key, value=value)


def takes_keyword(function: Any, name: str) -> bool:
    """Whether a user's function can be called with this keyword."""
    parameters = inspect.signature(function).parameters
    found = parameters.get(name)
    if any(parameter.kind is Keyword.VAR_KEYWORD for parameter in parameters.values()):
        return True
    return found is not None and found.kind in (Keyword.POSITIONAL_OR_KEYWORD, Keyword.KEYWORD_ONLY)


def call_with_accepted_args(function: Any, *arguments: Any) -> Any:
    """Call a user's function with as many of the arguments as it takes."""
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return function(*arguments)
    taken = sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)
    return function(*arguments[:taken])
