"""The off-policy training loop in an object, for workers made by hand: collect, store, replay, learn."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from lightning_rl.errors import ConfigError, check_at_least_one
from lightning_rl.rllib.local_replay_buffer import LocalReplayBuffer
from lightning_rl.rllib.samples_optimizer import SyncSamplesOptimizer
from lightning_rl.rollouts.rollout_worker import RolloutWorker
from lightning_rl.sample_batch import Fragment, SampleBatch, env_steps, typed

__all__ = ["SyncReplayOptimizer"]


class SyncReplayOptimizer(SyncSamplesOptimizer):
    """Each step: newest weights to all, one sample of every worker into the buffer, then gradient steps from it.

    Args:
        local_worker: whose policy learns; without remote workers it samples as well.
        remote_workers: actors of `RolloutWorker.as_remote`.
        learning_starts: environment steps before the first gradient step.
        buffer_size: environment steps that the buffer holds.
        prioritized_replay: draw rows by their TD errors.
        prioritized_replay_alpha, prioritized_replay_beta, prioritized_replay_eps: its parameters.
        train_batch_size: rows of a gradient step.
        gradient_steps: per step, once learning has started.
        keywords: arguments of `LocalReplayBuffer`: replay_sequence_length, n_step, storage, seed, …

    Attributes:
        replay_buffer: what was stored.

    Raises:
        ConfigError: the policy does not learn from replay, or a number is out of range.
    """

    def __init__(
        self,
        local_worker: RolloutWorker,
        remote_workers: Sequence[Any] = (),
        learning_starts: int = 1000,
        buffer_size: int = 10_000,
        prioritized_replay: bool = True,
        prioritized_replay_alpha: float = 0.6,
        prioritized_replay_beta: Any = 0.4,
        prioritized_replay_eps: float = 1e-6,
        train_batch_size: int = 32,
        gradient_steps: int = 1,
        **keywords: Any,
    ) -> None:
        policy = local_worker.policy
        if not getattr(policy, "off_policy", False):
            raise ConfigError(
                f"SyncReplayOptimizer feeds off-policy algorithms (dqn, sac, td3, …); {type(policy).__name__} learns "
                "from its own rollouts: use SyncSamplesOptimizer"
            )
        check_at_least_one(gradient_steps=gradient_steps)
        local_worker.postprocess = False  # what is stored is raw
        super().__init__(local_worker, remote_workers, train_batch_size=1)
        self.learning_starts, self.gradient_steps = learning_starts, gradient_steps
        self.replay_buffer = LocalReplayBuffer(
            learning_starts=learning_starts,
            buffer_size=buffer_size,
            replay_batch_size=train_batch_size,
            prioritized_replay_alpha=prioritized_replay_alpha if prioritized_replay else 0.0,
            prioritized_replay_beta=prioritized_replay_beta,
            prioritized_replay_eps=prioritized_replay_eps,
            **{"gamma": policy.gamma, **keywords},
        )

    def step(self) -> dict[str, float]:
        """One sample stored, and learned from what is stored; metrics of the last gradient step, none before it.

        Raises:
            ConfigError: remote workers postprocess what the policy has to see raw.
        """
        policy, started = self.local_worker.policy, time.perf_counter()
        samples = next(self._batches)
        self.num_steps_sampled += env_steps(samples)
        self.replay_buffer.add_batch(taken_in(policy, samples))
        self.sample_seconds, started = time.perf_counter() - started, time.perf_counter()
        result: dict[str, float] = {}
        for _ in range(self.gradient_steps):
            batch = self.replay_buffer.replay()
            if batch is None:
                break
            result = self.local_worker.learn_on_batch(batch)
            errors = policy.learner.td_errors
            if "weights" in batch and errors is not None:
                self.replay_buffer.update_priorities(batch.batch_indexes, errors)
            self.num_steps_trained += batch.count
        self.learn_seconds = time.perf_counter() - started
        return result

    def stats(self) -> dict[str, Any]:
        """Rows so far, milliseconds of the last step, and the buffer's numbers."""
        return {**super().stats(), "replay_buffer": self.replay_buffer.stats()}


def taken_in(policy: Any, samples: SampleBatch) -> SampleBatch:
    """Samples as they are stored, counted: fragments, or rows of workers that postprocess them."""
    if isinstance(typed(samples), Fragment):
        return policy.learner.take_experience(samples)
    if policy.learner.needs_every_fragment:
        raise ConfigError(
            f"{type(policy).__name__} keeps statistics of what was experienced, and these workers give postprocessed "
            "rows: make them with postprocess=False"
        )
    policy.env_steps += samples.count
    return samples
