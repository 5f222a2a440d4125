"""The files of the config groups, in the user's directories and in the package's own.

Nothing here imports Hydra, so that shell completion is fast.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml

from lightning_rl.config.constructors import signature_at
from lightning_rl.errors import ConfigError

__all__ = [
    "GROUPS",
    "PRIMARY",
    "directories",
    "option_content",
    "option_keys",
    "option_text",
    "shipped_conf",
    "user_confs",
]

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
DEEPEST = 5  # levels of files that begin with each other
SEARCH_PATH = "LIGHTNING_RL_SEARCH_PATH"
PRIMARY = "train"
GROUPS = (
    "policy",
    "model",
    "exploration",
    "data",
    "env",
    "workers",
    "evaluation",
    "checkpoint",
    "trainer",
    "rank_launcher",
    "logger",
    "experiment",
)


def shipped_conf() -> Path:
    """The directory of the package's own configs: inside it in a wheel, beside it in a checkout."""
    inside = Path(__file__).parents[1] / "conf"
    return inside if inside.is_dir() else Path(__file__).parents[2] / "conf"


def user_confs() -> list[str]:
    """The user's config directories (and pkg://… entries), in order of precedence.

    Raises:
        ConfigError: a directory of `LIGHTNING_RL_SEARCH_PATH` does not exist.
    """
    found = [Path.cwd() / "conf"] if (Path.cwd() / "conf").is_dir() else []
    packages = []
    for entry in filter(None, os.environ.get(SEARCH_PATH, "").split(os.pathsep)):
        if entry.startswith("pkg://"):
            packages.append(entry)
        elif Path(entry).is_dir():
            found.append(Path(entry).absolute())
        else:
            expected = f"give directories, or pkg://package.conf, separated by {os.pathsep!r}"
            raise ConfigError(f"{SEARCH_PATH} names {entry!r}, which is not a directory: {expected}")
    return [str(path) for path in found if not path.samefile(shipped_conf())] + packages


def directories() -> list[Path]:
    """The user's config directories and the package's, in order of precedence."""
    return [Path(entry) for entry in user_confs() if not entry.startswith("pkg://")] + [shipped_conf()]


def option_text(group: str, name: str) -> str:
    """The YAML of a group's option (of the primary config for group ""); "" if no directory has it."""
    file = option_file(group, name)
    return file.read_text(encoding="utf-8") if file else ""


def option_file(group: str, name: str) -> Path | None:
    """The file of an option in the first directory that has it."""
    files = (directory / group / f"{name}.yaml" for directory in directories())
    return next((file for file in files if file.is_file()), None)


def option_content(group: str, name: str) -> dict[str, Any]:
    """What an option's file says; empty if there is none, or it is damaged."""
    file = option_file(group, name)
    try:
        content = yaml.load(file.read_text(encoding="utf-8"), LOADER) if file else {}  # a safe loader
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return content if isinstance(content, dict) else {}


def option_keys(group: str, name: str, depth: int = 0) -> dict[str, Any]:
    """The keys of an option, with those of the files and of the constructor that its file begins with."""
    content = option_content(group, name)
    found = {key: keyword.default for key, keyword in signature_at(f"{group}/{name}").items()}
    for entry in content.pop("defaults", []):
        if isinstance(entry, str) and entry != "_self_" and "_global_" not in entry and depth < DEEPEST:
            found |= option_keys(group, entry.partition("@")[0], depth + 1)
    return {key: value for key, value in {**found, **content}.items() if key != "_target_"}
