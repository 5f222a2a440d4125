"""How the class of a policy learns: which methods it overrides, and the gradient steps that follow from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lightning_rl.errors import ConfigError
from lightning_rl.learning.metrics import Metrics, as_tensors
from lightning_rl.sample_batch import SampleBatch

__all__ = ["OUTPUT_READERS", "VERBS", "overridden_methods", "step_by_batch", "step_by_gradients", "step_by_loss"]

VERBS = ("compute_actions", "env_actions", "learn_on_batch", "compute_gradients", "apply_gradients")
OUTPUT_READERS = ("extra_action_out", "distribution", "_mask")  # methods that use the model's outputs where overridden


def overridden_methods(policy_class: type[Any], base: type[Any], names: Iterable[str]) -> frozenset[str]:
    """Those of the methods that a policy's class defines otherwise than `base`."""
    return frozenset(name for name in names if getattr(policy_class, name) is not getattr(base, name))


def step_by_loss(learner: Any, rows: SampleBatch) -> tuple[Metrics, bool]:
    """One gradient step on rows `[N, …]` of a class that defines `loss`.

    Returns:
        The metrics, with the norm of the gradients; and whether the step was taken (`keep_learning`).

    Raises:
        NonFiniteError: the loss or a gradient is NaN or infinite; no parameter was changed.
    """
    policy, optimizer = learner.policy, learner.optimizer
    loss, metrics = learner.differentiate(rows)
    if not policy.keep_learning(metrics):
        return metrics, False
    metrics["grad_norm"] = optimizer.step(loss, metrics)
    metrics |= optimizer.info
    policy.progress.gradient_steps += 1
    policy.after_step()
    return as_tensors(metrics), True


def step_by_gradients(learner: Any, rows: SampleBatch) -> tuple[Metrics, bool]:
    """As `step_by_loss`, of a class that overrides `compute_gradients` or `apply_gradients`."""
    gradients, numbers = learner.policy.compute_gradients(rows)
    metrics = as_tensors(numbers)
    if not learner.policy.keep_learning(metrics):
        return metrics, False
    return {**metrics, **learner.step_with(gradients)}, True


def step_by_batch(learner: Any, rows: SampleBatch) -> tuple[Metrics, bool]:
    """As `step_by_loss`, of a class that overrides `learn_on_batch`; its numbers are the metrics.

    Raises:
        ConfigError: it did not return a mapping of numbers.
    """
    policy = learner.policy
    stats: Any = policy.learn_on_batch(rows)
    if isinstance(stats, Mapping) and "td_errors" in stats:
        stats = dict(stats)
        learner.td_errors = torch.as_tensor(stats.pop("td_errors"))
    return as_tensors(_flat_numbers(type(policy).__name__, {} if stats is None else stats)), True


def _flat_numbers(owner: str, stats: Any, prefix: str = "") -> dict[str, float]:
    """A (nested) mapping of numbers as a flat one, with keys joined by "/"."""
    if not isinstance(stats, Mapping):
        raise ConfigError(f"{owner}.learn_on_batch returned {stats!r}; expected a dict of numbers")
    found: dict[str, float] = {}
    for name, value in stats.items():
        if isinstance(value, Mapping):
            found |= _flat_numbers(owner, value, f"{prefix}{name}/")
        elif isinstance(value, Tensor | np.ndarray | np.generic | int | float) and np.size(_as_array(value)) == 1:
            found[f"{prefix}{name}"] = float(_as_array(value).item())
        else:
            raise ConfigError(f"{owner}.learn_on_batch returned {prefix}{name}={value!r}; expected one number")
    return found


def _as_array(value: Any) -> np.ndarray:
    return value.numpy(force=True) if isinstance(value, Tensor) else np.asarray(value)
