"""Checks before a run starts that the trainer settings work on this machine's devices and with the package's loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightning_rl.errors import ConfigError

__all__ = ["check_devices", "on_cpu"]

UNSUPPORTED = ("ddp_spawn", "ddp_fork", "ddp_notebook", "fsdp", "deepspeed")  # prefixes
WHOLE_POLICY = ("64-true", "64", 64, "transformer-engine", "transformer-engine-float16")
FLOAT16 = ("16-true", "16-mixed", "16", 16)  # needs the gradient scaling of a GPU


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
    if isinstance(strategy, str) and strategy.startswith(UNSUPPORTED):
        raise ConfigError(
            f"trainer.strategy={strategy} is not supported: the policy must fit on one device, and ranks are started "
            "with the run's config; use trainer.strategy=ddp"
        )
    if precision in WHOLE_POLICY or (on_cpu(trainer) and precision in FLOAT16):
        raise ConfigError(
            f"trainer.precision={precision} is not supported{' on a CPU' if precision in FLOAT16 else ''}: use "
            "32-true, bf16-mixed or bf16-true"
        )


def on_cpu(trainer: Mapping[str, Any]) -> bool:
    """Whether the policy learns on a CPU."""
    accelerator = trainer.get("accelerator", "cpu")
    if accelerator != "auto":
        return accelerator == "cpu"
    import torch

    return not (torch.cuda.is_available() or torch.backends.mps.is_available())
