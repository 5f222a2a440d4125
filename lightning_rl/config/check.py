"""Looks at a whole configuration before anything starts: keys, types, ranges, names, and what does not fit together.

Keys and types of a section come from the constructor that takes it; only what no constructor takes is written down
here. What needs no torch is looked at first, so that most mistakes cost no import.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lightning_rl.config.batches import check_minibatches, check_population, check_traces
from lightning_rl.config.keys import unknown_key, value_at
from lightning_rl.config.policy_option import takes_config
from lightning_rl.config.schema import NAMES, RANGES, SECTIONS, TRAINER_KEYS_WITH_A_HOME
from lightning_rl.config.shares import in_env_steps_of_run
from lightning_rl.errors import ConfigError, did_you_mean, import_object
from lightning_rl.ranks.local import ranks_of
from lightning_rl.rollouts.supervision import limits_of
from lightning_rl.schedules import check_schedule, in_env_steps, schedule_points
from lightning_rl.signatures import fits, keywords_of, spelled
from lightning_rl.trainer.device_check import check_devices

__all__ = ["check_config"]

Config = Mapping[str, Any]

NOT_POLICY = ("observation_space", "action_space", "config")  # constructor arguments that no config gives
NOT_DATA = ("env", "workers", "evaluation", "seed", "callbacks")


def check_config(config: Config) -> None:
    """Refuse a configuration that cannot work.

    Args:
        config: plain containers, as `compose_config` gives them.

    Raises:
        ConfigError: names the key, its value, what is expected and what to write instead.
    """
    for section, schema in SECTIONS.items():
        values = config if not section else config.get(section, {})
        _check_section(section, values, schema)
    _check_ranges(config)
    limits_of(config["workers"])
    _check_env(config)
    _check_evaluation(config)
    check_minibatches(config)
    check_population(config)
    _check_metrics(config)
    _check_constructors(config)


def _check_section(section: str, values: Config, schema: Mapping[str, Any]) -> None:
    """Keys that are unknown or missing, and values of another type."""
    prefix = f"{section}." if section else ""
    for key in values:
        if key not in schema:
            raise ConfigError(unknown_key(section, str(key), schema))
    for key, hint in schema.items():
        if key in values and not fits(values[key], hint):
            raise ConfigError(f"{prefix}{key}={values[key]!r} is {_kind(values[key])}; expected {spelled(hint)}")
    missing = [key for key in schema if key not in values] if not section else []
    if missing:
        raise ConfigError(f"the config has no {missing[0]!r}; start from lightning_rl.config.compose_config()")


def _check_ranges(config: Config) -> None:
    for name, (low, high) in RANGES.items():
        value = value_at(config, name)
        numbers = [value]
        if isinstance(value, list | Mapping):
            value = in_env_steps(value, config["total_env_steps"])
            check_schedule(name, value)
            numbers = schedule_points(value)
        for number in numbers:
            if isinstance(number, int | float) and (number < low or (high is not None and number > high)):
                expected = f"at least {low}" if high is None else f"between {low} and {high}"
                raise ConfigError(f"{name}={value!r}; expected {expected}")
    for name, choices in NAMES.items():
        value = value_at(config, name)
        if value not in choices:
            raise ConfigError(f"{name}={value!r}; expected {' or '.join(choices)}.{did_you_mean(value, choices)}")
    wanted = value_at(config, "stop.return")
    if isinstance(wanted, str) and wanted != "auto":
        raise ConfigError(f"stop.return={wanted!r}; expected a number, null, or auto (the env's reward_threshold)")


def _check_env(config: Config, section: str = "env") -> None:
    """An id that no environment is registered under."""
    name = value_at(config, f"{section}.id")
    if not isinstance(name, str) or ":" in name:
        return  # an import path: imported when the environment is made, so that its own error shows
    import gymnasium

    from lightning_rl.rollouts.atari import is_atari, register
    from lightning_rl.rollouts.registry import registered_envs

    if is_atari(name) and not register():
        return  # making it says what to install
    known = [*registered_envs(), *gymnasium.registry]
    if name not in known:
        raise ConfigError(
            f"{section}.id={name!r} is no registered environment.{did_you_mean(name, known)} "
            "`lightning-rl list envs` names the presets; your own: env.id=my_pkg.envs:MyEnv"
        )


def _check_evaluation(config: Config) -> None:
    if config["evaluation"].get("parallel") and not config["evaluation"].get("num_workers"):
        raise ConfigError("evaluation.parallel=true needs processes of its own: set evaluation.num_workers=1 or more")
    if value_at(config, "evaluation.env") is not None:
        _check_env(config, "evaluation.env")


def _check_constructors(config: Config) -> None:
    """The sections that a constructor takes, against its signature."""
    from lightning.pytorch import Trainer

    from lightning_rl.callbacks.checkpoint import RLCheckpoint
    from lightning_rl.models.catalog import model_config
    from lightning_rl.rollouts.envs import EnvCreator

    policy = dict(config["policy"])
    target = policy.pop("_target_", None)
    if not isinstance(target, str | type):
        raise ConfigError(f"policy._target_={target!r}; expected an import path, such as lightning_rl.policies.PPO")
    policy_class = import_object(target) if isinstance(target, str) else target
    _check_policy(target, policy_class)
    check_traces(config, policy_class)
    if policy_class.learns_alone and ranks_of(config) > 1:
        raise ConfigError(
            f"policy {policy_class.__name__} learns by its own learn_on_batch, which knows nothing of other ranks: "
            "set trainer.devices=1"
        )
    _check_keywords("policy", policy, policy_class, NOT_POLICY[: -1 if takes_config(policy_class) else None])
    _check_exploration(policy.get("exploration"))
    model_config(config["model"])
    _check_keywords("env", config["env"], EnvCreator)
    if config["evaluation"]["env"] is not None:
        _check_keywords("evaluation.env", config["evaluation"]["env"], EnvCreator)
    data = dict(config["data"])
    _check_keywords("data", data, _data_class(data.pop("_target_", None)), NOT_DATA)
    _check_keywords("checkpoint", config["checkpoint"], RLCheckpoint, ("dirpath",))
    in_env_steps_of_run(config)  # looks at schedules
    for key in config["trainer"]:
        if key in TRAINER_KEYS_WITH_A_HOME:
            raise ConfigError(f"trainer.{key} is set by lightning_rl: use {TRAINER_KEYS_WITH_A_HOME[key]}")
    check_devices(config["trainer"], config["workers"])
    launcher = dict(config["launcher"])
    _check_keywords(
        "launcher", launcher, import_object(launcher.pop("_target_", "lightning_rl.ranks.launchers:LocalLauncher"))
    )
    _check_keywords("trainer", config["trainer"], Trainer, TRAINER_KEYS_WITH_A_HOME)


def _data_class(target: Any) -> Any:
    """The DataModule that `data._target_` names."""
    from lightning_rl.data.datamodule import RolloutDataModule

    found = import_object(target) if isinstance(target, str) else target
    if not (isinstance(found, type) and issubclass(found, RolloutDataModule)):
        raise ConfigError(
            f"data._target_={target!r}; expected the import path of a RolloutDataModule, such as "
            "lightning_rl.data.datamodule:RolloutDataModule"
        )
    return found


def _check_exploration(exploration: Config | None) -> None:
    """The strategy's name, and its keys against its constructor."""
    from lightning_rl.exploration.making import SPACES, strategy_class

    if exploration:
        keywords = {key: value for key, value in exploration.items() if key != "type"}
        _check_keywords("exploration", keywords, strategy_class(exploration.get("type", "stochastic_sampling")), SPACES)


def _check_policy(named: Any, found: Any) -> None:
    """Whether a class keeps the contract of a policy."""
    from lightning_rl.policies import Policy

    if not (isinstance(found, type) and issubclass(found, Policy)):
        raise ConfigError(f"policy={named!r} is {found!r}; expected a subclass of lightning_rl.Policy")
    if found.loss is Policy.loss and found.learn_on_batch is Policy.learn_on_batch:
        raise ConfigError(
            f"policy {found.__name__} defines neither loss(batch) -> (scalar, metrics) nor, written from scratch, "
            "compute_actions and learn_on_batch"
        )


def _check_keywords(section: str, values: Config, target: Any, without: Iterable[str] = ()) -> None:
    taken = {name: keyword.annotation for name, keyword in keywords_of(target).items() if name not in without}
    _check_section(section, values, taken)


def _check_metrics(config: Config) -> None:
    from lightning_rl.callbacks.metric_names import check_metric

    check_metric("stop.metric", config["stop"]["metric"])
    if config["checkpoint"].get("monitor") is not None:
        check_metric("checkpoint.monitor", config["checkpoint"]["monitor"])


def _kind(value: Any) -> str:
    return spelled(type(value)) or type(value).__name__
