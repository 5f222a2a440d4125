"""Plays the episodes of an evaluation: here, in processes of their own, or in these beside training.

Beside training, episodes are played with the weights of the moment at which they were begun. They are told at the next
evaluation, under the environment steps of that moment; so values come one evaluation late, the first ones are those of
the weights that training began with, and training never waits unless an evaluation takes longer than the training
between two of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Annotated, Any

from lightning_rl.distributed import all_gather_objects
from lightning_rl.errors import ConfigError
from lightning_rl.ranges import Count, Probability, Range
from lightning_rl.rollouts.logical_workers import split_evenly
from lightning_rl.rollouts.processes.limits import limits_of
from lightning_rl.rollouts.worker_options import Processes
from lightning_rl.rollouts.worker_set import WorkerSet, make_worker_set
from lightning_rl.schedules import EnvSteps
from lightning_rl.signatures import Section

__all__ = [
    "EVALUATION",
    "EVALUATION_DEFAULTS",
    "EvaluationOptions",
    "Evaluator",
    "Snapshot",
    "evaluation_workers",
    "snapshot_of",
]

ENVIRONMENTS = 16  # stepped together in an evaluation, at most
COUNTERS = ("env_steps", "iterations", "gradient_steps")

Episodes = list[tuple[float, int]]
"""(return, length) of each."""


@dataclass(frozen=True, slots=True)
class EvaluationKeys:
    """What may be said about evaluations, with defaults; `RolloutDataModule` explains it."""

    every_env_steps: Annotated[EnvSteps, Range(0)] = "5%"  # type: ignore[assignment]  # pyright: ignore
    max_share: Probability | None = None
    episodes: Count = 10
    explore: bool = False
    env: Any = None
    num_workers: Processes = 0
    parallel: bool = False


EVALUATION = Section("evaluation", (EvaluationKeys,))
EVALUATION_DEFAULTS = asdict(EvaluationKeys())
EvaluationOptions = Annotated[Mapping[str, Any], EVALUATION]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A policy at some moment.

    Attributes:
        weights: as `get_weights` gives them.
        counters: what it had counted.
    """

    weights: Any
    counters: Mapping[str, int]

    def into(self, policy: Any) -> None:
        """Make `policy` what it was then."""
        policy.set_weights(self.weights)
        for name, value in self.counters.items():
            setattr(policy, name, value)


def snapshot_of(policy: Any) -> Snapshot:
    """The policy as it is now."""
    return Snapshot(policy.get_weights(), {name: getattr(policy, name) for name in COUNTERS})


class Evaluator:
    """The episodes of all ranks together.

    Args:
        workers: of this rank; `None` where only others play.
        episodes: how many this rank plays.
        parallel: whether training goes on meanwhile; the workers are in processes of their own then.

    Attributes:
        reported: the policy that played what `latest` gave last; `None`: the one of now.
    """

    def __init__(self, workers: Any, episodes: int, parallel: bool = False) -> None:
        self.workers, self.episodes, self.parallel = workers, episodes, parallel
        self.reported: Snapshot | None = None
        self._playing: Snapshot | None = None

    def now(self, policy: Any) -> Episodes:
        """Play with the weights of now, while everybody waits; in the order of ranks and workers."""
        self.finish()  # what was begun would be told under another policy's name
        self.reported, played = None, []
        if self.workers is not None and self.episodes:
            self.workers.sync_weights(policy)
            played = self.workers.run_episodes(self.episodes)
        return [episode for part in all_gather_objects(played) for episode in part]

    def begin(self, policy: Any) -> None:
        """Take the weights of now, and let the processes play with them; nothing if they are still playing."""
        if self._playing is not None:
            return
        self._playing = snapshot_of(policy)
        if self.workers is None:
            return
        self.workers.sync_weights(policy)
        indices = self.workers.idle_workers
        for index, share in zip(indices, split_evenly(self.episodes, len(indices)), strict=True):
            if share:
                self.workers.submit(index, partial(play_episodes, count=share))

    def finish(self) -> Episodes:
        """What was begun last, once it is over; nothing if nothing was begun."""
        if self._playing is None:
            return []
        # A process that is given up meanwhile has no result: there are fewer episodes then.
        results = [] if self.workers is None else list(iter(self.workers.next_result, None))
        results.sort(key=lambda result: result.worker_index)
        self.reported, self._playing = self._playing, None
        return [
            episode
            for part in all_gather_objects([each.value for each in results])
            for value in part
            for episode in value
        ]

    @contextmanager
    def as_reported(self, policy: Any) -> Iterator[None]:
        """Inside, `policy` is the one whose episodes were told last."""
        if self.reported is None:
            yield
            return
        now = snapshot_of(policy)
        self.reported.into(policy)
        try:
            yield
        finally:
            now.into(policy)


def play_episodes(worker: Any, count: int) -> Episodes:
    """Play whole episodes in the process of a worker."""
    return worker.run_episodes(count)


def evaluation_workers(
    env: Any, actor: Any, options: Mapping[str, Any], workers: Mapping[str, Any], *, seed: int, rank: int, ranks: int
) -> tuple[Any, int]:
    """The workers that play on this rank, and how many episodes.

    Without processes of their own, each rank plays its share; such processes belong to the first rank.

    Args:
        env: the `EnvCreator` of their environments.
        actor: the policy that acts where they are in this process.
        options: of evaluation: episodes, num_workers, explore.
        workers: those of the training workers; vectorization, ray and limits are taken from them.
        seed, rank, ranks: of this process.

    Raises:
        ConfigError: `parallel` without processes.
    """
    episodes, processes = int(options["episodes"]), int(options["num_workers"])
    how = {
        "vectorization": workers.get("vectorization", "auto"),
        "seed": seed,
        "stream": "evaluation",
        "explore": bool(options["explore"]),
    }
    if processes == 0:
        if options["parallel"]:
            raise ConfigError("evaluation.parallel=true needs processes: set evaluation.num_workers=1 or more")
        share = split_evenly(episodes, ranks)[rank]
        if share == 0:
            return None, 0
        return WorkerSet(env, actor, [rank], num_envs=min(share, ENVIRONMENTS), **how), share
    if rank > 0:
        return None, 0
    processes = min(processes, episodes)
    # That is of fragments; whole episodes take as long as they take.
    limits = replace(limits_of({**workers, "num_workers": processes}), sample_timeout_s=None)
    found = make_worker_set(
        env,
        actor,
        num_workers=processes,
        worker_indices=range(processes),
        logical_workers=processes,
        num_envs=min(-(-episodes // processes), ENVIRONMENTS),
        ray=workers.get("ray"),
        num_cpus=0,  # of a private session, whose cores are the training workers'
        **asdict(limits),
        **how,
    )
    return found, episodes
