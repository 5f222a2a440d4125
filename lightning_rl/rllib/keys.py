"""RLlib's config keys as this package's: what a classic trainer puts over the defaults of its policy."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Collection, Mapping
from typing import Any

from lightning_rl.config.keys import value_at
from lightning_rl.errors import ConfigError, did_you_mean
from lightning_rl.rllib.async_keys import (
    ASYNC_FIXED,
    ASYNC_KEYS,
    ASYNC_NO_EFFECT,
    ASYNC_SPECIAL,
    SUMMED_ROWS,
    write_async_keys,
)
from lightning_rl.rllib.callbacks import EpisodeCallbacks
from lightning_rl.rllib.merge import merge_configs
from lightning_rl.rllib.offline_keys import OFFLINE_SPECIAL, Output
from lightning_rl.rllib.replay_keys import (
    ITERATION,
    REPLAY_FIXED,
    REPLAY_KEYS,
    REPLAY_NO_EFFECT,
    REPLAY_SPECIAL,
    start_with_a_batch,
    without_replay_sections,
    write_replay_keys,
)
from lightning_rl.schedules import schedule_points, to_env_steps
from lightning_rl.schema.signatures import keywords_of

__all__ = [
    "KEYS",
    "KNOWN",
    "classic_keys",
    "classic_policy_config",
    "current_env",
    "evaluated_steps",
    "evaluation_exploration",
    "model_keys",
    "over_defaults",
    "policy_keywords",
    "translate_keys",
]

KEYS = {"env_config": "env.kwargs", "horizon": "env.max_episode_steps", "seed": "seed"}
KEYS |= {"num_workers": "workers.num_workers", "num_envs_per_worker": "workers.envs_per_worker"}
KEYS |= dict.fromkeys(("rollout_fragment_length", "sample_batch_size"), "workers.fragment_length")
KEYS |= {"batch_mode": "workers.batch_mode", "exploration_config": "exploration"}
KEYS |= dict.fromkeys(("evaluation_num_episodes", "evaluation_duration"), "evaluation.episodes")
KEYS |= dict.fromkeys(("evaluation_num_workers", "evaluation_num_env_runners"), "evaluation.num_workers")
KEYS |= {"evaluation_parallel_to_training": "evaluation.parallel"}
KEYS |= {"lr": "policy.lr", "lr_schedule": "policy.lr", "gamma": "policy.gamma", "lambda": "policy.gae_lambda"}
KEYS |= {"clip_param": "policy.clip", "vf_clip_param": "policy.value_loss_clip", "grad_clip": "policy.max_grad_norm"}
KEYS |= {"vf_loss_coeff": "policy.value_coef", "kl_coeff": "policy.kl_coef", "kl_target": "policy.kl_target"}
KEYS |= dict.fromkeys(("entropy_coeff", "entropy_coeff_schedule"), "policy.entropy_coef")
KEYS |= {"num_sgd_iter": "policy.passes", "normalize_actions": "policy.normalize_actions"}
KEYS |= {"clip_actions": "policy.clip_actions", "clip_rewards": "policy.reward_filter"}
KEYS |= {"observation_filter": "policy.observation_filter", **REPLAY_KEYS, **ASYNC_KEYS}
KEYS |= {"noise_stdev": "policy.sigma", "l2_coeff": "policy.weight_decay", "rollouts_used": "policy.top_directions"}
KEYS |= {"num_rollouts": "data.directions", "eval_prob": "data.eval_prob"}
KEYS |= dict.fromkeys(("stepsize", "sgd_stepsize"), "policy.lr")
KEYS |= dict.fromkeys(("max_num_worker_restarts", "max_num_env_runner_restarts"), "workers.max_restarts")
KEYS |= dict.fromkeys(
    ("delay_between_worker_restarts_s", "delay_between_env_runner_restarts_s"), "workers.restart_backoff_s"
)
KEYS |= {"restart_failed_sub_environments": "workers.max_env_restarts", "sample_timeout_s": "workers.sample_timeout_s"}
KEYS |= {"explore": "workers.explore", "remote_worker_envs": "workers.vectorization"}
KEYS |= {"disable_env_checking": "env.check", "grad_norm_clipping": "policy.max_grad_norm"}
KEYS |= {"optim_alpha": "policy.optimizer_kwargs.alpha", "optim_eps": "policy.optimizer_kwargs.eps"}
KEYS |= {"mixing_embed_dim": "policy.mixing_embed_dim", "vf_coeff": "policy.value_coef", "beta": "policy.beta"}
KEYS |= {"moving_average_sqd_adv_norm_start": "policy.norm_start"}
KEYS |= {"moving_average_sqd_adv_norm_update_rate": "policy.norm_rate", "deterministic_backup": "policy.backup_entropy"}
KEYS |= {name: f"policy.{name}" for name in ("bc_iters", "temperature", "num_actions", "lagrangian", "min_q_weight")}
KEYS |= {"lagrangian_thresh": "policy.lagrangian_thresh"}
VALUES: dict[str, dict[Any, Any]] = {
    "restart_failed_sub_environments": {True: 3, False: 0},
    "remote_worker_envs": {True: "async", False: "auto"},
    "disable_env_checking": {True: False, False: True},
    "deterministic_backup": {True: False, False: True},
    "observation_filter": {"NoFilter": "none", "MeanStdFilter": "mean_std", "ConcurrentMeanStdFilter": "mean_std"},
    "clip_rewards": {True: "sign", False: "none", None: "none", "clip": "clip", "return_std": "return_std"},
}
# Keys that have one meaning here, with the reason; another value is refused.
FIXED: dict[str, tuple[Any, str]] = {
    "framework": ("torch", "there is no other"),
    "use_pytorch": (True, "there is no other framework"),
    "eager": (False, "a word of TensorFlow"),
    "use_gae": (True, "advantages without GAE are those of `lambda` = 1"),
    "use_critic": (True, "without a critic, it is `PGTrainer`"),
    "return_proc_mode": ("centered_rank", "returns are ranked"),
    "offset": (0, "noise is drawn by seeds, not read from a table"),
    "action_noise_std": (0.0, "perturbed policies play without noise in their actions"),
    "keep_local_weights_in_sync": (True, "all ranks have the same weights"),
    "truncate_episodes": (True, "the key is `batch_mode`"),
    "num_gpus_per_worker": (0, "workers act on CPUs; `workers.act_on=learner` lets the learner's device act"),
    "_fake_gpus": (False, "there is no such test here"),
    "custom_resources_per_worker": ({}, "`workers.ray` has the keywords of Ray's actors"),
    "soft_horizon": (
        False,
        "an episode that `horizon` cuts is truncated: its value is bootstrapped, and a reset follows",
    ),
    "no_done_at_end": (False, "truncation is bootstrapped without it"),
    **dict.fromkeys(
        ("observation_space", "action_space"),
        (None, "it is the environment's; with `env=None` and a `PolicyServerInput`, that of its clients"),
    ),
    "render_env": (False, "`evaluation_config` may have it; `lightning-rl play` shows episodes"),
    "record_env": (False, "`evaluation_config` may have it; `lightning-rl video` records episodes"),
    "monitor": (False, "`lightning-rl video` records episodes"),
    "fake_sampler": (False, "there is no such test here"),
    "synchronize_filters": (True, "filters are part of the policy and travel with its weights"),
    "extra_python_environs_for_driver": ({}, "set environment variables before the program starts"),
    "extra_python_environs_for_worker": ({}, "set environment variables before Ray starts"),
    "shuffle_sequences": (True, "minibatches are always shuffled"),
    "after_train_step": (None, "`on_learn_on_batch` of a callback, or your own plan"),
    "bc_logstd_coeff": (0.0, "`exploration` widens what a policy does; imitation does not"),
    "mixer": ("qmix", "the sum of values is another trainer, `VDNTrainer`"),
    "keep_per_episode_custom_metrics": (False, "`hist_data` of an episode holds lists of values"),
    "_disable_action_flattening": (False, "the distribution of a Dict or Tuple space gets flat actions"),
    "good_policy": ("maddpg", "one policy has all agents of its group"),
    "adv_policy": ("maddpg", "one policy has all agents of its group"),
    "agent_id": (None, "one policy has all agents of its group"),
    "use_local_critic": (False, "`DDPGTrainer` with several policies has a critic for each"),
    "actor_feature_reg": (0.0, "the loss has no penalty of the actors' outputs"),
    **REPLAY_FIXED,
    **ASYNC_FIXED,
}
# Keys without effect, with the reason.
NO_EFFECT: dict[str, str] = {
    "log_level": "`logging` sets the level of the logger `lightning_rl`",
    "log_sys_usage": "results have the memory of the process",
    "num_cpus_per_worker": "Tune reserves them; `workers.ray` has the keywords of Ray's actors",
    "num_cpus_for_driver": "Tune reserves them",
    "placement_strategy": "Tune places the trial by it",
    "create_env_on_driver": "spaces come from one environment, which is closed again",
    "simple_optimizer": "there is one learner",
    "recreate_failed_workers": "workers are restarted, `max_num_worker_restarts` times",
    "restart_failed_env_runners": "workers are restarted, `max_num_worker_restarts` times",
    "ignore_worker_failures": "workers are restarted, `max_num_worker_restarts` times",
    "num_consecutive_worker_failures_tolerance": "workers are restarted, `max_num_worker_restarts` times",
    "collect_metrics_timeout": "`sample_timeout_s` bounds every request",
    "sampler_perf_stats_ema_coef": "times are those of one result",
    "_disable_execution_plan_api": "an execution plan runs if the trainer has one",
    "sample_collector": "fragments are arrays from the start",
    "sample_async": "a worker samples while the learner learns, if the algorithm is asynchronous",
    "remote_env_batch_wait_ms": "all environments are stepped together",
    "preprocessor_pref": "Atari has DeepMind's preprocessing; your own preprocessor is a key of the model",
    "in_evaluation": "RLlib sets it itself",
    "eager_tracing": "a word of TensorFlow",
    "enable_tf1_exec_eagerly": "a word of TensorFlow",
    "eager_max_retraces": "a word of TensorFlow",
    "tf_session_args": "a word of TensorFlow",
    "local_tf_session_args": "a word of TensorFlow",
    "_tf_policy_handles_more_than_one_loss": "a word of TensorFlow",
    "replay_buffer_size": "the rows of files are all there at once",
    "noise_size": "noise is drawn by seeds, not read from a table",
    "report_length": "means are over the episode window",
    "broadcast_interval": "a worker takes the newest weights with each request",
    "torch_distributed_backend": "Lightning chooses it by the device",
    "_lr_vf": "only with `_separate_vf_optimizer`",
    **dict.fromkeys(REPLAY_NO_EFFECT, "the replay buffer does without it"),
    **dict.fromkeys(ASYNC_NO_EFFECT, "the learner has no thread of its own"),
}
EVALUATION_KEYS = {"explore": "evaluation.explore", "horizon": "evaluation.max_episode_steps"}
SHOWN = ("record_env", "render_env")  # of an evaluation, as `Trainer` reads them
EVALUATION_FIXED: dict[str, tuple[Any, ...]] = {"input": ("sampler",), "multiagent": (), "env_task_fn": ()}
UNITS = ("episodes", "timesteps")  # of the duration of an evaluation
AS_GIVEN = "_disable_preprocessor_api"  # of the config, or its section "model"
# Keys that are counted or put together in another way, with the place that they reach.
SPECIAL: dict[str, str] = {
    "env": "`env.id`: an id, a class or a function; a retired id becomes its successor",
    "model": "`model`, with the same keys; those of Atari's preprocessing go to `env.kwargs`",
    "train_batch_size": "rows of experience of an iteration at least: `workers.fragment_length`, "
    "`data.fragments_per_batch`; with replay `data.batch_size`",
    "sgd_minibatch_size": "`policy.minibatches`, a count; with several agents each policy's rows are divided by it",
    "microbatch_size": "`policy.microbatches`, a count",
    "num_gpus": "`trainer.accelerator`, `trainer.devices`",
    "callbacks": "`callbacks`",
    "evaluation_interval": "results of `train` between two evaluations",
    "evaluation_duration_unit": "`timesteps`: whole episodes are played until they have `evaluation_duration` steps",
    "always_attach_evaluation_results": "whether results without an evaluation have the last one's",
    **dict.fromkeys(
        ("min_train_timesteps_per_reporting", "min_train_timesteps_per_iteration"),
        "least steps that a result has learned from, as `num_env_steps_trained` counts them",
    ),
    "evaluation_config": "its keys explore, horizon, env and env_config: `evaluation.explore`, "
    "`evaluation.max_episode_steps`, `evaluation.env`; exploration_config, seed and callbacks are the evaluations' "
    "own; record_env writes a video of another episode, and render_env shows one; other keys have no effect there",
    "custom_eval_function": "called with the trainer and its evaluation workers in place of an evaluation",
    "env_task_fn": "called with a result and each environment, which gets the task that it returns",
    "logger_config": "`type` is called with the other keys and a `logdir`, and gets each result",
    "episodes_per_batch": "`data.directions`: two episodes each",
    "multiagent": "`policies`, `policy_mapping`, `policies_to_train`, `count_steps_by`, which `train_batch_size` and "
    "`rollout_fragment_length` follow",
    "metrics_smoothing_episodes": "episodes of the window that results are over",
    "min_iter_time_s": "least seconds of a result; also as `min_time_s_per_iteration`, `min_time_s_per_reporting`",
    "defaults": "`rllib`: the defaults of this page, in place of this package's",
    "vf_share_layers": "`model.vf_share_layers`",
    AS_GIVEN: "a custom model of RLlib's kind gets observations as the environment gives them, as others do here",
    **dict.fromkeys(("min_time_s_per_iteration", "min_time_s_per_reporting"), "as `min_iter_time_s`"),
    **REPLAY_SPECIAL,
    **ASYNC_SPECIAL,
    **OFFLINE_SPECIAL,
}
MODEL_ONLY = dict.fromkeys(("_use_default_native_models", "_disable_action_flattening"), False)
MODEL_ONLY |= {"lstm_use_prev_action_reward": -1}
ATARI = {"framestack": True, "dim": 84, "grayscale": False, "zero_mean": True}  # of the model there, of the env here
RETIRED = {"CartPole-v0": ("CartPole-v1", 200), "Pendulum-v0": ("Pendulum-v1", None)}
EXPLORATION_NAMES = {"ou_base_scale": "ou_base_noise"}
SCHEDULED = ("lr", "entropy_coeff")  # numbers whose schedules are other keys, "lr_schedule" and so on
RETIRED_KEYS = ("buffer_size", "vf_share_layers")
ZERO_IS_UNSET = ("kl_target", "replay_buffer_num_slots")
MUST_BE_0 = ("beta", "learning_starts")
OF_MARWIL = (*MUST_BE_0, "vf_coeff", "moving_average_sqd_adv_norm_start", "moving_average_sqd_adv_norm_update_rate")
"""Keys that say nothing in RLlib's BC, whose `beta` is 0, or in both: where the policy here has none, they are left."""
AUTO_EPISODES = 10  # of an evaluation whose length RLlib adapts to that of training
DEPRECATED = -1  # what RLlib's defaults have for a key that another one has taken the place of


