"""Requests to sample that a learner keeps in flight, so that workers act while the policy learns."""

from __future__ import annotations

from typing import Any

from lightning_rl.data.policy_feeds import trained_policies
from lightning_rl.rollouts.worker_results import SampleReference

__all__ = ["InflightRequests"]

SMOOTHING = 0.1  # weight of the newest sample in the estimate of the size of one


class InflightRequests:
    """Keeps a number of requests to sample in flight, within a bound on the bytes that they will bring.

    Args:
        per_process: requests that each worker process may have in flight, ≥ 1.
        max_bytes: the largest size in bytes of the samples that are in flight or wait to be learned from; `None`: no
            bound. One request is always allowed.
        in_order: take samples in the order in which they were submitted, instead of as they become ready.
        nbytes: estimated size of one sample, until the first has come.

    Attributes:
        nbytes: size of one sample: measured, and smoothed.
    """

    def __init__(
        self, per_process: int, *, max_bytes: float | None = None, in_order: bool = False, nbytes: float = 0.0
    ) -> None:
        self.per_process, self.max_bytes, self.in_order, self.nbytes = per_process, max_bytes, in_order, nbytes
        self._measured = False
        # Of the policy that the workers have: its gradient steps, and how often policies were added to several.
        self._synced: tuple[int, int] | None = None

    def submit(self, workers: Any, policy: Any, waiting_bytes: float = 0.0) -> None:
        """Submit as many requests as the bounds allow, with the policy's newest weights.

        Args:
            workers: a worker set.
            policy: that learns.
            waiting_bytes: size of the samples that were received and not learned from yet.
        """
        newest = policy.gradient_steps, policy.generation
        if self._synced != newest or any(each.learner.experience_changes_acting for each in trained_policies(policy)):
            workers.sync_weights(policy)
            self._synced = newest
        max_inflight = None
        if self.max_bytes is not None and self.nbytes > 0:
            max_inflight = max(1, int((self.max_bytes - waiting_bytes) / self.nbytes))
        workers.submit_samples(self.per_process, policy.env_steps, max_inflight, self.in_order)

    def next_sample(self, workers: Any) -> SampleReference:
        """The next sample of a worker process; waits for it."""
        sample = workers.next_sample(self.in_order)
        self.nbytes += (SMOOTHING if self._measured else 1.0) * (sample.nbytes - self.nbytes)
        self._measured = True
        return sample

    def has_sample(self, workers: Any) -> bool:
        """Whether `next_sample` would give one without waiting."""
        return workers.has_sample(self.in_order)

    def inflight_bytes(self, workers: Any) -> float:
        """Estimated size of the samples in flight."""
        return workers.inflight_samples * self.nbytes

    def forget_weights(self) -> None:
        """Send the weights with the next request in any case, because the workers may be new."""
        self._synced = None

    def state_dict(self) -> dict[str, Any]:
        """The estimated size of a sample."""
        return {"nbytes": float(self.nbytes), "measured": self._measured}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue with the estimate of `state`."""
        self.nbytes, self._measured = float(state["nbytes"]), bool(state["measured"])
