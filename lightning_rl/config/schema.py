"""What no constructor says about a configuration: sections, types, ranges and names that have no class behind them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightning_rl.schedules import EnvSteps

__all__ = ["NAMES", "RANGES", "SECTIONS", "TRAINER_KEYS_WITH_A_HOME"]

SECTIONS: dict[str, dict[str, Any]] = {
    "": {
        "seed": int,
        "total_env_steps": int,
        "run_dir": str,
        "torch_threads": int,
        "stop": Mapping,
        "policy": Mapping,
        "model": Mapping,
        "exploration": Mapping,
        "env": Mapping,
        "workers": Mapping,
        "data": Mapping,
        "evaluation": Mapping,
        "checkpoint": Mapping,
        "trainer": Mapping,
        "launcher": Mapping,
        "logger": Mapping,
        "callbacks": list,
    },
    "workers": {
        "num_workers": int,
        "logical_workers": int | None,
        "envs_per_worker": int,
        "fragment_length": int,
        "batch_mode": str,
        "vectorization": str,
        "record_logp": bool | None,
        "act_on": str,
        "max_env_restarts": int,
        "max_restarts": int,
        "max_failures": int,
        "restart_backoff_s": float,
        "min_healthy": float,
        "start_timeout_s": float,
        "sample_timeout_s": float | None,
        "reset_timeout_s": float | None,
        "step_timeout_s": float | None,
        "max_memory_mb": float | None,
        "ray": Mapping,
    },
    "evaluation": {
        "every_env_steps": EnvSteps,
        "max_share": float | None,
        "episodes": int,
        "explore": bool,
        "env": Mapping | None,
        "num_workers": int,
        "parallel": bool,
    },
    "stop": {"metric": str, "return": float | str | None, "seconds": float | None, "min_episodes": int},
}

RANGES: dict[str, tuple[float, float | None]] = {  # lowest and highest value allowed
    "seed": (0, None),
    "total_env_steps": (1, None),
    "torch_threads": (1, None),
    "stop.seconds": (0, None),
    "stop.min_episodes": (1, None),
    "workers.num_workers": (0, None),
    "workers.logical_workers": (1, None),
    "workers.envs_per_worker": (1, None),
    "workers.fragment_length": (1, None),
    "workers.max_env_restarts": (0, None),
    "evaluation.every_env_steps": (0, None),
    "evaluation.max_share": (0, 1),
    "evaluation.episodes": (1, None),
    "evaluation.num_workers": (0, None),
    "checkpoint.every_env_steps": (1, None),
    "checkpoint.every_seconds": (0, None),
    "checkpoint.keep": (0, None),
    "env.max_episode_steps": (1, None),
    "policy.gamma": (0, 1),
    "policy.gae_lambda": (0, 1),
    "policy.passes": (1, None),
    "policy.minibatches": (1, None),
    "policy.microbatches": (1, None),
    "policy.max_grad_norm": (0, None),
    "policy.lr": (0, None),
    "policy.clip": (0, None),
    "data.directions": (1, None),
    "data.eval_prob": (0, 1),
}

NAMES: dict[str, tuple[str, ...]] = {
    "workers.batch_mode": ("truncate_episodes", "complete_episodes"),
    "workers.vectorization": ("auto", "sync", "async", "native"),
    "workers.act_on": ("cpu", "learner"),
}

TRAINER_KEYS_WITH_A_HOME = {
    "max_epochs": "total_env_steps",
    "max_steps": "total_env_steps",
    "min_epochs": "total_env_steps",
    "min_steps": "total_env_steps",
    "check_val_every_n_epoch": "evaluation.every_env_steps",
    "val_check_interval": "evaluation.every_env_steps",
    "limit_val_batches": "evaluation.episodes",
    "limit_train_batches": "evaluation.every_env_steps",
    "gradient_clip_val": "policy.max_grad_norm",
    "gradient_clip_algorithm": "policy.max_grad_norm",
    "accumulate_grad_batches": "policy.minibatches",
    "enable_checkpointing": "checkpoint",
    "default_root_dir": "run_dir",
    "enable_model_summary": "callbacks=[lightning.pytorch.callbacks.ModelSummary]",
    "logger": "logger",
    "callbacks": "callbacks",
    "num_sanity_val_steps": "evaluation.every_env_steps",
    "log_every_n_steps": "logger",
    "plugins": "trainer.precision",
    "use_distributed_sampler": "workers.logical_workers",
}
