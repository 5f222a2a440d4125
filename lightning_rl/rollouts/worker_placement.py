"""Makes the worker set of a run: in this process, or in Ray processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from lightning_rl.envs.creator import EnvCreator
from lightning_rl.rollouts.processes.limits import limits_of
from lightning_rl.rollouts.worker_set import WorkerSet

__all__ = ["make_worker_set"]


def make_worker_set(
    env: EnvCreator, policy: Any, *, num_workers: int = 0, worker_indices: Sequence[int], **options: Any
) -> Any:
    """A `WorkerSet` in this process for `num_workers=0` (Ray is not imported), else in that many Ray actors.

    Args:
        env, policy, num_workers, worker_indices: see `WorkerSet` and `RayWorkerSet`.
        options: keywords of `RolloutWorker` and of `Limits`; and `ray`, the keywords of `start_ray`.

    Raises:
        ConfigError: a limit is out of range, or is one of processes although `num_workers` is 0.
    """
    ray_options = options.pop("ray", None) or {}
    limits = limits_of({"num_workers": num_workers, **options})
    for each in fields(limits):
        options.pop(each.name, None)
    if num_workers == 0:
        return WorkerSet(env, policy, worker_indices, **options)
    from lightning_rl.rollouts.ray.worker_set import RayWorkerSet

    return RayWorkerSet(
        env, policy, worker_indices, num_workers=num_workers, ray_options=ray_options, limits=limits, **options
    )
