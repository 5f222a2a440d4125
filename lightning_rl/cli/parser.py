"""What the verbs share: the argument parser, the option --trust, the exit codes, and errors in one line."""

from __future__ import annotations

import argparse
import errno
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from lightning_rl.errors import USER_ERRORS, ConfigError, RankError, printable, short_repr

__all__ = ["COLUMNS", "EXIT_CODES", "TRUST", "Parser", "add_policy_arguments", "one_line", "whole_number"]

TRUST: dict[str, Any] = {
    "action": "append",
    "default": [],
    "metavar": "PACKAGE",
    "help": "allow the run's files to import from PACKAGE; repeatable (or set LIGHTNING_RL_TRUST=a,b)",
}


def _json_object(text: str) -> dict[str, Any]:
    """What an option in JSON says."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{short_repr(text)} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError(f'{short_repr(text)}; expected such as {{"obs": ["x", "y"], "actions": "a"}}')
    return found


COLUMNS: dict[str, Any] = {
    "type": _json_object,
    "metavar": "JSON",
    "help": 'columns of a file, as for data.columns, such as \'{"obs": ["x", "y"], "actions": "a"}\'',
}
EXIT_CODES = {"ok": 0, "failed": 1, "interrupted": 130}


class Parser(argparse.ArgumentParser):
    """Argument parser that reports an error in one line, like all other errors of the command line.

    Attributes:
        as_json: whether `show` prints JSON, once `options` has read the arguments.
    """

    as_json = False

    def options(self, arguments: Sequence[str], help: str = "print one JSON object") -> argparse.Namespace:
        """The options of a verb that prints its result with `show`.

        Args:
            arguments: what was typed.
            help: the help text of --json.
        """
        self.add_argument("--json", action="store_true", help=help)
        options = self.parse_intermixed_args(arguments)
        self.as_json = vars(options).pop("json")
        return options

    def show(self, result: Any, text: str) -> None:
        """Print a result as JSON, or what it says as text."""
        print(json.dumps(result, default=str) if self.as_json else text)

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage."""
        raise ConfigError(f"{message}; see {self.prog} --help")


def add_policy_arguments(parser: Parser, episodes: int) -> None:
    """Add the arguments that say which policy plays, where and how.

    Args:
        parser: the parser of a verb.
        episodes: default of --episodes.
    """
    parser.add_argument("checkpoint", type=Path, help="a .ckpt file, or a run directory, which means its last.ckpt")
    parser.add_argument("--best", action="store_true", help="use the best evaluation's checkpoint instead of last.ckpt")
    parser.add_argument("--episodes", type=whole_number, default=episodes, help=f"episodes to play; default {episodes}")
    parser.add_argument("--seed", type=whole_number, default=0, help="seed of the environments and actions; default 0")
    parser.add_argument("--explore", action="store_true", help="explore as in training instead of acting greedily")
    parser.add_argument("--env", help="environment id, import path or preset; default: the run's environment")
    parser.add_argument("--trust", **TRUST)


def whole_number(text: str) -> int:
    """The value of --seed, --episodes and other options that count; as in a config, 1e3 is one.

    Raises:
        ArgumentTypeError: it is not a whole number, or below 0.
    """
    try:
        number = float(text)
        if number >= 0 and number.is_integer():
            return int(text) if text.strip().replace("_", "").isdigit() else int(number)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text!r}; expected a whole number, at least 0")


def one_line(error: BaseException) -> str:
    """An error's message without line breaks and control characters, or the name of its type if it has no message."""
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        return f"no path that this system takes ({error.strerror}): {short_repr(str(error.filename))}"
    text = " ".join(printable(line).strip() for line in str(error).splitlines() if line.strip())
    return text if isinstance(error, (*USER_ERRORS, RankError)) and text else f"{type(error).__name__}: {text}"
