"""Composes the config groups and the user's overrides with Hydra into a plain dict."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import yaml
from hydra import compose
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from lightning_rl.config.groups import GROUPS, PRIMARY, group_options, hydra_ready, is_path, option_text
from lightning_rl.config.hydra_errors import no_choice, refusal
from lightning_rl.config.policy_option import policy_option
from lightning_rl.errors import ConfigError, first_line, import_object

__all__ = ["check_choices", "compose_config", "parse_overrides", "protected_groups", "store_policy", "typed_groups"]

# Mappings with keys of the user's own, which need no "+" on the command line.
OPEN = (
    "env.kwargs",
    "exploration",
    "rank_launcher.resources",
    "model.custom_model_config",
    "policy.config",
    "policies",
    "policy.optimizer_kwargs",
    "policy_mapping",
    "trainer",
    "workers.ray",
)
# Groups that accept such a mapping as a whole; a single key of "logger" is checked, because it may be a typo.
OPEN_AS_A_WHOLE = (*OPEN, "logger")
CHOOSE_THE_EXPERIMENT = ("policy", "env", "experiment")


def compose_config(overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Compose the configuration, resolve it, and return it as plain containers.

    Args:
        overrides: Hydra overrides, as typed on the command line: "policy=a2c", "policy.lr=1e-3",
            "env.id=my_pkg.envs:MyEnv".

    Raises:
        ConfigError: an unknown key or choice, an override that cannot be read, or a value that is missing.
    """
    overrides = complete_config(overrides)
    with hydra_ready():
        check_experiment(overrides)
        config = composed(overrides)
        before = HydraConfig.instance().cfg
        HydraConfig.instance().set_config(config)  # the name of run_dir contains the choices
        try:
            values = plain(config)
        finally:
            HydraConfig.instance().cfg = before
    if "_target_" not in values["policy"]:
        raise ConfigError(
            f"policy={config.hydra.runtime.choices.policy}: its file has no _target_, the import path of the policy's "
            "class: add it, or begin with the file of a policy, as `defaults: [ppo, _self_]`"
        )
    return values


def composed(overrides: Sequence[str]) -> DictConfig:
    """Compose a config with Hydra, which is initialized; its section `hydra` is included.

    Raises:
        ConfigError: an override or a file cannot be read, or an override names no key or choice.
    """
    try:
        return compose(PRIMARY, list(overrides), return_hydra_config=True)
    except HydraException as error:
        raise refusal(error, overrides) from error
    except yaml.YAMLError as error:  # it names the file and the line
        raise ConfigError(" ".join(str(error).split())) from error
    except (TypeError, ValueError) as error:  # of a number in the place of a choice
        raise ConfigError(f"{' '.join(overrides)}: {first_line(error)}") from error


def plain(config: DictConfig) -> dict[str, Any]:
    """A composed config as plain containers: resolved, without Hydra's own section, with the typed choices intact.

    Raises:
        ConfigError: a value is missing, or refers to a missing key.
    """
    restore_typed_choices(config)
    own = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
    try:
        container: Any = OmegaConf.to_container(own, resolve=True, throw_on_missing=True)
    except MissingMandatoryValue as error:
        raise ConfigError(missing_value(str(error.full_key), config)) from error
    except OmegaConfBaseException as error:
        # run_dir holds the overrides as they were typed, so that a wrong reference in one is met there as well.
        wrong = re.fullmatch(r"hydra\.overrides\.task\[(\d+)\]", error.full_key or "")
        place = typed_overrides(config.hydra)[int(wrong[1])] if wrong else error.full_key
        raise ConfigError(f"{place}: {first_line(error)}") from error
    return container


def typed_groups(overrides: Sequence[str]) -> set[str]:
    """Groups chosen by overrides, in which the experiment that a run takes by itself changes no key.

    None if the experiment is chosen as well: its keys apply on top of every choice. `policy` and `env` are never among
    them, because they choose the experiment.
    """
    choices = {key_of(override): override.partition("=")[2] for override in overrides}
    if "experiment" in choices:
        return set()
    return {key for key in GROUPS if key in choices and not choices[key].startswith("{")} - {*CHOOSE_THE_EXPERIMENT}


