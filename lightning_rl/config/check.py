"""Checks a whole configuration before a run starts: keys, types, ranges, names, and combinations.

Keys and types of a section come from the signature of its constructor; only keys without a constructor are listed here.
Checks that need no torch come first, so that most mistakes are reported without imports.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from typing import Any, Protocol, runtime_checkable

from lightning_rl.config.batch_sizes import check_fragment_length, check_minibatches, check_population
from lightning_rl.config.devices import check_devices
from lightning_rl.config.keys import dotted_keys, value_at
from lightning_rl.config.policies import complete_policies
from lightning_rl.config.policy_option import space_arguments, takes_config
from lightning_rl.config.ranks import ranks_of
from lightning_rl.config.schema import TRAINER_KEYS_WITH_A_HOME, RunKeys, StopSection, TrainerSection
from lightning_rl.errors import ConfigError, import_object, short_repr
from lightning_rl.rollouts.processes.limits import limits_of
from lightning_rl.rollouts.worker_options import WORKERS
from lightning_rl.run_directory.atomic import why_not_writable
from lightning_rl.schema.signatures import ImportPath, coerce, coerce_keywords, hints_of, in_env_steps, keywords_of

__all__ = ["check_config"]

Config = Mapping[str, Any]

NOT_STOP = ("total_env_steps", "target_return", "signals")
LOCAL_LAUNCHER = "lightning_rl.runs.launchers:LocalLauncher"


@runtime_checkable
class Launcher(Protocol):
    """Runs the training loop of a config, here or elsewhere."""

    def launch(self, config: Config, ckpt_path: Any = None, watch: Any = None) -> None:
        """Train."""


def check_config(config: dict[str, Any]) -> None:
    """Check a configuration, and convert values in place, such as 1e5 to 100000 for an integer.

    Args:
        config: plain containers, as from `compose_config`; changed in place.

    Raises:
        ConfigError: names the key, its value, what is expected and what to write instead.
    """
    hints = hints_of(RunKeys)
    if missing := [key for key in hints if key not in config]:
        raise ConfigError(f"the config has no {missing[0]!r}; start from lightning_rl.config.compose_config()")
    config |= coerce_keywords("", config, hints)
    _coerce_section(config, "workers", WORKERS.hints)
    limits_of(config["workers"])
    _check_run_dir(config["run_dir"])
    _check_env(config)
    _check_constructors(config)


def _coerce_values(section: str, values: Any, hints: Mapping[str, Any], config: Config) -> Any:
    """Coerce the values of a section to their hints; shares of the run are checked as env steps, and kept as shares."""
    given = in_env_steps(values, hints, config["total_env_steps"]) if isinstance(values, Mapping) else values
    found = coerce_keywords(section, given, hints, [*dotted_keys(config)])
    return {key: found[key] if given[key] is value else value for key, value in values.items()}


def _coerce_section(config: dict[str, Any], section: str, hints: Mapping[str, Any]) -> None:
    config[section] = _coerce_values(section, config[section], hints, config)


def _check_run_dir(run_dir: str) -> None:
    """Refuse a run directory that cannot exist."""
    if why := "it is empty" if not run_dir else why_not_writable(run_dir):
        raise ConfigError(f"run_dir={short_repr(run_dir)} cannot be a run's directory: {why}")


def _check_env(config: Config, section: str = "env") -> None:
    """Refuse an id without a registered environment, and one whose package is not installed."""
    name = value_at(config, f"{section}.id")
    if not isinstance(name, str):
        return
    from lightning_rl.envs.creator import check_installed, suggest_id

    check_installed(name)
    if ":" in name or is_module(name):
        return  # an import path is imported when the environment is created, which shows its own errors
    import gymnasium

    from lightning_rl.envs.atari import is_atari, register
    from lightning_rl.envs.registry import registered_envs

    if is_atari(name) and not register():
        return  # its creation says what to install
    if name not in (*registered_envs(), *gymnasium.registry):
        suggested = suggest_id(name)
        advice = " `lightning-rl list envs` names the presets; your own: env.id=my_pkg.envs:MyEnv"
        raise ConfigError(
            f"{section}.id={short_repr(name)} is not a registered environment.{suggested}"
            f"{'' if 'env.id=' in suggested else advice}"
        )


def is_module(name: str) -> bool:
    """Whether a name is that of a module in an installed package, as PettingZoo's "mpe2.simple_spread_v3"."""
    package, *rest = name.split(".")
    return bool(rest) and all(map(str.isidentifier, (package, *rest))) and find_spec(package) is not None


