"""Histograms of weights, gradients and actions in TensorBoard."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from lightning.pytorch import Trainer
from torch import Tensor

from lightning_rl.callbacks.hooks import RLCallback
from lightning_rl.callbacks.loggers import check_tensorboard, log_summary
from lightning_rl.schedules import to_env_steps
from lightning_rl.schema.ranges import CountEnvSteps
from lightning_rl.schema.signatures import check_keywords

__all__ = ["LogHistograms"]

BINS = 64
MOST_COMPONENTS = 8  # of an action that get a histogram each; more of them share one


class LogHistograms(RLCallback):
    """Writes histograms at the first iteration past each multiple of `every_env_steps`.

    `callbacks=[{callback: lightning_rl.callbacks.LogHistograms, every_env_steps: 5%}]`. Names are those of the policy's
    parameters; with several agents, actions are named by policy.

    Args:
        every_env_steps: may be a share of the run such as "2%".
        weights: the weights of each parameter.
        gradients: the gradients of each parameter, as the last gradient step of the iteration used it: after clipping.
            There are none where the policy learns without gradients, and of parameters that the loss leaves out.
        actions: the actions of the rows that the policy has learned from, in its own action space; those of a box by
            component.

    Raises:
        ConfigError: a value is out of range, or there is no TensorBoard logger.
    """

    @check_keywords("LogHistograms")
    def __init__(
        self,
        every_env_steps: CountEnvSteps = "2%",  # type: ignore[assignment]  # pyright: ignore
        *,
        weights: bool = True,
        gradients: bool = True,
        actions: bool = True,
    ) -> None:
        self.every_env_steps = to_env_steps(every_env_steps)
        self.weights, self.gradients, self.actions = weights, gradients, actions
        self._env_steps = 0
        self._latest: list[tuple[Any, Any]] = []  # policies, and the actions that they have learned from last

    def setup(self, trainer: Trainer, pl_module: Any, stage: str) -> None:
        """Check that there is a TensorBoard logger."""
        check_tensorboard(trainer, "LogHistograms")

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Count from the env steps of a resumed run."""
        self._env_steps = int(pl_module.env_steps)

    def on_learn_on_batch(self, *, policy: Any, train_batch: Any, result: dict[str, float]) -> None:
        """Keep the actions of the iteration."""
        if self.actions:
            others = [entry for entry in self._latest if entry[0] is not policy]
            self._latest = [*others, (policy, train_batch["actions"])]

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Write histograms if they are due."""
        before, self._env_steps = self._env_steps, int(pl_module.env_steps)
        if self._env_steps // self.every_env_steps == before // self.every_env_steps or not trainer.is_global_zero:
            return
        for name, values in self._found(pl_module):
            self._log(trainer, name, values.detach().float().cpu().numpy().ravel())

    def _found(self, policy: Any) -> Iterator[tuple[str, Tensor]]:
        """Tags and values."""
        for name, parameter in policy.named_parameters():
            tag = name.replace(".", "/")
            if self.weights:
                yield f"weights/{tag}", parameter
            if self.gradients and parameter.grad is not None:
                yield f"gradients/{tag}", parameter.grad
        for owner, actions in self._latest:
            yield from action_parts("/".join(filter(None, ("actions", owner.policy_id))), actions)

    def _log(self, trainer: Trainer, name: str, values: np.ndarray) -> None:
        from torch.utils.tensorboard.summary import histogram

        values = values[np.isfinite(values)]
        if values.size:
            log_summary(trainer, histogram(name, values, bins_of(values)), self._env_steps)


def action_parts(tag: str, actions: Any) -> Iterator[tuple[str, Tensor]]:
    """Tags and values of (nested) actions `[N, …]`; a vector by component unless it is long."""
    if not isinstance(actions, Tensor):
        for name, child in actions.items():
            yield from action_parts(f"{tag}/{name}", child)
    elif actions.ndim == 2 and 1 < actions.shape[1] <= MOST_COMPONENTS:
        for index, column in enumerate(actions.unbind(1)):
            yield f"{tag}/{index}", column
    else:
        yield tag, actions


def bins_of(values: np.ndarray) -> Any:
    """Bins of equal width; one for each number where there are few, all whole (choices of a discrete space)."""
    low, high = float(values.min()), float(values.max())
    if high - low < BINS and bool(np.all(values == np.rint(values))):
        return np.arange(low - 0.5, high + 1.0)
    return BINS
