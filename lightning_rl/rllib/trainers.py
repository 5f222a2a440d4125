"""RLlib's trainers: its constructor and result names over `Algorithm`."""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar

from lightning_rl.config import compose_config
from lightning_rl.config.groups import is_path
from lightning_rl.errors import ConfigError, did_you_mean, object_at
from lightning_rl.policies.checkpoints import read_checkpoint
from lightning_rl.rllib.keys import KNOWN, classic_keys, current_env, translate_keys
from lightning_rl.rllib.multi_agent_keys import check_policy_spaces
from lightning_rl.rllib.plans import ClassicPlan, PlannedDataset, metrics_by_policy
from lightning_rl.rllib.torch_policy import TorchPolicy
from lightning_rl.runs import algorithm
from lightning_rl.schema.signatures import call_with_accepted_args, keywords_of

__all__ = ["Trainer", "build_trainer", "defaults_of", "torch_policy"]


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
    validate_config: ClassVar[Any] = None

    def __init__(self, config: Any = None, env: Any = None) -> None:
        if not isinstance(config, Mapping | None) or isinstance(env, Mapping):
            config, env = env, config
        given = {**self.default_config, **(config or {})}
        env, limit = current_env(given.get("env") if env is None else env)
        asked = set(config or {}) - set(self.default_config)
        if self.validate_config is not None:
            call_with_accepted_args(type(self).validate_config, given)
        policy = self.get_default_policy_class(given)
        if policy is None:
            raise ConfigError(f"{type(self).__name__} has no policy: give default_policy, or get_default_policy_class")
        policy = torch_policy(policy) if isinstance(policy, str) and not is_path(policy) else policy
        self.evaluation_interval = given.get("evaluation_interval")
        own = keywords_of(policy).get("config") if isinstance(policy, type) else None
        defaults = defaults_of(policy)
        plan = type(self).execution_plan
        self._planned = plan is not None and "config" in inspect.signature(plan).parameters
        # Other keys of the trainer's default_config, or that validate_config adds, are for its plan.
        kept = {key: given[key] for key in given if key in KNOWN or key in asked or not self._planned}
        classic = translate_keys(
            {**kept, "env": env},
            defaults,
            getattr(own, "default", None) or {},
            joins_fragments=plan is not None,
            has_buffers=self._planned,
            defaults_of=defaults_of,
            own_class=policy if isinstance(policy, type) else object_at(defaults["policy"]["_target_"]),
        )
        if limit is not None:
            classic.setdefault("env", {}).setdefault("max_episode_steps", limit)
        choices = ["experiment=none", *self._plan_choices(classic, given, defaults)]
        classic["exploration"] = dict(classic.get("exploration") or {})
        if strategy := classic["exploration"].pop("type", None):
            choices.append(f"exploration.type={strategy}")
        super().__init__(policy, env, overrides=choices, config=classic)
        check_policy_spaces(given.get("multiagent") or {}, getattr(self.policy, "policies", {}))

    def _plan_choices(
        self, classic: dict[str, Any], given: Mapping[str, Any], defaults: Mapping[str, Any]
    ) -> list[str]:
        """Put the execution plan into `classic`; return the overrides that choose the data pipeline."""
        data, plan = classic.setdefault("data", {}), type(self).execution_plan
        starts = data.get("learning_starts", defaults["data"].get("learning_starts"))
        if not self._planned:
            if plan is not None:
                data["plan"] = plan
            # So that what is random until learning starts follows.
            return [f"data.learning_starts={starts}"] if "learning_starts" in data else []
        known = {
            **classic_keys(defaults),
            "target_network_update_freq": 500,
            "multiagent": {"replay_mode": "independent"},
        }
        trainer = self if len(inspect.signature(plan).parameters) > 2 else None
        for entry in classic.get("policies", {}).values():
            entry["data"] = None  # the plan has buffers of its own
        classic["data"] = {"dataset": PlannedDataset, "plan": ClassicPlan(plan, {**known, **given}, trainer)}
        waits = "random_timesteps" in defaults["exploration"]
        return ["data=on_policy", *([f"exploration.random_timesteps={starts or 0}"] if waits else [])]

    def get_default_policy_class(self, config: Mapping[str, Any]) -> Any:
        """The policy, a name or a class, that such a config trains."""
        return type(self).default_policy

    def train(self) -> dict[str, Any]:
        """One iteration; every `evaluation_interval` with an evaluation."""
        result = super().train()
        if self.evaluation_interval and result["training_iteration"] % self.evaluation_interval == 0:
            result["evaluation"] = self.evaluate()
        window = self.datamodule.episode_window
        by_policy = {name: own for name, own in window.by_policy.items() if own}
        return {
            **result,
            "timesteps_total": result["env_steps"],
            "episodes_total": int(result["rollout/episodes"]),
            "episode_reward_mean": result.get("rollout/ep_rew_mean", math.nan),
            "episode_reward_min": min(window.returns, default=math.nan),
            "episode_reward_max": max(window.returns, default=math.nan),
            "policy_reward_mean": {name: fmean(own) for name, own in by_policy.items()},
            "policy_reward_min": {name: min(own) for name, own in by_policy.items()},
            "policy_reward_max": {name: max(own) for name, own in by_policy.items()},
            "episode_len_mean": result.get("rollout/ep_len_mean", math.nan),
            "time_total_s": result["time/total_s"],
            "info": {"learner": metrics_by_policy(self.policy, result, "train/")},
        }

    def _counters(self) -> dict[str, int]:
        done = {"training_iteration": self.trainer.current_epoch} if self._planned else {}
        return {**super()._counters(), **done}

    def restore(self, path: str | Path) -> None:  # type: ignore[override]
        """Go on from what `save` wrote, with the environments, the plan and all other keys of this trainer's config.

        Raises:
            CheckpointError: the file is missing or damaged, or its policy is not that of this config.
        """
        read_checkpoint(path)  # before this trainer ends
        self.stop()
        self._build(self.config, Path(path))
        self._resume_from = Path(path)
        self._fit(iterations=0)

    @classmethod
    def with_updates(cls, name: str | None = None, **changes: Any) -> type[Trainer]:
        """A subclass with some of these changed; `None` takes one back.

        Args:
            name: of the class.
            changes: `default_policy` (a name or class), `get_policy_class(config)` (or `None` for the default),
                `default_config` (RLlib's keys), `validate_config(config)` (raises), `execution_plan`: a generator
                `plan(workers, policy)` of batches, or RLlib's `plan(workers, config)`.
        """
        unknown = [key for key in changes if key not in UPDATES]
        if unknown:
            raise ConfigError(f"no {unknown[0]!r} here.{did_you_mean(unknown[0], UPDATES)} Known: {', '.join(UPDATES)}")
        namespace = dict(changes)
        if namespace.get("default_config", {}) is None:
            namespace["default_config"] = {}
        if "get_policy_class" in namespace:
            choose, fallback = namespace.pop("get_policy_class"), changes.get("default_policy", cls.default_policy)
            namespace["get_default_policy_class"] = (
                Trainer.get_default_policy_class if choose is None else lambda self, config: choose(config) or fallback
            )
        namespace["__module__"] = sys._getframe(1).f_globals["__name__"]
        return type(name or cls.__name__, (cls,), namespace)


UPDATES = ("default_policy", "get_policy_class", "default_config", "validate_config", "execution_plan")


def build_trainer(name: str, **changes: Any) -> type[Trainer]:
    """A trainer class; keywords as `Trainer.with_updates`."""
    return Trainer.with_updates(name, **changes)


@cache
def torch_policy(option: str) -> type[TorchPolicy]:
    """The class of that option of `conf/policy`, with RLlib's methods, as `lightning_rl.rllib.PPOTorchPolicy`.

    Raises:
        ConfigError: there is none.
    """
    base = object_at(defaults_of(option)["policy"]["_target_"])
    spelled = option.replace("_", "")
    name = base.__name__ if base.__name__.lower() == spelled else spelled.upper()
    namespace = {"__module__": "lightning_rl.rllib", "__doc__": base.__doc__}
    return type(f"{name}TorchPolicy", (TorchPolicy, base), namespace)


def defaults_of(policy: Any) -> dict[str, Any]:
    """The config of a policy as it is shipped, without an experiment's tuned values."""
    return compose_config([algorithm.policy_choice(policy), "experiment=none", "logger=none"])
