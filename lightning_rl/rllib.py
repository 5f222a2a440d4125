"""For people who come from RLlib: its names and config keys, each mapped to what it is here.

`PPOTrainer(env="CartPole-v0", config={"train_batch_size": 4000}).train()`; there is a `NAMETrainer` and a
`NAMETorchPolicy` for every policy of `conf/policy`. Nothing here acts or learns: the classes are this package's own.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

from lightning_rl import algorithm, config, policies
from lightning_rl.callbacks.hooks import RLCallback as DefaultCallbacks  # noqa: F401
from lightning_rl.data.samples_optimizer import AsyncSamplesOptimizer, SyncSamplesOptimizer  # noqa: F401
from lightning_rl.errors import ConfigError, did_you_mean, import_object
from lightning_rl.models.catalog import MODEL_DEFAULTS, ModelCatalog  # noqa: F401
from lightning_rl.models.classic import ClassicActionDistribution as ActionDistribution  # noqa: F401
from lightning_rl.models.classic import TorchModelV2  # noqa: F401
from lightning_rl.models.preprocessors import Preprocessor  # noqa: F401
from lightning_rl.rollouts import EnvContext, RolloutWorker, WorkerSet, register_env  # noqa: F401
from lightning_rl.sample_batch import SampleBatch, concat_samples  # noqa: F401
from lightning_rl.signatures import keywords_of

Policy = TorchPolicy = policies.Policy
PolicyEvaluator = RolloutWorker
build_torch_policy = policies.build_policy

# -- config keys ------------------------------------------------------------------------------------------------------
KEYS = {"env_config": "env.kwargs", "horizon": "env.max_episode_steps", "seed": "seed"}
KEYS |= {"num_workers": "workers.num_workers", "num_envs_per_worker": "workers.envs_per_worker"}
KEYS |= dict.fromkeys(("rollout_fragment_length", "sample_batch_size"), "workers.fragment_length")
KEYS |= {"batch_mode": "workers.batch_mode", "exploration_config": "exploration"}
KEYS |= dict.fromkeys(("evaluation_num_episodes", "evaluation_duration"), "evaluation.episodes")
KEYS |= {"lr": "policy.lr", "lr_schedule": "policy.lr", "gamma": "policy.gamma", "lambda": "policy.gae_lambda"}
KEYS |= {"clip_param": "policy.clip", "vf_clip_param": "policy.value_loss_clip", "grad_clip": "policy.max_grad_norm"}
KEYS |= {"vf_loss_coeff": "policy.value_coef", "kl_coeff": "policy.kl_coef", "kl_target": "policy.kl_target"}
KEYS |= dict.fromkeys(("entropy_coeff", "entropy_coeff_schedule"), "policy.entropy_coef")
KEYS |= {"num_sgd_iter": "policy.passes", "normalize_actions": "policy.normalize_actions"}
KEYS |= {"clip_actions": "policy.clip_actions", "clip_rewards": "policy.reward_filter"}
KEYS |= {"observation_filter": "policy.observation_filter"}
VALUES: dict[str, dict[Any, Any]] = {
    "observation_filter": {"NoFilter": "none", "MeanStdFilter": "mean_std", "ConcurrentMeanStdFilter": "mean_std"},
    "clip_rewards": {True: "sign", False: "none", None: "none"},
}
# Keys that have one meaning here; another value is refused.
ONLY = {"framework": "torch", "use_pytorch": True, "eager": False, "explore": True, "use_gae": True, "use_critic": True}
ONLY |= {"num_gpus_per_worker": 0, "evaluation_num_workers": 0, "input": "sampler", "output": None, "multiagent": {}}
NO_EFFECT = ("log_level", "num_cpus_per_worker", "num_cpus_for_driver", "create_env_on_driver", "simple_optimizer")
SPECIAL = ("env", "model", "train_batch_size", "sgd_minibatch_size", "num_gpus", "callbacks", "evaluation_interval")
SPECIAL += ("evaluation_config",)
MODEL_ONLY = dict.fromkeys(("_use_default_native_models", "_disable_preprocessor_api"), False)
MODEL_ONLY |= {"_disable_action_flattening": False, "lstm_use_prev_action_reward": -1}
ATARI = {"framestack": True, "dim": 84, "grayscale": False, "zero_mean": True}  # of the model there, of the env here
RETIRED = {"CartPole-v0": ("CartPole-v1", 200), "Pendulum-v0": ("Pendulum-v1", None)}


def _translated(given: Mapping[str, Any], defaults: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """RLlib's keys as what goes over this package's `defaults`; those in `own` go to the policy's config."""
    out: dict[str, Any] = {}
    for key, value in given.items():
        if key in own:
            _put(out, f"policy.config.{key}", value)
        elif key in KEYS:
            if value is None and key.endswith("_schedule"):
                continue
            _put(out, KEYS[key], _value(key, value))
        elif key in ONLY and value != ONLY[key]:
            raise ConfigError(f"config key {key!r}={value!r}; here it can only be {ONLY[key]!r}")
        elif key in NO_EFFECT:
            warnings.warn(f"config key {key!r} has no counterpart and no effect", stacklevel=3)
        elif key not in ONLY and key not in SPECIAL:
            raise ConfigError(
                f"no config key {key!r}.{did_you_mean(key, known := [*KEYS, *SPECIAL, *ONLY])} Keys: {', '.join(known)}"
            )
    _sizes(out, given, defaults)
    if "model" in given:
        out["model"] = _model(given["model"], out, str(given.get("env")))
    if given.get("num_gpus"):
        out["trainer"] = {"accelerator": "gpu", "devices": max(1, int(given["num_gpus"]))}
    for key, value in (given.get("evaluation_config") or {}).items():
        if key != "explore":
            raise ConfigError(f"evaluation_config key {key!r}: here it can only be 'explore'")
        _put(out, "evaluation.explore", value)
    if given.get("callbacks") is not None:
        out["callbacks"] = [given["callbacks"]]
    return out


