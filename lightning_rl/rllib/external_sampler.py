"""Fragments of environments that call the policy: each open episode is played by a rollout worker in a thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from lightning_rl.envs.creator import EnvCreator
from lightning_rl.envs.registry import EnvContext
from lightning_rl.errors import EnvError, place_of
from lightning_rl.rllib.external_env import ExternalEnv, ExternalEpisode
from lightning_rl.rllib.external_lanes import ExternalCreator, lane_env
from lightning_rl.rllib.offline.input_reader import InputReader
from lightning_rl.rllib.offline.io_context import IOContext
from lightning_rl.rllib.torch_policy import PREVIOUS, TorchPolicy
from lightning_rl.rollouts.fragments import write_row
from lightning_rl.rollouts.rollout_worker import RolloutWorker

__all__ = ["ExternalSampler", "sample_external", "worker_of"]


CHECK_SECONDS = 0.5  # between looks at whether the run is to stop


class LaneCreator(EnvCreator):
    """Creates the environment of a lane."""

    reseeds = False  # type: ignore[assignment]  # pyright: ignore


class LaneWorker(RolloutWorker):
    """Samples from one lane, as another worker of the same policy would.

    Args:
        lane: the environment.
        like: the other worker, whose options and callbacks this one has.
        worker_index: no other worker of the run has it.
    """

    def __init__(self, lane: Any, like: RolloutWorker, worker_index: int) -> None:
        self.lane, lane.worker = lane, self

        def creator() -> Any:
            return lane

        creator.__name__ = like.env_creator.name
        super().__init__(
            LaneCreator(creator, check=False),
            like.policy,
            fragment_length=like.fragment_length,
            batch_mode=like.batch_mode,
            count_resets=like.count_resets,
            seed=like.seed,
            worker_index=worker_index,
            logical_workers=like.logical_workers,
            explore=like.explore,
            postprocess=like.postprocess,
            record_logp=like.record_logp,
            max_env_restarts=0,
        )
        self.hooks.update(like.hooks)
        if not lane.trains:
            self.hooks["on_sample_end"] = []

    def take_turn(self) -> None:
        """Let the policy act here; it may have acted in other lanes, or learned, since it acted here."""
        for policy in (self.policy, *self.policies.values()):
            if getattr(policy, "training", True):
                policy.eval()
        for lanes in self.agents.lanes:
            if lanes.exploration is not None:
                lanes.exploration.begin_fragment(lanes.actor)

    def _step(self, actions: Any) -> tuple[Any, Any, Any]:
        """As `RolloutWorker`, with logged actions in the place of the policy's."""
        if self.lane.logged is not None:
            for lanes in self.agents.lanes:
                if lanes.chosen is not None:
                    self._record_logged(lanes)
        return super()._step(actions)

    def _record_logged(self, lanes: Any) -> None:
        chosen, state, extra = lanes.chosen
        actions = lanes.policy.env_actions(chosen)
        if self.policy.agents:
            names = [lanes.layout.agents[slot] for slot in lanes.slots]
            for agent, action in self.lane.logged.items():
                if (name := agent if isinstance(agent, str) else f"agent_{agent}") in names:
                    write_row(actions, names.index(name), action)
        else:
            write_row(actions, 0, self.lane.logged)
        actions = lanes.policy.action_transform.from_env(actions)
        lanes.rows.actions[-1] = actions
        if "action_logp" in extra:
            memory: Any = lanes.memory
            renamed = PREVIOUS if isinstance(lanes.policy, TorchPolicy) else {}
            before: Any = {renamed.get(name, name): value for name, value in memory.before.items()}
            extra["action_logp"] = lanes.policy.compute_log_likelihoods(actions, memory.obs, memory.state, **before)
            lanes.rows.extra["action_logp"][-1] = extra["action_logp"]
        lanes.chosen = actions, state, extra


