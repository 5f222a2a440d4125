"""Keys that belong to no constructor: those of the whole config, and additional keys of sections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypedDict

from lightning_rl.schema.ranges import Count, CountEnvSteps, Range, Seed

__all__ = [
    "TRAINER_KEYS_WITH_A_HOME",
    "RunKeys",
    "StopSection",
    "TrainerSection",
]


class RunKeys(TypedDict):
    """The keys of the whole config."""

    seed: Seed
    total_env_steps: Count
    report_every_env_steps: CountEnvSteps
    run_dir: str
    torch_threads: Annotated[int, Range(1, 1024)]
    stop: Mapping[str, Any]
    policy: Mapping[str, Any]
    model: Mapping[str, Any]
    exploration: Mapping[str, Any]
    env: Mapping[str, Any]
    workers: Mapping[str, Any]
    data: Mapping[str, Any]
    evaluation: Mapping[str, Any]
    checkpoint: Mapping[str, Any]
    trainer: Mapping[str, Any]
    rank_launcher: Mapping[str, Any]
    logger: Mapping[str, Any]
    callbacks: list[Any]
    init_from: str | None
    init_from_strict: bool
    overrides: list[str]
    policies: Mapping[str, Any]
    policy_mapping: Any  # `PolicyMapping` checks it, which knows the agents
    policies_to_train: list[str] | None
    count_steps_by: Literal["env_steps", "agent_steps"]


# Beside the keywords of `StopCallback`; "auto" stands for the environment's reward_threshold.
StopSection = TypedDict("StopSection", {"return": float | Literal["auto"] | None})


Devices = Annotated[int, Range(-1, 1024)]  # −1: all devices


class TrainerSection(TypedDict, total=False):
    """Types of keywords of Lightning's Trainer that its signature leaves open."""

    devices: Devices | list[Devices] | str
    num_nodes: Annotated[int, Range(1, 4096)]


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
