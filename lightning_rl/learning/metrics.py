"""Metrics of a gradient step, and their means over an iteration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from lightning_rl.errors import short_repr
from lightning_rl.models.distributions import ActionDistribution

__all__ = ["Metrics", "as_tensors", "mean_entropy", "means"]

Metrics = dict[str, Tensor]


def mean_entropy(dist: ActionDistribution, coefficient: float) -> Tensor:
    """Mean entropy in nats; without a graph if the coefficient is 0, so that it costs no backward pass."""
    with torch.set_grad_enabled(coefficient != 0):
        return dist.entropy().mean()


def as_tensors(numbers: Mapping[str, Any]) -> Metrics:
    """Numbers to report, as tensors without a graph; those that are not tensors become float64.

    Raises:
        ValueError: one is neither a number nor a tensor; names it.
    """
    return {
        name: number.detach() if isinstance(number, Tensor) else number_as_tensor(name, number)
        for name, number in numbers.items()
    }


def number_as_tensor(name: str, number: Any) -> Tensor:
    try:
        return torch.as_tensor(number, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"the metric {name!r} is {short_repr(number)}; expected a number") from error


def means(steps: Sequence[Metrics], rare: int | None = None) -> dict[str, float]:
    """Mean of every metric over the gradient steps that report it.

    `first_kl` is the first step's approx_kl: 0 if the policy that acted is the one that learns.

    Args:
        steps: the metrics of each step, scalars.
        rare: number of last reports to average of metrics that not every step reports; `None`: all.

    Raises:
        ValueError: a metric is not a scalar; names it.
    """
    reports: dict[str, list[Tensor]] = {}
    for metrics in steps:
        for name, value in metrics.items():
            reports.setdefault(name, []).append(value)
    if not reports:
        return {}
    for name, values in reports.items():
        if values[0].ndim:
            shape = [*values[0].shape]
            raise ValueError(f"the metric {name!r} has the shape {shape}; expected a scalar, such as its mean()")
    if rare is not None:
        reports = {name: of if len(of) == len(steps) else of[-rare:] for name, of in reports.items()}
    if "approx_kl" in steps[0]:
        reports["first_kl"] = [steps[0]["approx_kl"]]
    device = next(iter(reports.values()))[0].device
    dtype = torch.float32 if device.type == "mps" else torch.float64
    columns = [torch.stack(values).detach().to(device, dtype) for values in reports.values()]
    numbers = iter(torch.cat(columns).tolist())  # one copy from the device
    return {name: sum(next(numbers) for _ in values) / len(values) for name, values in reports.items()}