def protected_groups(hydra: Any) -> set[str]:
    """The typed groups of a composed config that the experiment which it takes by itself may change.

    Args:
        hydra: the config's section `hydra`.
    """
    groups, name = typed_groups(typed_overrides(hydra)), hydra.runtime.choices.get("experiment")
    if not groups or not name:
        return set()
    with hydra_ready() as ready:
        tuned = ready.config_loader.repository.load_config(f"experiment/{name}")
    if tuned is None:
        return set()
    return groups if tuned.defaults_list else {key for key in groups if key in tuned.config}


def typed_overrides(hydra: Any) -> list[str]:
    """The overrides as they were typed: a reference such as ${policy.lr} in one of them is not resolved."""
    typed: Any = OmegaConf.to_container(hydra.overrides.task, resolve=False)
    return typed


def restore_typed_choices(config: DictConfig) -> None:
    """Give the typed groups of a composed config the values that they have without the experiment taken by itself."""
    hydra = HydraConfig.get()
    groups = protected_groups(hydra)
    if groups:
        with hydra_ready():
            choices = composed([*typed_overrides(hydra), "experiment=none"])
        for group in groups:
            config[group] = choices[group]


def complete_config(overrides: Sequence[str]) -> list[str]:
    """Adapt the user's overrides for Hydra.

    With only an environment's id, `env=custom` is added, because the default environment's tuned values do not apply.
    With only a strategy's type, `exploration=custom` is added, because the default strategy's keys do not apply. Keys
    of an open mapping (`env.kwargs.a=1`, `env.kwargs={a: 1}`) get "++", without which Hydra takes no new keys. Before a
    mapping for a policy's key (a schedule), the key is set to null, because Hydra cannot merge a mapping into a number.

    Raises:
        ConfigError: the value for a group is not a choice.
    """
    for override in overrides:
        check_group(override)
    overrides = with_own_policies(overrides)
    keys = {key_of(override) for override in overrides}
    custom = ["env=custom"] if "env.id" in keys and not keys & {"env", "experiment"} else []
    custom += ["exploration=custom"] if "exploration.type" in keys and "exploration" not in keys else []
    opened = tuple(f"{name}." for name in OPEN)
    done = list(custom)
    for override in overrides:
        key, _, value = override.partition("=")
        if key.startswith(opened):
            done.append(f"++{override}")
        elif key.startswith("policy.") and value.startswith("{"):
            done += [f"{key}=null", f"++{override}"]
        elif key in OPEN_AS_A_WHOLE and value.startswith("{"):
            done.append(f"++{override}")
        else:
            done.append(override)
    return done


def missing_value(key: str, config: DictConfig) -> str:
    """The message for a key without a value, with the examples in the head of the group's file that left it open."""
    group = key.partition(".")[0]
    head = option_text(group, str(config.hydra.runtime.choices.get(group))).partition("\n")[0]
    examples = " or ".join(text.rstrip(",.;") for text in re.findall(rf"{re.escape(key)}=\S+", head))
    return f"{key} has no value: set it with {key}=…" + (f"; for example {examples}" if examples else "")


def check_group(override: str) -> None:
    """Check that a group is given the name of a choice; for a number, bool or null Hydra would end with a traceback.

    Raises:
        ConfigError: names what was written, and the choices.
    """
    group = key_of(override).partition("@")[0]
    if group not in GROUPS:
        return
    (parsed,) = parse([override])
    value: Any = parsed.value()
    if group == "policy" and isinstance(value, dict):
        keys = " ".join(f"policy.{key}=…" for key in value) or "policy.KEY=…"
        raise ConfigError(f"{override}: a policy's keys are given one by one, as {keys}")
    if not (parsed.is_sweep_override() or isinstance(value, str | dict)):
        names = isinstance(value, list) and all(isinstance(choice, str) for choice in value)
        if override.startswith("~") and group != "experiment":
            raise ConfigError(f"{override}: a run needs its {group}; choose one with {group}=…")
        if not names and not parsed.is_delete():
            raise ConfigError(no_choice(group, override.partition("=")[2], group_options(group)))


