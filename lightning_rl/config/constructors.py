"""Reads the keywords of policies, with their defaults, from the source of their constructors.

Nothing is imported, so that a config is composed, completed and explained without torch. `signature/PPO@_here_` in the
`defaults` of a file of `conf/policy` stands for the keywords of a class of this package, and
`signature/my_pkg.reinforce.Reinforce@_here_` for those of another class.
"""

from __future__ import annotations

import ast
import functools
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["FROM_ELSEWHERE", "KeywordInSource", "keywords_in_source", "lists_for_tuples", "signature_at"]

FROM_ELSEWHERE = {"model": "${model}", "exploration": "${exploration}", "seed": "${seed}"}
SIGNATURE = "policy/signature/"  # in a config's path, before the name of a class
PACKAGE = Path(__file__).parents[1]
HOME = f"{PACKAGE.name}.policies"  # the module that has the classes


@dataclass(frozen=True, slots=True)
class KeywordInSource:
    """A keyword of a constructor: its default as in a config, and the file and line that have it."""

    default: Any
    file: str
    line: int


def signature_at(config_path: str) -> dict[str, KeywordInSource]:
    """The keywords of the class that a config's path names, as "policy/signature/PPO"; empty for another path."""
    if not config_path.startswith(SIGNATURE):
        return {}
    module, _, name = config_path.removeprefix(SIGNATURE).rpartition(".")
    return keywords_in_source(name, module or HOME)


def keywords_in_source(name: str, module: str = HOME) -> dict[str, KeywordInSource]:
    """The keywords of a class's constructor after those of its base, to which it hands `**keywords` on."""
    found = _class(name, module)
    if found is None:
        return {}
    cls, home = found
    file, tree = _source(home) or ("", ast.Module([], []))
    own = {}
    for constructor in (each for each in cls.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"):
        arguments = constructor.args
        for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
            value = "???" if default is None else FROM_ELSEWHERE.get(argument.arg, _value(default, tree))
            own[argument.arg] = KeywordInSource(value, file, argument.lineno)
        if arguments.kwarg is None:
            return own
    base = cls.bases[0]
    return (keywords_in_source(base.id, home) if isinstance(base, ast.Name) else {}) | own


@functools.cache
def _source(module: str) -> tuple[str, ast.Module] | None:
    """The file of a module, of this package or on Python's path, and its syntax tree; `None`: there is no such file."""
    roots = [PACKAGE.parent] if module.partition(".")[0] == PACKAGE.name else [Path(each or ".") for each in sys.path]
    for path in (root.joinpath(*module.split(".")) for root in roots):
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        if file.is_file():
            return os.path.abspath(file), ast.parse(file.read_bytes())
    return None


def _class(name: str, module: str) -> tuple[ast.ClassDef, str] | None:
    """A class that a module defines or imports by name from another module, and the module of its code."""
    source = _source(module)
    for statement in () if source is None else ast.walk(source[1]):  # some imports are for type checkers only
        if isinstance(statement, ast.ClassDef) and statement.name == name:
            return statement, module
        if isinstance(statement, ast.ImportFrom) and any(alias.name == name for alias in statement.names):
            return _class(name, statement.module or "")
    return None


def _value(default: ast.expr, tree: ast.Module) -> Any:
    """A default as in a config, where lists stand for tuples; it is a literal, or a constant of its module."""
    if isinstance(default, ast.Name):
        (default,) = (
            statement.value
            for statement in tree.body
            if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == default.id
        )
    if isinstance(default, ast.Call):  # MappingProxyType({…})
        (default,) = default.args
    return lists_for_tuples(ast.literal_eval(default))


def lists_for_tuples(value: Any) -> Any:
    """A default as in a config, in which tuples are lists."""
    return [lists_for_tuples(each) for each in value] if isinstance(value, list | tuple) else value
