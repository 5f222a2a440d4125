"""Plays the episodes of an evaluation: in this process, in other processes, or in these in parallel to training.

In parallel to training, episodes are played with the weights at their beginning. They are reported at the next
evaluation, under the environment steps of those weights: so values come one evaluation late, the first ones are those
of the initial weights, and training waits only if an evaluation takes longer than the training between two of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Annotated, Any, Literal

from lightning_rl.distributed import all_gather_objects
from lightning_rl.errors import ConfigError
from lightning_rl.learning.progress import COUNTERS
from lightning_rl.rollouts.episodes import was_cut
from lightning_rl.rollouts.logical_workers import split_evenly
from lightning_rl.rollouts.processes.limits import limits_of
from lightning_rl.rollouts.worker_options import (
    EVALUATED_TOGETHER,
    LONGEST_EPISODE,
    LONGEST_UNLIMITED_EPISODE,
    Processes,
)
from lightning_rl.rollouts.worker_placement import make_worker_set
from lightning_rl.rollouts.worker_set import WorkerSet
from lightning_rl.schedules import EnvSteps, to_env_steps
from lightning_rl.schema.ranges import Count, Portion, Range
from lightning_rl.schema.signatures import Section

__all__ = [
    "EVALUATION",
    "EVALUATION_DEFAULTS",
    "EvaluationOptions",
    "Evaluator",
    "Snapshot",
    "evaluated_every",
    "evaluation_workers",
    "longest_evaluated",
    "take_snapshot",
]


Episodes = list[tuple[float, int]]
"""(return, length) of each."""


@dataclass(frozen=True, slots=True)
class EvaluationKeys:
    """The keys of the config section `evaluation`, with defaults; `RolloutDataModule` explains them."""

    every_env_steps: Annotated[EnvSteps, Range(0)] = "5%"  # type: ignore[assignment]  # pyright: ignore
    max_share: Portion | None = None
    episodes: Annotated[int, Range(0, 10_000)] = 10
    explore: bool = False
    max_episode_steps: Count | Literal["auto"] | None = "auto"
    env: Any = None
    num_workers: Processes = 0
    parallel: bool = False
    estimators: list[str] = field(default_factory=list)
    data: Annotated[float, Range(0.0, 1.0)] | str | Mapping[str, Any] = 0.1
    estimator_options: Mapping[str, Any] | None = None


EVALUATION = Section("evaluation", (EvaluationKeys,))
EVALUATION_DEFAULTS = asdict(EvaluationKeys())
EvaluationOptions = Annotated[Mapping[str, Any], EVALUATION]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Weights and counters of a policy at some time.

    Attributes:
        weights: as `get_weights` gives them.
        counters: `COUNTERS` of the policy.
    """

    weights: Any
    counters: Mapping[str, int]

    def restore(self, policy: Any) -> None:
        """Set the weights and counters of `policy` to these."""
        policy.set_weights(self.weights)
        for name, value in self.counters.items():
            setattr(policy, name, value)


def take_snapshot(policy: Any) -> Snapshot:
    """The present weights and counters of a policy."""
    return Snapshot(policy.get_weights(), {name: getattr(policy, name) for name in COUNTERS})


