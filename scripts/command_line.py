"""Writes docs/command_line.md: every verb of the command line with its options, from the verbs' own parsers.

python scripts/command_line.py     # prints the page; scripts/regenerate.py keeps it
"""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from unittest.mock import patch

from lightning_rl.cli import VERBS
from lightning_rl.cli.parser import Parser

HEAD = """# Command line

`python train.py …` is `lightning-rl train …`. An error is one line on stderr that names the value, the expectation, and
what to write instead; [exit codes](runs.md#exit-codes). This page is written from the `--help` of each verb.
"""


def parser_of(verb: Callable[[Sequence[str]], int]) -> Parser:
    """The parser that a verb makes when it is called."""
    found: list[Parser] = []
    with patch.object(Parser, "print_help", lambda self, file=None: found.append(self)), suppress(SystemExit):
        verb(["--help"])
    return found[0]


def options_of(parser: Parser) -> Iterator[tuple[str, str]]:
    """What to write and what it means, of each argument but --help."""
    for action in parser._actions:
        if isinstance(action, argparse._HelpAction):
            continue
        names = ", ".join(action.option_strings) or str(action.metavar or action.dest)
        values = r"\|".join(map(str, action.choices)) if action.choices else action.metavar or action.dest.upper()
        value = f" {values}" if action.option_strings and action.nargs != 0 else ""
        yield names + value, str(action.help) % {"default": action.default}


def in_table(text: str) -> str:
    """Markdown of a description: what looks like code is code, and a bar ends no cell."""
    code = r"(--[\w-]+|[\w./]+=[^\s;)]*[^\s;),.]|[A-Z]+_[A-Z_]+[\w./-]*|[\w./]*\.(?:yaml|ckpt|html|db|csv|sqlite))"
    return re.sub(rf"(?<![\w`]){code}", r"`\1`", text).replace("|", r"\|")


def page() -> str:
    """docs/command_line.md."""
    lines = [HEAD]
    for name, verb in VERBS.items():
        parser = parser_of(verb)
        first, *more = inspect.cleandoc(parser.description or "").split("\n\n")
        what, _, example = first.rstrip(".").partition(": ")
        example, _, rest = example.partition("; ")
        lines += [f"## `{name}`", "", f"{what}: `{example}`" + (f"; {rest}" if rest else ""), ""]
        lines += [line for text in more for line in (" ".join(text.split()), "")]
        rows = [f"| `{option}` | {in_table(text)} |" for option, text in options_of(parser)]
        lines += ["| | |", "|---|---|", *rows, ""]
        if parser.epilog:
            lines += [in_table(parser.epilog), ""]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    print(page(), end="")
