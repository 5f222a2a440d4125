"""Rollout workers in supervised processes: the methods of `WorkerSet`, whatever transport carries the requests.

A process runs one or more logical workers. Weights travel with the request to sample: one stored object per version,
pulled by each process when it begins, so no update can be lost or overtaken. What else a process has to know to take
the place of one that died travels in the same way.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from lightning_rl.envs.creator import EnvCreator
from lightning_rl.errors import EnvError
from lightning_rl.models.catalog import ModelCatalog
from lightning_rl.rollouts.episodes import concat_episodes
from lightning_rl.rollouts.processes.completion_queue import CompletionQueue
from lightning_rl.rollouts.processes.crash_traces import CrashTraces
from lightning_rl.rollouts.processes.limits import Limits
from lightning_rl.rollouts.processes.rollout_process import ProcessSpec
from lightning_rl.rollouts.processes.supervisor import ProcessReport, ProcessSlot, Request, Supervisor
from lightning_rl.rollouts.processes.transport import Transport
from lightning_rl.rollouts.processes.weights import pack
from lightning_rl.rollouts.rollout_worker import RolloutWorker
from lightning_rl.rollouts.worker_results import SampleReference, WorkerResult, as_writable
from lightning_rl.rollouts.worker_set import WorkerSet
from lightning_rl.sample_batch import AnyBatch, MultiAgentBatch, concat_samples

__all__ = ["ProcessWorkerSet"]

log = logging.getLogger(__name__)

SMALL_BYTES = 64 * 1024  # fragments up to this size travel with the summary of them


class ProcessWorkerSet(WorkerSet):
    """A `WorkerSet` whose workers are in `num_workers` supervised processes.

    Args:
        transport: starts processes of `RolloutProcess`, and carries requests to them.
        env: how to make the environments.
        policy: the processes build one of its class and arguments, and get its weights.
        worker_indices: the logical workers, dealt to the processes in turn.
        num_workers: processes.
        limits: how often they may fail, and how long they may take.
        worker_options: keywords of `RolloutWorker`.

    Raises:
        EnvError: an environment cannot be made in a worker; the worker's own traceback is in the message.
    """

    def __init__(
        self,
        transport: Transport,
        env: EnvCreator,
        policy: Any,
        worker_indices: Sequence[int],
        *,
        num_workers: int,
        limits: Limits | None = None,
        **worker_options: Any,
    ) -> None:
        self.num_workers, self.transport = num_workers, transport
        limits = Limits() if limits is None else limits
        self.dealt = [list(worker_indices)[process::num_workers] for process in range(num_workers)]
        registered = ModelCatalog.registered_classes()
        self._spec = ProcessSpec(env, type(policy), policy.constructor_arguments(), worker_options, registered, limits)
        self._home = {index: number for number, indices in enumerate(self.dealt) for index in indices}
        self._traces = CrashTraces()
        self._metrics: dict[int, list[Any]] = {index: [] for index in worker_indices}
        callbacks = worker_options.get("callbacks", ())
        self._readers = [each.on_worker_report for each in callbacks if hasattr(each, "on_worker_report")]
        self._positions: dict[int, dict[str, int]] = {}
        self._weights: Any = None
        self._versions: dict[int, int] = {}  # of the weights that each process has once its queue is done
        self._small: dict[int, bool] = {}  # whether the fragments of a process are small
        self._in_order = False  # whether samples use the weights at the time of submission, even after a death
        self.version = self._env_steps = self._gradient_steps = self._forced_resets = self._env_restarts = 0
        names = [
            f"rollout process {number} (workers {', '.join(map(str, at))})" for number, at in enumerate(self.dealt)
        ]
        self.supervisor = Supervisor(
            transport,
            names,
            limits,
            start_arguments=self._start_arguments,
            on_report=self._take_report,
            crash_trace=self._traces.take,
        )
        self._samples = CompletionQueue(self.supervisor, self._sample_request)
        self._calls = CompletionQueue(self.supervisor)
        self._busy: set[int] = set()  # workers with a submitted call
        self._is_ahead = False  # whether workers have gone on from where `state_dict` says that they are
        try:
            self.supervisor.start()
        except BaseException:
            self.stop()
            raise

    def local_worker(self) -> Any:
        """None: the learner's process has no worker."""
        return None

    def remote_workers(self) -> list[Any]:
        """The transport's handles of the processes."""
        return [process.handle for process in self.supervisor.processes if process.handle is not None]

    def sync_weights(self, policy: Any) -> None:
        """Store `policy`'s weights; they travel with each request that is sent from now on."""
        self.version += 1
        self._weights, self._env_steps = self.transport.put(pack(policy)), policy.env_steps
        self._gradient_steps = policy.gradient_steps

    # -- sampling -----------------------------------------------------------------------------------------------------
    def sample(self) -> Any:
        """One fragment of every worker, side by side in worker order, in whatever order processes finish."""
        with self.rollback_on_error():
            answers = self._call_all("sample", self._sample_arguments, timed=True)
        by_worker: dict[int, Any] = {}
        for arrays, summary in answers:
            for fragment, (index, *_, metrics) in zip(arrays, summary, strict=True):
                by_worker[index] = fragment
                self._take_metrics(index, metrics)
        fragments = [by_worker[index] for index in sorted(by_worker)]
        if have_equal_lengths(fragments):  # nothing to pad: joining them is the only copy
            return as_writable(concat_samples(fragments, dim=1))
        return concat_samples([as_writable(arrays) for arrays in fragments])

    def sample_async(self) -> Iterator[Any]:
        """Fragments as they become ready, without end; each process has one request in flight."""
        while True:
            self.submit_samples(1, self._env_steps)
            yield concat_samples(self.fetch(self.next_sample()))

    @contextmanager
    def rollback_on_error(self) -> Iterator[None]:
        """A block that counts as a whole: if it raises, workers built later begin where they were before it."""
        before = dict(self._positions)
        try:
            yield
        except BaseException:
            self._positions, self._is_ahead = before, True
            raise

    def submit_samples(
        self, per_process: int, env_steps: int, max_inflight: int | None = None, in_order: bool = False
    ) -> None:
        """Submit requests to sample until every process has `per_process` of them.

        They are sent with the weights of the last `sync_weights`. A request that a process left undone when it died its
        successor does: with the newest weights; or (`in_order`) with those at the time of submission, so that the
        result is the same.

        Args:
            per_process: ≥ 1; a later call may raise it.
            env_steps: the number of env steps of the run so far.
            max_inflight: requests of all processes together; `None`: no limit.
            in_order: `next_sample` will be called with `in_order`.
        """
        self._env_steps, self._in_order = env_steps, in_order
        self._samples.fill(per_process, max_inflight)

    def next_sample(self, in_order: bool = False) -> SampleReference:
        """The sample that is ready first, or (`in_order`) was submitted first; waits for it.

        The fragments stay in the transport's store, unless they are so small that it costs less to send them here.
        """
        request = self._samples.next_done(in_order)
        if request is None:
            raise RuntimeError("no sample is in flight: call submit_samples first")
        fragments, summary = (request.result_reference, request.value) if request.in_place else request.value
        for index, *_, metrics in summary:
            self._take_metrics(index, metrics)
        env_steps, nbytes = (sum(each[column] for each in summary) for column in (1, 2))
        self._small[request.process_number] = nbytes <= SMALL_BYTES
        return SampleReference(fragments, env_steps, request.context[1], len(summary), nbytes)

    def has_sample(self, in_order: bool = False) -> bool:
        """Whether `next_sample` would give one without waiting."""
        return self._samples.has_done(in_order)

    def fetch(self, reference: SampleReference) -> list[Any]:
        """The fragments of a reference, one of each worker, as tensors that can be written to."""
        fragments = reference.fragments
        if not isinstance(fragments, list):
            (fragments,) = self.transport.get([fragments])
        return [as_writable(arrays) for arrays in fragments]

    @property
    def oldest_gradient_steps(self) -> int | None:
        """Gradient steps of the oldest weights that samples in flight act with; `None`: nothing is in flight."""
        return self._samples.oldest_gradient_steps

    @property
    def inflight_samples(self) -> int:
        """Requests to sample that were submitted and not taken by `next_sample` yet."""
        return len(self._samples)

    def drain(self) -> None:
        """Wait for the samples in flight, and discard them with the episodes that ended in them.

        After an error of the supervisor, or where no process answers, they are discarded without waiting.
        """
        try:
            if self.supervisor.broken is None:
                self._samples.drain()
        except (EnvError, KeyboardInterrupt) as error:
            # A checkpoint is being written: one whose workers are not quite those of this run is better than none.
            log.warning("samples in flight are discarded without waiting for them: %s", error)
        super().drain()

    def cancel(self) -> None:
        """Discard what is in flight; the processes still do it, before anything that is submitted later."""
        self._samples.cancel()
        self._calls.cancel()
        self._busy.clear()

    # -- calls of workers ---------------------------------------------------------------------------------------------
    @property
    def worker_indices(self) -> list[int]:
        """Indices of the workers, in order; workers of given-up processes are left out."""
        return sorted(index for number in self.supervisor.healthy for index in self.dealt[number])

    @property
    def idle_workers(self) -> list[int]:
        """Indices of the workers without a submitted call, in order; workers of given-up processes are left out."""
        return [index for index in self.worker_indices if index not in self._busy]

    def submit(self, worker_index: int, fn: Callable[[Any], Any]) -> None:
        """Call `fn(worker)` in a worker's process, with the weights of the last `sync_weights`.

        Args:
            worker_index: the index of a logical worker; its process does one request after the other.
            fn: sent there; its result is sent back, so arrays are better than tensors. If the process dies meanwhile,
                its successor calls it again, with the newest weights.
        """

        def arguments(request: Request) -> tuple[Any, ...]:
            request.context = (worker_index, self._gradient_steps)
            return worker_index, fn, *self._without_known_weights(request.process_number, self._newest_weights())

        self._busy.add(worker_index)
        self._calls.submit(Request(self._home[worker_index], "call_worker", arguments, timed=True))

    def next_result(self) -> WorkerResult | None:
        """The result that is ready first; waits for it.

        Returns:
            The result, or `None` if no call is in flight. Calls of processes that were given up have no result.

        Raises:
            EnvError: more has failed than `workers.max_restarts` and its neighbors allow.
        """
        request = self._calls.next_done()
        if request is None:
            return None
        index, gradient_steps = request.context
        value, metrics = request.value
        self._busy.discard(index)
        self._take_metrics(index, metrics)
        return WorkerResult(index, value, gradient_steps)

    def foreach_worker(self, fn: Callable[[RolloutWorker], Any]) -> list[Any]:
        """`fn(worker)` of every worker, results in worker order; called again if a process dies meanwhile."""
        parts = self._call_all(
            "call_workers",
            lambda request: (fn, *self._without_known_weights(request.process_number, self._newest_weights())),
        )
        values = []
        for index, value, metrics in sorted((each for part in parts for each in part), key=lambda each: each[0]):
            self._take_metrics(index, metrics)
            values.append(value)
        return values

    # -- metrics and state --------------------------------------------------------------------------------------------
    def get_metrics(self) -> dict[str, Any]:
        """Returns and lengths of the episodes that ended since the last call, in worker order."""
        held = [part for index in sorted(self._metrics) for part in self._metrics[index]]
        self._metrics = {index: [] for index in self._metrics}
        return {"episode_returns": [], "episode_lengths": [], **concat_episodes(held)}

    def get_health(self) -> dict[str, float]:
        """Processes and environments that were replaced so far, under their metric names."""
        return {
            "sys/worker_restarts": float(self.supervisor.restarts + self.supervisor.replacements),
            "sys/env_restarts": float(self._env_restarts),
        }

    def force_reset(self) -> None:
        """Let every environment begin the next submitted fragment with a seeded reset."""
        self._forced_resets += 1

    def positions(self) -> dict[str, dict[str, int]]:
        """Where workers that take the place of these begin, by worker index; `load_state_dict` takes it as well."""
        return {str(index): dict(position) for index, position in sorted(self._positions.items())}

    def state_dict(self) -> dict[str, Any]:
        """What each worker has to remember, by worker index; after all results that have come back from it.

        That includes the running episodes, unless the workers are ahead of what was learned.
        """
        states: dict[str, Any] = self.positions()
        if not self._is_ahead and not len(self._samples) and not len(self._calls) and self.supervisor.broken is None:
            try:
                states.update(self.foreach_worker(lambda worker: (str(worker.worker_index), worker.state_dict())))
            except (EnvError, KeyboardInterrupt) as error:
                # A checkpoint without the running episodes is better than none.
                log.warning("the checkpoint holds no running episodes, as worker processes do not answer: %s", error)
        return states

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state_dict` was taken; workers that `state` does not know start from scratch."""
        self.foreach_worker(
            lambda worker: (
                worker.load_state_dict(state[str(worker.worker_index)]) if str(worker.worker_index) in state else None
            )
        )

    def stop_when(self, stopping: Callable[[], bool]) -> None:
        """Raise `KeyboardInterrupt` in any call that still waits some seconds after `stopping()` became true."""
        self.supervisor.stopping = stopping

    def stop(self) -> None:
        """End the processes; safe to call again."""
        self.cancel()
        self.supervisor.stop()
        self._traces.remove()

    # -- requests and processes ---------------------------------------------------------------------------------------
    def _call_all(self, method: str, arguments: Callable[[Request], tuple[Any, ...]], timed: bool = False) -> list[Any]:
        """Results of a method of all processes, without those that are given up meanwhile."""
        calls = CompletionQueue(self.supervisor)
        for number in self.supervisor.healthy:
            calls.submit(Request(number, method, arguments, timed=timed))
        return [request.value for request in iter(calls.next_done, None)]

    def _sample_request(self, number: int) -> Request:
        in_place = not self._small.get(number, False)
        # The process may be down now: in order, its weights must not depend on when its successor is up.
        context = (self._newest_weights(), self._gradient_steps) if self._in_order else None
        arguments = self._submitted_sample_arguments
        return Request(number, "sample", arguments, in_place=in_place, timed=True, context=context)

    def _sample_arguments(self, request: Request) -> tuple[Any, ...]:
        number = request.process_number
        return self.dealt[number], *self._without_known_weights(number, self._newest_weights())

    def _submitted_sample_arguments(self, request: Request) -> tuple[Any, ...]:
        if not self._in_order:
            request.context = (self._newest_weights(), self._gradient_steps)
        weights, gradient_steps = request.context
        self._samples.record_weights(request, gradient_steps)
        number = request.process_number
        return self.dealt[number], *self._without_known_weights(number, weights)

    def _newest_weights(self) -> tuple[Any, ...]:
        """The arguments of `RolloutProcess.update_policy`; none before the first `sync_weights`."""
        return () if self._weights is None else (self._weights, self.version, self._env_steps, self._forced_resets)

    def _without_known_weights(self, number: int, update: tuple[Any, ...]) -> tuple[Any, ...]:
        """The same arguments, with `None` in place of weights that the process has already."""
        if not update:
            return update
        weights, version, *more = update
        known, self._versions[number] = self._versions.get(number) == version, version
        return (None if known else weights, version, *more)

    def _start_arguments(self, process: ProcessSlot) -> tuple[Any, ...]:
        """The arguments of `RolloutProcess.start`."""
        indices = self.dealt[process.number]
        positions = {index: self._positions[index] for index in indices if index in self._positions}
        # A successor's attempts are numbered beyond those that its predecessors made by themselves.
        attempt = 1000 * process.failures if process.new_seeds else 0
        self._versions.pop(process.number, None)
        update = self._without_known_weights(process.number, self._newest_weights())
        return self._spec, indices, str(self._traces.file(process.number)), positions, attempt, *update

    def _take_metrics(self, index: int, metrics: dict[str, Any]) -> None:
        for report in metrics.pop("reports", ()):
            for read in self._readers:
                read(report=report)
        if any(metrics.values()):
            self._metrics[index].append(metrics)

    def _take_report(self, report: ProcessReport) -> None:
        self._positions.update(report.positions)
        self._env_restarts += report.env_restarts


def have_equal_lengths(fragments: Sequence[AnyBatch]) -> bool:
    """Whether the fragments of each policy have the same number of steps."""
    lengths: dict[str, set[int]] = {}
    for fragment in fragments:
        parts = fragment.policy_batches if isinstance(fragment, MultiAgentBatch) else {"": fragment}
        for policy_id, part in parts.items():
            lengths.setdefault(policy_id, set()).add(len(part.valid))
    return all(len(found) == 1 for found in lengths.values())
