"""One iteration on draws from a replay buffer: a gradient step for each, while the buffer goes on taking experience."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from lightning_rl.policies.metrics import Metrics, means
from lightning_rl.policies.optimiser import without_denormals
from lightning_rl.sample_batch import SampleBatch

if TYPE_CHECKING:
    from lightning_rl.policies.learning import Learning

__all__ = ["learn_on_draws"]

DIAGNOSED = 16  # of so many gradient steps one reports what only a reader of curves needs


def learn_on_draws(policy: Learning, draws: Any) -> dict[str, float]:
    """Take the gradient steps that `draws` gives rows for.

    Asking for the next one may act in the environments with the weights of now, so the environment steps count on and
    schedules move within an iteration.

    Args:
        policy: that learns; a loss may set the column "td_errors" `[N]`, which become the rows' priorities.
        draws: an iterable of pairs (rows, how many gradient steps they are for), with `update_priorities(batch)`.

    Returns:
        Means of the metrics over the gradient steps (every 16th, of what only a reader of curves needs); no more than
        the learning rate where there were none yet.
    """
    policy._begin_iteration()
    lr = policy.optimiser.set_lr(policy.env_steps)
    policy.learn_seconds = 0.0
    taken: list[Metrics] = []
    last: SampleBatch | None = None
    with policy.switching_modes(), without_denormals():
        for rows, steps in draws:
            started = time.perf_counter()
            if not policy.training:  # acting turned evaluation on
                policy.train()
            for last in policy.batches_of(policy.scaled(rows), steps):
                policy.diagnosing = len(taken) % DIAGNOSED == 0
                taken.append(policy.descended(*policy.total_loss(last)))
            if last is not None and "weights" in last:  # drawn by priority, and so alone
                draws.update_priorities(last)
            policy.learn_seconds += time.perf_counter() - started
    policy.diagnosing = True
    learned = means(taken, len(taken)) if taken else {}
    policy.iteration_metrics = {**learned, **policy._exploring(), "lr": lr}
    policy.after_iteration(policy.iteration_metrics)
    policy.iterations += 1
    if last is not None:
        policy._call_hooks("on_learn_on_batch", policy=policy, train_batch=last, result=policy.iteration_metrics)
    return policy.iteration_metrics
