"""The default configs of RLlib 1.9, which are not this package's own: `config["defaults"] = "rllib"` takes them.

Left out are names of Ray's classes (callbacks, sample_collector) and of resources (num_gpus), which a machine decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightning_rl.learning.learner import MINIBATCH_ROWS
from lightning_rl.models.memory import memory_kind
from lightning_rl.rllib.keys import DEPRECATED, FIXED, KEYS, NO_EFFECT, classic_keys
from lightning_rl.rllib.merge import merge_configs
from lightning_rl.rllib.models.catalog import MODEL_DEFAULTS

__all__ = [
    "COMMON_CONFIG",
    "applicable_defaults",
    "batch_sizes",
    "classic_view",
    "option_of",
    "own_defaults",
    "rllib_defaults",
]

COMMON_CONFIG: dict[str, Any] = {
    # workers
    "num_workers": 2,
    "num_envs_per_worker": 1,
    "create_env_on_driver": False,
    "rollout_fragment_length": 200,
    "batch_mode": "truncate_episodes",
    "sample_async": False,
    "sample_collector": None,
    "ignore_worker_failures": False,
    "collect_metrics_timeout": 180,
    "fake_sampler": False,
    # learning
    "gamma": 0.99,
    "lr": 1e-4,
    "train_batch_size": 200,
    "model": MODEL_DEFAULTS,
    "optimizer": {},
    "simple_optimizer": -1,
    # environments
    "env": None,
    "env_config": {},
    "observation_space": None,
    "action_space": None,
    "horizon": None,
    "soft_horizon": False,
    "no_done_at_end": False,
    "remote_worker_envs": False,
    "remote_env_batch_wait_ms": 0,
    "env_task_fn": None,
    "render_env": False,
    "record_env": False,
    "monitor": -1,
    "clip_rewards": None,
    "normalize_actions": True,
    "clip_actions": False,
    "preprocessor_pref": "deepmind",
    "observation_filter": "NoFilter",
    "synchronize_filters": True,
    "compress_observations": False,
    # exploration and evaluation
    "explore": True,
    "exploration_config": {"type": "StochasticSampling"},
    "evaluation_interval": None,
    "evaluation_num_episodes": 10,
    "evaluation_parallel_to_training": False,
    "evaluation_config": {},
    "evaluation_num_workers": 0,
    "in_evaluation": False,
    "custom_eval_function": None,
    # results, logs, framework
    "metrics_smoothing_episodes": 100,
    "min_iter_time_s": 0,
    "timesteps_per_iteration": 0,
    "seed": None,
    "log_level": "WARN",
    "log_sys_usage": True,
    "logger_config": None,
    "callbacks": None,
    "framework": "torch",
    "eager_tracing": False,
    "eager_max_retraces": 20,
    "tf_session_args": {},
    "local_tf_session_args": {},
    "_tf_policy_handles_more_than_one_loss": False,
    "_disable_preprocessor_api": False,
    # resources
    "num_gpus": 0,
    "_fake_gpus": False,
    "num_cpus_per_worker": 1,
    "num_gpus_per_worker": 0,
    "custom_resources_per_worker": {},
    "num_cpus_for_driver": 1,
    "placement_strategy": "PACK",
    "extra_python_environs_for_driver": {},
    "extra_python_environs_for_worker": {},
    # offline data
    "input": "sampler",
    "input_config": {},
    "actions_in_input_normalized": False,
    "input_evaluation": ["is", "wis"],
    "postprocess_inputs": False,
    "shuffle_buffer_size": 0,
    "output": None,
    "output_compress_columns": ["obs", "new_obs"],
    "output_max_file_size": 64 * 2**20,
    "multiagent": {},
}
MULTIAGENT = {"policies": {}, "policy_mapping_fn": None, "policies_to_train": None, "observation_fn": None}
MULTIAGENT |= {"replay_mode": "independent", "count_steps_by": "env_steps", "policy_map_capacity": 100}

EPSILON_GREEDY = {"type": "EpsilonGreedy", "initial_epsilon": 1.0, "final_epsilon": 0.02, "epsilon_timesteps": 10_000}
PRIORITIES = {
    "prioritized_replay": True,
    "prioritized_replay_alpha": 0.6,
    "prioritized_replay_beta": 0.4,
    "final_prioritized_replay_beta": 0.4,
    "prioritized_replay_beta_annealing_timesteps": 20_000,
    "prioritized_replay_eps": 1e-6,
}
LAYERS = {
    "fcnet_hiddens": [256, 256],
    "fcnet_activation": "relu",
    "post_fcnet_hiddens": [],
    "post_fcnet_activation": None,
    "custom_model": None,
    "custom_model_config": {},
}
ACTOR_CRITIC = {
    "use_critic": True,
    "use_gae": True,
    "lambda": 1.0,
    "lr_schedule": None,
    "vf_loss_coeff": 0.5,
    "entropy_coeff": 0.01,
    "entropy_coeff_schedule": None,
    "grad_clip": 40.0,
}

# Option of conf/policy → (the one that its config continues from, its own keys).
ALGORITHMS: dict[str, tuple[str | None, dict[str, Any]]] = {
    "pg": (None, {"num_workers": 0, "lr": 4e-4}),
    "ppo": (
        None,
        {
            "use_critic": True,
            "use_gae": True,
            "lambda": 1.0,
            "kl_coeff": 0.2,
            "kl_target": 0.01,
            "train_batch_size": 4000,
            "sgd_minibatch_size": 128,
            "shuffle_sequences": True,
            "num_sgd_iter": 30,
            "lr": 5e-5,
            "lr_schedule": None,
            "vf_loss_coeff": 1.0,
            "model": {"vf_share_layers": False},
            "entropy_coeff": 0.0,
            "entropy_coeff_schedule": None,
            "clip_param": 0.3,
            "vf_clip_param": 10.0,
            "grad_clip": None,
            "vf_share_layers": -1,
        },
    ),
    "ddppo": (
        "ppo",
        {
            "rollout_fragment_length": 100,
            "num_envs_per_worker": 5,
            "sgd_minibatch_size": 50,
            "num_sgd_iter": 10,
            "keep_local_weights_in_sync": True,
            "torch_distributed_backend": "gloo",
            "truncate_episodes": True,
            "train_batch_size": -1,
            "kl_coeff": 0.0,
            "kl_target": 0.0,
        },
    ),
    "a3c": (None, {**ACTOR_CRITIC, "rollout_fragment_length": 10, "min_iter_time_s": 5, "sample_async": True}),
    "a2c": (
        "a3c",
        {"rollout_fragment_length": 20, "min_iter_time_s": 10, "sample_async": False, "microbatch_size": None},
    ),
    "impala": (
        None,
        {
            **{name: value for name, value in ACTOR_CRITIC.items() if name not in ("use_critic", "use_gae", "lambda")},
            "vtrace": True,
            "vtrace_clip_rho_threshold": 1.0,
            "vtrace_clip_pg_rho_threshold": 1.0,
            "vtrace_drop_last_ts": True,
            "rollout_fragment_length": 50,
            "train_batch_size": 500,
            "min_iter_time_s": 10,
            "num_multi_gpu_tower_stacks": 1,
            "minibatch_buffer_size": 1,
            "num_sgd_iter": 1,
            "replay_proportion": 0.0,
            "replay_buffer_num_slots": 0,
            "learner_queue_size": 16,
            "learner_queue_timeout": 300,
            "max_sample_requests_in_flight_per_worker": 2,
            "broadcast_interval": 1,
            "num_aggregation_workers": 0,
            "opt_type": "adam",
            "lr": 5e-4,
            "decay": 0.99,
            "momentum": 0.0,
            "epsilon": 0.1,
            "_separate_vf_optimizer": False,
            "_lr_vf": 5e-4,
            "after_train_step": None,
            "num_data_loader_buffers": -1,
        },
    ),
    "appo": (
        "impala",
        {
            "use_critic": True,
            "use_gae": True,
            "lambda": 1.0,
            "clip_param": 0.4,
            "use_kl_loss": False,
            "kl_coeff": 1.0,
            "kl_target": 0.01,
            "replay_buffer_num_slots": 100,
        },
    ),
    "simple_q": (
        None,
        {
            "exploration_config": EPSILON_GREEDY,
            "evaluation_config": {"explore": False},
            "timesteps_per_iteration": 1000,
            "target_network_update_freq": 500,
            "buffer_size": -1,
            "replay_buffer_config": {"type": "LocalReplayBuffer", "capacity": 50_000},
            "store_buffer_in_checkpoints": False,
            "replay_sequence_length": 1,
            "lr": 5e-4,
            "lr_schedule": None,
            "adam_epsilon": 1e-8,
            "grad_clip": 40,
            "learning_starts": 1000,
            "rollout_fragment_length": 4,
            "train_batch_size": 32,
            "num_workers": 0,
            "min_iter_time_s": 1,
        },
    ),
    "dqn": (
        "simple_q",
        {
            **PRIORITIES,
            "num_atoms": 1,
            "v_min": -10.0,
            "v_max": 10.0,
            "noisy": False,
            "sigma0": 0.5,
            "dueling": True,
            "hiddens": [256],
            "double_q": True,
            "n_step": 1,
            "before_learn_on_batch": None,
            "training_intensity": None,
            "worker_side_prioritization": False,
        },
    ),
    "r2d2": (
        "dqn",
        {
            "lr": 1e-4,
            "gamma": 0.997,
            "train_batch_size": 1280,
            "adam_epsilon": 1e-3,
            "num_workers": 2,
            "batch_mode": "complete_episodes",
            "zero_init_states": True,
            "burn_in": 0,
            "use_h_function": True,
            "h_function_epsilon": 1e-3,
            "replay_buffer_config": {"type": "LocalReplayBuffer", "capacity": 100_000},
            "prioritized_replay": False,
            "replay_sequence_length": -1,
            "target_network_update_freq": 2500,
        },
    ),
    "apex": (
        "dqn",
        {
            "optimizer": {"max_weight_sync_delay": 400, "num_replay_buffer_shards": 4, "debug": False},
            "n_step": 3,
            "num_workers": 32,
            "buffer_size": 2_000_000,
            "replay_buffer_config": None,
            "learning_starts": 50_000,
            "train_batch_size": 512,
            "rollout_fragment_length": 50,
            "target_network_update_freq": 500_000,
            "timesteps_per_iteration": 25_000,
            "exploration_config": {"type": "PerWorkerEpsilonGreedy"},
            "worker_side_prioritization": True,
            "min_iter_time_s": 30,
        },
    ),
    "sac": (
        None,
        {
            **PRIORITIES,
            "prioritized_replay": False,
            "twin_q": True,
            "use_state_preprocessor": -1,
            "Q_model": LAYERS,
            "policy_model": LAYERS,
            "tau": 0.005,
            "initial_alpha": 1.0,
            "target_entropy": "auto",
            "n_step": 1,
            "timesteps_per_iteration": 100,
            "buffer_size": -1,
            "replay_buffer_config": {"type": "LocalReplayBuffer", "capacity": 1_000_000},
            "store_buffer_in_checkpoints": False,
            "training_intensity": None,
            "optimization": {
                "actor_learning_rate": 3e-4,
                "critic_learning_rate": 3e-4,
                "entropy_learning_rate": 3e-4,
            },
            "grad_clip": None,
            "learning_starts": 1500,
            "rollout_fragment_length": 1,
            "train_batch_size": 256,
            "target_network_update_freq": 0,
            "num_workers": 0,
            "worker_side_prioritization": False,
            "min_iter_time_s": 1,
            "_deterministic_loss": False,
            "_use_beta_distribution": False,
        },
    ),
    "recurrent_sac": (
        "sac",
        {"batch_mode": "complete_episodes", "zero_init_states": True, "burn_in": 0, "replay_sequence_length": -1},
    ),
    "ddpg": (
        None,
        {
            **PRIORITIES,
            "twin_q": False,
            "policy_delay": 1,
            "smooth_target_policy": False,
            "target_noise": 0.2,
            "target_noise_clip": 0.5,
            "use_state_preprocessor": False,
            "actor_hiddens": [400, 300],
            "actor_hidden_activation": "relu",
            "critic_hiddens": [400, 300],
            "critic_hidden_activation": "relu",
            "n_step": 1,
            "exploration_config": {
                "type": "OrnsteinUhlenbeckNoise",
                "random_timesteps": 1000,
                "ou_base_scale": 0.1,
                "ou_theta": 0.15,
                "ou_sigma": 0.2,
                "initial_scale": 1.0,
                "final_scale": 0.02,
                "scale_timesteps": 10_000,
            },
            "timesteps_per_iteration": 1000,
            "evaluation_config": {"explore": False},
            "buffer_size": -1,
            "replay_buffer_config": {"type": "LocalReplayBuffer", "capacity": 50_000},
            "store_buffer_in_checkpoints": False,
            "training_intensity": None,
            "actor_lr": 1e-3,
            "critic_lr": 1e-3,
            "target_network_update_freq": 0,
            "tau": 0.002,
            "use_huber": False,
            "huber_threshold": 1.0,
            "l2_reg": 1e-6,
            "grad_clip": None,
            "learning_starts": 1500,
            "rollout_fragment_length": 1,
            "train_batch_size": 256,
            "num_workers": 0,
            "worker_side_prioritization": False,
            "min_iter_time_s": 1,
        },
    ),
    "td3": (
        "ddpg",
        {
            "twin_q": True,
            "policy_delay": 2,
            "smooth_target_policy": True,
            "exploration_config": {
                "type": "GaussianNoise",
                "random_timesteps": 10_000,
                "stddev": 0.1,
                "initial_scale": 1.0,
                "final_scale": 1.0,
                "scale_timesteps": 1,
            },
            "learning_starts": 10_000,
            "l2_reg": 0.0,
            "tau": 0.005,
            "train_batch_size": 100,
            "replay_buffer_config": {"type": "LocalReplayBuffer", "capacity": 1_000_000},
            "prioritized_replay": False,
            "clip_rewards": False,
        },
    ),
    "marwil": (
        None,
        {
            "postprocess_inputs": True,
            "use_gae": True,
            "beta": 1.0,
            "vf_coeff": 1.0,
            "grad_clip": None,
            "lr": 1e-4,
            "moving_average_sqd_adv_norm_update_rate": 1e-8,
            "moving_average_sqd_adv_norm_start": 100.0,
            "train_batch_size": 2000,
            "replay_buffer_size": 10_000,
            "learning_starts": 0,
            "bc_logstd_coeff": 0.0,
            "num_workers": 0,
        },
    ),
    "bc": ("marwil", {"beta": 0.0, "postprocess_inputs": False}),
    "cql": (
        "sac",
        {
            "input_evaluation": [],
            "bc_iters": 20_000,
            "temperature": 1.0,
            "num_actions": 10,
            "lagrangian": False,
            "lagrangian_thresh": 5.0,
            "min_q_weight": 5.0,
        },
    ),
    "es": (
        None,
        {
            "action_noise_std": 0.01,
            "l2_coeff": 0.005,
            "noise_stdev": 0.02,
            "episodes_per_batch": 1000,
            "train_batch_size": 10_000,
            "eval_prob": 0.003,
            "return_proc_mode": "centered_rank",
            "num_workers": 10,
            "stepsize": 0.01,
            "observation_filter": "MeanStdFilter",
            "noise_size": 250_000_000,
            "report_length": 10,
            "evaluation_config": {"num_envs_per_worker": 1, "observation_filter": "NoFilter"},
        },
    ),
    "ars": (
        None,
        {
            "action_noise_std": 0.0,
            "noise_stdev": 0.02,
            "num_rollouts": 32,
            "rollouts_used": 32,
            "sgd_stepsize": 0.01,
            "observation_filter": "MeanStdFilter",
            "noise_size": 250_000_000,
            "eval_prob": 0.03,
            "report_length": 10,
            "offset": 0,
            "evaluation_config": {"num_envs_per_worker": 1, "observation_filter": "NoFilter"},
        },
    ),
    "qmix": (
        None,
        {
            "mixer": "qmix",
            "mixing_embed_dim": 32,
            "double_q": True,
            "batch_mode": "complete_episodes",
            "exploration_config": EPSILON_GREEDY,
            "evaluation_config": {"explore": False},
            "timesteps_per_iteration": 1000,
            "target_network_update_freq": 500,
            "buffer_size": 1000,
            "lr": 5e-4,
            "optim_alpha": 0.99,
            "optim_eps": 1e-5,
            "grad_norm_clipping": 10,
            "learning_starts": 1000,
            "rollout_fragment_length": 4,
            "train_batch_size": 32,
            "num_workers": 0,
            "worker_side_prioritization": False,
            "min_iter_time_s": 1,
            "model": {"lstm_cell_size": 64, "max_seq_len": 999_999},
        },
    ),
}


def own_defaults(option: str | None) -> dict[str, Any]:
    """RLlib's defaults of an algorithm without the common ones; none for an algorithm that RLlib does not have.

    Args:
        option: the option of conf/policy; `None`: no algorithm.
    """
    base, own = ALGORITHMS.get(option or "", (None, {}))
    return merge_configs({} if base is None else own_defaults(base), own)


def rllib_defaults(option: str | None) -> Mapping[str, Any]:
    """RLlib's default config of an algorithm.

    Args:
        option: the option of conf/policy.
    """
    return merge_configs(COMMON_CONFIG, own_defaults(option))


def option_of(policy_class: type) -> str | None:
    """The algorithm of RLlib that a policy's class is, or is derived from; `None` if there is none."""
    known = {option.replace("_", ""): option for option in ALGORITHMS}
    names = (base.__name__.lower().removesuffix("torchpolicy") for base in policy_class.__mro__)
    return next((known[name] for name in names if name in known), None)


