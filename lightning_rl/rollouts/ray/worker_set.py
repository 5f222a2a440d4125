"""Rollout workers in Ray actors: Ray carries the requests of `processes/process_worker_set.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightning_rl.rollouts.processes.process_worker_set import ProcessWorkerSet
from lightning_rl.rollouts.processes.rollout_process import RolloutProcess
from lightning_rl.rollouts.ray.actors import ActorSet, as_remote
from lightning_rl.rollouts.ray.placement import Reservation
from lightning_rl.rollouts.ray.session import get_results, is_ready, kill_actors, start_ray, stop_ray
from lightning_rl.rollouts.ray.transport import RayTransport

__all__ = ["ActorSet", "RayWorkerSet", "as_remote", "get_results", "is_ready", "kill_actors", "start_ray"]


class RayWorkerSet(ProcessWorkerSet):
    """The methods of `WorkerSet`, with the workers in `num_workers` Ray actors.

    Args:
        arguments, num_workers, keywords: arguments of `ProcessWorkerSet`, without the transport.
        ray_options: keywords of `start_ray`, and of the placement of the processes: placement, resources,
            placement_timeout_s (those of `Reservation`); on a cluster that was joined, resources are reserved even
            without them.
        num_cpus: cores that each process takes of a session without such a reservation.

    Raises:
        ConfigError: the cluster has no room for them.
        EnvError: an environment cannot be made in a worker; the worker's own traceback is in the message.
    """

    def __init__(
        self, *arguments: Any, num_workers: int, ray_options: Mapping[str, Any], num_cpus: float = 1.0, **keywords: Any
    ) -> None:
        session, where = placement_of(ray_options)
        self.owns_ray, self.reservation = start_ray(num_workers, **session), None
        try:
            self.reservation = None if where is None else Reservation(num_workers, **where)
            transport = RayTransport(
                RolloutProcess, {"num_cpus": num_cpus} if self.reservation is None else self.reservation.options()
            )
            super().__init__(transport, *arguments, num_workers=num_workers, **keywords)
        except BaseException:
            self._release()
            raise

    def stop(self) -> None:
        """End the processes, and the Ray session if this set started it; safe to call again."""
        super().stop()
        self._release()

    def _release(self) -> None:
        if self.reservation is not None:
            self.reservation.release()
        if self.owns_ray:
            self.owns_ray = False
            stop_ray()


def placement_of(ray_options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """The keywords of `start_ray`, and those of the `Reservation`; `None` if nothing is to be reserved."""
    session = dict(ray_options)
    names = {"placement": "placement", "resources": "resources", "placement_timeout_s": "timeout_s"}
    where = {names[name]: session.pop(name) for name in names if name in session}
    return session, where if where or session.get("address", "local") != "local" else None
