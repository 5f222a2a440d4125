"""Hydra in, a plain dict out: composes the config groups with the overrides, and says clearly what does not compose.

Groups are looked for in `./conf` of the working directory, then in the directories of `LIGHTNING_RL_SEARCH_PATH`, then
in the package, so a user's option adds to the shipped ones, or replaces the one of the same name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from lightning_rl.config_check import dotted, unknown_key
from lightning_rl.errors import ConfigError, did_you_mean, import_object
from lightning_rl.policy_option import policy_option

__all__ = ["GROUPS", "compose_config", "group_options", "option_text", "parsed_overrides"]

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
# Mappings that take keys of the user's own, so these need no "+" on the command line.
OPEN = (
    "env.kwargs",
    "exploration",
    "launcher.resources",
    "model.custom_model_config",
    "policy.config",
    "policy.optimizer_kwargs",
    "trainer",
    "workers.ray",
)


def shipped_conf() -> Path:
    """The directory of the package's own configs: inside it in a wheel, beside it in a checkout."""
    inside = Path(__file__).parent / "conf"
    return inside if inside.is_dir() else Path(__file__).parents[1] / "conf"


def user_confs() -> list[str]:
    """The user's config directories (and pkg://… entries), first one first.

    Raises:
        ConfigError: a directory of `LIGHTNING_RL_SEARCH_PATH` is not there.
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


class UserConf(SearchPathPlugin):
    """Puts the user's config directories before the shipped one."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Called by Hydra for every program; only this package's own search path is changed."""
        if any(element.path == str(shipped_conf()) for element in search_path.get_path()):
            for path in user_confs():
                search_path.prepend("user", path, anchor="main")


@contextmanager
def hydra_ready() -> Iterator[Any]:
    """Hydra with the search path of now; its errors come out as `ConfigError`."""
    Plugins.instance().register(UserConf)
    with initialize_config_dir(str(shipped_conf()), job_name=PRIMARY, version_base="1.3"):
        yield GlobalHydra.instance().hydra


def group_options(group: str) -> list[str]:
    """The choices of a config group, the user's among them."""
    with hydra_ready() as hydra:
        options = hydra.config_loader.get_group_options(group, ObjectType.CONFIG)
        return sorted(option for option in options if not is_path(option))


def compose_config(overrides: Sequence[str] = ()) -> dict[str, Any]:
    """The resolved configuration as plain containers.

    Args:
        overrides: as on the command line: "policy=a2c", "policy.lr=1e-3", "env.id=my_pkg.envs:MyEnv".

    Raises:
        ConfigError: an unknown key or choice, an override that cannot be read, or a value that is missing.
    """
    overrides = completed(overrides)
    with hydra_ready():
        check_experiment(overrides)
        try:
            config = compose(PRIMARY, list(overrides), return_hydra_config=True)
        except HydraException as error:
            raise ConfigError(explanation(error, overrides)) from error
        before = HydraConfig.instance().cfg
        HydraConfig.instance().set_config(config)  # run_dir names the choices
        try:
            return plain(config)
        finally:
            HydraConfig.instance().cfg = before


def plain(config: DictConfig) -> dict[str, Any]:
    """A composed config without Hydra's part, resolved, as plain containers.

    Raises:
        ConfigError: a value is missing, or refers to something that is not there.
    """
    own = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
    try:
        container = OmegaConf.to_container(own, resolve=True, throw_on_missing=True)
    except MissingMandatoryValue as error:
        example = "; for example env.id=CartPole-v1 or env.id=my_pkg.envs:MyEnv" if error.full_key == "env.id" else ""
        raise ConfigError(f"{error.full_key} has no value: set it with {error.full_key}=…{example}") from error
    except OmegaConfBaseException as error:
        raise ConfigError(f"{error.full_key}: {first_line(error)}") from error
    return plain_keys(container)


def plain_keys(container: Any) -> dict[str, Any]:
    """A mapping from OmegaConf with what its keys are, text, said to the type checker."""
    return {str(key): value for key, value in container.items()}


def completed(overrides: Sequence[str]) -> list[str]:
    """The overrides as Hydra needs them.

    Only an id given: `env=custom`, because the default environment's tuned values are not that one's. Only a strategy's
    type given: `exploration=custom`, because the default strategy's keys are not that one's. A key of an open
    mapping: "++", because Hydra takes no new keys without it. A mapping for a policy's key (a schedule): null
    first, because Hydra cannot merge a mapping into the list or number that is there.
    """
    overrides = with_own_policies(overrides)
    keys = {key_of(override) for override in overrides}
    custom = ["env=custom"] if "env.id" in keys and not keys & {"env", "experiment"} else []
    custom += ["exploration=custom"] if "exploration.type" in keys and "exploration" not in keys else []
    opened = tuple(f"{name}." for name in OPEN)
    done = list(custom)
    for override in overrides:
        if override.startswith(opened):
            done.append(f"++{override}")
        elif override.startswith("policy.") and override.partition("=")[2].startswith("{"):
            done += [f"{key_of(override)}=null", f"++{override}"]
        else:
            done.append(override)
    return done


