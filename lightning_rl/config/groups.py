"""Finds the config groups and their choices, in the user's directories and in the package's own.

Groups are searched in `./conf` of the working directory, then in the directories of `LIGHTNING_RL_SEARCH_PATH`, then
in the package, so a user's option adds to the package's ones, or replaces one of the same name.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hydra import initialize_config_dir
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult, ConfigSource
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import OmegaConf

from lightning_rl.config.constructors import signature_at
from lightning_rl.config.directories import GROUPS, PRIMARY, option_text, shipped_conf, user_confs

__all__ = ["GROUPS", "PRIMARY", "group_options", "hydra_ready", "is_path", "option_text", "shipped_conf", "user_confs"]


class UserConf(SearchPathPlugin):
    """Hydra plugin that puts the user's config directories before the package's, and constructors after them."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Change the search path of this package's commands; Hydra calls this for every program."""
        if any(element.path == str(shipped_conf()) for element in search_path.get_path()):
            for path in user_confs():
                search_path.prepend("user", path, anchor="main")
            search_path.append("constructors", f"{Constructors.scheme()}://")


class Constructors(ConfigSource):
    """Hydra plugin by which a policy's file begins with the keywords of its constructor, as `signature/PPO@_here_`."""

    @staticmethod
    def scheme() -> str:
        """Of paths in the search path."""
        return "signature"

    def load_config(self, config_path: str) -> ConfigResult:
        """The keywords of a class, with their defaults."""
        node = {name: keyword.default for name, keyword in signature_at(config_path).items()}
        return ConfigResult(self.provider, self.full_path(), OmegaConf.create(node), header={"package": None})

    def is_config(self, config_path: str) -> bool:
        """Whether a path is that of a class with keywords."""
        return bool(signature_at(config_path))

    def is_group(self, config_path: str) -> bool:
        """Whether a path is that of a group."""
        return False

    def available(self) -> bool:
        """Whether the source is there."""
        return True

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        """No choices: a signature is the beginning of a file."""
        return []


@contextmanager
def hydra_ready() -> Iterator[Any]:
    """Context with Hydra initialized for the current search path, also within another one, as a sweep's."""
    Plugins.instance().register(UserConf)
    Plugins.instance().register(Constructors)
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
