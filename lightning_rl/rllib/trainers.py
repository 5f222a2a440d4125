"""RLlib's trainers: its constructor, methods and result names over `Algorithm`."""

from __future__ import annotations

import inspect
import math
import operator
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar

import torch

from lightning_rl.callbacks.hooks import RLCallback, worker_hooks
from lightning_rl.callbacks.metric_names import EVAL_LENGTH, EVAL_RETURN
from lightning_rl.config.groups import is_path
from lightning_rl.config.policies import complete_policies
from lightning_rl.config.run_fractions import fractions_to_env_steps
from lightning_rl.data.kinds_of_data import kind_of_data
from lightning_rl.data.replay_feed import ReplayFeed
from lightning_rl.envs.registry import EnvContext
from lightning_rl.errors import CheckpointError, ConfigError, did_you_mean, object_at
from lightning_rl.policies.checkpoints import read_checkpoint
from lightning_rl.replay.buffer import ReplayBuffer
from lightning_rl.rllib.algorithm_config import AlgorithmConfig
from lightning_rl.rllib.callbacks import (
    DefaultCallbacks,
    EpisodeCallbacks,
    EpisodeStatistics,
    call_method,
    prepare_evaluation,
    set_exploration,
)
from lightning_rl.rllib.config_in_file import trainer_in
from lightning_rl.rllib.default_configs import (
    COMMON_CONFIG,
    applicable_defaults,
    classic_view,
    option_of,
    rllib_defaults,
)
from lightning_rl.rllib.env_api import current_api, map_number
from lightning_rl.rllib.episode_records import reads_episodes
from lightning_rl.rllib.evaluation.rounds import RoundsOfEpisodes
from lightning_rl.rllib.evaluation.worker_set import WorkerSet
from lightning_rl.rllib.external_lanes import ExternalCreator
from lightning_rl.rllib.external_sampler import sample_external
from lightning_rl.rllib.keys import (
    KNOWN,
    NO_EFFECT,
    classic_keys,
    current_env,
    evaluated_steps,
    evaluation_exploration,
    over_defaults,
    put,
    translate_keys,
)
from lightning_rl.rllib.local_replay_buffer import LocalReplayBuffer, TrainerReplayBuffer
from lightning_rl.rllib.merge import merge_configs
from lightning_rl.rllib.multi_agent_keys import PolicySpec, check_policy_spaces, policy_classes
from lightning_rl.rllib.offline_keys import (
    Output,
    ReaderPlan,
    classic_estimates,
    data_files,
    estimators,
    reader_of,
    reading_rate,
    write_offline_keys,
)
from lightning_rl.rllib.plan_verbs import rollouts_of_agent_steps
from lightning_rl.rllib.plans import ClassicPlan, PlannedDataset, training_steps
from lightning_rl.rllib.policy_configs import (
    config_of_policy,
    defaults_of,
    plain_values,
    takes_whole_config,
    torch_policy,
    translate_section,
)
from lightning_rl.rllib.replay_keys import ROW_COUNTS, draws_in_lockstep
from lightning_rl.rllib.results import (
    ClassicState,
    ResultWindow,
    counted_unit,
    evaluation_result,
    step_counts,
    training_result,
)
from lightning_rl.rllib.shown_episodes import episodes_of
from lightning_rl.rllib.torch_policy import Policy, TorchPolicy
from lightning_rl.rllib.trainable import Trainable, find_checkpoint
from lightning_rl.rllib.utils.timer import TimerStat
from lightning_rl.rllib.workers import EvaluationWorkers, NumberedFromOne, PlanWorkers
from lightning_rl.runs import algorithm
from lightning_rl.runs.initial_weights import load_initial_weights
from lightning_rl.runs.off_policy_evaluation import OffPolicyEvaluation
from lightning_rl.runs.watch import has_display
from lightning_rl.schema.signatures import call_with_accepted_args, keywords_of

__all__ = ["Trainer", "build_trainer"]

TRANSFORMS = {"unsquash_action": "normalize_actions", "unsquash_actions": "normalize_actions"}
TRANSFORMS |= {"clip_action": "clip_actions", "clip_actions": "clip_actions"}
LEAST_SECONDS = ("min_time_s_per_reporting", "min_time_s_per_iteration", "min_iter_time_s")
LEAST_TRAINED = ("min_train_timesteps_per_reporting", "min_train_timesteps_per_iteration")
LEAST_STEPS = ("min_sample_timesteps_per_reporting", "min_sample_timesteps_per_iteration", "timesteps_per_iteration")