class Evaluator:
    """Plays evaluations, shared out over all ranks.

    Args:
        workers: the workers of this rank; `None` if only other ranks play.
        episodes: how many this rank plays.
        parallel: whether training continues meanwhile; needs workers in other processes.
        max_episode_steps: at which the workers cut episodes, which a warning says once.

    Attributes:
        reported: the policy whose episodes were returned last; `None`: the present one.
    """

    def __init__(
        self, workers: Any, episodes: int, parallel: bool = False, max_episode_steps: int | None = None
    ) -> None:
        self.workers, self.episodes, self.parallel = workers, episodes, parallel
        self.max_episode_steps = max_episode_steps
        self.reported: Snapshot | None = None
        self._playing: Snapshot | None = None
        self._warned = False
        self._seconds_per_length: float | None = None  # of an evaluation, for each step of its longest episode

    def expected_seconds(self, policy: Any, length: float) -> float:
        """Seconds that an evaluation takes whose longest episode has `length` steps, by a few steps of its own workers.

        In parallel to training it takes none.
        """
        if self.workers is None or self.parallel:
            return 0.0
        pace = self._seconds_per_length
        if pace is None:
            self.workers.sync_weights(policy)
            paces = self.workers.foreach_worker(lambda worker: (worker.seconds_per_step(), worker.num_envs))
            share = -(-self.episodes // len(paces))
            pace = self._seconds_per_length = max(seconds * -(-share // envs) for seconds, envs in paces)
        return pace * length

    def evaluate(self, policy: Any) -> Episodes:
        """Play with the present weights, and wait for it; episodes in the order of ranks and workers."""
        self.finish()  # running episodes would be reported for another policy
        self.reported, played = None, []
        if self.workers is not None and self.episodes:
            self.workers.sync_weights(policy)
            self.workers.foreach_worker(partial(seed_by_env_steps, env_steps=policy.env_steps))
            played = self.workers.run_episodes(self.episodes)
        return self._gather(played)

    def begin(self, policy: Any) -> None:
        """Let the processes begin to play with the present weights; nothing if they are still playing."""
        if self._playing is not None:
            return
        self._playing = take_snapshot(policy)
        if self.workers is None:
            return
        self.workers.sync_weights(policy)
        indices = self.workers.idle_workers
        for index, share in zip(indices, split_evenly(self.episodes, len(indices)), strict=True):
            if share:
                self.workers.submit(index, partial(play_episodes, count=share, env_steps=policy.env_steps))

    def finish(self) -> Episodes:
        """The episodes of the last `begin`; waits for them. Nothing if there was none."""
        if self._playing is None:
            return []
        # A process that is given up meanwhile has no result: there are fewer episodes then.
        results = [] if self.workers is None else list(iter(self.workers.next_result, None))
        results.sort(key=lambda result: result.worker_index)
        self.reported, self._playing = self._playing, None
        return self._gather([episode for each in results for episode in each.value])

    def _gather(self, played: Episodes) -> Episodes:
        """The episodes of all ranks; warns of those that were cut, for the first time."""
        episodes = [episode for part in all_gather_objects(played) for episode in part]
        if not self._warned and (cut := describe_cut(episodes, self.max_episode_steps)):
            self._warned = True
            warnings.warn(f"evaluation: {cut}", stacklevel=2)
        return episodes

    @contextmanager
    def reported_policy(self, policy: Any) -> Iterator[None]:
        """Inside the block, `policy` has the weights and counters of the policy whose episodes were returned last."""
        if self.reported is None:
            yield
            return
        now = take_snapshot(policy)
        self.reported.restore(policy)
        try:
            yield
        finally:
            now.restore(policy)


def evaluated_every(evaluation: Mapping[str, Any]) -> int:
    """Env steps from one evaluation to the next; 0: never, as without anything to evaluate by.

    Args:
        evaluation: the keys of the config section.
    """
    evaluates = evaluation["episodes"] or evaluation["estimators"]
    return to_env_steps(evaluation["every_env_steps"]) if evaluates else 0


def longest_evaluated(max_episode_steps: int | Literal["auto"] | None, env: Any) -> int | None:
    """At how many steps evaluations cut an episode: `evaluation.max_episode_steps`, with a number for "auto".

    An environment that declares a time limit ends its episodes itself; the limit is for those that do not. Their
    evaluations would otherwise take most of a run.

    Args:
        max_episode_steps: the limit of the config.
        env: `EnvCreator` of the environments.
    """
    if max_episode_steps != "auto":
        return max_episode_steps
    return LONGEST_UNLIMITED_EPISODE if env.time_limit is None else LONGEST_EPISODE


def describe_cut(episodes: Episodes, max_episode_steps: int | None) -> str:
    """Say how many episodes were cut at that length, and what to do; "" if none was."""
    cut = sum(map(was_cut, episodes))
    if not cut or max_episode_steps is None:
        return ""
    return (
        f"{cut} of {len(episodes)} episodes went on after {max_episode_steps:,} steps; they were cut there, and count "
        "with their return so far: set env.max_episode_steps=1000, say, for a time limit in training and evaluation, "
        "or a larger evaluation.max_episode_steps; if episodes end in training, the best action may be one that "
        "changes nothing here, forever: evaluation.explore=true samples actions as training does"
    )


def seed_by_env_steps(worker: Any, env_steps: int) -> None:
    """Let the seeds of a worker's next episodes follow from the policy's env steps.

    They then do not depend on how many evaluations there were before: which of them are postponed depends on wall time.
    """
    worker.fragment = max(worker.fragment, env_steps)  # a second evaluation at the same env steps has other seeds


def play_episodes(worker: Any, count: int, env_steps: int) -> Episodes:
    """Play whole episodes in the process of a worker, with the weights of those env steps."""
    seed_by_env_steps(worker, env_steps)
    return worker.run_episodes(count)


def evaluation_workers(
    env: Any, actor: Any, options: Mapping[str, Any], workers: Mapping[str, Any], *, seed: int, rank: int, ranks: int
) -> tuple[Any, int]:
    """The workers that play on this rank, and how many episodes.

    Without processes for evaluation, each rank plays its share; such processes belong to the first rank.

    Args:
        env: the `EnvCreator` of their environments.
        actor: the policy that acts if the workers are in this process.
        options: the options of evaluation: episodes, num_workers, explore, max_episode_steps.
        workers: options of the training workers; vectorization, ray and limits are taken from them.
        seed, rank, ranks: this process's seed and place among the ranks.

    Raises:
        ConfigError: `parallel` without processes.
    """
    episodes, processes = int(options["episodes"]), int(options["num_workers"])
    if episodes == 0:
        return None, 0
    how = {
        "vectorization": workers.get("vectorization", "auto"),
        "seed": seed,
        "stream": "evaluation",
        "batch_mode": "complete_episodes",  # of a callback that samples: an episode of each environment
        "fragment_length": 1,
        "explore": bool(options["explore"]),
        "max_episode_steps": options["max_episode_steps"],
    }
    if processes == 0:
        if options["parallel"]:
            raise ConfigError("evaluation.parallel=true needs processes: set evaluation.num_workers=1 or more")
        share = split_evenly(episodes, ranks)[rank]
        if share == 0:
            return None, 0
        return WorkerSet(env, actor, [rank], num_envs=min(share, EVALUATED_TOGETHER), **how), share
    if rank > 0:
        return None, 0
    processes = min(processes, episodes)
    # That limit is for fragments; whole episodes may take longer.
    limits = replace(limits_of({**workers, "num_workers": processes}), sample_timeout_s=None)
    found = make_worker_set(
        env,
        actor,
        num_workers=processes,
        worker_indices=range(processes),
        logical_workers=processes,
        num_envs=min(-(-episodes // processes), EVALUATED_TOGETHER),
        ray=workers.get("ray"),
        num_cpus=0,  # the cores of a private session belong to the training workers
        **asdict(limits),
        **how,
    )
    return found, episodes
