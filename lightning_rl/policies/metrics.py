"""Numbers that a gradient step reports, and their means over an iteration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from lightning_rl.models.distributions import ActionDistribution

__all__ = ["Metrics", "as_tensors", "mean_entropy", "means", "plain_means"]

Metrics = dict[str, Tensor]


def mean_entropy(dist: ActionDistribution, coefficient: float) -> Tensor:
    """Mean entropy in nats; with a coefficient of 0 a mere metric, which then costs no backward pass."""
    with torch.set_grad_enabled(coefficient != 0):
        return dist.entropy().mean()


def as_tensors(numbers: Mapping[str, Any]) -> Metrics:
    """Numbers that a function of the user's returned."""
    return {name: torch.as_tensor(number) for name, number in numbers.items()}


def plain_means(reports: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Mean of each number over the reports that have it."""
    names = dict.fromkeys(name for report in reports for name in report)
    found = {name: [float(report[name]) for report in reports if name in report] for name in names}
    return {name: sum(numbers) / len(numbers) for name, numbers in found.items()}


def means(taken: list[Metrics], minibatches: int = 1) -> dict[str, float]:
    """Mean of every metric over the gradient steps, or over the last sweep for those that not every step reports.

    `first_kl` is the first approx_kl: 0 when the policy that acted learns.
    """
    names = {**taken[-1], **taken[0]}  # the last sweep may report more than the first, or less
    reports = {name: [metrics[name] for metrics in taken if name in metrics] for name in names}
    reports = {name: list_ if len(list_) == len(taken) else list_[-minibatches:] for name, list_ in reports.items()}
    if "approx_kl" in taken[0]:
        reports["first_kl"] = [taken[0]["approx_kl"]]
    device = reports["loss"][0].device
    columns = [torch.stack(values).detach().to(device, torch.float32) for values in reports.values()]
    numbers = iter(torch.cat(columns).tolist())  # one copy from the device
    return {name: sum(next(numbers) for _ in values) / len(values) for name, values in reports.items()}
