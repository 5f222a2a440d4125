"""Finds out where a config value comes from: which lines of which files, and which overrides, set it one after another.

Hydra merges the files of its defaults list in order, and then the overrides. The same list is walked here, with the
place of every key in the text of each file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import OmegaConf

from lightning_rl.config.compose import complete_config, compose_config, typed_groups
from lightning_rl.config.constructors import KeywordInSource, signature_at
from lightning_rl.config.groups import GROUPS, PRIMARY, hydra_ready
from lightning_rl.config.hydra_errors import refusal
from lightning_rl.config.keys import dotted_keys, value_at

__all__ = ["Setting", "changed_keys", "settings_of"]

REFERENCE = re.compile(r"\$\{(\w+(?:\.\w+)*)\}")  # a value that is another key's
COMMAND_LINE = "command line"


@dataclass(frozen=True, slots=True)
class Setting:
    """One place that sets a key.

    Args:
        key: dotted; that of a section which holds the key, if the place sets the section.
        value: the text of the value in that file.
        place: "FILE:LINE", of a config or of a constructor, or "command line".
        reason: what chose the file, such as "env=cartpole"; empty for the primary config.
    """

    key: str
    value: str
    place: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A file of the defaults list: the section that it sets, its YAML, whose marks say where it is, and its choice."""

    package: str
    node: yaml.Node | None
    reason: str


def settings_of(key: str, overrides: Sequence[str] = ()) -> list[Setting]:
    """Everything that sets a key of a composed config, in the order in which it is merged: the last one holds.

    A value that refers to another key (`model: ${model}`) is followed by what sets that key.

    Args:
        key: dotted.
        overrides: Hydra overrides, as typed on the command line.

    Raises:
        ConfigError: an override cannot be read, or a choice does not exist.
    """
    files, given = _merged(overrides)
    return list(_settings(key, files, given, followed=set()))


def changed_keys(overrides: Sequence[str]) -> dict[str, tuple[Any, Any, str]]:
    """Key → (value, default, place that sets it) for each key with another value than its choices give by themselves.

    The defaults are those of the same choices of groups (`policy=dqn env=pendulum`) with `experiment=none`. Copies of a
    section, as of `model` in `policy.model`, are left out.

    Raises:
        ConfigError: the overrides do not compose.
    """
    config = compose_config(overrides)
    choices = [override for override in overrides if override.partition("=")[0] in GROUPS]
    needed = [override for override in overrides if override.startswith("env.id=")]
    kept = [choice for choice in choices if not choice.startswith("experiment=")]
    run_dir = config["run_dir"].replace("'", r"\'")  # by default it has the time: two configs would have two
    defaults = compose_config([*kept, *needed, "experiment=none", f"run_dir='{run_dir}'"])
    files, given = _merged(overrides)
    found = {}
    for key in dotted_keys(config):
        value, default = value_at(config, key), value_at(defaults, key)
        if isinstance(value, dict) or value == default or key in ("run_dir", "overrides"):
            continue
        own = [setting for setting in _settings(key, files, given, followed=set()) if _covers(setting.key, key)]
        if own and not REFERENCE.fullmatch(own[-1].value):
            found[key] = (value, default, own[-1].place)
    return found


