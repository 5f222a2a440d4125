"""`torch.compile` for the networks of a policy, for runs in which their arithmetic dominates the cost."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from lightning_rl.errors import ConfigError

__all__ = ["CompileNetworks"]

CAPTURING = ("reduce-overhead", "max-autotune")


class CompileNetworks(Callback):
    """Compiles the forward and backward passes of every network of the policy when training begins.

    `callbacks=[{callback: lightning_rl.callbacks.CompileNetworks, mode: default}]`. The first iterations compile, which
    takes up to a minute; small networks do not get faster. The weights, their names and checkpoints are as without it;
    workers in other processes act with plain copies.

    Args:
        mode: the mode of `torch.compile`: "default"; "reduce-overhead" captures the passes as CUDA graphs, which frees
            updates from the time that the CPU takes to launch kernels; "max-autotune" also measures which kernels are
            fastest.
        dynamic: whether one program serves all batch sizes; `None`: only after they have changed.

    Raises:
        ConfigError: the mode captures CUDA graphs, and the policy learns on a CPU or acts on its own device.
    """

    def __init__(self, mode: str = "default", dynamic: bool | None = None) -> None:
        self.mode, self.dynamic = mode, dynamic
        self._done = False

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Wrap the networks once; they are compiled when they run first."""
        if stage != "fit" or self._done:
            return
        device = trainer.strategy.root_device.type
        if device == "cpu" and self.mode in CAPTURING:
            raise ConfigError(
                f"CompileNetworks mode={self.mode!r} captures CUDA graphs, and this policy learns on a CPU: use "
                "mode=default, or trainer=gpu"
            )
        if self.mode in CAPTURING and getattr(getattr(trainer, "datamodule", None), "act_on", "cpu") == "learner":
            raise ConfigError(
                f"CompileNetworks mode={self.mode!r} captures a graph for every call between two gradient steps, "
                "so for each step of acting: set workers.act_on=cpu, or mode=default"
            )
        module: Any = pl_module
        parts = [part for policy in module.policies.values() for part in policy.children()]
        networks: list[Any] = [part for part in parts if next(part.parameters(), None) is not None]
        for network in networks:
            network.compile(mode=self.mode, dynamic=self.dynamic)
        if self.mode in CAPTURING:  # learners enter this context once for each loss
            plugin: Any = trainer.precision_plugin
            plugin.loss_context = marking(getattr(plugin, "loss_context", nullcontext))
        self._done = True


def marking(context: Callable[[], Any]) -> Callable[[], Any]:
    """`context`, before which torch is told that a gradient step begins.

    Captured passes keep their results in memory of the graph. By default torch takes every call without a gradient for
    the next iteration, and overwrites the results of the network that was called before, which the same loss needs.
    """

    def marked() -> Any:
        torch.compiler.cudagraph_mark_step_begin()
        return context()

    return marked
