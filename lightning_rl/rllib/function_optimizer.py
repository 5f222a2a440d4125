"""The optimizer of RLlib's policies, whose functions or methods may build it and process gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from lightning_rl.errors import ConfigError
from lightning_rl.learning.flat_optimizers import FlatSteps
from lightning_rl.learning.policy_optimizer import PolicyOptimizer
from lightning_rl.schema.signatures import call_with_accepted_args

__all__ = ["FunctionOptimizer"]


class FunctionOptimizer(PolicyOptimizer):
    """An optimizer that calls `optimizer_fn` to build the optimizer and `extra_grad_process_fn` before each step.

    Rates that a user assigns to `param_groups` stay, unless the learning rate is a schedule.

    Args:
        plain: the optimizer whose settings are used.
        hooks: "optimizer_fn" and "extra_grad_process_fn", one of them, or none.
    """

    def __init__(self, plain: PolicyOptimizer, hooks: Mapping[str, Callable[..., Any]]) -> None:
        super().__init__(plain.policy, plain.name, plain.keywords, plain.lr, plain.max_grad_norm)
        self.hooks = {**getattr(plain, "hooks", {}), **hooks}
        self._loss: Tensor | None = None

    def make(self) -> torch.optim.Optimizer:
        """The optimizer that `optimizer_fn` returns, which keeps its own learning rate.

        Raises:
            ConfigError: `optimizer_fn` did not return one torch optimizer.
        """
        if "optimizer_fn" not in self.hooks:
            return super().make()
        policy: Any = self.policy
        made = call_with_accepted_args(self.hooks["optimizer_fn"], policy, policy.config)
        alone = made[0] if isinstance(made, list | tuple) and len(made) == 1 else made
        if not isinstance(alone, torch.optim.Optimizer):
            raise ConfigError(
                f"optimizer_fn returned {made!r}; expected one torch.optim.Optimizer (parameter groups may have "
                "different learning rates)"
            )
        return alone

    def set_lr(self, env_steps: int) -> float:
        """The current learning rate; an optimizer of `optimizer_fn` sets its own."""
        if "optimizer_fn" not in self.hooks:
            if isinstance(self.lr, int | float) and self.lr and self.rate:
                for group in self.torch_optimizer.param_groups:
                    if group["lr"] != self.rate * group.get("lr_scale", 1.0):
                        group["lr_scale"] = group["lr"] / self.lr
            return super().set_lr(env_steps)
        if isinstance(self.torch_optimizer, FlatSteps):  # of a method that returns `super().optimizer()`
            self.torch_optimizer.attach()
        self._read_trainer()
        self.rate = float(self.torch_optimizer.param_groups[0]["lr"])
        return self.rate

    def backward(self, loss: Tensor, fresh: bool = True) -> None:
        """As `PolicyOptimizer.backward`; stores the loss for `extra_grad_process_fn`."""
        self._loss = loss
        super().backward(loss, fresh)

    def clip(self) -> Tensor:
        """Call `extra_grad_process_fn`, then clip to `max_grad_norm`; returns the norm between the two."""
        if "extra_grad_process_fn" in self.hooks:
            loss, self._loss = self._loss, None
            info = call_with_accepted_args(self.hooks["extra_grad_process_fn"], self.policy, self.torch_optimizer, loss)
            self.info = dict(info or {})
        return super().clip()