def _check_evaluation(config: Config) -> None:
    evaluation = config["evaluation"]
    if evaluation["parallel"] and not evaluation["num_workers"]:
        raise ConfigError("evaluation.parallel=true needs its own processes: set evaluation.num_workers=1 or more")
    if evaluation["env"] is not None:
        _check_env(config, "evaluation.env")


def _check_constructors(config: dict[str, Any]) -> None:
    """Check sections against the signatures of their constructors."""
    from lightning.pytorch import Callback, Trainer
    from lightning.pytorch.loggers import Logger

    from lightning_rl.callbacks import RLCheckpoint, StopCallback
    from lightning_rl.data.evaluator import EVALUATION
    from lightning_rl.data.kinds_of_data import check_kind_of_data
    from lightning_rl.envs.creator import EnvCreator
    from lightning_rl.models.catalog import ModelOptions

    policy_class = _policy_class("policy", config["policy"].get("_target_"), config)
    source = _source_class("data", config["data"].get("_target_"))
    if config["data"].get("plan") is None:  # a plan of the user's own may give anything
        check_kind_of_data(policy_class, source)

    _coerce_section(config, "evaluation", EVALUATION.hints)
    _check_evaluation(config)
    config["model"] = coerce("model", config["model"], ModelOptions)
    config["exploration"] = _coerce_exploration("exploration", config["exploration"], config)
    config["policy"] = _coerce_policy("policy", config["policy"], config)
    config["policies"] = complete_policies(config)
    for name, entry in config["policies"].items():
        config["policies"][name] = _coerce_entry(f"policies.{name}", entry, config)
    config["env"] = _coerce_values("env", config["env"], hints_of(EnvCreator), config)
    if config["evaluation"]["env"] is not None:
        section = "evaluation.env"
        config["evaluation"]["env"] = _coerce_values(section, config["evaluation"]["env"], hints_of(EnvCreator), config)
    config["data"] = _coerce_to_constructor("data", config["data"], source, config)
    _coerce_section(config, "checkpoint", hints_of(RLCheckpoint, without=("dirpath",)))
    stop = hints_of(StopCallback, StopSection, without=NOT_STOP)
    _coerce_section(config, "stop", stop)
    _check_metrics(config)
    _check_trainer(config, Trainer)
    launcher = _target_class(
        "rank_launcher", config["rank_launcher"].get("_target_", LOCAL_LAUNCHER), Launcher, LOCAL_LAUNCHER
    )
    config["rank_launcher"] = _coerce_to_constructor("rank_launcher", config["rank_launcher"], launcher, config)
    config["callbacks"] = [
        _coerce_object(f"callbacks[{index}]", entry, "callback", Callback, config)
        for index, entry in enumerate(config["callbacks"])
    ]
    config["logger"] = {
        name: _coerce_object(f"logger.{name}", entry, "_target_", Logger, config)
        for name, entry in config["logger"].items()
    }

    check_fragment_length(config)
    check_minibatches(config)
    check_population(config)
    if not policy_class.has_loss and "learn_on_batch" in policy_class.overridden and ranks_of(config) > 1:
        raise ConfigError(
            f"policy {policy_class.__name__} learns by its own learn_on_batch, which knows nothing of other ranks: "
            "set trainer.devices=1"
        )


def _target_class(section: str, target: Any, base: type, example: str) -> Any:
    """The class of a section's `_target_`.

    Raises:
        ConfigError: it cannot be imported, or does not derive from `base`.
    """
    key = f"{section}._target_"
    coerce(key, target, ImportPath)
    found = import_object(target) if isinstance(target, str) else target
    if not (isinstance(found, type) and issubclass(found, base)):
        raise ConfigError(
            f"{key}={short_repr(target)} is {short_repr(found)}; expected a subclass of {base.__name__}, such as "
            f"{example}"
        )
    return found


