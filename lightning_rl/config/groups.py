"""Finds the config groups and their choices, in the user's directories and in the package's own.

Groups are searched in `./conf` of the working directory, then in the directories of `LIGHTNING_RL_SEARCH_PATH`, then
in the package, so a user's option adds to the package's ones, or replaces one of the same name.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hydra import initialize_config_dir
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType
from hydra.core.plugins import Plugins
from hydra.plugins.search_path_plugin import SearchPathPlugin

from lightning_rl.config.directories import GROUPS, PRIMARY, shipped_conf, user_confs

__all__ = ["GROUPS", "PRIMARY", "group_options", "hydra_ready", "is_path", "option_text", "shipped_conf", "user_confs"]


class UserConf(SearchPathPlugin):
    """Hydra plugin that puts the user's config directories before the package's."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Change the search path of this package's commands; Hydra calls this for every program."""
        if any(element.path == str(shipped_conf()) for element in search_path.get_path()):
            for path in user_confs():
                search_path.prepend("user", path, anchor="main")


@contextmanager
def hydra_ready() -> Iterator[Any]:
    """Context with Hydra initialised for the current search path, also within another one, as a sweep's."""
    Plugins.instance().register(UserConf)
    outer = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(shipped_conf()), job_name=PRIMARY, version_base="1.3"):
            yield GlobalHydra.instance().hydra
    finally:  # another instance by now: Hydra restores a copy
        GlobalHydra.instance().hydra = outer


def group_options(group: str) -> list[str]:
    """The choices of a config group, including the user's."""
    with hydra_ready() as hydra:
        options = hydra.config_loader.get_group_options(group, ObjectType.CONFIG)
        return sorted(option for option in options if not is_path(option))


def is_path(name: str) -> bool:
    """Whether a text is an import path, not the name of an option."""
    return "." in name or ":" in name


def option_text(group: str, name: str) -> str:
    """The YAML of a group's option (of the primary config for group ""), from the first directory that has it."""
    for directory in [*user_confs(), str(shipped_conf())]:
        file = Path(directory) / group / f"{name}.yaml"
        if file.is_file():
            return file.read_text(encoding="utf-8")
    return ""