def _sizes(out: dict[str, Any], given: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """RLlib counts rows of a batch and of a minibatch; here it is steps per environment, and minibatches."""
    workers = out.setdefault("workers", {})
    rows = given.get("train_batch_size")
    if rows is not None:
        environments = workers.setdefault("envs_per_worker", 1) * max(1, workers.get("num_workers", 0))
        workers["fragment_length"] = math.ceil(rows / environments)
    if "sgd_minibatch_size" in given:
        sizes = {**defaults["workers"], **workers}
        rows = max(1, sizes["num_workers"]) * sizes["envs_per_worker"] * sizes["fragment_length"]
        _put(out, "policy.minibatches", max(1, round(rows / given["sgd_minibatch_size"])))


def _model(given: Mapping[str, Any], out: dict[str, Any], env: str) -> dict[str, Any]:
    model = dict(given)
    if "custom_options" in model:
        model["custom_model_config"] = {**model.pop("custom_options"), **model.get("custom_model_config", {})}
    if model.get("lstm_use_prev_action_reward") is True:
        model |= {"lstm_use_prev_action": True, "lstm_use_prev_reward": True, "lstm_use_prev_action_reward": -1}
    if filters := model.get("conv_filters"):
        model["conv_filters"] = [*([*entry, "same"] for entry in filters[:-1]), filters[-1]]
    atari = {key: model.pop(key) for key in ATARI if key in model}
    if env.startswith("ALE/") or "NoFrameskip" in env:
        out.setdefault("env", {})["kwargs"] = {**atari, **out.get("env", {}).get("kwargs", {})}
    for key, value in MODEL_ONLY.items():
        if model.pop(key, value) != value:
            raise ConfigError(f"model key {key!r}={given[key]!r}; here it can only be {value!r}")
    return model


def _value(key: str, value: Any) -> Any:
    if key == "clip_rewards" and value == 1 and value is not True:
        return "clip"
    if key in VALUES and value not in VALUES[key]:
        raise ConfigError(f"config key {key!r}={value!r}; expected {' or '.join(map(repr, VALUES[key]))}")
    return VALUES[key][value] if key in VALUES else value


def _put(out: dict[str, Any], path: str, value: Any) -> None:
    *sections, name = path.split(".")
    for section in sections:
        out = out.setdefault(section, {})
    out[name] = value


def current_env(env: Any) -> tuple[Any, int | None]:
    """A retired environment id's successor and its step limit, with a note; anything else as it is."""
    new, limit = RETIRED.get(env, (env, None)) if isinstance(env, str) else (env, None)
    if isinstance(env, str) and (atari := re.fullmatch(r"(\w+?)(NoFrameskip|Deterministic)-v\d", env)):
        new = f"ALE/{atari[1]}-v5"
    if new is not env:
        warnings.warn(f"environment {env!r} is retired: {new!r} is taken, step limit {limit}", stacklevel=3)
    return new, limit


# -- trainers ---------------------------------------------------------------------------------------------------------
class Trainer(algorithm.Algorithm):
    """`Algorithm` with RLlib's constructor and result names.

    Args:
        config: RLlib's keys.
        env: as `config["env"]`; both orders of the two arguments are taken.

    Raises:
        ConfigError: a key or value that means nothing here.
    """

    default_policy: ClassVar[Any] = None
    default_config: ClassVar[Mapping[str, Any]] = {}
    execution_plan: ClassVar[Any] = None

    def __init__(self, config: Any = None, env: Any = None) -> None:
        if not isinstance(config, Mapping | None) or isinstance(env, Mapping):
            config, env = env, config
        given = {**self.default_config, **(config or {})}
        env, limit = current_env(given.get("env") if env is None else env)
        policy = self.get_default_policy_class(given)
        if policy is None:
            raise ConfigError(f"{type(self).__name__} has no policy: give default_policy, or get_default_policy_class")
        self.evaluation_interval = given.get("evaluation_interval")
        own = keywords_of(policy).get("config") if isinstance(policy, type) else None
        defaults = _defaults(policy)
        classic = _translated({**given, "env": env}, defaults, getattr(own, "default", None) or {})
        if limit is not None:
            classic.setdefault("env", {}).setdefault("max_episode_steps", limit)
        if self.execution_plan is not None:
            classic.setdefault("data", {})["plan"] = type(self).execution_plan
        classic["exploration"] = dict(classic.get("exploration") or {})
        strategy = classic["exploration"].pop("type", None)
        chosen = [f"exploration.type={strategy}"] if strategy else []
        super().__init__(policy, env, overrides=["experiment=none", *chosen], config=classic)

    def get_default_policy_class(self, config: Mapping[str, Any]) -> Any:
        """The policy, a name or a class, that such a config trains."""
        return type(self).default_policy

    def train(self) -> dict[str, Any]:
        """One iteration; every `evaluation_interval` with an evaluation."""
        result = super().train()
        if self.evaluation_interval and result["training_iteration"] % self.evaluation_interval == 0:
            result["evaluation"] = self.evaluate()
        learner = {name.removeprefix("train/"): value for name, value in result.items() if name.startswith("train/")}
        return {
            **result,
            "timesteps_total": result["env_steps"],
            "episodes_total": int(result["rollout/episodes"]),
            "episode_reward_mean": result.get("rollout/ep_rew_mean", math.nan),
            "episode_len_mean": result.get("rollout/ep_len_mean", math.nan),
            "time_total_s": result["time/total_s"],
            "info": {"learner": {"default_policy": learner}},
        }

    def restore(self, path: str | Path) -> None:  # type: ignore[override]
        """Become what `save` wrote."""
        restored = algorithm.Algorithm.restore(path)
        self.stop()
        self.__dict__ |= vars(restored)

    @classmethod
    def with_updates(cls, name: str | None = None, **changes: Any) -> type[Trainer]:
        """A subclass: `default_policy`, `get_policy_class`, `default_config`, `execution_plan` changed."""
        unknown = [key for key in changes if key not in UPDATES]
        if unknown:
            raise ConfigError(f"no {unknown[0]!r} here.{did_you_mean(unknown[0], UPDATES)} Known: {', '.join(UPDATES)}")
        namespace = {key: value for key, value in changes.items() if value is not None}
        if choose := namespace.pop("get_policy_class", None):
            fallback = namespace.get("default_policy", cls.default_policy)
            namespace["get_default_policy_class"] = lambda self, config: choose(config) or fallback
        namespace["__module__"] = sys._getframe(1).f_globals["__name__"]
        return type(name or cls.__name__, (cls,), namespace)


UPDATES = ("default_policy", "get_policy_class", "default_config", "execution_plan")
Algorithm = Trainer


def build_trainer(name: str, **changes: Any) -> type[Trainer]:
    """A trainer class; keywords as `Trainer.with_updates`."""
    return Trainer.with_updates(name, **changes)


def run(trainable: Any, *, stop: Mapping[str, float], config: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Train a trainer class (or "PPO") until the result reaches a number of `stop`, as `tune.run`; the last result.

    Raises:
        ConfigError: `stop` has a name that no result has.
    """
    trainer = (__getattr__(f"{trainable}Trainer") if isinstance(trainable, str) else trainable)(config=config)
    try:
        while True:
            result = trainer.train()
            for name in stop:
                if name not in result:
                    raise ConfigError(f"stop: no result {name!r}.{did_you_mean(name, result)}")
            if any(result[name] >= number for name, number in stop.items()):
                return result
    finally:
        trainer.stop()


tune = SimpleNamespace(run=run)


def _defaults(policy: Any) -> dict[str, Any]:
    choice = policy if isinstance(policy, str) else "ppo"
    return config.compose_config([f"policy={choice}", "experiment=none", "logger=none"])


def __getattr__(name: str) -> Any:
    """`PPOTrainer` and `PPOTorchPolicy`, for each policy that there is."""
    found = re.fullmatch(r"(\w+?)(Trainer|TorchPolicy)", name)
    if found is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    known, policy = config.group_options("policy"), found[1].lower()
    if policy not in known:
        raise ConfigError(f"{name}: no policy {policy!r}.{did_you_mean(policy, known)} There are: {', '.join(known)}")
    if found[2] == "TorchPolicy":
        return import_object(_defaults(policy)["policy"]["_target_"])
    globals()[name] = Trainer.with_updates(name, default_policy=policy)
    return globals()[name]


def main(arguments: Sequence[str] | None = None) -> None:
    """`python -m lightning_rl.rllib train --run=PPO --env=CartPole-v0 --config='{"train_batch_size": 4000}'`."""
    parser = argparse.ArgumentParser(prog="python -m lightning_rl.rllib", description="RLlib's command line.")
    parser.add_argument("verb", choices=["train"])
    parser.add_argument("--run", required=True)
    parser.add_argument("--env", required=True)
    parser.add_argument("--config", default="{}", type=json.loads)
    parser.add_argument("--stop", default='{"training_iteration": 100}', type=json.loads)
    given = parser.parse_args(arguments)
    print(run(given.run, stop=given.stop, config={**given.config, "env": given.env}))


if __name__ == "__main__":
    main()