def _source_class(section: str, target: Any) -> Any:
    """The class of a section's `_target_`, a source."""
    from lightning_rl.data.source import Source

    return _target_class(section, target, Source, "lightning_rl.data.source:SyncSource")


def _policy_class(section: str, target: Any, config: Config) -> Any:
    """The class of a policy's section, which has the methods that it needs; those of learning only if it is trained."""
    from lightning_rl.policies import Policy, RandomPolicy, ScriptedPolicy

    found = _target_class(section, target, Policy, "lightning_rl.policies.PPO")
    trained = config.get("policies_to_train")
    acts_only = issubclass(found, RandomPolicy | ScriptedPolicy)
    acts_only |= trained is not None and section.removeprefix("policies.") not in trained
    learns = section == "policy" or not acts_only
    if learns and not found.has_loss and found.overridden.isdisjoint({"learn_on_batch", "compute_gradients"}):
        raise ConfigError(
            f"policy {found.__name__} defines neither loss(batch) -> (scalar, metrics) nor, written from scratch, "
            "compute_actions and learn_on_batch (or compute_gradients and apply_gradients)"
        )
    return found


def _coerce_policy(key: str, values: Config, config: Config) -> dict[str, Any]:
    """Coerce a policy's section to the constructor of its class, its exploration and its optimizer included."""
    from lightning_rl.learning.policy_optimizer import check_optimizer

    policy_class = _policy_class(key, values.get("_target_"), config)
    without = (*space_arguments(policy_class), *([] if takes_config(policy_class) else ["config"]))
    found = _coerce_to_constructor(key, values, policy_class, config, without)
    if found.get("exploration"):
        place = "exploration" if key == "policy" else f"{key}.exploration"
        found["exploration"] = _coerce_exploration(place, found["exploration"], config)
    if policy_class.has_model and "optimizer" in keywords_of(policy_class):
        optimizer: Any = found.get("optimizer", keywords_of(policy_class)["optimizer"].default)
        check_optimizer(optimizer, found.get("optimizer_kwargs"))
    return found


def _coerce_entry(key: str, entry: Config, config: Config) -> dict[str, Any]:
    """Coerce one of the policies of several agents, with its `data` if it has its own, and `spaces_of`."""
    if "spaces_of" in entry:
        agent = coerce(f"{key}.spaces_of", entry["spaces_of"], str)
        own = {name: value for name, value in entry.items() if name != "spaces_of"}
        return {**_coerce_entry(key, own, config), "spaces_of": agent}
    from lightning_rl.data.kinds_of_data import kind_of_data
    from lightning_rl.data.offline.source import OfflineSource
    from lightning_rl.data.replay_feed import ReplayFeed

    if "checkpoint" in entry:
        return coerce_keywords(key, entry, {"checkpoint": str, "policy_id": str | None})
    values = {name: value for name, value in entry.items() if name != "data"}
    policy_class, data = _policy_class(key, values.get("_target_"), config), dict(entry.get("data") or {})
    found = _coerce_policy(key, values, config)
    kind = kind_of_data(policy_class)
    if kind == "populations":
        raise ConfigError(f"{key}: {policy_class.__name__} learns from whole runs of one agent; take another policy")
    if _source_class("data", config["data"].get("_target_")) is OfflineSource:
        if not data:
            return found  # the run's own
        return {**found, "data": _coerce_to_constructor(f"{key}.data", data, OfflineSource, config)}
    if kind != "transitions":
        return found
    target, planned = data.get("_target_"), config["data"].get("plan") is not None
    if planned and (not data or _source_class(f"{key}.data", target) is not ReplayFeed):
        return found  # a plan of the user's own may give anything
    if _source_class(f"{key}.data", target) is not ReplayFeed:
        raise ConfigError(
            f"{key}.data._target_={short_repr(target)}; several agents learn from a replay buffer each: expected "
            "lightning_rl.data.replay_feed:ReplayFeed"
        )
    return {**found, "data": _coerce_to_constructor(f"{key}.data", data, ReplayFeed, config)}


def _coerce_to_constructor(
    key: str, section: Config, target: Any, config: Config, without: Iterable[str] = ()
) -> dict[str, Any]:
    """The values of a section with `_target_`, coerced to the signature of that class."""
    values = {name: value for name, value in section.items() if name != "_target_"}
    found = _coerce_values(key, values, hints_of(target, without=without), config)
    return {name: found.get(name, value) for name, value in section.items()}


