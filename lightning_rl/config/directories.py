"""Where the files of the config groups lie: the user's directories and the package's own.

Nothing here imports Hydra, so that shell completion is fast.
"""

from __future__ import annotations

import os
from pathlib import Path

from lightning_rl.errors import ConfigError

__all__ = ["GROUPS", "PRIMARY", "shipped_conf", "user_confs"]

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
    "launcher",
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
            raise ConfigError(f"{SEARCH_PATH} names {entry!r}, which is no directory: {expected}")
    return [str(path) for path in found if not path.samefile(shipped_conf())] + packages