KNOWN = {*KEYS, *FIXED, *NO_EFFECT, *SPECIAL}


def translate_keys(
    given: Mapping[str, Any],
    defaults: Mapping[str, Any],
    own: Mapping[str, Any],
    *,
    joins_fragments: bool = False,
    has_buffers: bool = False,
) -> dict[str, Any]:
    """RLlib's keys, except for `multiagent`, as the changes to this package's `defaults`.

    Args:
        given: RLlib's keys.
        defaults: the composed config of the policy.
        own: keys of the policy's own, which go to its `config`.
        joins_fragments: whether an execution plan of the user's makes training batches of several fragments.
        has_buffers: whether the plan keeps the replay buffers.

    Raises:
        ConfigError: a key or value that means nothing here.
    """
    out: dict[str, Any] = {}
    given = without_replay_sections(given)
    for key, value in schedules_last(given):
        if key in own:
            put(out, f"policy.config.{key}", value)
        elif key in KEYS:
            section, _, name = KEYS[key].partition(".")
            says_nothing = key in OF_MARWIL and name not in defaults[section] and (not value or key not in MUST_BE_0)
            if not _is_unset(key, value) and not says_nothing:
                own_value, default = _value(key, value), value_at(defaults, KEYS[key])
                # A schedule as `classic_keys` gave it has env steps in place of shares of the run.
                same = isinstance(value, list) and value == to_env_steps(default, defaults["total_env_steps"])
                put(out, KEYS[key], default if same else own_value)
        elif key not in SPECIAL:
            _check_without_counterpart(key, value)
    if "num_sgd_iter" in given and "target_kl" in defaults["policy"]:
        put(out, "policy.target_kl", None)  # RLlib takes all of its gradient steps
    if "batch_size" in defaults["data"]:
        write_replay_keys(out, given, defaults)
        if not has_buffers:
            start_with_a_batch(out["data"], defaults)
    elif "requests_per_worker" in defaults["data"]:
        write_async_keys(out, given, defaults)
    else:
        _sizes(out, given, defaults, joins_fragments)
    length = defaults["workers"]["fragment_length"]
    if out.get("workers", {}).get("fragment_length", length) != length:
        out["workers"]["count_resets"] = False  # RLlib counts rows of experience
    if given.get("vf_share_layers", DEPRECATED) != DEPRECATED:
        put(out, "model.vf_share_layers", given["vf_share_layers"])
    if "model" in given:
        section = {AS_GIVEN: given.get(AS_GIVEN, False), **given["model"]}
        out["model"] = {**model_keys(section, out, str(given.get("env"))), **out.get("model", {})}
    if given.get("num_gpus"):
        out["trainer"] = {"accelerator": "gpu", "devices": max(1, int(given["num_gpus"]))}
    _evaluation(out, given)
    if given.get("callbacks") is not None:
        out["callbacks"] = [EpisodeCallbacks.adapt(given["callbacks"])]
    if given.get("output") is not None:
        out.setdefault("callbacks", []).append(Output(given["output"], given))
        out["workers"] = {"record_logp": True, **out.get("workers", {})}
    return out