def _check_trainer(config: dict[str, Any], trainer_class: Any) -> None:
    for key in config["trainer"]:
        if key in TRAINER_KEYS_WITH_A_HOME:
            raise ConfigError(f"trainer.{key} is set by lightning_rl: use {TRAINER_KEYS_WITH_A_HOME[key]}")
    hints = hints_of(trainer_class, TrainerSection, without=TRAINER_KEYS_WITH_A_HOME)
    _coerce_section(config, "trainer", hints)
    if config["trainer"].get("devices") == []:
        raise ConfigError("trainer.devices=[]; expected a number of devices, or the indices of some")
    check_devices(config["trainer"], config["workers"])


def _coerce_object(key: str, entry: Any, name: str, base: type, config: Config) -> Any:
    """Coerce an entry that describes an object to the constructor of its class; an object stays as it is.

    Args:
        entry: an import path, or a mapping of one and keywords; the path may be that of a function.
        name: the key of the path in a mapping.
        base: the class from which a class must derive.
    """
    is_mapping = isinstance(entry, Mapping)
    named = entry.get(name, entry.get("_target_")) if is_mapping else entry
    if type(named) in (int, float, bool, list, dict, type(None)):
        raise ConfigError(f"{key}={short_repr(entry)}; expected an import path, or {{{name}: path, **keywords}}")
    key_of_path = f"{key}.{name}" if is_mapping else key
    try:
        found = import_object(coerce(key_of_path, named, ImportPath)) if isinstance(named, str) else named
    except ModuleNotFoundError as error:
        raise ConfigError(f"{key} needs a package that is not installed: {error}") from error
    fits = issubclass(found, base) if isinstance(found, type) else callable(found) or isinstance(found, base)
    if not fits:
        expected = f"a subclass of {base.__module__}.{base.__name__}"
        raise ConfigError(f"{key_of_path}={short_repr(named)} is {short_repr(found)}; expected {expected}")
    if not (is_mapping and isinstance(found, type)):
        return entry
    return _coerce_values(key, entry, {**dict.fromkeys(entry, Any), **hints_of(found)}, config)  # it may take others


def _coerce_exploration(key: str, exploration: Any, config: Config) -> dict[str, Any]:
    """Coerce the keys of a strategy, and of a wrapped strategy, to the constructor of its class."""
    from lightning_rl.exploration.catalog import SPACES, strategy_class

    given = coerce(key, exploration, Mapping[str, Any])
    keywords = {name: value for name, value in given.items() if name != "type"}
    named = given.get("type", "stochastic_sampling")
    strategy = strategy_class(named, key)
    found = dict(_coerce_values(key, keywords, hints_of(strategy, without=SPACES), config))
    if found.get("sub_exploration"):
        found["sub_exploration"] = _coerce_exploration(f"{key}.sub_exploration", found["sub_exploration"], config)
    return {name: found.get(name, value) for name, value in given.items()}


def _check_metrics(config: Config) -> None:
    from lightning_rl.callbacks.metric_names import check_metric
    from lightning_rl.data.evaluator import evaluated_every

    if "metric" in config["stop"]:
        metric, evaluated = config["stop"]["metric"], evaluated_every(config["evaluation"])
        check_metric("stop.metric", metric)
        if config["stop"]["return"] is not None and metric.startswith("eval/") and not evaluated:
            raise ConfigError(
                f"stop.metric={metric!r}, but nothing is ever evaluated: set evaluation.every_env_steps, and "
                "evaluation.episodes or estimators; or stop.metric=rollout/ep_rew_mean"
            )
        acts = _source_class("data", config["data"].get("_target_")).acts
        if config["stop"]["return"] is not None and metric.startswith("rollout/") and not acts:
            raise ConfigError(
                f"stop.metric={metric!r} with data that are recorded: no training episode is ever played; set "
                "stop.metric=eval/ep_rew_mean"
            )
    if config["checkpoint"].get("monitor") is not None:
        check_metric("checkpoint.monitor", config["checkpoint"]["monitor"])
