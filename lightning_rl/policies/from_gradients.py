"""One iteration on gradients that workers computed with weights of their own: each is a step as soon as it is here."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from lightning_rl.errors import NonFiniteError
from lightning_rl.policies.metrics import Metrics, plain_means
from lightning_rl.policies.optimiser import without_denormals
from lightning_rl.sample_batch import SampleBatch

if TYPE_CHECKING:
    from lightning_rl.policies.contributing import Contributing

__all__ = ["learn_on_gradients"]


def learn_on_gradients(policy: Contributing, contributions: Iterable[tuple[int, Any, bool]]) -> dict[str, float]:
    """Step with each contribution.

    Asking for the next one may send the weights of now to the worker that this one came from, so nothing is gathered
    first.

    Args:
        policy: that learns.
        contributions: (worker index, `Contribution`, whether its weights are new enough for its gradients to count).

    Returns:
        Means of their metrics.

    Raises:
        NonFiniteError: a gradient is NaN or infinite; names the worker, and nothing of it was stepped.
    """
    policy._begin_iteration()
    policy.learn_seconds = 0.0
    taken: list[Metrics] = []
    with without_denormals():
        for worker, contribution, fresh in contributions:
            started = time.perf_counter()
            try:
                taken.append(policy.take_contribution(contribution, step=fresh))
            except NonFiniteError as error:
                loss = contribution.metrics.get("loss")
                raise NonFiniteError(f"worker {worker} (its loss is {loss}): {error}") from error
            policy.learn_seconds += time.perf_counter() - started
    lr = {} if policy.learns_alone else {"lr": policy.optimiser.set_lr(policy.env_steps)}
    policy.iteration_metrics = {**plain_means(taken), **lr}
    policy.after_iteration(policy.iteration_metrics)
    policy.iterations += 1
    # The rows stayed where they were made.
    policy._call_hooks("on_learn_on_batch", policy=policy, train_batch=SampleBatch(), result=policy.iteration_metrics)
    return policy.iteration_metrics
