"""Owns all that is data: environments, workers, evaluation, the episode window. Lightning saves and restores it.

State lives here and not in a loader, because Lightning drops a loader's state when it resumes from an epoch's end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from lightning.pytorch import LightningDataModule

from lightning_rl.data.datasets import EvaluationDataset, OnPolicyDataset
from lightning_rl.errors import ConfigError, check_at_least_one, import_object
from lightning_rl.rollouts.envs import EnvCreator
from lightning_rl.rollouts.worker_set import WorkerSet, make_worker_set
from lightning_rl.sample_batch import SampleBatch

__all__ = ["EpisodeWindow", "RolloutDataModule"]

EVALUATION_ENVS = 16  # environments stepped together in an evaluation, at most


class EpisodeWindow:
    """Returns and lengths of the latest training episodes.

    Args:
        size: how many episodes are remembered.
    """

    def __init__(self, size: int = 100) -> None:
        self.returns: deque[float] = deque(maxlen=size)
        self.lengths: deque[float] = deque(maxlen=size)
        self.episodes_total = 0

    def add(self, returns: Iterable[float], lengths: Iterable[float]) -> None:
        """Take the episodes that ended."""
        values = list(returns)
        self.returns.extend(values)
        self.lengths.extend(lengths)
        self.episodes_total += len(values)

    def means(self) -> dict[str, float]:
        """Mean return and length under their metric names; empty until an episode has ended."""
        if not self.returns:
            return {}
        return {
            "rollout/ep_rew_mean": float(np.mean(self.returns)),
            "rollout/ep_len_mean": float(np.mean(self.lengths)),
        }

    def state_dict(self) -> dict[str, Any]:
        """Plain lists and numbers."""
        return {"returns": list(self.returns), "lengths": list(self.lengths), "episodes_total": self.episodes_total}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state`."""
        self.returns.extend(state["returns"])
        self.lengths.extend(state["lengths"])
        self.episodes_total = int(state["episodes_total"])


