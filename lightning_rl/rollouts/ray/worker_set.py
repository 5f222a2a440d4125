"""Rollout workers in Ray actors: Ray carries the requests that `processes/process_worker_set.py` makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lightning_rl.envs.creator import EnvCreator
from lightning_rl.rollouts.processes.limits import Limits
from lightning_rl.rollouts.processes.process_worker_set import ProcessWorkerSet
from lightning_rl.rollouts.processes.rollout_process import RolloutProcess
from lightning_rl.rollouts.ray.actors import ActorSet, as_remote
from lightning_rl.rollouts.ray.placement import Room
from lightning_rl.rollouts.ray.session import end, fetched, is_ready, start_ray, stop_ray
from lightning_rl.rollouts.ray.transport import RayTransport

__all__ = ["ActorSet", "RayWorkerSet", "as_remote", "end", "fetched", "is_ready", "start_ray"]


class RayWorkerSet(ProcessWorkerSet):
    """The verbs of `WorkerSet`, with the workers in `num_workers` Ray actors.

    Args:
        env, policy, worker_indices, num_workers, limits, worker_options: as `ProcessWorkerSet`.
        ray_options: keywords of `start_ray`, and where the processes shall be: placement, resources,
            placement_timeout_s (those of `Room`); on a cluster that was joined room is reserved even without them.
        num_cpus: cores that each process takes of a session without such a room.

    Raises:
        ConfigError: the cluster has no room for them.
        EnvError: an environment cannot be made in a worker; the worker's own traceback is in the message.
    """

    def __init__(
        self,
        env: EnvCreator,
        policy: Any,
        worker_indices: Sequence[int],
        *,
        num_workers: int,
        ray_options: Mapping[str, Any] | None = None,
        limits: Limits | None = None,
        num_cpus: float = 1.0,
        **worker_options: Any,
    ) -> None:
        session, where = placement_of(ray_options or {})
        self.owns_ray, self.room = start_ray(num_workers, **session), None
        try:
            self.room = None if where is None else Room(num_workers, **where)
            transport = RayTransport(
                RolloutProcess, {"num_cpus": num_cpus} if self.room is None else self.room.options()
            )
            super().__init__(
                transport, env, policy, worker_indices, num_workers=num_workers, limits=limits, **worker_options
            )
        except BaseException:
            self._leave()
            raise

    def stop(self) -> None:
        """End the processes, and the Ray session if this set started it; safe to call again."""
        super().stop()
        self._leave()

    def _leave(self) -> None:
        if self.room is not None:
            self.room.leave()
        if self.owns_ray:
            self.owns_ray = False
            stop_ray()


def placement_of(ray_options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """The keywords of `start_ray`, and those of the `Room`; `None` where there is nothing to reserve."""
    session = dict(ray_options)
    names = {"placement": "placement", "resources": "resources", "placement_timeout_s": "timeout_s"}
    where = {names[name]: session.pop(name) for name in names if name in session}
    return session, where if where or session.get("address", "local") != "local" else None
