"""Checks before a run starts that the trainer settings work on this machine's devices and with the package's loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightning_rl.errors import ConfigError

__all__ = ["check_devices", "on_cpu"]

STARTS_PROCESSES = ("ddp_spawn", "ddp_fork", "ddp_notebook")
SHARDED = ("fsdp", "deepspeed")  # prefixes
WHOLE_POLICY = ("64-true", "64", 64, "transformer-engine", "transformer-engine-float16")
FLOAT16_TRUE, FLOAT16_MIXED = ("16-true",), ("16-mixed", "16", 16)


def check_devices(trainer: Mapping[str, Any], workers: Mapping[str, Any]) -> None:
    """Refuse strategies, precisions and devices for acting that would fail later, or be changed silently.

    Args:
        trainer, workers: the config's sections.

    Raises:
        ConfigError: names alternatives.
    """
    if workers.get("act_on") == "learner" and workers["num_workers"]:
        raise ConfigError(
            f"workers.act_on=learner with num_workers={workers['num_workers']}: the learner acts in its own process "
            "only; set workers.num_workers=0 (several workers: workers.logical_workers), or act_on=cpu"
        )
    strategy, precision = trainer.get("strategy", "auto"), trainer.get("precision", "32-true")
    if strategy in STARTS_PROCESSES:
        raise ConfigError(
            f"trainer.strategy={strategy} would start processes that know nothing of the run's config: the ranks are "
            "started from it with trainer.strategy=ddp"
        )
    if isinstance(strategy, str) and strategy.startswith(SHARDED):
        raise ConfigError(
            f"trainer.strategy={strategy} gathers the weights once per training_step, of which an iteration is one, "
            f"with many gradient steps in it{'; and Lightning wants GPUs for it' if on_cpu(trainer) else ''}: policies "
            "fit into one device's memory, so use trainer.strategy=ddp"
        )
    if precision in WHOLE_POLICY:
        raise ConfigError(
            f"trainer.precision={precision}: it converts the weights, and observations, replay and running statistics "
            "are float32: use 32-true, bf16-mixed or bf16-true"
        )
    if on_cpu(trainer) and precision in FLOAT16_TRUE:
        raise ConfigError(
            f"trainer.precision={precision}: gradients in float16 vanish without a scale, which only GPUs' 16-mixed "
            "has: use bf16-true or bf16-mixed"
        )
    if on_cpu(trainer) and precision in FLOAT16_MIXED:
        raise ConfigError(
            f"trainer.precision={precision}: on a CPU Lightning would take bfloat16 instead: say so with bf16-mixed, "
            "or use a GPU (trainer=gpu)"
        )


def on_cpu(trainer: Mapping[str, Any]) -> bool:
    """Whether the policy learns on a CPU."""
    accelerator = trainer.get("accelerator", "cpu")
    if accelerator != "auto":
        return accelerator == "cpu"
    import torch

    return not (torch.cuda.is_available() or torch.backends.mps.is_available())
