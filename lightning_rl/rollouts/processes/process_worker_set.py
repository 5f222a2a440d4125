"""Rollout workers in other processes, whoever carries the requests there: the verbs of `WorkerSet`, under supervision.

A process runs one or more logical workers. Weights travel with the request to sample: one stored object per version,
pulled by each process when it begins, so no update can be lost or overtaken; and so does what else a process has to
know to take the place of one that died.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from lightning_rl.envs.creator import EnvCreator
from lightning_rl.models.catalog import ModelCatalog
from lightning_rl.rollouts.asking import AskingThere
from lightning_rl.rollouts.gather import Receipt, joined, merged, owned, split
from lightning_rl.rollouts.processes.crash_traces import CrashTraces
from lightning_rl.rollouts.processes.limits import Limits, News, Process, Request
from lightning_rl.rollouts.processes.requests import Requests
from lightning_rl.rollouts.processes.rollout_process import Recipe
from lightning_rl.rollouts.processes.supervisor import Supervisor
from lightning_rl.rollouts.processes.transport import Transport
from lightning_rl.rollouts.processes.weights import pack
from lightning_rl.rollouts.rollout_worker import RolloutWorker
from lightning_rl.sample_batch import SampleBatch, concat_samples

__all__ = ["ProcessWorkerSet"]

SMALL_BYTES = 64 * 1024  # fragments up to it come along with what is told about them


class ProcessWorkerSet(AskingThere):
    """The verbs of `WorkerSet`, with the workers in `num_workers` supervised processes.

    Args:
        transport: starts processes of `RolloutProcess`, and reaches them.
        env: how to make the environments.
        policy: whose class and arguments the processes build, and whose weights they get.
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
        timeouts = (limits.reset_timeout_s, limits.step_timeout_s)
        self._recipe = Recipe(
            env,
            type(policy),
            policy.constructor_arguments(),
            worker_options,
            ModelCatalog.registered_classes(),
            *timeouts,
        )
        self._traces = CrashTraces()
        self._metrics: dict[int, list[Any]] = {index: [] for index in worker_indices}
        self._states: dict[int, dict[str, int]] = {}
        self._weights: Any = None
        self._versions: dict[int, int] = {}  # of the weights that each process has, when it has done what it was asked
        self._small: dict[int, bool] = {}  # whether a process's fragments are
        self._exact = False  # whether requests are done with the weights of when they were made
        self.version = self._env_steps = self._gradient_steps = self._cuts = self._env_restarts = 0
        names = [
            f"rollout process {number} (workers {', '.join(map(str, at))})" for number, at in enumerate(self.dealt)
        ]
        self.supervisor = Supervisor(
            transport, names, limits, first=self._first, hear=self._hear, trace=self._traces.take
        )
        self._requests = Requests(self.supervisor, self._request)
        self.forget()
        try:
            self.supervisor.start()
        except BaseException:
            self.stop()
            raise

    def local_worker(self) -> Any:
        """There is none: the learner does not sample."""
        return None

    def remote_workers(self) -> list[Any]:
        """The processes, as the transport knows them."""
        return [process.handle for process in self.supervisor.processes if process.handle is not None]

    def sync_weights(self, policy: Any) -> None:
        """Store `policy`'s weights; they travel with the next request to sample."""
        self.version += 1
        self._weights, self._env_steps = self.transport.put(pack(policy)), policy.env_steps
        self._gradient_steps = policy.gradient_steps

    # -- sampling -----------------------------------------------------------------------------------------------------
    def sample(self) -> SampleBatch:
        """One fragment of every worker, side by side in worker order, whoever finishes first."""
        with self.whole():
            parts = [part for answer in self._all("sample", self._acting, timed=True) for part in answer]
        fragments = []
        for index, arrays, metrics in sorted(parts, key=lambda part: part[0]):
            self._metrics[index].append(metrics)
            fragments.append(arrays)
        if len({len(arrays.valid) for arrays in fragments}) == 1:  # nothing to pad: joining them is the only copy
            return owned(concat_samples(fragments, dim=1))
        return joined([owned(arrays) for arrays in fragments])

    def sample_async(self) -> Iterator[SampleBatch]:
        """Fragments as they become ready, without end; each process has one request in flight."""
        while True:
            self.request(1, self._env_steps)
            yield joined(self.fetch(self.receive()))

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Inside is a round that is used as a whole: where it raises, it has not been, and a resumed run begins it."""
        before = dict(self._states)
        try:
            yield
        except BaseException:
            self._states = before
            raise

    def request(self, limit: int, env_steps: int, most: int | None = None, in_order: bool = False) -> None:
        """Let every process have `limit` requests to sample, new ones with the weights of the last `sync_weights`.

        What a process left undone when it died its successor does: with the newest weights; or in order with those of
        the request, so that the result is the same.

        Args:
            limit: ≥ 1; a later call may raise it.
            env_steps: of the run so far.
            most: requests of all processes together; who was received from longest ago is asked first.
            in_order: they will be received in their order.
        """
        self._env_steps, self._exact = env_steps, in_order
        self._requests.fill(limit, most)

    def receive(self, in_order: bool = False) -> Receipt:
        """What was requested and is ready first, or (`in_order`) what was requested first.

        The fragments themselves stay where they are, unless they are so small that it costs less to bring them along.
        """
        request = self._requests.take(in_order)
        fragments, told = (request.held, request.value) if request.apart else request.value
        for index, *_, metrics in told:
            self._metrics[index].append(metrics)
        env_steps, nbytes = (sum(each[column] for each in told) for column in (1, 2))
        self._small[request.number] = nbytes <= SMALL_BYTES
        return Receipt(fragments, env_steps, request.note[1], len(told), nbytes)

    def has_ready(self, in_order: bool = False) -> bool:
        """Whether `receive` would not wait."""
        return self._requests.has_ready(in_order)

    def fetch(self, receipt: Receipt) -> list[SampleBatch]:
        """The fragments of a receipt, one of each worker."""
        here = isinstance(receipt.fragments, list)
        return [owned(arrays) for arrays in (receipt.fragments if here else self.transport.get([receipt.fragments])[0])]

    @property
    def oldest(self) -> int | None:
        """Gradient steps of the oldest weights that still act on a request; `None`: nothing is requested."""
        return self._requests.oldest

    @property
    def requested(self) -> int:
        """Requests that were not received yet."""
        return len(self._requests)

    def settle(self) -> None:
        """Wait for what was requested and let it go; where nothing can come any more, without waiting.

        Raises:
            BaseException: as `Supervisor.work`.
        """
        if self.supervisor.broken is None:
            self._requests.settle()
        else:
            self._requests.forget()

    def forget(self) -> None:
        """Let go what was requested; the processes still do it, before whatever they are asked next."""
        self._requests.forget()
        self._forget_asked()

    # -- everything else ----------------------------------------------------------------------------------------------
    def run_episodes(self, count: int) -> list[tuple[float, int]]:
        """`count` whole episodes spread over the workers; (return, length) of each, in worker order."""
        indices = sorted(index for number in self.supervisor.healthy for index in self.dealt[number])
        shares = dict(zip(indices, split(count, len(indices)), strict=True))
        played = self.foreach_worker(
            lambda worker: worker.run_episodes(shares[worker.worker_index]) if shares[worker.worker_index] else []
        )
        return [episode for episodes in played for episode in episodes]

    def get_metrics(self) -> dict[str, list[float]]:
        """Returns and lengths of the episodes that ended since the last call, in worker order."""
        held = [part for index in sorted(self._metrics) for part in self._metrics[index]]
        self._metrics = {index: [] for index in self._metrics}
        return merged(held) if held else {"episode_returns": [], "episode_lengths": []}

    def get_health(self) -> dict[str, float]:
        """Processes and environments that were replaced so far, under their metric names."""
        return {
            "sys/worker_restarts": float(self.supervisor.restarts + self.supervisor.replacements),
            "sys/env_restarts": float(self._env_restarts),
        }

    def foreach_worker(self, fn: Callable[[RolloutWorker], Any]) -> list[Any]:
        """`fn(worker)` of every worker, results in worker order; again from the start where a process dies over it."""
        answers = self._all("call", lambda request: (fn, *self._sent(request.number, self._newest())))
        return [answer for _, answer in sorted((pair for part in answers for pair in part), key=lambda pair: pair[0])]

    def cut(self) -> None:
        """Every environment starts what is requested from now on with a seeded reset."""
        self._cuts += 1

    def state_dict(self) -> dict[str, Any]:
        """What each worker has to remember, by worker index; after all that has come back from it."""
        return {str(index): dict(state) for index, state in sorted(self._states.items())}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state_dict` was taken; workers that `state` does not know start afresh."""
        self.foreach_worker(
            lambda worker: (
                worker.load_state_dict(state[str(worker.worker_index)]) if str(worker.worker_index) in state else None
            )
        )

    def heed(self, stopping: Callable[[], bool]) -> None:
        """Wait no longer than some seconds for anything once `stopping()`: then `KeyboardInterrupt` is raised."""
        self.supervisor.stopping = stopping

    def stop(self) -> None:
        """End the processes; safe to call again."""
        self.forget()
        self.supervisor.stop()
        self._traces.remove()

    # -- requests and processes ---------------------------------------------------------------------------------------
    def _all(self, method: str, arguments: Callable[[Request], tuple[Any, ...]], timed: bool = False) -> list[Any]:
        """Ask all processes for something, and wait for all of them; those that are given up give nothing."""
        done: list[Request] = []
        numbers = self.supervisor.healthy
        for number in numbers:
            self.supervisor.ask(Request(number, method, arguments, timed=timed, tell=done.append))
        self.supervisor.work(lambda: len(done) == len(numbers))
        return [request.value for request in done if not request.lost]

    def _request(self, number: int) -> Request:
        apart = not self._small.get(number, False)
        # Its process may be down now: in order, what it acts with must not depend on when it is up again.
        note = (self._newest(), self._gradient_steps) if self._exact else None
        return Request(number, "sample_apart", self._acting_requested, apart=apart, timed=True, note=note)

    def _acting(self, request: Request) -> tuple[Any, ...]:
        return self.dealt[request.number], *self._sent(request.number, self._newest())

    def _acting_requested(self, request: Request) -> tuple[Any, ...]:
        if not self._exact:
            request.note = (self._newest(), self._gradient_steps)
        acting, gradient_steps = request.note
        self._requests.acts(request, gradient_steps)
        return self.dealt[request.number], *self._sent(request.number, acting)

    def _newest(self) -> tuple[Any, ...]:
        """What processes act with from now on; nothing before the first `sync_weights`."""
        return () if self._weights is None else (self._weights, self.version, self._env_steps, self._cuts)

    def _sent(self, number: int, acting: tuple[Any, ...]) -> tuple[Any, ...]:
        """The same, without weights that the process has got already."""
        if not acting:
            return acting
        weights, version, *more = acting
        known, self._versions[number] = self._versions.get(number) == version, version
        return (None if known else weights, version, *more)

    def _first(self, process: Process) -> tuple[Any, ...]:
        """What a new process has to know."""
        indices = self.dealt[process.number]
        states = {index: self._states[index] for index in indices if index in self._states}
        attempt = (
            1000 * process.failures if process.new_seeds else 0
        )  # beyond what its predecessors tried by themselves
        self._versions.pop(process.number, None)
        acting = self._sent(process.number, self._newest())
        return self._recipe, indices, str(self._traces.file(process.number)), states, attempt, *acting

    def _hear(self, news: News) -> None:
        self._states.update(news.states)
        self._env_restarts += news.env_restarts