def applicable_defaults(option: str | None, composed: Mapping[str, Any]) -> dict[str, Any]:
    """Those of RLlib's defaults of an algorithm that say anything here.

    There is no `input_evaluation` unless it is asked for, because data may have no probabilities.

    Args:
        option: the option of conf/policy.
        composed: the config of that option.
    """
    evolves = "directions" in composed["data"]
    skipped = {"num_gpus", "input_evaluation", *FIXED, *NO_EFFECT, *(OF_EPISODES if evolves else ())}
    return {
        key: value
        for key, value in rllib_defaults(option).items()
        if key not in skipped
        and (value != DEPRECATED or key in MINUS_ONE)
        and (key not in KEYS or _has_section(composed, KEYS[key]))
    }


MINUS_ONE = ("train_batch_size", "replay_sequence_length")  # keys to which −1 is a value
OF_EPISODES = ("batch_mode", "rollout_fragment_length", "train_batch_size", "num_envs_per_worker", "exploration_config")


def classic_view(option: str | None, composed: Mapping[str, Any]) -> dict[str, Any]:
    """RLlib's keys of an algorithm with the values that a config of this package has for them.

    Args:
        option: the option of conf/policy.
        composed: the config of a run.
    """
    model = {key: value for key, value in composed["model"].items() if key in MODEL_DEFAULTS}
    found = {**rllib_defaults(option), **classic_keys(composed), "model": {**MODEL_DEFAULTS, **model}}
    found |= {"multiagent": MULTIAGENT, "simple_optimizer": True}
    found |= batch_sizes(composed)
    if memory_kind(composed["model"]) is None:
        found["replay_sequence_length"] = 1  # rows are drawn, whatever the length of sequences would be
    return found


def batch_sizes(composed: Mapping[str, Any]) -> dict[str, int]:
    """RLlib's "train_batch_size" and "sgd_minibatch_size" of a config of this package, as far as it says them.

    Args:
        composed: the config of a run.
    """
    workers, data = composed["workers"], composed["data"]
    logical = workers["logical_workers"] or max(1, workers["num_workers"])
    together = workers["fragment_length"] * workers["envs_per_worker"] * logical * data.get("fragments_per_batch", 1)
    found = {"train_batch_size": data.get("batch_size", together)}
    if "minibatches" in composed["policy"]:
        minibatches = composed["policy"]["minibatches"]
        found["sgd_minibatch_size"] = together // minibatches if minibatches else MINIBATCH_ROWS
    return found


def _has_section(composed: Mapping[str, Any], path: str) -> bool:
    section, _, name = path.partition(".")
    return not name or name.partition(".")[0] in composed[section]
