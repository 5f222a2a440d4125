"""The errors a user can meet, and what makes them helpful: the nearest known name, and a failed import explained."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import Any

__all__ = [
    "CheckpointError",
    "ConfigError",
    "EnvError",
    "NonFiniteError",
    "RankError",
    "SaveError",
    "UnsupportedSpaceError",
    "check_at_least_one",
    "did_you_mean",
    "import_object",
    "import_path",
    "looked_at_first",
    "named_here",
    "note_name",
    "object_at",
]

named_here: set[str] = set()
"""Dotted paths that this process's user has named, or of classes that were passed: files may name these, too."""
looked_at_first: ContextVar[Callable[[str], None] | None] = ContextVar("looked_at_first", default=None)
"""Called with each path before it is imported, while objects are made that a file describes (`trust.py`)."""


class ConfigError(ValueError):
    """A key, a value or a combination in the configuration that cannot work."""


class UnsupportedSpaceError(ValueError):
    """A space (or a model) that the algorithm cannot take; the message names what would work."""


class EnvError(RuntimeError):
    """An environment that cannot be made, raises, or breaks the Gymnasium API."""


class CheckpointError(RuntimeError):
    """A checkpoint that is missing, damaged, or of something else."""


class SaveError(CheckpointError):
    """Something of a run that could not be written; the message names the file, the reason and what there is."""


class NonFiniteError(FloatingPointError):
    """A loss, gradient or statistic that is NaN or infinite."""


class RankError(RuntimeError):
    """Another process of the run failed or is gone; the message names it."""


def check_at_least_one(prefix: str = "", **numbers: int) -> None:
    """Refuse numbers below 1.

    Raises:
        ConfigError: names the first of them, with `prefix` before its name.
    """
    for name, number in numbers.items():
        if number < 1:
            raise ConfigError(f"{prefix}{name}={number}; expected at least 1")


def did_you_mean(word: str, known: Iterable[Any]) -> str:
    """The sentence " Did you mean 'x'?" with the nearest known name, or "" where none is near."""
    close = difflib.get_close_matches(str(word), [str(name) for name in known], n=1, cutoff=0.6)
    return f" Did you mean {close[0]!r}?" if close else ""


def import_object(path: str) -> Any:
    """What an import path names: "pkg.module:Name" or "pkg.module.Name"; after a colon, dots reach into the object.

    Raises:
        ConfigError: the path has another form, its module is not there, or has no such name. An exception that the
            module's own code raises comes through as it is.
        CheckpointError, ConfigError: a file has named it, and the user does not trust it.
    """
    note_name(path)
    return object_at(path)


def note_name(path: str) -> None:
    """Note that the user has named this path; or refuse it, where a file has.

    Raises:
        CheckpointError, ConfigError: a file has named it, and the user does not trust it.
    """
    look = looked_at_first.get()
    if look is None:
        named_here.add(path.replace(":", "."))
    else:
        look(path)


def object_at(path: str) -> Any:
    """As `import_object`, whoever named the path.

    Raises:
        ConfigError: as there.
    """
    module_name, _, attribute = path.partition(":") if ":" in path else path.rpartition(".")
    if not all([*module_name.split("."), *attribute.split(".")]):
        raise ConfigError(f"{path!r} is no import path; expected 'package.module:Name'")
    try:
        found = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if not f"{module_name}.".startswith(f"{missing}."):
            raise  # the module is there; something that it imports is not
        raise ConfigError(f"{path!r}: {_no_module(missing)}") from error
    owner = f"module {module_name!r}"
    for name in attribute.split("."):
        if not hasattr(found, name):
            raise ConfigError(f"{path!r}: {owner} has no attribute {name!r}.{did_you_mean(name, dir(found))}")
        found, owner = getattr(found, name), repr(name)
    return found


def import_path(found: Any) -> str:
    """Where `import_object` finds a class or function: under its own name, else under the one its module gives it."""
    names = vars(sys.modules[found.__module__]) if found.__module__ in sys.modules else {}
    name = found.__qualname__
    if "." not in name and names.get(name) is not found:
        name = next((other for other, value in names.items() if value is found), name)
    named_here.add(f"{found.__module__}.{name}")
    return f"{found.__module__}:{name}"


def _no_module(missing: str) -> str:
    """Why `missing` cannot be imported, from the part of it that can."""
    parent, _, name = missing.rpartition(".")
    if not parent:
        return f"there is no module {missing!r}; install its package, or put its folder on the Python path"
    package = importlib.import_module(parent)  # already imported: Python went through it to find `name` missing
    if not hasattr(package, "__path__"):
        return f"there is no module {missing!r}: {parent!r} is a module, not a package; write '{parent}:{name}'"
    known = [module.name for module in pkgutil.iter_modules(package.__path__)]
    return f"package {parent!r} has no module {name!r}.{did_you_mean(name, known)}"