def with_own_policies(overrides: Sequence[str]) -> Sequence[str]:
    """Add an option for each policy given by its import path, as `policy=path` or `policy._target_=path`."""
    if not any(override.startswith("policy=") for override in overrides):
        overrides = [override.replace("policy._target_=", "policy=", 1) for override in overrides]
    for override in overrides:
        if override.startswith("policy="):
            choices = override.removeprefix("policy=").replace("\\", "").split(",")  # Hydra's sweeper writes \:
            for path in filter(is_path, (choice.strip("'\"") for choice in choices)):
                store_policy(path)
    return overrides


def store_policy(path: str, policy_class: Any = None) -> None:
    """Register an option `policy=path` for this class, or for the one imported from `path`.

    Raises:
        ConfigError: there is no such class, or it is not a policy.
    """
    store = ConfigStore.instance()
    if policy_class is None and f"{path}.yaml" in store.repo.get("policy", {}):
        return
    policy_class = import_object(path) if policy_class is None else policy_class
    if not hasattr(policy_class, "has_loss"):
        raise ConfigError(f"policy={path} is {policy_class!r}; expected a subclass of lightning_rl.Policy")
    shipped = [(option, option_text("policy", option)) for option in group_options("policy")]
    store.store(name=path, group="policy", node=policy_option(policy_class, shipped))


def key_of(override: str) -> str:
    """The key of an override: "policy.lr" of "+policy.lr=1e-3"."""
    return override.lstrip("+~").split("=", 1)[0]


def env_name() -> str:
    """The environment in the name of a run's directory: the choice of `env`, or the last part of a typed `env.id`."""
    hydra = HydraConfig.get()
    ids = [override.partition("=")[2] for override in typed_overrides(hydra) if key_of(override) == "env.id"]
    return re.split(r"[:/.]", ids[-1].strip("'\""))[-1] if ids else hydra.runtime.choices["env"]


OmegaConf.register_new_resolver("env_name", env_name, replace=True)


def check_choices(overrides: Sequence[str]) -> None:
    """Refuse two different choices for one group on a command line, of which Hydra would silently take the last.

    Raises:
        ConfigError: a group is given twice, with different choices.
    """
    chosen: dict[str, str] = {}
    for override in overrides:
        key, _, choice = override.partition("=")
        if key in GROUPS and chosen.setdefault(key, choice) != choice:
            raise ConfigError(
                f"{key}={chosen[key]} and {key}={choice}: one of them; to run both, add -m and write "
                f"{key}={chosen[key]},{choice}"
            )


def check_experiment(overrides: Sequence[str]) -> None:
    """Refuse an experiment that does not exist; as it is optional in the defaults list, Hydra would skip it silently.

    Raises:
        ConfigError: the experiment does not exist.
    """
    chosen = [override.split("=", 1)[1] for override in overrides if override.startswith("experiment=")]
    if chosen:
        options = GlobalHydra.instance().config_loader().get_group_options("experiment", ObjectType.CONFIG)
        if chosen[-1] not in options:
            raise ConfigError(no_choice("experiment", chosen[-1], options))


def parse_overrides(overrides: Sequence[str]) -> dict[str, Any]:
    """Dotted key → value of plain "key=value" overrides, for a config that is composed already.

    Raises:
        ConfigError: an override cannot be read.
    """
    return {override.key_or_group: override.value() for override in parse(overrides)}


def parse(overrides: Sequence[str]) -> list[Override]:
    """Parse overrides with Hydra's parser.

    Raises:
        ConfigError: an override cannot be read.
    """
    try:
        return OverridesParser.create().parse_overrides(list(overrides))
    except HydraException as error:
        raise refusal(error, overrides) from error