def schedules_last(given: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The keys in their order, but "lr_schedule" after "lr", in whose place it is."""
    return sorted(given.items(), key=lambda item: item[0].endswith("_schedule"))


def _is_unset(key: str, value: Any) -> bool:
    """Whether RLlib's default of a key stands for another key, or leaves the seed or a schedule out."""
    if value is None:
        return key == "seed" or key.endswith("_schedule")
    return value == (DEPRECATED if key in RETIRED_KEYS else 0.0 if key in ZERO_IS_UNSET else None)


def _check_without_counterpart(key: str, value: Any) -> None:
    """Warn of a key without effect; refuse an unknown one, and one that can have only another value."""
    if key in FIXED:
        expected, reason = FIXED[key]
        if value not in (expected, DEPRECATED) and (value or expected):
            raise ConfigError(f"config key {key!r}={value!r}; here it can only be {expected!r}: {reason}")
    elif key in NO_EFFECT:
        warnings.warn(f"config key {key!r} has no counterpart and no effect: {NO_EFFECT[key]}", stacklevel=4)
    else:
        raise ConfigError(
            f"no config key {key!r}.{did_you_mean(key, [*KEYS, *SPECIAL, *FIXED])} Keys of RLlib and what they are "
            "here: docs/rllib_keys.md"
        )


def _evaluation(out: dict[str, Any], given: Mapping[str, Any]) -> None:
    """`evaluation_config`: how evaluations differ from training; what is learned and collected by has no effect there.

    Where the duration is in timesteps, a round of episodes, one of each environment there, follows another.

    Raises:
        ConfigError: a key is none of the run's, or evaluations cannot differ in it.
    """
    if (unit := given.get("evaluation_duration_unit", UNITS[0])) not in UNITS:
        raise ConfigError(f"config key 'evaluation_duration_unit'={unit!r}; expected {' or '.join(map(repr, UNITS))}")
    if evaluated_steps(given):
        together = max(1, given.get("evaluation_num_workers", 0)) * given.get("num_envs_per_worker", 1)
        put(out, "evaluation.episodes", together)
    section = dict(given.get("evaluation_config") or {})
    env = {"id": section.pop("env", given.get("env"))} if {"env", "env_config"} & section.keys() else None
    if env is not None:
        own = section.pop("env_config", {})
        put(out, "evaluation.env", {**env, "kwargs": merge_configs(given.get("env_config") or {}, own)})
    if section.get("exploration_config"):
        section.setdefault("explore", True)
    section = {key: value for key, value in section.items() if key not in SHOWN}
    for key, value in section.items():
        if key in EVALUATION_KEYS:
            put(out, EVALUATION_KEYS[key], value)
        elif key not in KNOWN and key not in given:
            raise ConfigError(f"evaluation_config has no key {key!r}.{did_you_mean(key, [*KNOWN, *given])}")
        elif key in EVALUATION_FIXED and value and value not in (given.get(key), *EVALUATION_FIXED[key]):
            raise ConfigError(f"evaluation_config key {key!r}={value!r}: evaluations cannot differ in it from training")
        elif key in FIXED and value != given.get(key):
            _check_without_counterpart(key, value)


def evaluated_steps(config: Mapping[str, Any]) -> int:
    """The least steps of an evaluation's episodes; 0: it has a number of episodes."""
    steps = config.get("evaluation_duration", 10)
    return steps if config.get("evaluation_duration_unit") == UNITS[1] and steps != "auto" else 0


def evaluation_exploration(config: Mapping[str, Any]) -> dict[str, Any]:
    """The strategy that `evaluation_config` explores by, in place of the run's; {} if it is the same."""
    section = config.get("evaluation_config") or {}
    own, run = section.get("exploration_config") or {}, config.get("exploration_config") or {}
    return _value("exploration_config", {**({} if "type" in own else run), **own}) if own else {}


def _sizes(out: dict[str, Any], given: Mapping[str, Any], defaults: Mapping[str, Any], joins_fragments: bool) -> None:
    """RLlib counts rows of a batch and of a minibatch; here it is steps per environment, and minibatches.

    RLlib joins fragments to batches of at least `train_batch_size` rows, as `data.fragments_per_batch` or a plan does
    here; without a `rollout_fragment_length`, a batch is one fragment of each environment.
    """
    for key in REPLAY_SPECIAL:
        if key in given and key not in ITERATION:
            raise ConfigError(f"config key {key!r} is for algorithms that replay (dqn, sac, td3, …); leave it out")
    workers = out.setdefault("workers", {})
    if "num_workers" in given and defaults["workers"]["logical_workers"] is not None:
        workers["logical_workers"] = max(1, given["num_workers"])
    rows = given.get("train_batch_size")
    if "directions" in defaults["data"]:
        _population(out, given)
    elif rows is not None and rows > 0:  # DDPPO's −1: as many as the fragments have
        environments = workers.setdefault("envs_per_worker", 1) * max(1, workers.get("num_workers", 0))
        steps = math.ceil(rows / environments)
        length = workers.setdefault("fragment_length", steps)
        workers["count_resets"] = False  # a batch has at least that many rows of experience
        if length < steps and not joins_fragments and "fragments_per_batch" in defaults["data"]:
            put(out, "data.fragments_per_batch", math.ceil(steps / length))
    for key, parts in (("sgd_minibatch_size", "policy.minibatches"), ("microbatch_size", "policy.microbatches")):
        if given.get(key) is not None:
            sizes = {**defaults["workers"], **workers}
            collected = max(1, sizes["num_workers"]) * sizes["envs_per_worker"] * sizes["fragment_length"]
            put(out, parts, max(1, round(max(collected, rows or 0) / given[key])))


def _population(out: dict[str, Any], given: Mapping[str, Any]) -> None:
    """RLlib's ES counts episodes, two for each direction; and environment steps, which are not counted here."""
    if "train_batch_size" in given:
        warnings.warn("config key 'train_batch_size' has no counterpart and no effect", stacklevel=4)
    if given.get("episodes_per_batch") is not None:
        put(out, "data.directions", math.ceil(given["episodes_per_batch"] / 2))


def model_keys(given: Mapping[str, Any], out: dict[str, Any], env: str) -> dict[str, Any]:
    """RLlib's model section as this package's; what is the environment's here goes into `out`."""
    model = dict(given)
    if "custom_options" in model:
        model["custom_model_config"] = {**model.pop("custom_options"), **model.get("custom_model_config", {})}
    if model.pop(AS_GIVEN, False) and model.get("custom_model") is not None:
        model["custom_model_config"] = {**(model.get("custom_model_config") or {}), AS_GIVEN: True}
    if isinstance(both := model.get("lstm_use_prev_action_reward"), bool):
        model |= {"lstm_use_prev_action": both, "lstm_use_prev_reward": both, "lstm_use_prev_action_reward": -1}
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
    if key == "evaluation_duration" and value == "auto":
        warnings.warn(
            f"config key 'evaluation_duration'='auto': evaluations play {AUTO_EPISODES} episodes, however long "
            "training takes meanwhile",
            stacklevel=4,
        )
        return AUTO_EPISODES
    if key == "exploration_config":
        found = {EXPLORATION_NAMES.get(name, name): each for name, each in (value or {}).items()}
        if found.get("type") == "Curiosity" and "lr" in found:
            warnings.warn("exploration_config key 'lr' has no effect: the policy's optimizer trains it", stacklevel=4)
            del found["lr"]
        return found
    if key == "clip_rewards" and value == 1 and value is not True:
        return "clip"
    if key == "target_entropy" and value is None:
        return "auto"
    if key in VALUES and value not in VALUES[key]:
        raise ConfigError(f"config key {key!r}={value!r}; expected {' or '.join(map(repr, VALUES[key]))}")
    return VALUES[key][value] if key in VALUES else value


def put(out: dict[str, Any], path: str, value: Any) -> None:
    """Set `path`, a dotted key, in nested dicts."""
    *sections, name = path.split(".")
    for section in sections:
        out = out.setdefault(section, {})
    out[name] = value


def classic_keys(composed: Mapping[str, Any]) -> dict[str, Any]:
    """RLlib's keys that a composed config has a counterpart of, with its values."""
    found = {key: to_env_steps(value_at(composed, path), composed["total_env_steps"]) for key, path in KEYS.items()}
    classic = {key: _classic_value(key, value) for key, value in found.items() if value is not None}
    if "requests_per_worker" in composed["data"] and "clip" not in composed["policy"]:
        for key in {"grad_clip", "grad_norm_clipping"} & classic.keys():
            classic[key] *= SUMMED_ROWS  # as `write_async_keys`
    return classic


def _classic_value(key: str, value: Any) -> Any:
    """The value of a key as RLlib spells it: of a schedule its first number, and itself under the key for schedules."""
    if key in SCHEDULED:
        return schedule_points(value)[0]
    if key.removesuffix("_schedule") in SCHEDULED:
        return None if isinstance(value, int | float) else value
    return next((spelled for spelled, own in VALUES.get(key, {}).items() if own == value), value)


def over_defaults(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of `given` over those of `classic_keys`; of several keys for one thing, that which was changed counts.

    Args:
        defaults: the keys of `classic_keys`.
        given: RLlib's keys, perhaps a copy of the defaults in which "lr" was changed and "lr_schedule" was not.
    """
    merged, changed = merge_configs(defaults, given), {}
    for key, value in schedules_last(given):
        alone = not any(other != key and KEYS[other] == KEYS.get(key) for other in given if other in KEYS)
        if key in KEYS and (alone or value != defaults.get(key)):
            unset = value is None and key.endswith("_schedule")
            changed[KEYS[key]] = key, merged.get(key.removesuffix("_schedule")) if unset else value
    for key, default in defaults.items():
        source, value = changed.get(KEYS.get(key, ""), (key, None))
        if source != key and merged[key] == default:
            merged[key] = _classic_value(key, value)
    return merged


def classic_policy_config(keywords: Mapping[str, Any], model: Mapping[str, Any]) -> dict[str, Any]:
    """RLlib's keys of a policy.

    Args:
        keywords: the keywords of its constructor, with their values.
        model: its whole model config.
    """
    config: dict[str, Any] = {"model": dict(model)}
    for key, path in KEYS.items():
        name = path.removeprefix("policy.")
        if path.startswith("policy.") and name in keywords:
            config[key] = _classic_value(key, keywords[name])
    return {**config, "exploration_config": dict(keywords.get("exploration") or {"type": "stochastic_sampling"})}


def policy_keywords(policy_class: type, config: Mapping[str, Any], given: Collection[str] = ()) -> dict[str, Any]:
    """The keywords of a policy's constructor that are in its config, by RLlib's keys; other keys are a trainer's.

    Args:
        policy_class: the class; only its keywords are returned.
        config: RLlib's keys.
        given: keywords that are known already.
    """
    found: dict[str, Any] = {}
    wanted = set(keywords_of(policy_class)) - set(given)
    for key, value in schedules_last(config):
        section, _, name = KEYS.get(key, "").partition(".")
        if section == "policy" and name in wanted and not (value is None and key.endswith("_schedule")):
            found[name] = _value(key, value)
        elif key in wanted and key not in KNOWN:  # counted in another way than in RLlib, as "minibatches"
            found[key] = value
    if config.get("seed") is not None and "seed" in wanted:
        found["seed"] = config["seed"]
    if "model" in config and "model" in wanted:
        found["model"] = model_keys(config["model"], {}, "")
    if "exploration_config" in config and "exploration" in wanted:
        found["exploration"] = config["exploration_config"]
    return found


def current_env(env: Any) -> tuple[Any, int | None]:
    """A retired environment id's successor and its step limit, with a note; anything else as it is."""
    new, limit = RETIRED.get(env, (env, None)) if isinstance(env, str) else (env, None)
    if isinstance(env, str) and (atari := re.fullmatch(r"(\w+?)(NoFrameskip|Deterministic)-v\d", env)):
        new = f"ALE/{atari[1]}-v5"
    if new is not env:
        warnings.warn(f"environment {env!r} is retired: {new!r} is taken, step limit {limit}", stacklevel=3)
    return new, limit