def _merged(overrides: Sequence[str]) -> tuple[list[ConfigFile], list[Override]]:
    """The files of the defaults list in the order in which Hydra merges them, and the overrides of keys."""
    overrides = complete_config(overrides)
    chosen = {override.lstrip("+").partition("=")[0]: override for override in overrides}
    typed = typed_groups(overrides)
    with hydra_ready() as hydra:
        loader = hydra.config_loader
        try:
            listed = loader.compute_defaults_list(PRIMARY, list(overrides), RunMode.RUN)
        except HydraException as error:
            raise refusal(error, overrides) from error
        files = []
        for default in listed.defaults:
            if default.config_path is None or default.config_path.startswith("hydra/"):
                continue
            source = loader.repository.load_config(default.config_path)
            if source is None:
                continue
            if keywords := signature_at(default.config_path):
                node = _signature(keywords)
            elif source.path.startswith("file://"):
                file = Path(source.path.removeprefix("file://")) / f"{default.config_path}.yaml"
                node = _yaml(file.read_text(encoding="utf-8"), str(file))
                if default.config_path.startswith("experiment/") and isinstance(node, yaml.MappingNode):
                    node.value = [pair for pair in node.value if pair[0].value not in typed]
            else:  # a policy's own keywords (`store_policy`), or a package's config
                place = f"constructor of {default.config_path.removeprefix('policy/')}"
                node = _yaml(OmegaConf.to_yaml(source.config), place)
            group = (default.override_key or default.config_path).partition("/")[0]
            files.append(ConfigFile(default.package or "", node, chosen.get(group, "")))
        return files, list(listed.config_overrides)


def _yaml(text: str, place: str) -> yaml.Node | None:
    """The nodes of a text; their marks name its place."""
    loader = yaml.SafeLoader(text)
    loader.name = place
    return loader.get_single_node()


def _signature(keywords: Mapping[str, KeywordInSource]) -> yaml.Node:
    """The keywords of a policy's constructor; the marks of their names are lines in its source."""
    pairs = []
    for name, keyword in keywords.items():
        mark = yaml.Mark(keyword.file, 0, keyword.line - 1, 0, "", 0)
        pairs.append((yaml.ScalarNode("str", name, mark), yaml.compose(yaml.safe_dump(keyword.default))))
    return yaml.MappingNode("map", pairs, pairs[-1][0].start_mark)


def _settings(key: str, files: list[ConfigFile], given: list[Override], followed: set[str]) -> Iterator[Setting]:
    found = [setting for file in files if (setting := _setting_in(file, key)) is not None]
    found += [
        Setting(override.key_or_group, (override.input_line or "").partition("=")[2], COMMAND_LINE)
        for override in given
        if _covers(override.key_or_group, key) or override.key_or_group.startswith(f"{key}.")
    ]
    for setting in found:
        yield setting
        refers = REFERENCE.fullmatch(setting.value)
        if refers and refers[1] not in followed:
            rest = key.removeprefix(setting.key)
            yield from _settings(f"{refers[1]}{rest}", files, given, followed | {refers[1]})


def _covers(setting: str, key: str) -> bool:
    """Whether what sets one key sets the other: they are equal, or the first is a section around the second."""
    return key == setting or key.startswith(f"{setting}.")


def _setting_in(file: ConfigFile, key: str) -> Setting | None:
    """The place of a key in a file; if the file sets a section around it to one value, the place of that section."""
    if file.package and not _covers(file.package, key):
        return None
    parts = key.removeprefix(file.package).strip(".").split(".") if key != file.package else []
    at, node = [file.package] if file.package else [], file.node
    mark = None
    for part in parts:
        pairs = node.value if isinstance(node, yaml.MappingNode) else []
        pair = next(((name, value) for name, value in pairs if name.value == part), None)
        if pair is None:
            break
        at, mark, node = [*at, part], pair[0].start_mark, pair[1]
    whole = ".".join(at) == key
    if not parts and isinstance(node, yaml.MappingNode):
        return Setting(key, f"{len(node.value)} keys", _place(node.start_mark), file.reason)
    if node is None or mark is None or not (whole or isinstance(node, yaml.ScalarNode)):
        return None
    value = node.value if isinstance(node, yaml.ScalarNode) else _one_line(node)
    return Setting(".".join(at), value, _place(mark), file.reason)


def _place(mark: yaml.Mark) -> str:
    return f"{mark.name}:{mark.line + 1}" if mark.name.endswith((".yaml", ".py")) else mark.name


def _one_line(node: yaml.Node) -> str:
    text = yaml.serialize(node)
    return yaml.safe_dump(yaml.safe_load(text), default_flow_style=True, width=1_000, sort_keys=False).strip()
