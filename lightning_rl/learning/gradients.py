"""Gradient updates: a copy of a policy computes gradients and statistics, and the learner's copy applies them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from lightning_rl.models.filters import MeanStdFilter, RunningMoments

__all__ = ["GradientUpdate", "GradientUpdates", "MultiAgentGradientUpdate", "StatisticsRecorder", "as_tensor"]

Moments = tuple[float, np.ndarray, np.ndarray]


@dataclass(frozen=True, slots=True)
class GradientUpdate:
    """Gradients, metrics and statistics that a copy of a policy computed from its own experience.

    Attributes:
        gradients: the result of `compute_gradients`.
        metrics: the metrics of the loss.
        env_steps: the number of env steps of that experience.
        moments: new moments of running statistics, by the name of their module: (count, mean, m2) each.
        changes: differences of other buffers, such as batch norm's, by name.
    """

    gradients: Any
    metrics: dict[str, float]
    env_steps: int
    moments: dict[str, list[Moments]]
    changes: dict[str, np.ndarray]

    def add_statistics_to(self, policy: nn.Module) -> None:
        """Merge the moments and buffer changes into those of `policy`."""
        for name, news in self.moments.items():
            part: Any = policy.get_submodule(name)
            for new in news:  # the count as a tensor as well: a number divided by a tensor is rounded differently
                part.merge(*(torch.tensor(number).to(part.mean) for number in new))
        for part in policy.modules():
            if isinstance(part, MeanStdFilter):
                part.freeze()
        for name, change in self.changes.items():
            buffer = policy.get_buffer(name)
            buffer += torch.tensor(change).to(buffer)


@dataclass(frozen=True, slots=True)
class MultiAgentGradientUpdate:
    """The gradient updates of several policies from the same environments' experience.

    Attributes:
        updates: policy id → update, of the policies that learn and had experience.
        env_steps: steps of the environments.
        agent_steps: actions of all agents in them.
    """

    updates: dict[str, GradientUpdate]
    env_steps: int
    agent_steps: int


class GradientUpdates:
    """The experience of an iteration that workers have learned from: a gradient step for each of their updates.

    The updates are not collected first: taking the next one may send the newest weights to the last one's worker.

    Args:
        updates: (worker index, the update, whether its weights are recent enough to step with its gradients).
    """

    def __init__(self, updates: Iterable[tuple[int, Any, bool]]) -> None:
        self.updates = updates


class StatisticsRecorder:
    """Context that records the changes of a policy's buffers and restores the buffers at its end.

    Args:
        policy: the module whose buffers and running statistics are recorded.
    """

    def __init__(self, policy: nn.Module) -> None:
        self.policy = policy
        self._parts = {name: part for name, part in policy.named_modules() if isinstance(part, RunningMoments)}
        self._before: dict[str, Tensor] = {}

    def __enter__(self) -> Self:
        self._before = {name: buffer.clone() for name, buffer in self.policy.named_buffers()}
        for part in self._parts.values():
            part.news = []
        return self

    def __exit__(self, *failure: object) -> None:
        for part in self._parts.values():
            part.news = None
        for name, buffer in self.policy.named_buffers():
            buffer.copy_(self._before[name])

    def moments(self) -> dict[str, list[Moments]]:
        """The new moments of each running statistic, so far."""
        return {name: [_arrays(*new) for new in part.news or ()] for name, part in self._parts.items()}

    def changes(self) -> dict[str, np.ndarray]:
        """Differences of the buffers that changed, without the buffers of running statistics."""
        kept = {
            f"{name}.{own}" if name else own
            for name, part in self.policy.named_modules()
            if isinstance(part, RunningMoments | MeanStdFilter)
            for own in part._buffers
        }
        return {
            name: (buffer - self._before[name]).cpu().numpy()
            for name, buffer in self.policy.named_buffers()
            if name not in kept and buffer.dtype != torch.bool and not torch.equal(buffer, self._before[name])
        }


def as_tensor(gradient: Any) -> Tensor | None:
    """An array as a tensor; a read-only array, as in shared memory, is copied."""
    if isinstance(gradient, np.ndarray) and not gradient.flags.writeable:
        gradient = gradient.copy()
    return None if gradient is None else torch.as_tensor(gradient)


def _arrays(count: Tensor | float, mean: Tensor, m2: Tensor) -> Moments:
    return float(count), mean.cpu().numpy(), m2.cpu().numpy()