class Trainer(Trainable, algorithm.Algorithm):  # pyright: ignore[reportIncompatibleMethodOverride]
    """`Algorithm` with RLlib's constructor, methods and result names.

    Args:
        config: RLlib's keys.
        env: see `config["env"]`; both orders of the two arguments are taken.
        logger_creator, storage: see `Trainable`.

    Attributes:
        config: RLlib's keys, those of the constructor over the defaults.
        raw_user_config: RLlib's keys of the constructor.
        run_config: what they are here.
        evaluation_metrics: what `evaluate` returned last; {} before that.
        numbered_agents: whether the environment calls its agents 0, 1, … and not "agent_0", "agent_1", …

    Raises:
        ConfigError: a key or value that means nothing here.
    """

    _name: ClassVar[str] = "Trainer"
    _policy_class: ClassVar[Any] = None
    _default_config: ClassVar[Mapping[str, Any]] = {}
    execution_plan: ClassVar[Any] = None
    validate_env: ClassVar[Any] = None
    before_init: ClassVar[Any] = None
    after_init: ClassVar[Any] = None
    before_evaluate_fn: ClassVar[Any] = None
    _own_workers: Any = None

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Name the class for Tune, which registers it by `_name`; let its `training_step` take the plan's place."""
        super().__init_subclass__(**keywords)
        own = vars(cls)
        cls._name = own.get("_name", cls.__name__)
        if callable(own.get("training_iteration")):  # the method's name before it was `training_step`
            cls.training_step = own["training_iteration"]
        if "training_step" in own:
            cls.execution_plan = training_steps

    def __init__(self, config: Any = None, env: Any = None, logger_creator: Any = None, storage: Any = None) -> None:
        config, env = (each.to_dict() if isinstance(each, AlgorithmConfig) else each for each in (config, env))
        if not isinstance(config, Mapping | None) or isinstance(env, Mapping):
            config, env = env, config
        given = dict(config or {}) if env is None else {**(config or {}), "env": env}
        if logger_creator is None and given.get("logger_config"):
            logger_creator = make_logger
        super().__init__(given, logger_creator, storage)

    # -- of a Trainable -----------------------------------------------------------------------------------------------
    def setup(self, config: dict[str, Any]) -> None:
        """Build policy, data and Lightning's Trainer from RLlib's keys.

        Raises:
            ConfigError: a key or value that means nothing here.
        """
        self.raw_user_config = config
        given = self.merge_trainer_configs(self._own_defaults(), config)
        env, limit = current_env(given.get("env"))
        env, several, self.numbered_agents = current_api(
            env, given.get("env_config") or {}, given.get("multiagent") or {}
        )
        if env is None and given.get("observation_space") is not None:
            spaces = given["observation_space"], given.get("action_space")
            by_agent = all(isinstance(getattr(space, "spaces", space), Mapping) for space in spaces)
            policies = (given.get("multiagent") or {}).get("policies")
            env = ExternalCreator.of_spaces(
                *spaces, several=by_agent and bool(policies or not hasattr(spaces[1], "spaces"))
            )
        self._external = env if isinstance(env, ExternalCreator) else None
        if several:
            given["multiagent"] = several
        self._validate_config(given, trainer_obj_or_none=self)
        policy = self._chosen_policy(given)
        if self.before_init is not None:
            type(self).before_init(self)
        defaults = defaults_of(policy)
        policy_class = policy if isinstance(policy, type) else object_at(defaults["policy"]["_target_"])
        option = option_of(policy_class)
        given = self._with_defaults(given, option, defaults)
        classic = self._config_of_run(given, env, policy, policy_class, defaults)
        if limit is not None:
            classic.setdefault("env", {}).setdefault("max_episode_steps", limit)
        self.config = given
        self._smoothing = given.get("metrics_smoothing_episodes") or 100
        self._least_seconds = max(given.get(key) or 0 for key in LEAST_SECONDS)
        reports = self._planned and type(self).execution_plan is not training_steps  # the plan says when
        self._least_steps, self._least_trained = (
            0 if reports else max(given.get(key) or 0 for key in keys) for keys in (LEAST_STEPS, LEAST_TRAINED)
        )
        choices = ["experiment=none", *self._plan_choices(classic, given, defaults, policy_class)]
        classic["exploration"] = dict(classic.get("exploration") or {})
        if strategy := classic["exploration"].pop("type", None):
            of_class = f"{strategy.__module__}:{strategy.__qualname__}" if isinstance(strategy, type) else strategy
            choices.append(f"exploration.type={of_class}")
        self._timers = defaultdict[str, TimerStat](TimerStat)
        self._statistics, self.evaluation_metrics = EpisodeStatistics(self._smoothing), dict[str, Any]()
        self._estimators = estimators(given) if "estimators" in classic.get("evaluation", {}) else []
        algorithm.Algorithm.__init__(self, policy, env, overrides=choices, config=classic)
        check_policy_spaces(several, self.policy.policies)
        self._minibatch_rows = given.get("sgd_minibatch_size")
        sized = not {"rollout_fragment_length", "train_batch_size"}.isdisjoint(given)
        if sized and counted_unit(self.policy) == "agent" and "batch_size" not in defaults["data"]:
            workers, agents = self.run_config["workers"], len(self.policy.agents)  # that act at most in a step
            workers["fragment_length"] = math.ceil(workers["fragment_length"] / agents)
            self.datamodule.worker_options["fragment_length"] = workers["fragment_length"]
        self.config = merge_configs(classic_view(option, self.run_config), self.config)
        for each in self.policy.policies.values():
            if isinstance(each, Policy | TorchPolicy):
                each.config = {**self.config, "worker_index": 0, **each.config}
        self._name_log_dir()
        self._open_input()
        self._call_constructor_hooks(given)

    def _chosen_policy(self, given: Mapping[str, Any]) -> Any:
        """The trainer's policy, that of several agents which is defined first, or one that learns nothing.

        Raises:
            ConfigError: there is none.
        """
        policy = self.get_default_policy_class(given)
        if policy is None and self._trains_itself:
            policy = Untrained
        policy = policy or next(policy_classes(given.get("multiagent") or {}), None)
        if policy is None:
            raise ConfigError(f"{type(self).__name__} has no policy: give default_policy, or get_default_policy_class")
        return class_of_option(policy)

    def _with_defaults(self, given: dict[str, Any], option: str | None, defaults: Mapping[str, Any]) -> dict[str, Any]:
        """The given keys, over RLlib's defaults where `defaults="rllib"` is among them.

        Raises:
            ConfigError: "defaults" is anything else.
        """
        chosen = over_defaults(classic_keys(defaults), given)
        given = {key: chosen[key] for key in given}
        if (source := given.pop("defaults", None)) == "rllib":
            return merge_configs(applicable_defaults(option, defaults), given)
        if source is not None:
            raise ConfigError(f"config key 'defaults'={source!r}; expected 'rllib', or leave it out for this package's")
        return given

    def _config_of_run(
        self, given: dict[str, Any], env: Any, policy: Any, policy_class: type[Any], defaults: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The keys of this package that the given ones stand for."""
        translated = {**given, "env": env}
        if self._external is not None:  # its loops, and its servers, are threads of this process
            translated |= {"num_workers": 0, "observation_space": None, "action_space": None}
            translated["disable_env_checking"] = True
        classic = self._translated(translated, policy, defaults)
        if "directions" not in defaults["data"]:  # policies that evolve have no exploration
            own_evaluation = rllib_defaults(option_of(policy_class))["evaluation_config"]
            explores = own_evaluation.get("explore", given.get("explore", True))
            classic.setdefault("evaluation", {}).setdefault("explore", explores)
        trained = [
            policy_class,
            *(entry.get("_target_", entry.get("policy")) for entry in classic.get("policies", {}).values()),
        ]
        if any(map(reads_episodes, trained)) and not episode_callbacks(classic.get("callbacks", ())):
            classic["callbacks"] = [*classic.get("callbacks", ()), EpisodeCallbacks(DefaultCallbacks)]
        own = (given.get("evaluation_config") or {}).get("callbacks")
        self._evaluation_callbacks = None if own is None else EpisodeCallbacks.adapt(own)
        for each in episode_callbacks([*classic.get("callbacks", ()), self._evaluation_callbacks]):
            each.numbered = self.numbered_agents
        if self._logger is not None:
            classic["run_dir"] = str(self.logdir)
        if self._external is not None and "env" not in classic.get("evaluation", {}):
            classic.setdefault("evaluation", {})["episodes"] = 0
        return classic

    def _name_log_dir(self) -> None:
        """Tell writers and readers of data where the run's files are."""
        if self._logdir is None:
            self._logdir = self.run_config["run_dir"]
        places = [each for each in self.trainer.callbacks if isinstance(each, Output)]  # type: ignore[attr-defined]
        for each in [*places, self._reading]:
            if each is not None:
                each.log_dir = str(self._logdir)

    @property
    def _reading(self) -> ReaderPlan | None:
        """What makes the readers of the key `input`; `None`: workers sample."""
        plan = self.run_config["data"].get("plan")
        reading = getattr(plan, "reading", plan)
        return reading if isinstance(reading, ReaderPlan) else None

    def _open_input(self) -> None:
        """Call a function of the key `input` now, as RLlib does, so that a policy server listens before training."""
        if self._reading is not None and callable(self.config.get("input")):
            self._reading.over(self.workers.workers, self.policy)

    def _update_readers(self) -> None:
        """Tell the readers that the policy has new weights."""
        for reader in self._reading.readers if self._reading is not None else ():
            reader.update_weights()

    def _call_constructor_hooks(self, given: Mapping[str, Any]) -> None:
        """Call what classes and callbacks define for the end of the construction."""
        if self.validate_env is not None:
            context = EnvContext(given.get("env_config") or {})
            env = self.env_creator(context)
            call_with_accepted_args(type(self).validate_env, env, context)
            env.close()
        self._init(self.config, self.env_creator)
        if self.after_init is not None:
            type(self).after_init(self)
        for name in ("on_trainer_init", "on_algorithm_init"):
            self._call_callbacks(name, trainer=self, algorithm=self)

    @property
    def _trains_itself(self) -> bool:
        """Whether the class defines `_init`."""
        return type(self)._init is not Trainer._init

    def _init(self, config: dict[str, Any], env_creator: Any) -> None:
        """Called when all is built; a trainer that defines this and `step` needs no policy.

        Args:
            config: RLlib's keys, as the attribute.
            env_creator: makes an environment of an `EnvContext`.
        """

    def training_step(self) -> dict[str, Any]:
        """What a class may define: sampling and learning of one iteration, by `synchronous_parallel_sample` and so on.

        Raises:
            ConfigError: a class's own calls this one: algorithms here have no such method.
        """
        raise ConfigError(
            "super().training_step(): algorithms have no such method here: sample and learn by "
            "synchronous_parallel_sample and train_one_step, or define step(), whose base is one iteration"
        )

    @property
    def _counters(self) -> dict[str, int]:
        """The plan's counts, to which a `training_step` may add; of a trainer without a plan those of its results."""
        return self.run_config["data"]["plan"].metrics.counters if self._planned else step_counts(self)

    @property
    def _by_agent_steps(self) -> bool:
        """Whether steps are those of agents."""
        return counted_unit(self.policy) == "agent"

    def step(self) -> dict[str, Any]:
        """One result of training; every `evaluation_interval` with one of an evaluation.

        It takes one iteration, or as many as `timesteps_per_iteration` and `min_iter_time_s` ask for.
        """
        window: Any = self.datamodule.episode_window
        window.begin_result()
        since = {**step_counts(self), "env_steps": self.policy.env_steps, "episodes": window.episodes_total}
        metrics, numbers = dict[str, Any](), dict[str, list[float]]()

        def train() -> None:
            began, enough = time.perf_counter(), False
            try:
                while not enough:
                    metrics.update(algorithm.Algorithm.train(self))
                    for name, values in self.datamodule.numbers.items():
                        numbers.setdefault(name, []).extend(values)
                    enough = time.perf_counter() - began >= self._least_seconds and self._has_enough_steps(since)
            finally:  # also after an interrupt
                self._update_readers()

        every = self.config.get("evaluation_interval")
        due = every and (self.iteration + 1) % every == 0
        evaluation = self._evaluate_beside(train) if due and self._evaluates_in_parallel else None
        if evaluation is None:
            train()
        del metrics["training_iteration"]  # how many there were; `Trainable` counts results
        result = training_result(self, metrics, since)
        self._statistics.add(numbers)
        learned: dict[str, dict[str, Any]] = {}
        for each in episode_callbacks(self.trainer.callbacks):
            self._statistics.add(each.pop_numbers())
            learned = {name: own for name, own in each.learned.items() if own}
        for policy_id, own in learned.items():
            result["info"]["learner"][policy_id]["custom_metrics"] = own
        result["custom_metrics"] = {**self._statistics.custom_metrics(), **learned}
        result["hist_stats"] |= self._statistics.hist_stats()
        result["episode_media"] = self._statistics.episode_media()
        if self._planned:
            plan = self.run_config["data"]["plan"]
            result["info"] = {**plan.metrics.counters, **result["info"]}
            result["timers"] |= {f"{name}_time_ms": 1000 * timer.mean for name, timer in self._timers.items()}
            for change in plan.changes:
                result = change(result)
        if due:
            result |= evaluation or self.evaluate()
        elif self.config.get("always_attach_evaluation_results"):
            result |= self.evaluation_metrics
        if not every and (names := self._estimators):
            held: list[Any] = self.trainer.callbacks  # type: ignore[attr-defined]
            estimates = next(each for each in held if isinstance(each, OffPolicyEvaluation)).estimate(self.policy)
            result["off_policy_estimator"] = classic_estimates(names, estimates)
        if (choose_task := self.config.get("env_task_fn")) is not None:
            self.workers.foreach_env_with_context(partial(set_task, result=result, choose_task=choose_task))
        return result

    def _has_enough_steps(self, since: Mapping[str, int]) -> bool:
        """Whether there are as many new steps as the config asks for, since these counts."""
        if self.policy.env_steps - since["env_steps"] < self._least_steps:
            return False
        trained = f"num_{counted_unit(self.policy)}_steps_trained"
        return not self._least_trained or step_counts(self)[trained] - since[trained] >= self._least_trained

    def log_result(self, result: dict[str, Any]) -> None:
        """Let callbacks add to the result before it is logged."""
        self._call_callbacks("on_train_result", trainer=self, algorithm=self, result=result)
        super().log_result(result)

    def save_checkpoint(self, checkpoint_dir: str | Path) -> Any:
        """Write `checkpoint_dir`/checkpoint-1, say; returns its path."""
        path = algorithm.Algorithm.save(self, Path(checkpoint_dir) / f"checkpoint-{self.iteration}")
        return str(path) if self._storage is None else None  # Tune takes the directory

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Go on from what `save` wrote, with the environments, the plan and all other keys of this trainer's config.

        Args:
            checkpoint: the file, or a directory that holds it.

        Raises:
            CheckpointError: the file is missing or damaged, or its policy is not that of this config.
        """
        path = find_checkpoint(checkpoint)
        read_checkpoint(path)  # before this trainer ends
        self.cleanup()
        self._build(self.run_config, path)
        self._resume_from = path
        self._fit(iterations=0)
        self._open_input()

    @classmethod
    def from_checkpoint(
        cls,
        checkpoint: str | Path,
        policy_ids: Collection[str] | None = None,
        policy_mapping_fn: Any = None,
        policies_to_train: Any = None,
        *,
        trust: str | Sequence[str] = (),
    ) -> Trainer:
        """A new trainer that continues from what `save` wrote, with the class and the config of the one that wrote it.

        Args:
            checkpoint: the file, or a directory that holds it.
            policy_ids: ids of the policies to keep; `None`: all.
            policy_mapping_fn: the mapping from the next episodes on; `None`: that of the file.
            policies_to_train: see `add_policy`; `None`: the same as before.
            trust: your own packages (import prefixes) that a file of another user may name.

        Raises:
            CheckpointError: there is none, it names code that is not trusted, or could not hold a value of the config.
            ConfigError: there is no such policy, or the mapping gives an agent another one.
        """
        path = find_checkpoint(checkpoint)
        written_by, config = trainer_in(path, trust, Trainer)
        chosen = written_by if cls is Trainer else cls
        if chosen is None:
            raise CheckpointError(
                f"checkpoint {path} was written by a Trainer without an import path: call from_checkpoint on its class"
            )
        trainer = chosen(config=config)
        trainer.restore(path)
        policies = trainer.policy.policies
        if unknown := [name for name in policy_ids or () if name not in policies]:
            raise ConfigError(
                f"no policy {unknown[0]!r}.{did_you_mean(unknown[0], policies)} Policies: {', '.join(policies)}"
            )
        for name in [name for name in policies if policy_ids is not None and name not in policy_ids]:
            trainer.remove_policy(name, policy_mapping_fn=policy_mapping_fn)
        if policy_mapping_fn is not None:
            trainer.policy.set_policy_mapping(trainer._of_named_agents(policy_mapping_fn))
        trainer._set_policies_to_train(policies_to_train)
        return trainer

    def cleanup(self) -> None:
        """Close environments, worker processes and the logger of the config."""
        algorithm.Algorithm.stop(self)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Become a trainer of another config, with new weights."""
        self.cleanup()
        self.setup(dict(new_config))
        return True

    @classmethod
    def default_resource_request(cls, config: Mapping[str, Any]) -> Any:
        """As `Trainable`, with the defaults of this class."""
        return super().default_resource_request(cls.merge_trainer_configs(cls._own_defaults(), config))

    # -- of a Trainer -------------------------------------------------------------------------------------------------
    @property
    def run_config(self) -> dict[str, Any]:
        """The whole configuration, by this package's keys."""
        return self._config

    @property
    def workers(self) -> Any:
        """The workers that sample for training; its `local_worker` has the policy that learns.

        A trainer that trains by itself may set others.
        """
        if self._own_workers is not None:
            return self._own_workers
        if self.datamodule.workers is None:
            self._fit(iterations=0)
        return PlanWorkers(self.datamodule.workers, self.policy, self.datamodule)

    @workers.setter
    def workers(self, workers: Any) -> None:
        self._own_workers = workers

    @property
    def evaluation_workers(self) -> Any:
        """The workers that play evaluations."""
        if self.datamodule.evaluation_workers is None:
            self._fit(iterations=0)
        return EvaluationWorkers(self.datamodule.evaluation_workers, self.policy)

    @property
    def local_replay_buffer(self) -> LocalReplayBuffer | None:
        """The replay buffers of the policies in this process; `None` if they learn from none, or from shards."""
        if self._planned:
            return self.run_config["data"]["plan"].buffer
        if self.datamodule.workers is None:
            self._fit(iterations=0)
        feeds = self.datamodule.feeds or {"default_policy": self.datamodule.source}
        held = {name: feed for name, feed in feeds.items() if isinstance(getattr(feed, "buffer", None), ReplayBuffer)}
        return TrainerReplayBuffer(held, self.datamodule.feeds.lockstep) if held else None

    @property
    def train_exec_impl(self) -> Iterator[dict[str, Any]]:
        """The results of training, one at each `next`."""
        while True:
            yield Trainer.step(self)

    @property
    def _env_id(self) -> Any:
        """The environment of the config."""
        return self.raw_user_config.get("env", self.config.get("env"))

    @property
    def env_creator(self) -> Any:
        """Makes an environment, with its wrappers, of an `EnvContext`."""
        return self.datamodule.env.make_single

    @property
    def callbacks(self) -> Any:
        """The callbacks of the config; without any, an object whose methods do nothing."""
        held: list[Any] = self.trainer.callbacks  # type: ignore[attr-defined]
        own = (each for each in held if isinstance(each, RLCallback) and not isinstance(each, Output))
        found = next(own, None)
        return found.callbacks if isinstance(found, EpisodeCallbacks) else found or DefaultCallbacks()

    def get_default_policy_class(self, config: Mapping[str, Any]) -> Any:
        """The policy class that such a config trains; a class may give the name of one."""
        return class_of_option(type(self)._policy_class)

    def evaluate(self, duration_fn: Callable[[int], int] | None = None) -> dict[str, Any]:  # type: ignore[override]
        """Play `evaluation_duration` episodes: {"evaluation": {"episode_reward_mean": …}}.

        Args:
            duration_fn: called before each round with the number of episodes so far (of their steps, if
                `evaluation_duration_unit` is "timesteps"), and returns how many are left; `None`: as the config says.
        """
        return self._evaluate_beside(None, duration_fn)

    def _before_evaluate(self) -> None:
        """Called before each evaluation."""
        if self.before_evaluate_fn is not None:
            type(self).before_evaluate_fn(self)

    @property
    def _evaluates_in_parallel(self) -> bool:
        """Whether evaluations are played in their processes while the policy is trained."""
        asked = self.config.get("evaluation_parallel_to_training") and self.run_config["evaluation"]["num_workers"]
        alone = self._estimators or self.config.get("custom_eval_function") or evaluated_steps(self.config)
        return bool(asked and not alone and type(self).evaluate is Trainer.evaluate)

    def _evaluate_beside(
        self, train: Callable[[], None] | None, duration_fn: Callable[[int], int] | None = None
    ) -> dict[str, Any]:
        """As `evaluate`, by the present weights; `train` is called while the episodes are played."""
        self._before_evaluate()
        both = {"trainer": self, "algorithm": self}
        self._call_callbacks("on_evaluate_start", **both)
        result = self.evaluation_metrics = self._evaluate(train, duration_fn)
        self._call_callbacks("on_evaluate_end", **both, evaluation_metrics=result)
        return result

    def _evaluate(self, train: Callable[[], None] | None, duration_fn: Callable[[int], int] | None) -> dict[str, Any]:
        own = self._evaluation_callbacks
        hooks = worker_hooks(episode_callbacks(self.trainer.callbacks) if own is None else [own])
        seed = (self.config.get("evaluation_config") or {}).get("seed")
        if self.run_config["evaluation"]["episodes"]:
            prepare = partial(prepare_evaluation, hooks=hooks, seed=seed)
            self.evaluation_workers.workers.foreach_worker(prepare)
        if (evaluate := self.config.get("custom_eval_function")) is not None:
            workers = self.evaluation_workers
            workers.sync_weights()
            return {"evaluation": evaluate(self, workers)}
        if duration_fn is None and (steps := evaluated_steps(self.config)):
            duration_fn = partial(operator.sub, steps)
        with self._exploring_by(evaluation_exploration(self.config)), self._lasting(duration_fn):
            metrics = algorithm.Algorithm.evaluate(self) if train is None else self._play_beside(train)
        statistics = EpisodeStatistics()
        if hooks and self.run_config["evaluation"]["episodes"]:
            statistics.add(self.evaluation_workers.workers.get_metrics().get("numbers", {}))
        self._show_episode()
        result = evaluation_result(self._state, metrics, statistics)
        if self._estimators:
            result["evaluation"]["off_policy_estimator"] = classic_estimates(self._estimators, metrics)
        return result

    def _play_beside(self, train: Callable[[], None]) -> dict[str, float]:
        """Play episodes in their processes while `train` is called; the metrics of an evaluation."""
        evaluator: Any = self.datamodule.evaluator
        evaluator.begin(self.policy)
        train()
        self._state.keep(evaluator.finish())
        evaluator.reported = None  # as the present policy is the one that the next values are of
        returns, lengths = self._state.evaluated
        return {EVAL_RETURN: fmean(returns), EVAL_LENGTH: fmean(lengths)}

    def _show_episode(self) -> None:
        """Play another episode for the keys `record_env` and `render_env` of evaluations."""
        section = self.config.get("evaluation_config") or {}
        if record := section.get("record_env"):
            directory = Path(self.logdir if record is True else record)
            next(episodes_of(self, False, directory, first=self.policy.env_steps))
        elif section.get("render_env") and has_display():
            next(episodes_of(self, True, None, first=self.policy.env_steps))

    @contextmanager
    def _exploring_by(self, exploration: Mapping[str, Any]) -> Iterator[None]:
        """Inside the block, evaluations explore by another strategy, if there is one."""
        if not exploration:
            yield
            return
        workers = self.evaluation_workers.workers
        workers.foreach_worker(partial(set_exploration, exploration=exploration))
        try:
            yield
        finally:
            workers.foreach_worker(partial(set_exploration, exploration=None))

    @contextmanager
    def _lasting(self, duration_fn: Callable[[int], int] | None) -> Iterator[None]:
        """Inside the block, evaluations last as the function says; `None`: as the config does."""
        own = self.datamodule.evaluator
        if own is not None and duration_fn is not None:
            in_steps = self.config.get("evaluation_duration_unit") == "timesteps"
            self.datamodule.evaluator = RoundsOfEpisodes(own, duration_fn, in_steps)
        try:
            yield
        finally:
            self.datamodule.evaluator = own

    def _call_callbacks(self, name: str, **arguments: Any) -> None:
        """Call that method of the config's callbacks, if these are in RLlib's form."""
        if isinstance(self.callbacks, DefaultCallbacks):
            call_method(self.callbacks, name, arguments)

    def compute_single_action(  # type: ignore[override]
        self,
        observation: Any = None,
        state: Any = None,
        prev_action: Any = None,
        prev_reward: float | None = None,
        info: Any = None,
        policy_id: str | None = None,
        full_fetch: bool = False,
        explore: bool | None = None,
        *,
        input_dict: Mapping[str, Any] | None = None,
        timestep: int | None = None,
        episode: Any = None,
        action_mask: Any = None,
        obs: Any = None,
        **transforms: Any,
    ) -> Any:
        """The action for one observation, ready for `env.step`.

        Args:
            observation: one observation of the environment; also by the name `obs`.
            state: the state of a recurrent policy, as the last call returned it, or `[]`.
            prev_action, prev_reward: the previous action and reward of the step before, for models that read them.
            info: the environment's; its "action_mask" is taken.
            input_dict: "obs", "prev_actions", "prev_rewards" and "state_in_0" … in the place of these arguments.
            policy_id: `None`: the only policy.
            full_fetch: return the tuple below.
            explore: sample the action; `None`: the config's `explore`.
            timestep, episode: not read; exploration follows the policy's env steps.
            action_mask: the allowed actions.
            transforms: `unsquash_action` and `clip_action`, which can be `None` or True for actions of a Box: the
                config's `normalize_actions` and `clip_actions` decide.

        Returns:
            The action; with `full_fetch` or a `state` the tuple (action, next state, extra columns).

        Raises:
            ConfigError: a transform is False, or unknown.
        """
        self._check_transforms(policy_id, transforms)
        row = dict(input_dict or {})
        observation = row.get("obs", obs if observation is None else observation)
        state = [row[key] for key in sorted(row) if key.startswith("state_in_")] or state
        if action_mask is None and isinstance(info, Mapping):
            action_mask = info.get("action_mask")
        policy, whole = self.policy.get_policy(policy_id), full_fetch or state is not None
        result = policy.compute_single_action(
            observation,
            None if state is None else [torch.as_tensor(part) for part in state],
            prev_action=row.get("prev_actions", prev_action),
            prev_reward=row.get("prev_rewards", prev_reward),
            explore=self.config.get("explore", True) if explore is None else explore,
            action_mask=action_mask,
            full_fetch=whole,
        )
        if not isinstance(policy, TorchPolicy):
            return result
        return (policy.env_action(result[0]), *result[1:]) if whole else policy.env_action(result)

    compute_action = compute_single_action

    def compute_actions(
        self,
        observations: Mapping[Any, Any],
        state: Mapping[Any, Any] | None = None,
        prev_action: Mapping[Any, Any] | None = None,
        prev_reward: Mapping[Any, Any] | None = None,
        info: Mapping[Any, Any] | None = None,
        policy_id: str | None = None,
        full_fetch: bool = False,
        explore: bool | None = None,
        **transforms: Any,
    ) -> Any:
        """The actions for the observations of several agents or environments of one policy.

        Args:
            observations, state, prev_action, prev_reward, info: dicts by agent, see `compute_single_action`.
            policy_id, full_fetch, explore, transforms: see `compute_single_action`; also `unsquash_actions` and
                `clip_actions`.

        Returns:
            Actions by agent; with `full_fetch` or a `state` the tuple of actions, next states and extra columns.
        """
        whole = full_fetch or state is not None
        found = {
            agent: self.compute_single_action(
                value,
                None if state is None else state.get(agent, []),
                prev_action=(prev_action or {}).get(agent),
                prev_reward=(prev_reward or {}).get(agent),
                info=(info or {}).get(agent),
                policy_id=policy_id,
                full_fetch=whole,
                explore=explore,
                **transforms,
            )
            for agent, value in observations.items()
        }
        if not whole:
            return found
        return tuple({agent: parts[index] for agent, parts in found.items()} for index in range(3))

    def _check_transforms(self, policy_id: str | None, transforms: Mapping[str, Any]) -> None:
        policy = self.policy.get_policy(policy_id)
        changes_actions = policy.has_model and policy.action_transform.policy_space != policy.action_space
        for name, value in transforms.items():
            key = TRANSFORMS.get(name)
            if key is None:
                raise TypeError(f"compute_single_action() got an unexpected keyword argument {name!r}")
            if value is False and changes_actions:
                raise ConfigError(
                    f"{name}=False: actions are always transformed as config[{key!r}] says; "
                    "get_policy().compute_actions(observations) returns them as the policy chose them"
                )

    def add_policy(
        self,
        policy_id: str,
        policy_cls: Any,
        *,
        observation_space: Any = None,
        action_space: Any = None,
        config: Mapping[str, Any] | None = None,
        policy_mapping_fn: Any = None,
        policies_to_train: Any = None,
    ) -> Any:
        """Add a policy to those of several agents; workers have it from the next sample on.

        Args:
            policy_id: a new one.
            policy_cls: its class.
            observation_space, action_space: the spaces of its agents; `None`: those of the agents that the mapping
                gives it.
            config: RLlib's keys over those of the trainer.
            policy_mapping_fn: the mapping from the next episodes on; `None` keeps the present one.
            policies_to_train: ids of the policies that learn, or a function of an id and a batch; `None`: the new one
                learns if all others do.

        Returns:
            The policy.

        Raises:
            ConfigError: the trainer has one agent, there is such a policy, or a key means nothing here.
        """
        several = self._policies_of_several_agents()
        own_class, defaults = self._trained
        given = {key: self.config[key] for key in ROW_COUNTS if key in self.config}
        given["multiagent"] = {"policies": {policy_id: PolicySpec(policy_cls, config=config)}}
        chosen = {**self.run_config, **translate_section(given, defaults, self.run_config, own_class)}
        entry = fractions_to_env_steps({**chosen, "policies": complete_policies(chosen)})["policies"][policy_id]
        data = entry.pop("data", None)
        of_agents = zip(several.observation_space.items(), several.action_space.values(), strict=True)
        fits = (
            agent
            for (agent, observed), acted in of_agents
            if observed == observation_space and action_space in (None, acted)
        )
        all_learn = len(several.policies_to_train) == len(several.policies)
        added = several.add_policy(
            policy_id,
            entry,
            trained=all_learn and policies_to_train is None,
            policy_mapping=self._of_named_agents(policy_mapping_fn),
            spaces_of=next(fits, None),
        )
        if data is not None and kind_of_data(type(added)) == "transitions":
            self.datamodule.feeds[policy_id] = ReplayFeed(**{key: data[key] for key in data if key != "_target_"})
        self._set_policies_to_train(policies_to_train)
        return added

    def remove_policy(self, policy_id: str, *, policy_mapping_fn: Any = None, policies_to_train: Any = None) -> None:
        """Remove a policy from those of several agents.

        Args:
            policy_id: that of the policy.
            policy_mapping_fn: the mapping from the next episodes on; `None` keeps the present one, which must not give
                the policy to an agent.
            policies_to_train: see `add_policy`; `None`: the same without this one.

        Raises:
            ConfigError: there is no such policy, the trainer has one agent, or an agent may still get the policy.
        """
        mapping = self._of_named_agents(policy_mapping_fn)
        self._policies_of_several_agents().remove_policy(policy_id, policy_mapping=mapping)
        self.datamodule.feeds.pop(policy_id, None)
        self._set_policies_to_train(policies_to_train)

    def _of_named_agents(self, policy_mapping_fn: Any) -> Any:
        """The mapping as one of agents by name, which a mapping of agents that are numbers is not."""
        if policy_mapping_fn is None or not self.numbered_agents:
            return policy_mapping_fn
        return partial(map_number, fn=policy_mapping_fn)

    def _policies_of_several_agents(self) -> Any:
        if not self.policy.agents:
            raise ConfigError(
                "this trainer has one agent and one policy: name several policies by config['multiagent']"
            )
        return self.policy

    def _set_policies_to_train(self, chosen: Any) -> None:
        policy: Any = self.policy
        if callable(chosen):
            chosen = [name for name in policy.policies if call_with_accepted_args(chosen, name, None)]
        if chosen is not None:
            policy.set_policies_to_train([*chosen])

    def export_policy_model(
        self, export_dir: str | Path, policy_id: str | None = None, onnx: int | None = None
    ) -> dict[str, Any]:
        """Write the policy for use without this package: TorchScript, or ONNX if `onnx` is any number.

        Returns:
            As `Policy.export_model`.
        """
        policy = self.policy.get_policy(policy_id)
        return policy.export_model(export_dir, format="torchscript" if onnx is None else "onnx")

    def export_policy_checkpoint(
        self, export_dir: str | Path, filename_prefix: str = "model", policy_id: str | None = None
    ) -> str:
        """Write the checkpoint of one policy, which `Policy.load` reads; returns its path.

        Args:
            export_dir: gets the file `filename_prefix`.ckpt.
            filename_prefix: start of the file's name.
            policy_id: `None`: the only policy.
        """
        policy = self.get_policy(policy_id)
        checkpoint: dict[str, Any] = {"state_dict": policy.state_dict()}
        policy.on_save_checkpoint(checkpoint)
        path = Path(export_dir) / f"{filename_prefix}.ckpt"
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(checkpoint, path)
        return str(path)

    def export_model(  # type: ignore[override]
        self, export_formats: str | Sequence[str], export_dir: str | Path | None = None
    ) -> dict[str, str]:
        """Write the only policy in several formats.

        Args:
            export_formats: "checkpoint" (`export_policy_checkpoint`), "model" (TorchScript) and "onnx".
            export_dir: gets a directory of that name for each; `None`: `logdir`.

        Returns:
            Format → the path of its file or directory.

        Raises:
            ConfigError: a format is none of these.
        """
        found: dict[str, str] = {}
        for each in [export_formats] if isinstance(export_formats, str) else export_formats:
            if each not in ("checkpoint", "model", "onnx"):
                raise ConfigError(f"export_formats={each!r}; expected checkpoint, model or onnx")
            place = Path(export_dir or self.logdir) / each
            if each == "checkpoint":
                found[each] = self.export_policy_checkpoint(place)
            else:
                self.export_policy_model(place, onnx=1 if each == "onnx" else None)
                found[each] = str(place)
        return found

    def import_model(self, import_file: str | Path) -> None:
        """Act and learn with the weights and filters of a file that `save` or `export_policy_checkpoint` wrote.

        Raises:
            CheckpointError: it cannot be read, or does not fit.
        """
        load_initial_weights(self.policy, str(import_file), strict=True)
        self._update_readers()

    def set_weights(self, weights: Mapping[str, Any]) -> None:
        """Act and learn with these weights by policy id from now on, also in clients of a policy server."""
        super().set_weights(weights)
        self._update_readers()

    def import_policy_model_from_h5(self, import_file: str, policy_id: str | None = None) -> None:
        """Refused: there is no Keras model whose weights such a file could hold.

        Raises:
            ConfigError: says what to use.
        """
        raise ConfigError(
            f"{import_file}: weights of a Keras model do not fit a torch module; use set_weights, or restore of a file "
            "that save wrote"
        )

    @classmethod
    def get_default_config(cls) -> dict[str, Any]:
        """RLlib's keys with the values that a trainer of this class has without a config."""
        defaults = {} if cls._policy_class is None else classic_keys(defaults_of(cls._policy_class))
        return over_defaults(defaults, cls._default_config)

    @classmethod
    @cache
    def _own_defaults(cls) -> Mapping[str, Any]:
        """What `default_config`, or a `get_default_config` of the class, changes of its policy's defaults."""
        if cls.get_default_config.__func__ is Trainer.get_default_config.__func__:
            return cls._default_config
        defaults = cls.get_default_config()
        defaults = defaults.to_dict() if isinstance(defaults, AlgorithmConfig) else defaults
        shipped = {} if cls._policy_class is None else classic_keys(defaults_of(cls._policy_class))
        changed = {key: value for key, value in defaults.items() if key not in shipped or shipped[key] != value}
        return merge_configs(changed, cls._default_config)

    @classmethod
    def merge_trainer_configs(
        cls, config1: Mapping[str, Any], config2: Mapping[str, Any], _allow_unknown_configs: bool | None = None
    ) -> dict[str, Any]:
        """The keys of `config2` over those of `config1`; see `merge_configs`. Keys are checked by the constructor."""
        return merge_configs(config1, config2)

    @classmethod
    def merge_algorithm_configs(
        cls, config1: Mapping[str, Any], config2: Mapping[str, Any], _allow_unknown_configs: bool | None = None
    ) -> dict[str, Any]:
        """`merge_trainer_configs` by RLlib's later name."""
        return cls.merge_trainer_configs(config1, config2)

    @classmethod
    def _validate_config(cls, config: Mapping[str, Any], trainer_obj_or_none: Any = None) -> None:
        """Check a config without building anything: by `validate_config`, and every key and value.

        Args:
            config: RLlib's keys.
            trainer_obj_or_none: a trainer in its `setup`, which checks keys and values itself, or `None`.

        Raises:
            ConfigError: a key or value that means nothing here.
        """
        if trainer_obj_or_none is not None:
            trainer_obj_or_none.validate_config(config)
            return
        if isinstance(inspect.getattr_static(cls, "validate_config"), staticmethod):  # not a method, needs no trainer
            cls.validate_config(config)  # type: ignore[call-arg]
        given = cls.merge_trainer_configs(cls._own_defaults(), config)
        policy = class_of_option(cls._policy_class)
        defaults = defaults_of(policy)
        translate_section(given, defaults, translate_keys(given, defaults, {}), policy)

    def validate_config(self, config: dict[str, Any]) -> None:
        """Check, and perhaps change, the keys of a new trainer; called before anything is built.

        A class or `with_updates` may define it. Keys and values that mean nothing here are refused without it.

        Args:
            config: RLlib's keys, those of the constructor over the class's own.
        """

    def _make_workers(
        self,
        *,
        env_creator: Any = None,
        validate_env: Any = None,
        policy_class: Any = None,
        config: Mapping[str, Any] | None = None,
        num_workers: int = 0,
    ) -> Any:
        """Another set of workers: of this trainer's policy, or of a new one.

        Args:
            env_creator: the creator of their environments; `None`: this trainer's.
            validate_env: called with an environment.
            policy_class: built from the environment's spaces; `None`: this trainer's policy acts.
            config: see `trainer_config` of `WorkerSet`.
            num_workers: Ray processes; 0: one worker in this one.
        """
        return WorkerSet(
            env_creator=env_creator or self.datamodule.env,
            validate_env=validate_env,
            policy_class=class_of_option(policy_class) or self.policy,
            trainer_config={"seed": self.run_config["seed"], **(config or {})},
            num_workers=num_workers,
            logdir=self.logdir,
        )

    def _sync_weights_to_workers(self, *, worker_set: Any = None, workers: Any = None) -> None:
        """Let a worker set, or workers, act with the weights of the policy that learns."""
        if worker_set is not None:
            worker_set.sync_weights(self.policy)
        for worker in workers or ():
            worker.set_weights(self.get_weights(), self.policy.env_steps)

    # -- translation --------------------------------------------------------------------------------------------------
    def _translated(self, given: Mapping[str, Any], policy: Any, defaults: Mapping[str, Any]) -> dict[str, Any]:
        """RLlib's keys as nested keys of this package."""
        own = keywords_of(policy).get("config") if isinstance(policy, type) else None
        keys_of_policy = getattr(own, "default", None)
        whole_config = isinstance(policy, type) and takes_whole_config(policy)
        plan = type(self).execution_plan
        self._planned = plan is not None and "config" in inspect.signature(plan).parameters
        asked = set(self.raw_user_config) - set(self._own_defaults())
        # Other keys of the trainer's default_config, or that validate_config adds, are for its plan or its step.
        takes_more = self._planned or self._trains_itself
        kept = {
            key: value
            for key, value in given.items()
            if (key in KNOWN or key in asked or not takes_more)
            and not (key in NO_EFFECT and key not in self.raw_user_config and value == COMMON_CONFIG.get(key))
        }
        if whole_config:  # which gets its own keys as well
            kept = {key: kept[key] for key in kept if key in KNOWN}
        of_policy = keys_of_policy if isinstance(keys_of_policy, Mapping) and not whole_config else {}
        classic = translate_keys(
            kept,
            defaults,
            {key: of_policy[key] for key in of_policy if key not in COMMON_CONFIG},
            joins_fragments=plan is not None,
            has_buffers=self._planned,
        )
        self._trained = policy if isinstance(policy, type) else object_at(defaults["policy"]["_target_"]), defaults
        classic |= translate_section(kept, defaults, classic, self._trained[0])
        if whole_config:
            classic["policy"] = {"config": config_of_policy(defaults, given, classic.get("policy", {}))}
            classic.pop("exploration", None)
            classic.pop("model", None)
        elif isinstance(policy, type) and issubclass(policy, TorchPolicy):
            put(
                classic,
                "policy.config",
                {
                    **plain_values(over_defaults(classic_keys(defaults), given)),
                    **classic.get("policy", {}).get("config", {}),
                },
            )
        return classic

    def _plan_choices(
        self, classic: dict[str, Any], given: Mapping[str, Any], defaults: Mapping[str, Any], policy_class: type
    ) -> list[str]:
        """Put the execution plan into `classic`; return the overrides that choose the data pipeline."""
        plan = type(self).execution_plan
        files = None if self._planned or plan is not None else data_files(given, policy_class)
        if files is not None:
            return write_offline_keys(classic, given, defaults, files, policy_class)
        data, make, several = classic.setdefault("data", {}), reader_of(given), 1
        if self._external is not None:
            several = 1 + (given.get("num_workers") or 0)
            make = make or partial(sample_external, self._external)
        rows = 0 if "batch_size" in defaults["data"] else given.get("train_batch_size") or 0
        reading = None if make is None else ReaderPlan(make, given, None if self._planned else plan, rows, several)
        if reading is not None and {"requests_per_worker", "num_shards", "directions"} & set(defaults["data"]):
            raise ConfigError(
                f"config key {'input' if self._external is None else 'env'!r}: the workers of this algorithm sample by "
                "themselves; train dqn, ppo or another one that waits for its samples"
            )
        starts = data.get("learning_starts", defaults["data"].get("learning_starts"))
        if not self._planned:
            rows, joins = given.get("train_batch_size", 0), "fragments_per_batch" in defaults["data"]
            waits = "requests_per_worker" not in defaults["data"]
            if classic.get("count_steps_by") == "agent_steps" and plan is None and rows > 0 and joins and waits:
                plan = partial(rollouts_of_agent_steps, least=rows)
            if plan is not None or reading is not None:
                data["plan"] = plan if reading is None else reading
                data.pop("fragments_per_batch", None)
            if reading is not None and self._external is None and "batch_size" in defaults["data"]:
                data |= reading_rate(classic, given, defaults)
            # So that what is random until learning starts follows.
            imitates = ["data=on_policy"] if kind_of_data(policy_class) == "episodes" else []
            return [*imitates, *([f"data.learning_starts={starts}"] if "learning_starts" in data else [])]
        for entry in classic.get("policies", {}).values():
            entry["data"] = None  # the plan has its own buffers
        option = option_of(policy_class)
        keys = merge_configs({**classic_view(option, defaults), "target_network_update_freq": 500}, given)
        classic["callbacks"] = ["lightning_rl.rllib.workers:RowIds", *classic.get("callbacks", ())]
        classic["data"] = {
            "dataset": PlannedDataset,
            "plan": ClassicPlan(type(self).execution_plan, keys, self, reading),
        }
        waits = "random_timesteps" in defaults["exploration"]
        return ["data=on_policy", *([f"exploration.random_timesteps={starts or 0}"] if waits else [])]

    def _build(self, config: dict[str, Any], ckpt_path: Path | None = None, signed: bool = True) -> None:
        super()._build(config, ckpt_path, signed)
        self._state = ClassicState(self)
        self.trainer.callbacks.insert(0, self._state)  # type: ignore[attr-defined]
        self.datamodule.episode_window = ResultWindow(self._smoothing)
        env, evaluation = self.datamodule.env, self.datamodule.evaluation
        evaluated = self.datamodule.evaluation_env
        evaluation["env"] = NumberedFromOne.of(evaluated) if evaluation["num_workers"] else evaluated
        if self.datamodule.num_workers:
            self.datamodule.env = NumberedFromOne.of(env)
        self.datamodule.feeds.lockstep = draws_in_lockstep(self.config)

    @classmethod
    def with_updates(cls, name: str | None = None, **changes: Any) -> type[Trainer]:
        """A subclass with some of these changed; `None` takes one back.

        Args:
            name: the name of the class.
            changes: `default_policy` (a name or class), `get_policy_class(config)` (or `None` for the default),
                `default_config` (RLlib's keys), `validate_config(config)` (raises), `validate_env(env, context)`
                (raises), `before_init(trainer)`, `after_init(trainer)`, `before_evaluate_fn(trainer)`, `mixins`
                (classes, whose methods come first), `execution_plan`: a generator `plan(workers, policy)` of batches,
                or RLlib's `plan(workers, config)`.
        """
        unknown = [key for key in changes if key not in UPDATES]
        if unknown:
            raise ConfigError(f"no {unknown[0]!r} here.{did_you_mean(unknown[0], UPDATES)} Known: {', '.join(UPDATES)}")
        renamed = {"default_policy": "_policy_class", "default_config": "_default_config"}
        namespace = {renamed.get(key, key): value for key, value in changes.items()}
        bases = (*(namespace.pop("mixins", None) or ()), cls)
        if namespace.get("_default_config", {}) is None:
            namespace["_default_config"] = {}
        if "validate_config" in namespace:
            validate = namespace["validate_config"]
            namespace["validate_config"] = Trainer.validate_config if validate is None else staticmethod(validate)
        if "get_policy_class" in namespace:
            choose, fallback = namespace.pop("get_policy_class"), changes.get("default_policy", cls._policy_class)
            namespace["get_default_policy_class"] = (
                Trainer.get_default_policy_class if choose is None else lambda self, config: choose(config) or fallback
            )
        namespace["__module__"] = sys._getframe(1).f_globals["__name__"]
        return type(name or cls.__name__, bases, namespace)


class Untrained(Policy):
    """The policy of a trainer that trains something of its own: it acts at random and never changes."""

    def compute_actions(self, obs_batch: Any, state_batches: Any = None, **keywords: Any) -> Any:  # type: ignore[override]
        """Samples of the action space."""
        return [self.action_space.sample() for _ in obs_batch], [], {}

    def learn_on_batch(self, batch: Any) -> dict[str, float]:
        """Nothing."""
        return {}


UPDATES = ("default_policy", "get_policy_class", "default_config", "validate_config", "validate_env", "execution_plan")
UPDATES += ("before_init", "after_init", "before_evaluate_fn", "mixins")


def build_trainer(name: str, **changes: Any) -> type[Trainer]:
    """A trainer class; keywords as `Trainer.with_updates`."""
    return Trainer.with_updates(name, **changes)


def class_of_option(policy: Any) -> Any:
    """The class of an option of conf/policy; a class or an import path as it is."""
    return torch_policy(policy) if isinstance(policy, str) and not is_path(policy) else policy


def episode_callbacks(callbacks: Iterable[Any]) -> list[EpisodeCallbacks]:
    """Those in RLlib's form."""
    return [each for each in callbacks if isinstance(each, EpisodeCallbacks)]


def make_logger(config: Mapping[str, Any]) -> Any:
    """The logger of `config["logger_config"]`: its `type`, a class or its import path, of the other keys.

    It writes to `logdir` among these, or to a new directory.
    """
    given = dict(config["logger_config"])
    made, logdir = given.pop("type"), given.pop("logdir", None) or tempfile.mkdtemp(prefix="rllib_")
    return (object_at(made) if isinstance(made, str) else made)(given, logdir=logdir)


def set_task(env: Any, context: EnvContext, result: Mapping[str, Any], choose_task: Callable[..., Any]) -> None:
    """Set the task of an environment to `choose_task(result, env, context)`, if that is another one."""
    if (task := choose_task(result, env, context)) != env.get_task():
        env.set_task(task)
