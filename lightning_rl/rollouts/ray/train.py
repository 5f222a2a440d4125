"""Ranks on the nodes of a Ray cluster, started by Ray Train."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ray

from lightning_rl.errors import USER_ERRORS, ConfigError, RankError
from lightning_rl.rollouts.ray.placement import Reservation
from lightning_rl.rollouts.ray.session import start_ray, stop_ray

__all__ = ["rank_trainer_keywords", "train_on_ranks"]


def train_on_ranks(
    function: Callable[[Mapping[str, Any]], None],
    job: Mapping[str, Any],
    ranks: int,
    *,
    address: str,
    resources: Mapping[str, float],
    gpu_if_any: bool = False,
    placement: str,
    timeout_s: float,
    storage: Path,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Call `function(job)` in every rank, and wait for all of them.

    Args:
        function: the function of a module that the nodes can import.
        job: plain data.
        ranks: how many.
        address, resources, placement, timeout_s: see `RayTrainLauncher`.
        gpu_if_any: whether each rank also takes a GPU if the cluster has any.
        storage: directory for the files of Ray Train itself.
        ready: called when the resources are free, just before the ranks start.

    Raises:
        ConfigError: Ray Train is not installed, or the cluster has no room.
        RankError: a rank failed; errors that the user can fix come as themselves.
    """
    os.environ.setdefault("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", str(timeout_s))  # read at the import
    train, trainer_class, torch_config = _ray_train()
    started = start_ray(ranks, address=address)
    try:
        if gpu_if_any and cluster_gpus():
            resources = {**resources, "GPU": 1}
        # Ray Train itself would wait forever.
        Reservation(ranks, placement, resources, timeout_s, section="rank_launcher").release()
        ready()
        others = {name: amount for name, amount in resources.items() if amount}
        trainer = trainer_class(
            function,
            train_loop_config=dict(job),
            scaling_config=train.ScalingConfig(
                num_workers=ranks,
                use_gpu=bool(resources.get("GPU")),
                resources_per_worker=others,
                placement_strategy=placement.upper(),
            ),
            run_config=train.RunConfig(name="run", storage_path=str(storage)),
            torch_config=torch_config(timeout_s=int(timeout_s)),
        )
        try:
            trainer.fit()
        except train.TrainingFailedError as error:
            raise _translate_error(error) from error
    finally:
        if started:
            stop_ray()


def cluster_gpus() -> float:
    """How many GPUs the nodes of the cluster have, free or not."""
    return float(ray.cluster_resources().get("GPU", 0.0))


def rank_trainer_keywords() -> dict[str, Any]:
    """Keywords of Lightning's Trainer in a rank of Ray Train, which knows the rank's number and how many there are."""
    from ray.train.lightning import RayDDPStrategy, RayLightningEnvironment

    return {"devices": "auto", "num_nodes": 1, "strategy": RayDDPStrategy, "plugins": [RayLightningEnvironment()]}


def _ray_train() -> tuple[Any, Any, Any]:
    """`ray.train`, its trainer of torch models, and the configuration of torch's processes.

    Raises:
        ConfigError: they are not installed.
    """
    try:
        import ray.train
        from ray.train.torch import TorchConfig, TorchTrainer
    except ImportError as error:
        raise ConfigError(
            f"rank_launcher=ray_train needs Ray Train ({error}): pip install 'lightning_rl[cluster]'"
        ) from error
    return ray.train, TorchTrainer, TorchConfig


def _translate_error(error: Any) -> Exception:
    """The package's error for a failed run: preferably the cause, not a failure that followed from another rank's."""
    failures: Mapping[int, Any] = getattr(error, "worker_failures", {})
    for rank, failure in sorted(failures.items()):
        cause: Any = failure
        while cause is not None:
            if isinstance(cause, USER_ERRORS):
                return type(cause)(f"rank {rank}: {cause}")
            cause = getattr(cause, "cause", None) or cause.__cause__
    rank = min(failures, default=None)
    if rank is None:
        return RankError(str(error))
    return RankError(f"rank {rank} failed: {type(failures[rank]).__name__}: {failures[rank]}")
