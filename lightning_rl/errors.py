"""The errors a user can meet, and the two tools that make them helpful: the nearest known name, and a clear failed import."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable
from typing import Any

__all__ = [
    "CheckpointError",
    "ConfigError",
    "EnvError",
    "NonFiniteError",
    "UnsupportedSpaceError",
    "did_you_mean",
    "import_object",
]


class ConfigError(ValueError):
    """A key, a value or a combination in the configuration that cannot work."""


class UnsupportedSpaceError(ValueError):
    """A space (or a model) that the algorithm cannot take; the message names what would work."""


class EnvError(RuntimeError):
    """An environment that cannot be made, raises, or breaks the Gymnasium API."""


class CheckpointError(RuntimeError):
    """A checkpoint that is missing, damaged, or of something else."""


class NonFiniteError(FloatingPointError):
    """A loss, gradient or statistic that is NaN or infinite."""


def did_you_mean(word: str, known: Iterable[Any]) -> str:
    """' Did you mean "x"?' for the nearest known name, or ''."""
    close = difflib.get_close_matches(str(word), [str(name) for name in known], n=1, cutoff=0.6)
    return f" Did you mean {close[0]!r}?" if close else ""


def import_object(path: str) -> Any:
    """What an import path names: "pkg.module:Name" or "pkg.module.Name".

    Raises:
        ConfigError: the module is not there, or has no such name. An exception raised by the module itself comes through.
    """
    module_name, _, attribute = path.partition(":") if ":" in path else path.rpartition(".")
    if not module_name or not attribute:
        raise ConfigError(f"{path!r} is no import path; expected 'package.module:Name'")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name == error.name or module_name.startswith(error.name + ".")):
            raise  # the module is there; something that it imports is not
        raise ConfigError(f"{path!r}: there is no module {error.name!r}; is its folder on the Python path, its package installed?") from error
    found: Any = module
    for name in attribute.split("."):
        if not hasattr(found, name):
            raise ConfigError(f"{path!r}: module {module_name!r} has no {name!r}.{did_you_mean(name, vars(module))}")
        found = getattr(found, name)
    return found