class RolloutDataModule(LightningDataModule):
    """Rollouts for training and episodes for evaluation.

    Args:
        env: the training environments: an `EnvCreator`, or its keywords.
        workers: num_workers (0: in this process, without Ray), logical_workers (how many workers there are, wherever
            they run; `None`: one
            per process), envs_per_worker, fragment_length, batch_mode, vectorization, ray (keywords of
            `ray_workers.start_ray`).
        evaluation: episodes per evaluation, explore, env (keywords of another `EnvCreator`; `None`: as in training).
        iterations_per_epoch: iterations (= Lightning batches) per Lightning epoch, which is when evaluation and
            reports happen.
        dataset: import path or class of the training dataset, called with (datamodule, policy, iterations).
        plan: import path or generator function `plan(workers, policy)` of an execution plan of your own; `None` takes
            the dataset's.
        seed: names the randomness of all workers.
        callbacks: objects whose episode and sample hooks the workers call.

    Raises:
        ConfigError: a number is out of range, or a key is unknown.
    """

    def __init__(
        self,
        env: EnvCreator | Mapping[str, Any],
        workers: Mapping[str, Any] | None = None,
        evaluation: Mapping[str, Any] | None = None,
        *,
        iterations_per_epoch: int = 10,
        dataset: Any = OnPolicyDataset,
        plan: Any = None,
        seed: int = 0,
        callbacks: Sequence[Any] = (),
    ) -> None:
        super().__init__()
        check_at_least_one("data.", iterations_per_epoch=iterations_per_epoch)
        self.env = env if isinstance(env, EnvCreator) else EnvCreator(**env)
        self.worker_options = dict(workers or {})
        self.num_workers = int(self.worker_options.pop("num_workers", 0))
        logical = self.worker_options.pop("logical_workers", None)
        self.logical_workers = max(1, self.num_workers) if logical is None else int(logical)
        if self.logical_workers < max(1, self.num_workers):
            raise ConfigError(
                f"workers.logical_workers={self.logical_workers} for num_workers={self.num_workers}: "
                "every process needs at least one"
            )
        self.worker_options["num_envs"] = int(self.worker_options.pop("envs_per_worker", 1))
        self.evaluation = {"episodes": 10, "explore": False, "env": None, **(evaluation or {})}
        self.iterations_per_epoch, self.seed, self.callbacks = iterations_per_epoch, seed, tuple(callbacks)
        self.dataset = import_object(dataset) if isinstance(dataset, str) else dataset
        self.plan = import_object(plan) if isinstance(plan, str) else plan
        self.workers: Any = None
        self.evaluation_workers: WorkerSet | None = None
        self.episode_window = EpisodeWindow()
        self._collect_seconds = 0.0
        self._collected_at = 0

    # -- Lightning ----------------------------------------------------------------------------------------------------
    def setup(self, stage: str) -> None:
        """Make the workers that `stage` needs, once; each rank has its own slice of the logical workers."""
        assert self.trainer is not None
        policy: Any = self.trainer.lightning_module
        if stage == "fit" and self.workers is None:
            self.workers = self._training_workers(policy)
        evaluates = stage != "fit" or self.trainer.limit_val_batches != 0
        if self.evaluation_workers is None and evaluates:
            self.evaluation_workers = self._evaluation_workers(policy)

    def train_dataloader(self) -> Any:
        """The sized dataset itself: a DataLoader would draw from the global generator at each `iter`."""
        keywords = {} if self.plan is None else {"plan": self.plan}
        return self.dataset(self, self._policy(), self.iterations_per_epoch, **keywords)

    def val_dataloader(self) -> Any:
        """One evaluation."""
        assert self.evaluation_workers is not None
        return EvaluationDataset(self.evaluation_workers, self._policy(), int(self.evaluation["episodes"]))

    def state_dict(self) -> dict[str, Any]:
        """Which fragments come next, and the episode window: plain numbers."""
        state: dict[str, Any] = {"episode_window": self.episode_window.state_dict()}
        if self.workers is not None:
            state["workers"] = self.workers.state_dict()
        if self.evaluation_workers is not None:
            state["evaluation_workers"] = self.evaluation_workers.state_dict()
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue where the checkpoint was written; environments start with a seeded reset."""
        self.episode_window.load_state_dict(state_dict["episode_window"])
        if self.workers is not None and "workers" in state_dict:
            self.workers.load_state_dict(state_dict["workers"])
        if self.evaluation_workers is not None and "evaluation_workers" in state_dict:
            self.evaluation_workers.load_state_dict(state_dict["evaluation_workers"])

    def on_exception(self, exception: BaseException) -> None:
        """Lightning runs no teardown after an exception: stop the workers here."""
        self.stop()

    # -- for datasets and callbacks -----------------------------------------------------------------------------------
    def took(self, batch: SampleBatch, seconds: float) -> None:
        """A dataset tells how long it needed for a batch, and that it was collected with the weights of now."""
        self._collect_seconds += seconds
        self._collected_at = self._policy().iterations

    def pop_iteration_metrics(self) -> dict[str, float]:
        """Episode statistics and collection time since the last call; names of the metric registry."""
        episodes = self.workers.get_metrics()
        self.episode_window.add(episodes["episode_returns"], episodes["episode_lengths"])
        seconds, self._collect_seconds = self._collect_seconds, 0.0
        return {
            **self.episode_window.means(),
            "rollout/episodes": float(self.episode_window.episodes_total),
            # Updates between the weights that acted and those that learned; the update itself has been counted since.
            "rollout/staleness": float(self._policy().iterations - 1 - self._collected_at),
            "time/collect_s": seconds,
        }

    def cut_environments(self) -> None:
        """A checkpoint is written: the next fragments start with a seeded reset, here as in the run that resumes it."""
        if self.workers is not None:
            self.workers.cut()

    def stop(self) -> None:
        """Close all environments and processes; safe to call again."""
        for workers in (self.workers, self.evaluation_workers):
            if workers is not None:
                workers.stop()
        self.workers = self.evaluation_workers = None

    # -- workers ------------------------------------------------------------------------------------------------------
    def _policy(self) -> Any:
        assert self.trainer is not None
        return self.trainer.lightning_module

    def _training_workers(self, policy: Any) -> Any:
        assert self.trainer is not None
        rank, ranks = self.trainer.global_rank, self.trainer.world_size
        if self.logical_workers < ranks:
            raise ConfigError(
                f"workers.logical_workers={self.logical_workers} for {ranks} ranks: every rank needs at least one"
            )
        return make_worker_set(
            self.env,
            self._actor(policy),
            num_workers=-(-self.num_workers // ranks),
            worker_indices=list(range(rank, self.logical_workers, ranks)),
            logical_workers=self.logical_workers,
            seed=self.seed,
            callbacks=self.callbacks,
            **self.worker_options,
        )

    def _evaluation_workers(self, policy: Any) -> WorkerSet:
        env = self.evaluation["env"]
        creator = self.env if env is None else env if isinstance(env, EnvCreator) else EnvCreator(**env)
        return WorkerSet(
            creator,
            self._actor(policy),
            num_envs=min(int(self.evaluation["episodes"]), EVALUATION_ENVS),
            vectorization=self.worker_options.get("vectorization", "auto"),
            seed=self.seed,
            stream="evaluation",
            explore=bool(self.evaluation["explore"]),
        )

    def _actor(self, policy: Any) -> Any:
        """What acts in this process: the learner itself on a CPU, else a copy of it on the CPU."""
        assert self.trainer is not None
        return policy if self.trainer.strategy.root_device.type == "cpu" else policy.copy_for_acting()