class ExternalSampler(InputReader):
    """Gives the fragments of an external environment; each open episode has a rollout worker, in a thread of its own.

    Only one thread runs at a time: that of a worker whose episode has given it an observation, or the one that called
    `next`. So the policy never acts while it learns, unless `next` is called by a thread that does nothing else.

    Args:
        env: the environment, whose loop this starts if it defines one.
        worker: the worker that episodes are played like; gets their returns, and stops this when it stops.
        index: number of this sampler, by which its workers differ from others'.

    Attributes:
        turn: the lock of the thread that runs.
        waiting: whether they train → the episodes that no lane has taken yet.
    """

    def __init__(self, env: ExternalEnv, worker: RolloutWorker, index: int = 0) -> None:
        self.env, self.worker, self.index = env, worker, index
        self.turn = threading.Lock()
        self.turn.acquire()
        self.waiting: dict[bool, queue.SimpleQueue[Any]] = {kind: queue.SimpleQueue() for kind in (True, False)}
        self._lanes: list[LaneWorker] = []
        self._gives = False  # whether another thread calls `next`
        self._events: queue.SimpleQueue[Any] = queue.SimpleQueue()  # started episodes, fragments, errors
        worker.hooks["on_worker_stop"].append(lambda worker: self.stop())
        env.served.started = self._events
        if type(env).run is not ExternalEnv.run:
            env.run = partial(self._run_loop, env.run)  # type: ignore[method-assign]
            env.start()

    def next(self) -> Any:
        """The next fragment of any episode; while it is waited for, the policy acts.

        Raises:
            EnvError: the loop of the environment has ended, or an episode failed.
            KeyboardInterrupt: the run is to stop.
        """
        while True:
            try:
                event = self.wait(self._events, CHECK_SECONDS)
            except queue.Empty:
                if self.worker.stopping is not None and self.worker.stopping():
                    raise KeyboardInterrupt("stopped while no external episode gave experience") from None
                continue
            if isinstance(event, Exception):
                self._events.put(event)  # for later calls
                raise event
            if not isinstance(event, ExternalEpisode):
                self._report_episodes()
                return event
            self.waiting[event.trains].put(event)
            lanes = [worker for worker in self._lanes if worker.lane.trains == event.trains]
            if len(lanes) < max(1, self.env.served.count(event.trains)):
                self._add_lane(event.trains)

    def wait(self, source: queue.SimpleQueue[Any], timeout: float | None = None) -> Any:
        """The next entry of a queue; other threads run until it comes.

        Raises:
            EnvError: training has stopped.
            queue.Empty: none has come in `timeout` seconds.
        """
        self.turn.release()
        try:
            found = source.get(timeout=timeout)
        finally:
            self.turn.acquire()
        if self.stopped:
            raise EnvError("training has stopped")
        return found

    def give_to(self, put: Callable[[Any], Any]) -> None:
        """Hand all fragments to a function, in this thread, until the sampler stops or fails."""
        self._gives = True
        try:
            while True:
                put(self.next())
        except Exception as error:
            self._fail(error)
        finally:
            self.turn.release()

    def stop(self) -> None:
        """End the lanes and the loop of the environment."""
        if self.stopped:
            return
        self.stopped = True
        self._fail(EnvError("training has stopped"))
        for worker in self._lanes:
            worker.lane.wake()
        if not self._gives:
            self.turn.release()

    def _add_lane(self, trains: bool) -> None:
        index = (self.index * self.env.served.most + len(self._lanes)) * self.worker.logical_workers
        worker = LaneWorker(lane_env(self.env, trains), self.worker, index)
        worker.lane.sampler = self
        self._lanes.append(worker)
        threading.Thread(target=self._play, args=(worker,), name=f"{worker.where()}", daemon=True).start()

    def _play(self, worker: LaneWorker) -> None:
        with self.turn:
            try:
                while True:
                    samples = worker.sample()
                    if worker.lane.trains:
                        self._events.put(samples)
            except Exception as error:
                self._fail(error)

    def _run_loop(self, run: Callable[[], None]) -> None:
        name = type(self.env).__name__
        try:
            run()
            self._fail(EnvError(f"run() of {name} has returned, so there are no more episodes"))
        except Exception as error:
            failure = EnvError(f"run() of {name} raised {type(error).__name__}: {error}{place_of(error)}")
            failure.__cause__ = error
            self._fail(failure)

    def _fail(self, error: Exception) -> None:
        """Raise an error in `next`, and wherever an action is waited for."""
        self._events.put(error)
        self.env.served.fail(error)

    def _report_episodes(self) -> None:
        for worker in self._lanes:
            self.worker.episodes.finished += worker.episodes.pop_finished()
            for name, values in worker.get_metrics().get("numbers", {}).items():
                for value in values:
                    self.worker.record_value(name, value)


def worker_of(external: ExternalEnv, policy: Any, **options: Any) -> RolloutWorker:
    """A worker that an `ExternalSampler` plays episodes like; options as `RolloutWorker`."""
    return RolloutWorker(EnvCreator(ExternalCreator(type(external), external), check=False), policy, **options)


def sample_external(creator: ExternalCreator, context: IOContext) -> ExternalSampler | None:
    """What samples for a worker; `None` for one that learns while others sample.

    Args:
        creator: makes the environment.
        context: that of the worker.
    """
    if context.worker_index == 0 and context.worker.num_workers > 0:
        return None
    config = EnvContext(context.config.get("env_config"), context.worker_index, num_workers=context.worker.num_workers)
    return ExternalSampler(creator.make(config), context.worker.workers.local_worker(), context.worker_index)