def with_own_policies(overrides: Sequence[str]) -> Sequence[str]:
    """Make an option of each policy that is given by its import path, as `policy=path` or `policy._target_=path`."""
    if not any(override.startswith("policy=") for override in overrides):
        overrides = [override.replace("policy._target_=", "policy=", 1) for override in overrides]
    for override in overrides:
        if override.startswith("policy="):
            for path in filter(is_path, override.removeprefix("policy=").strip("'").split(",")):
                store_policy(path)
    return overrides


def is_path(name: str) -> bool:
    """Whether this is an import path, and not the name of an option."""
    return "." in name or ":" in name


def store_policy(path: str, policy_class: Any = None) -> None:
    """Make `policy=path` mean this class, or the one that is to be imported from there.

    Raises:
        ConfigError: there is none, or it is no policy.
    """
    store = ConfigStore.instance()
    if policy_class is None and f"{path}.yaml" in store.repo.get("policy", {}):
        return
    policy_class = import_object(path) if policy_class is None else policy_class
    if not hasattr(policy_class, "written_from_scratch"):
        raise ConfigError(f"policy={path} is {policy_class!r}; expected a subclass of lightning_rl.Policy")
    shipped = [(option, option_text("policy", option)) for option in group_options("policy")]
    store.store(name=path, group="policy", node=policy_option(policy_class, shipped))


def key_of(override: str) -> str:
    """What an override sets: "policy.lr" of "+policy.lr=1e-3"."""
    return override.lstrip("+~").split("=", 1)[0]


def check_experiment(overrides: Sequence[str]) -> None:
    """The experiment is optional in the defaults list, so Hydra would pass over a name that is not there.

    Raises:
        ConfigError: the experiment asked for does not exist.
    """
    chosen = [override.split("=", 1)[1] for override in overrides if override.startswith("experiment=")]
    if chosen:
        options = GlobalHydra.instance().config_loader().get_group_options("experiment", ObjectType.CONFIG)
        if chosen[-1] not in options:
            raise ConfigError(no_choice("experiment", chosen[-1], options))


def explanation(error: HydraException, overrides: Sequence[str]) -> str:
    """One line that names what the user wrote, what is expected, and what to write instead."""
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        group, _, name = error.missing_cfg_file.rpartition("/")
        return no_choice(group, name, error.options or [])
    if isinstance(error, OverrideParseException):
        advice = "write key=value, and quote a value that holds , = or spaces"
        return f"override {error.override!r} cannot be read ({first_line(error)}): {advice}"
    ambiguous = re.match(r"Ambiguous value for argument '(.*)'", str(error))
    if ambiguous:
        return f"{ambiguous[1]!r} is a sweep: add -m to run every value, or write key=[a,b] for a list"
    unknown = re.match(r"Could not override '([^']+)'", str(error))
    if unknown:
        return no_key(unknown[1], [override for override in overrides if override.split("=")[0] in GROUPS])
    return " ".join(line.strip() for line in str(error).splitlines() if line.strip())


def no_choice(group: str, name: str, options: Iterable[str]) -> str:
    """`group=name` does not exist; which ones do."""
    known = sorted(options)
    if not known:
        return f"{group}={name}: no config group {group!r}.{did_you_mean(group, GROUPS)} Groups: {', '.join(GROUPS)}"
    advice = " (an environment without a preset: env.id=ID or env.id=my_pkg.envs:MyEnv)" if group == "env" else ""
    return f"{group}={name}: no such {group}.{did_you_mean(name, known)} Choices: {', '.join(known)}{advice}"


def no_key(key: str, choices: Sequence[str]) -> str:
    """There is no such key; the nearest one in the config that these choices compose."""
    known = [*GROUPS, *dotted(plain_of_choices(choices))]
    section, _, name = key.rpartition(".")
    siblings = [other.rpartition(".")[2] for other in known if other.rpartition(".")[0] == section]
    if section and siblings:
        return unknown_key(section, name, [sibling for sibling in siblings if sibling != "_target_"])
    same_name = [other for other in known if other.rpartition(".")[2] == key]
    suggestion = f" Did you mean {same_name[0]!r}?" if same_name else did_you_mean(key, known)
    groups = f" Groups: {', '.join(GROUPS)}"
    return f"no key {key!r}.{suggestion or groups}"


def plain_of_choices(choices: Sequence[str]) -> Mapping[str, Any]:
    """The config of these group choices alone, unresolved; of the defaults where they do not compose either."""
    try:
        config = compose(PRIMARY, list(choices))
    except HydraException:
        config = compose(PRIMARY)
    return plain_keys(OmegaConf.to_container(config))


def first_line(error: Exception) -> str:
    """An error's message without what follows its first line."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def option_text(group: str, name: str) -> str:
    """The YAML of a group's option (of the primary config for group ""), from the first directory that has it."""
    for directory in [*user_confs(), str(shipped_conf())]:
        file = Path(directory) / group / f"{name}.yaml"
        if file.is_file():
            return file.read_text(encoding="utf-8")
    return ""


def parsed_overrides(overrides: Sequence[str]) -> dict[str, Any]:
    """Dotted key → value of plain "key=value" overrides, which a config that is already composed shall take.

    Raises:
        ConfigError: an override cannot be read.
    """
    try:
        parsed = OverridesParser.create().parse_overrides(list(overrides))
    except HydraException as error:
        raise ConfigError(explanation(error, overrides)) from error
    return {override.key_or_group: override.value() for override in parsed}
