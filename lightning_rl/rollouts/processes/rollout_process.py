"""The object in a process of rollout workers: acts with one copy of the policy, and serves the supervisor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from lightning_rl.envs.creator import EnvCreator
from lightning_rl.models.catalog import ModelCatalog
from lightning_rl.process_memory import resident_mb
from lightning_rl.rollouts.processes.limits import Limits
from lightning_rl.rollouts.processes.supervisor import ProcessReport
from lightning_rl.rollouts.processes.watchdog import Watchdog, WatchedEnv
from lightning_rl.rollouts.processes.weights import unpack
from lightning_rl.rollouts.rollout_worker import RolloutWorker
from lightning_rl.sample_batch import env_steps

__all__ = ["ProcessSpec", "RolloutProcess"]


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """How to build the workers of a process; the same for every process of a set.

    Attributes:
        env: how to make the environments.
        policy_class, arguments: class of the policy that acts, and the spaces and keywords of its constructor.
        options: keywords of `RolloutWorker`.
        registered: `ModelCatalog.registered_classes()`.
        limits: of which the environments need those of resets and steps.
    """

    env: EnvCreator
    policy_class: type
    arguments: tuple[tuple[Any, ...], Mapping[str, Any]]
    options: Mapping[str, Any]
    registered: Mapping[str, Any]
    limits: Limits


class RolloutProcess:
    """The logical workers of one process, acting with one copy of the policy."""

    def perform(self, method: str, *arguments: Any) -> tuple[Any, ProcessReport]:
        """What a method returns, and the report of this process."""
        return self._call(method, arguments), self._report()

    def perform_in_place(self, method: str, *arguments: Any) -> tuple[Any, tuple[Any, ProcessReport]]:
        """Call a method that returns (result, summary).

        Returns:
            The result, which stays in the process's store; and, as a second object, the summary and the report.
        """
        result, summary = self._call(method, arguments)
        return result, (summary, self._report())

    def start(
        self,
        spec: ProcessSpec,
        indices: Sequence[int],
        trace: str | None,
        positions: Mapping[int, dict[str, int]],
        attempt: int,
        *update: Any,
    ) -> None:
        """Build policy and environments.

        This is not a constructor, because Ray would hide an error there behind "the actor died".

        Args:
            spec: the description of all processes.
            indices: the indices of the workers that live here.
            trace: file for the traceback of a crash of this process.
            positions: the positions of these workers, as far as they have run before.
            attempt: ≥ 1: the next request has failed before, and is begun with other seeds.
            update: arguments of `update_policy`; none before there are weights.
        """
        torch.set_num_threads(1)  # the cores belong to the processes
        ModelCatalog.register_all(spec.registered)
        self.watchdog = Watchdog(trace)
        spaces, keywords = spec.arguments
        self.policy = spec.policy_class(*spaces, **keywords).eval()
        self.version, self.forced_resets = -1, 0
        options = {**spec.options, "wrap_env": self._env_wrapper(spec.limits)}
        self.workers = {index: RolloutWorker(spec.env, self.policy, worker_index=index, **options) for index in indices}
        self._reported_restarts = 0
        for index, worker in self.workers.items():
            worker.reports = []
            if index in positions:
                worker.start_at(positions[index])
            worker.restarts.attempt = attempt
        self.update_policy(*update)

    def sample(self, indices: Sequence[int], *update: Any) -> tuple[list[Any], list[tuple[int, int, int, Any]]]:
        """A fragment of each of these logical workers.

        Returns:
            The fragments, as arrays; and a summary: (worker index, env steps, bytes, metrics) of each.
        """
        self.update_policy(*update)
        workers = [self.workers[index] for index in indices]
        fragments = [worker.sample().numpy() for worker in workers]
        sizes, metrics = [each.nbytes for each in fragments], [worker.get_metrics() for worker in workers]
        return fragments, list(zip(indices, map(env_steps, fragments), sizes, metrics, strict=True))

    def call_worker(self, index: int, fn: Callable[[RolloutWorker], Any], *update: Any) -> tuple[Any, Any]:
        """`fn(worker)` of one worker, and its metrics."""
        self.update_policy(*update)
        worker = self.workers[index]
        return fn(worker), worker.get_metrics()

    def call_workers(self, fn: Callable[[RolloutWorker], Any], *update: Any) -> list[tuple[int, Any, Any]]:
        """(worker index, `fn(worker)`, metrics) of every worker."""
        self.update_policy(*update)
        return [(index, fn(worker), worker.get_metrics()) for index, worker in self.workers.items()]

    def update_policy(
        self, weights: Mapping[str, Any] | None = None, version: int = -1, env_steps: int = 0, forced_resets: int = 0
    ) -> None:
        """Act with these weights from now on; they are unpacked once per version.

        Args:
            weights, version: the weights and version of the policy; `None`: the process has them already.
            env_steps: the number of env steps of the run so far.
            forced_resets: calls of `ProcessWorkerSet.force_reset` so far; if the number is new, the environments start
                with a seeded reset.
        """
        if weights is not None and version != self.version:
            unpack(self.policy, weights)
            self.version = version
        self.policy.env_steps = env_steps
        if forced_resets != self.forced_resets:
            for worker in self.workers.values():
                worker.force_reset()
            self.forced_resets = forced_resets

    def _call(self, method: str, arguments: Sequence[Any]) -> Any:
        try:
            return getattr(self, method)(*arguments)
        except RuntimeError as error:
            if "can't allocate memory" in str(error):  # what torch says on a CPU
                raise MemoryError(str(error)) from error
            raise

    def _report(self) -> ProcessReport:
        restarts = sum(worker.restarts.count for worker in self.workers.values())
        new, self._reported_restarts = restarts - self._reported_restarts, restarts
        return ProcessReport({index: worker.position() for index, worker in self.workers.items()}, new, resident_mb())

    def _env_wrapper(self, limits: Limits) -> Callable[[Any], Any] | None:
        """Wraps the vector environment of a worker; `None` where resets and steps have no deadlines."""
        given = [seconds for seconds in (limits.reset_timeout_s, limits.step_timeout_s) if seconds is not None]
        if not given:
            return None
        self.watchdog.watch(min(given))
        return lambda env: WatchedEnv(env, self.watchdog, limits)
