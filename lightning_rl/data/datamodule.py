"""The DataModule: environments, workers, source and feeds, evaluation, the episode window.

Lightning saves and restores it. State lies here and not in a loader, because Lightning drops a loader's state when it
resumes from an epoch's end.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from lightning.pytorch import LightningDataModule
from lightning.pytorch.trainer.states import TrainerFn

from lightning_rl.callbacks.metrics import ensure_metrics_callback
from lightning_rl.data.datasets import EvaluationDataset
from lightning_rl.data.epochs import UNEVALUATED_EPOCH, Epochs
from lightning_rl.data.evaluator import (
    EVALUATION_DEFAULTS,
    EvaluationOptions,
    Evaluator,
    evaluated_every,
    evaluation_workers,
    longest_evaluated,
)
from lightning_rl.data.offline.recorder import Recorder
from lightning_rl.data.policy_feeds import PolicyFeeds
from lightning_rl.data.replay_feed import ReplayFeed
from lightning_rl.data.source import Source, SyncSource
from lightning_rl.distributed import all_gather_objects, sum_over_ranks
from lightning_rl.envs.creator import EnvCreator
from lightning_rl.errors import ConfigError
from lightning_rl.learning.lightning_limits import check_callbacks
from lightning_rl.models.filters import ReturnNormalizer
from lightning_rl.replay.storage import available_bytes, estimated_bytes
from lightning_rl.rollouts.logical_workers import logical_workers
from lightning_rl.rollouts.worker_options import LONGEST_UNLIMITED_EPISODE, WorkerOptions
from lightning_rl.rollouts.worker_placement import make_worker_set
from lightning_rl.schema.ranges import Seed
from lightning_rl.schema.signatures import check_keywords

__all__ = ["EpisodeWindow", "ReplayDataModule", "RolloutDataModule"]

ENOUGH = 2**30  # bytes; less is never refused, because free memory may be low for a moment


class EpisodeWindow:
    """Returns and lengths of the latest training episodes.

    Args:
        size: how many episodes are remembered; `None`: all.
    """

    def __init__(self, size: int | None = 100) -> None:
        self.returns: deque[float] = deque(maxlen=size)
        self.lengths: deque[int] = deque(maxlen=size)
        self.by_policy: dict[str, deque[float]] = {}
        self.episodes_total = 0

    def add(
        self,
        returns: Iterable[float],
        lengths: Iterable[int],
        by_policy: Mapping[str, Iterable[float]] | None = None,
    ) -> None:
        """Add episodes that have ended; `by_policy`, with several agents, has the mean return of a policy's agents."""
        values = list(returns)
        self.returns.extend(values)
        self.lengths.extend(lengths)
        self.episodes_total += len(values)
        for name, own in (by_policy or {}).items():
            self.by_policy.setdefault(name, deque(maxlen=self.returns.maxlen)).extend(own)

    def means(self) -> dict[str, float]:
        """Mean return and length under their metric names; empty until an episode has ended."""
        if not self.returns:
            return {}
        return {
            "rollout/ep_rew_mean": float(np.mean(self.returns)),
            "rollout/ep_len_mean": float(np.mean(self.lengths)),
            **{f"rollout/{name}/ep_rew_mean": float(np.mean(own)) for name, own in self.by_policy.items() if own},
        }

    def state_dict(self) -> dict[str, Any]:
        """Plain lists and numbers."""
        by_policy = {name: list(own) for name, own in self.by_policy.items()}
        episodes = {"returns": list(self.returns), "lengths": list(self.lengths), "by_policy": by_policy}
        return {**episodes, "episodes_total": self.episodes_total}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state`."""
        self.returns.extend(map(float, state["returns"]))
        self.lengths.extend(map(int, state["lengths"]))
        for name, returns in state["by_policy"].items():
            self.by_policy[name] = deque(map(float, returns), maxlen=self.returns.maxlen)
        self.episodes_total = int(state["episodes_total"])


class RolloutDataModule(LightningDataModule):
    """Rollouts for training and episodes for evaluation.

    Args:
        env: the training environments: an `EnvCreator`, its keywords, or its `id`.
        workers: num_workers (0: in this process, without Ray), logical_workers (how many workers there are, wherever
            they run, the same number for each rank; `None`: one per process and rank), envs_per_worker,
            fragment_length, batch_mode, count_resets, vectorization, record_logp (`None`: if the algorithm reads it),
            explore, act_on ("cpu": a copy of the policy acts there; "learner": the policy itself acts on its own
            device, for networks that are slow on a CPU), ray (keywords of `rollouts.ray.session.start_ray`).
        evaluation: every_env_steps (an evaluation, and so an end of Lightning's epoch, after the iteration that passes
            a multiple of this; a share such as "5%" is one of 100,000 here, and of `total_env_steps` in a run; 0:
            never, and epochs are 100,000 env steps), max_share (of the wall time; an evaluation that would exceed it is
            postponed to the next multiple, and the epoch continues; `None`, unlike in a run: no bound), episodes per
            evaluation, explore, max_episode_steps (at which an episode that continues is cut, with its return so far;
            "auto": `longest_evaluated`; `None`: never), env (keywords of another `EnvCreator`; `None`: as in training),
            num_workers (Ray processes for evaluation only; 0: in this process), parallel (whether training continues
            meanwhile), estimators, data and estimator_options (of `runs.off_policy_evaluation`, which a run adds;
            `data` as a share is held out by `OfflineSource`).
        source: runs the workers, and says what an iteration learns from: a `SyncSource`, `AsyncSource`,
            `GradientSource`, `PopulationSource` or `ReplayFeed`; `None`: a `SyncSource` of the `keywords`.
        seed: the seeds of all workers are derived from it.
        callbacks: objects whose episode and sample hooks the workers call.
        keywords: arguments of `SyncSource`: dataset, fragments_per_batch, plan.

    Attributes:
        feeds: the feeds of several agents: policy id → `ReplayFeed`, for each policy that learns from replay.

    Raises:
        ConfigError: a number is out of range, or a key is unknown.
    """

    @check_keywords("data")
    def __init__(
        self,
        env: Any,
        workers: WorkerOptions | None = None,
        evaluation: EvaluationOptions | None = None,
        source: Source | None = None,
        *,
        seed: Seed = 0,
        callbacks: Sequence[Any] = (),
        **keywords: Any,
    ) -> None:
        super().__init__()
        self.env = EnvCreator.from_spec(env)
        if source is not None and keywords:
            kind = type(source).__name__
            raise ConfigError(f"data.{min(keywords)} beside a source: give it to {kind}, if it has that keyword")
        self.source = SyncSource(**keywords) if source is None else source
        self.worker_options = dict(workers or {})
        self.num_workers = int(self.worker_options.pop("num_workers", 0))
        self._logical: int | None = self.worker_options.pop("logical_workers", None)
        if self._logical is not None and self._logical < max(1, self.num_workers):
            raise ConfigError(
                f"workers.logical_workers={self._logical} for num_workers={self.num_workers}: "
                "every process needs at least one"
            )
        self.act_on: str = self.worker_options.pop("act_on", "cpu")
        if self.worker_options.get("record_logp") is None:
            self.worker_options["record_logp"] = self.source.reads_logp or self.source.output is not None
        elif self.source.reads_logp and not self.worker_options["record_logp"]:
            raise ConfigError(
                "workers.record_logp=false: on-policy losses read how likely actions were; leave it null, or use "
                "data=replay"
            )
        self.worker_options["num_envs"] = int(self.worker_options.pop("envs_per_worker", 1))
        self.evaluation = {**EVALUATION_DEFAULTS, **(evaluation or {})}
        self.seed, self.callbacks = seed, tuple(callbacks)
        every = evaluated_every(self.evaluation) or UNEVALUATED_EPOCH
        self.epochs = Epochs(every, self.evaluation["max_share"], self.expected_evaluation_seconds)
        self.feeds = PolicyFeeds(self)
        self.workers: Any = None
        self._prepared_for: tuple[Any, Any] | None = None  # the Trainer and its policy
        self._stopping: Callable[[], bool] | None = None
        self._left_at: dict[str, Any] = {}  # the positions of workers that an exception stopped
        self.evaluator: Evaluator | None = None
        self.episode_window = EpisodeWindow()
        self.numbers: dict[str, list[float]] = {}  # that callbacks recorded of the episodes of the last iteration
        self._warned = False
        self.agent_returns: list[dict[str, tuple[str, float]]] = []  # of the last iteration's episodes, of all ranks
        self._collect_seconds = 0.0  # since the last report
        self._collected_at = 0
        self.source.attach(self)

    def __repr__(self) -> str:
        workers = f"num_workers={self.num_workers}, envs_per_worker={self.worker_options['num_envs']}"
        return f"{type(self).__name__}({self.env.name!r}, {workers}, seed={self.seed})"

    __str__ = __repr__  # Lightning's iterates over the datasets, and so plays an evaluation

    # -- Lightning ----------------------------------------------------------------------------------------------------
    def setup(self, stage: str) -> None:
        """Make the workers that `stage` needs, once; each rank has its own slice of the logical workers.

        Raises:
            ConfigError: the policy learns from another kind of data, the fragments do not fit into the memory, or a
                callback would change the learner's steps.
        """
        assert self.trainer is not None
        policy: Any = self.trainer.lightning_module
        if stage == "fit" and (self.workers is None or self._prepared_for != (self.trainer, policy)):
            self._prepared_for = (self.trainer, policy)
            callbacks: list[Any] = self.trainer.callbacks  # type: ignore[attr-defined]  # pyright: ignore
            check_callbacks(callbacks)
            self.source.prepare(policy)
            self.feeds.prepare(policy)
            ensure_metrics_callback(self.trainer)
            if self.epochs not in callbacks:
                callbacks.insert(0, self.epochs)
            if self.workers is None:
                self.workers = self._training_workers(policy)
                if self._left_at:
                    self.workers.load_state_dict(self._left_at)
                self.source.start()
                if self._stopping is not None:
                    self.workers.stop_when(self._stopping)
        evaluates = stage != "fit" or self.trainer.limit_val_batches != 0
        if self.evaluator is None and evaluates:
            self.evaluator = self._make_evaluator(policy)
            if self._stopping is not None and self.evaluator.workers is not None:
                self.evaluator.workers.stop_when(self._stopping)

    def train_dataloader(self) -> Any:
        """The sized dataset itself, because a DataLoader would draw from the global generator at each `iter`."""
        return self.source.dataset(self, self._policy())

    def val_dataloader(self) -> Any:
        """One evaluation."""
        return EvaluationDataset(self.evaluate)

    test_dataloader = val_dataloader

    def state_dict(self) -> dict[str, Any]:
        """Where all ranks' workers are, the episode window, source and feeds; plain data and tensors."""
        state: dict[str, Any] = {"episode_window": self.episode_window.state_dict(), **self.source.state_dict()}
        if self.workers is not None:
            state["workers"] = merge_ranks(self.workers.state_dict())
        if self.evaluator is not None:
            own = self.evaluation_workers
            state["evaluation_workers"] = merge_ranks({} if own is None else own.state_dict())
        followed = {name: each.returns.state_dict() for name, each in return_normalizers(self._policy())}
        state["running_returns"] = all_gather_objects(followed)
        if fed := self.feeds.state_dict():
            state["policies"] = fed
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue where the checkpoint was written; fragments that were in flight then are lost."""
        self.episode_window.load_state_dict(state_dict["episode_window"])
        if self.workers is not None and "workers" in state_dict:
            self.workers.load_state_dict(state_dict["workers"])
        if self.evaluation_workers is not None and "evaluation_workers" in state_dict:
            self.evaluation_workers.load_state_dict(state_dict["evaluation_workers"])
        of_ranks = state_dict.get("running_returns", [])
        for name, each in return_normalizers(self._policy()) if self.rank < len(of_ranks) else ():
            if name in of_ranks[self.rank]:
                each.returns.load_state_dict(of_ranks[self.rank][name])
        self.source.load_state_dict(state_dict)
        self.feeds.load_state_dict(state_dict.get("policies", {}))

    def on_exception(self, exception: BaseException) -> None:
        """Stop the workers, since Lightning runs no teardown after an exception; the next fit continues from there."""
        if self.workers is not None:
            self._left_at = self.workers.positions()
        self._close()

    # -- evaluation ---------------------------------------------------------------------------------------------------
    @property
    def evaluation_workers(self) -> Any:
        """The workers that play evaluations on this rank; `None` if there are none."""
        return None if self.evaluator is None else self.evaluator.workers

    @property
    def evaluation_env(self) -> EnvCreator:
        """How to make the environments of evaluations."""
        env = self.evaluation["env"]
        return self.env if env is None else EnvCreator.from_spec(env)

    def evaluate(self) -> list[tuple[float, int]]:
        """(return, length) of an evaluation's episodes; in parallel to training, of the evaluation begun before."""
        assert self.evaluator is not None and self.trainer is not None
        self._warn_of_endless_episodes()
        if not self.evaluator.parallel or self.trainer.state.fn != TrainerFn.FITTING:
            return self.evaluator.evaluate(self._policy())
        played = self.evaluator.finish()
        self.evaluator.begin(self._policy())
        return played

    def _warn_of_endless_episodes(self) -> None:
        """Before the first evaluation: say that episodes seem to have no end, so that evaluations are cut."""
        limit = self.evaluation["max_episode_steps"]
        unlimited = limit == "auto" and not self.evaluation_env.time_limit
        waits = unlimited and self.source.acts and not self.episode_window.lengths
        if waits and not self._warned and (steps := self._policy().env_steps):
            self._warned = True
            of_each = steps // self.running_episodes
            warnings.warn(
                f"no training episode has ended in {steps:,} env steps ({of_each:,} of each environment), and "
                f"{self.env.name!r} declares no time limit: evaluations cut episodes after "
                f"{LONGEST_UNLIMITED_EPISODE:,} steps (evaluation.max_episode_steps); if episodes never end, set "
                "env.max_episode_steps=1000, say, for a limit in training as well",
                stacklevel=2,
            )

    def expected_evaluation_seconds(self) -> float | None:
        """Seconds of an evaluation whose longest episode is that of training; `None` before an episode has ended.

        0 where no episodes are trained on: on data alone, the first evaluation tells how long the others take.
        """
        if self.evaluator is None:
            return None
        if not self.episode_window.lengths:
            return None if self.source.acts else 0.0
        return self.evaluator.expected_seconds(self._policy(), max(self.episode_window.lengths))

    @property
    def evaluated_at(self) -> int:
        """Environment steps of the policy whose episodes `evaluate` returned last."""
        reported = None if self.evaluator is None else self.evaluator.reported
        return int(self._policy().env_steps if reported is None else reported.counters["env_steps"])

    # -- for datasets and callbacks -----------------------------------------------------------------------------------
    def record_time(self, batch: Any, seconds: float) -> None:
        """Add the time that a batch took to collect, and note that the policy's present weights collected it."""
        self._collect_seconds += seconds
        self._collected_at = self._policy().iterations

    def pop_iteration_metrics(self) -> dict[str, float]:
        """Episode statistics and collection time since the last call; names of the metric registry."""
        episodes = self.workers.get_metrics()
        self.agent_returns, self.numbers = [], {}
        # Else there is nothing to gather.
        if sum_over_ranks(len(episodes["episode_returns"]) + len(episodes.get("numbers", ()))):
            for part in all_gather_objects(episodes):
                self.episode_window.add(part["episode_returns"], part["episode_lengths"], part.get("policy_returns"))
                self.agent_returns += part.get("agent_returns", [])
                for name, values in part.get("numbers", {}).items():
                    self.numbers.setdefault(name, []).extend(values)
        seconds, self._collect_seconds = self._collect_seconds, 0.0
        return {
            **self.episode_window.means(),
            "rollout/episodes": float(self.episode_window.episodes_total),
            # Iterations between the weights that acted and those that learned; this iteration has been counted since.
            "rollout/policy_lag": float(self._policy().iterations - 1 - self._collected_at),
            "time/collect_s": seconds,
            **self.workers.get_health(),
            **self.source.pop_metrics(),
            **self.feeds.metrics(),
        }

    def force_reset(self) -> None:
        """Let the next fragments start with a seeded reset; what is in flight is discarded."""
        self.source.force_reset()
        if self.workers is not None:
            self.workers.force_reset()
        self.feeds.force_reset()

    def describe_loss(self) -> str:
        """Say why a resumed run differs from one that never stopped; "" if it does not."""
        if self.source.runs_ahead and self.num_workers:
            return "what worker processes have in flight is lost, and their episodes start from scratch"
        found = [reason for reason in self.workers.foreach_worker(lambda worker: worker.describe_loss()) if reason]
        if self.evaluation["parallel"]:
            found.append("best_*.ckpt hold the evaluated weights beside environments that have continued since")
        return "; ".join(dict.fromkeys(found))

    def stop_when(self, stopping: Callable[[], bool]) -> None:
        """Raise `KeyboardInterrupt` once `stopping()`: in evaluations at once, in waits for processes after seconds."""
        self._stopping = stopping
        for workers in (self.workers, self.evaluation_workers):
            if workers is not None:
                workers.stop_when(stopping)

    def stop(self) -> None:
        """Close all environments and processes, after they have written what they record; safe to call again."""
        if self.workers is not None and self.source.output is not None:
            self.workers.foreach_worker(lambda worker: worker.end_recording())
        self._close()

    def _close(self) -> None:
        self.source.stop()
        sets = [workers for workers in (self.evaluation_workers, self.workers) if workers is not None]
        # The set that owns the Ray session is stopped last.
        for workers in sorted(sets, key=lambda workers: getattr(workers, "owns_ray", False)):
            workers.stop()
        self.workers = self.evaluator = None

    # -- workers ------------------------------------------------------------------------------------------------------
    def _policy(self) -> Any:
        assert self.trainer is not None
        return self.trainer.lightning_module

    @property
    def rank(self) -> int:
        """The number of this process among those that learn."""
        return 0 if self.trainer is None else self.trainer.global_rank

    @property
    def ranks(self) -> int:
        """How many processes learn."""
        return 1 if self.trainer is None else self.trainer.world_size

    def logical_workers(self, ranks: int | None = None) -> int:
        """How many logical workers all ranks have together; of that many ranks, or of those that there are."""
        return logical_workers(self._logical, self.num_workers, self.ranks if ranks is None else ranks)

    @property
    def running_episodes(self) -> int:
        """How many environments run at a time, of all ranks."""
        return self.logical_workers() * self.worker_options["num_envs"]

    def _training_workers(self, policy: Any) -> Any:
        logical = self.logical_workers() if self.source.acts else 0
        indices = list(range(self.rank, logical, self.ranks))
        self._check_memory(policy, len(indices))
        return make_worker_set(
            self.env,
            self.acting_policy(policy),
            num_workers=-(-self.num_workers // self.ranks) if self.source.acts else 0,
            worker_indices=indices,
            logical_workers=logical,
            seed=self.seed,
            callbacks=[*self.callbacks, *([] if self.source.output is None else [Recorder(self.source.output)])],
            **self.worker_options,
        )

    def _check_memory(self, policy: Any, workers: int) -> None:
        """Refuse fragments that do not fit into this machine's memory."""
        steps, envs = self.worker_options.get("fragment_length", 128), self.worker_options["num_envs"]
        rows = self.source.fragments_per_batch * workers * envs * (steps + 1)
        needed = estimated_bytes(policy.observation_space, policy.action_space, rows)
        if needed > max(ENOUGH, free := available_bytes()):
            raise ConfigError(
                f"workers.fragment_length={steps} × workers.envs_per_worker={envs} × {workers} workers need "
                f"{needed / 2**30:.1f} GiB of memory; {free / 2**30:.1f} GiB are free: lower workers.fragment_length"
            )

    def _make_evaluator(self, policy: Any) -> Evaluator:
        place = {"seed": self.seed, "rank": self.rank, "ranks": self.ranks}
        limit = longest_evaluated(self.evaluation["max_episode_steps"], self.evaluation_env)
        options = {**self.evaluation, "max_episode_steps": limit}
        workers, episodes = evaluation_workers(
            self.evaluation_env, self.acting_policy(policy), options, self.worker_options, **place
        )
        return Evaluator(workers, episodes, parallel=bool(self.evaluation["parallel"]), max_episode_steps=limit)

    def acting_policy(self, policy: Any) -> Any:
        """The policy that acts in this process: the learner itself, or a copy of it on the CPU, in float32."""
        assert self.trainer is not None
        here = self.act_on == "learner" or self.trainer.strategy.root_device.type == "cpu"
        return policy if here and self.trainer.precision not in ("bf16-true", "16-true") else policy.copy_for_acting()


class ReplayDataModule(RolloutDataModule):
    """A `RolloutDataModule` whose source is a `ReplayFeed`.

    Args:
        env, workers, evaluation, seed, callbacks: see `RolloutDataModule`.
        keywords: the keywords of `ReplayFeed`.
    """

    def __init__(
        self,
        env: Any,
        workers: Any = None,
        evaluation: Any = None,
        *,
        seed: Any = 0,
        callbacks: Any = (),
        **keywords: Any,
    ) -> None:
        super().__init__(env, workers, evaluation, ReplayFeed(**keywords), seed=seed, callbacks=callbacks)


def return_normalizers(policy: Any) -> list[tuple[str, ReturnNormalizer]]:
    """The parts of a policy that follow the returns of running episodes, with their names."""
    return [(name, module) for name, module in policy.named_modules() if isinstance(module, ReturnNormalizer)]


def merge_ranks(state: Mapping[str, Any]) -> dict[str, Any]:
    """The states of all ranks' workers, by worker index."""
    return {index: own for part in all_gather_objects(state) for index, own in part.items()}
