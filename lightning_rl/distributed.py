"""Collective operations over the ranks of a run; without `torch.distributed` each returns the process's own value."""

from __future__ import annotations

from typing import Any

import torch

__all__ = [
    "all_gather_objects",
    "gather_objects_on_first",
    "least_over_ranks",
    "mean_over_ranks",
    "moments_over_ranks",
    "sum_over_ranks",
    "total_over_ranks",
]

_plain: tuple[Any, Any] | None = None  # the default group, and a group of the same ranks for CPU memory


def all_gather_objects(value: Any) -> list[Any]:
    """The values of all ranks, in rank order; every rank has to call this."""
    if not _several():
        return [value]
    found: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(found, value, group=_objects())
    return found


def gather_objects_on_first(value: Any) -> list[Any] | None:
    """The values of all ranks, in rank order, on the first rank; `None` on the others."""
    if not _several():
        return [value]
    first = torch.distributed.get_rank() == 0
    found: list[Any] | None = [None] * torch.distributed.get_world_size() if first else None
    torch.distributed.gather_object(value, found, group=_objects())
    return found


def sum_over_ranks(number: int) -> int:
    """The sum of a number over all ranks."""
    if not _several():
        return number
    total = torch.tensor(number, dtype=torch.int64)
    torch.distributed.all_reduce(total, group=_objects())
    return int(total)


def least_over_ranks(number: int) -> int:
    """The smallest of a number over all ranks; every rank has to call this."""
    if not _several():
        return number
    least = torch.tensor(number, dtype=torch.int64)
    torch.distributed.all_reduce(least, torch.distributed.ReduceOp.MIN, group=_objects())
    return int(least)


def total_over_ranks(values: torch.Tensor) -> torch.Tensor:
    """The elementwise sum of a tensor over all ranks; every rank has to call this, with the same shape."""
    if not _several():
        return values
    total = values.detach().clone()
    torch.distributed.all_reduce(total)
    return total


def mean_over_ranks(value: torch.Tensor) -> float:
    """The mean of a scalar over all ranks, so that every rank takes the same decision."""
    total = total_over_ranks(value.detach())
    return float(total / torch.distributed.get_world_size() if _several() else total)


def moments_over_ranks(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Mean and population deviation of the values of all ranks together; `None` if there is only one rank."""
    if not _several():
        return None
    exact = values.detach().double()
    sums = total_over_ranks(torch.stack((exact.new_tensor(exact.numel()), exact.sum(), exact.square().sum())))
    mean, square = sums[1] / sums[0], sums[2] / sums[0]
    return mean.to(values.dtype), (square - mean.square()).clamp(min=0.0).sqrt().to(values.dtype)


def _several() -> bool:
    distributed = torch.distributed
    return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1


def _objects() -> Any:
    """A group that transfers CPU memory: the default group with gloo, else a second one, created at the first call."""
    global _plain
    if torch.distributed.get_backend() == "gloo":
        return None
    world = torch.distributed.group.WORLD
    if _plain is None or _plain[0] is not world:
        _plain = world, torch.distributed.new_group(backend="gloo")
    return _plain[1]
