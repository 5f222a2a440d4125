"""Completes a command line: `python -m lightning_rl.config.completions SHELL VERBS LINE` prints one candidate a line.

A shell runs this at each press of Tab, so it reads the files of the config groups itself and imports neither Hydra nor
torch. Keys are those of the choices that the line names, or of the default ones.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lightning_rl.config.directories import DEEPEST, GROUPS, PRIMARY, directories, option_content, option_keys
from lightning_rl.config.keys import value_at
from lightning_rl.errors import ConfigError

__all__ = ["candidates", "main"]

OVERRIDDEN = re.compile(r"override /(\w+)@_global_\.\w+")  # a choice that another choice's file makes
ON_RUNS = ("compare", "evaluate", "explain", "export", "play", "report", "resume", "video")  # verbs that take a run
WITHOUT_KEYS = ("benchmark", "completion", "doctor", "init", "list")  # verbs that take no overrides
DEEPEST_RUN = 3  # levels below ./runs


def main(arguments: Sequence[str]) -> None:
    """Print the candidates for the word at the end of a line.

    Args:
        arguments: shell ("bash", "zsh", "fish"), the verbs with their options ("train --cfg;list --json"), the line up
            to the cursor.
    """
    shell, table, line = arguments
    verbs = {verb: options for verb, *options in (entry.split() for entry in table.split(";"))}
    words = line.split()[1:]
    current = "" if line[-1:].isspace() or not words else words.pop()
    found = [word for word in candidates(verbs, words, current) if word.startswith(current)]
    if shell == "bash":  # which replaces only what follows the last of these characters
        cut = max(current.rfind("="), current.rfind(":")) + 1
        found = [word[cut:] for word in found]
    print("\n".join(dict.fromkeys(found)))


def candidates(verbs: Mapping[str, Sequence[str]], words: Sequence[str], current: str) -> list[str]:
    """Words that may take the place of the current one, also such as do not begin like it.

    Args:
        verbs: verb → its options.
        words: the words of the line after the program's name and before the current word.
        current: the word at the cursor; may be empty.
    """
    if not words:
        return [*verbs]
    verb = words[0]
    if current.startswith("-"):
        return list(verbs.get(verb, ()))
    if verb in ("list", "completion") or verb not in verbs:
        return {"completion": ["bash", "zsh", "fish"], "list": [*LISTED]}.get(verb, [])
    try:
        overrides = (
            [] if verb in WITHOUT_KEYS else [*override_candidates(words[1:], current, assigns=verb != "describe")]
        )
    except ConfigError:  # a directory of the search path that is not there
        overrides = []
    return [*overrides, *(runs() if verb in ON_RUNS and "=" not in current else [])]


LISTED = ("policies", "envs", "experiments", "models", "explorations", "data", "loggers", "metrics", "runs")


def override_candidates(words: Sequence[str], current: str, assigns: bool) -> Iterator[str]:
    """`group=`, `group=choice`, sections and keys with "=", and values of keys that are true or false."""
    key, equals, value = current.partition("=")
    if equals and key in GROUPS:
        before = value.rpartition(",")[0]  # of several choices, in a sweep
        yield from (f"{key}={before and before + ','}{choice}" for choice in options(key))
        return
    config = config_of(words)
    if equals:
        default = value_at(config, key)
        yield from (f"{key}={word}" for word in ("true", "false") if isinstance(default, bool))
        return
    section = key.rpartition(".")[0]
    held = config if not section else value_at(config, section)
    if not section:
        yield from (f"{group}=" for group in GROUPS)
    for name, child in (held if isinstance(held, Mapping) else {}).items():
        full = f"{section}.{name}" if section else str(name)
        yield f"{full}." if isinstance(child, Mapping) and child else f"{full}{'=' if assigns else ''}"


def options(group: str) -> list[str]:
    """The choices of a group: the files in its directories."""
    return sorted({file.stem for directory in directories() for file in (directory / group).glob("*.yaml")})


def config_of(words: Sequence[str]) -> dict[str, Any]:
    """The keys of the primary config and of each group's choice: the line's, an algorithm's, or the default one."""
    primary = option_content("", PRIMARY)
    chosen: dict[str, str] = {}
    for entry in primary.pop("defaults", []):
        chosen |= (
            {group: str(choice) for group, choice in entry.items() if group in GROUPS}
            if isinstance(entry, dict)
            else {}
        )
    pairs = [(group, choice) for group, _, choice in (word.partition("=") for word in words)]
    given = {group: choice for group, choice in pairs if group in GROUPS}
    for name, choice in choices_of(given.get("policy", chosen["policy"])):
        chosen[name] = choice
    sections = {group: option_keys(group, choice) for group, choice in {**chosen, **given}.items()}
    config = {name: value for name, value in primary.items() if name != "hydra"}
    config |= {group: section for group, section in sections.items() if section}
    for name in ("model", "exploration"):  # an algorithm has a copy of these sections
        if isinstance(config.get("policy"), dict) and name in config["policy"] and isinstance(config.get(name), dict):
            config["policy"][name] = config[name]
    return config


def choices_of(policy: str, depth: int = 0) -> Iterator[tuple[str, str]]:
    """Pairs of group and choice that an algorithm's file makes, those of the file that it builds upon first."""
    for entry in option_content("policy", policy).get("defaults", []):
        if isinstance(entry, str) and entry != "_self_" and "@" not in entry and depth < DEEPEST:
            yield from choices_of(entry, depth + 1)
        for name, choice in entry.items() if isinstance(entry, dict) else ():
            if match := OVERRIDDEN.match(name):
                yield match[1], str(choice)


def runs() -> Iterator[str]:
    """Run directories below ./runs."""
    top = Path("runs")
    for parent, children, files in os.walk(top):
        if "config.yaml" in files:
            yield parent
        if "config.yaml" in files or len(Path(parent).relative_to(top).parts) >= DEEPEST_RUN:
            children.clear()
        children.sort()


if __name__ == "__main__":
    main(sys.argv[1:])
