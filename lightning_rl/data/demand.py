"""What learners that nobody waits for ask their workers: ahead of need, with the newest weights, within bounds."""

from __future__ import annotations

import logging
from typing import Any

from lightning_rl.errors import EnvError
from lightning_rl.rollouts.gather import Receipt

__all__ = ["Demand"]

log = logging.getLogger(__name__)

SMOOTHING = 0.1  # weight of the newest fragments in the estimate of their size


class Demand:
    """What a learner wants of its workers: keeps them asked for fragments, and takes what they have collected.

    Args:
        per_worker: requests that each worker process may have at a time, ≥ 1.
        max_bytes: of all fragments that are asked for or wait to be learned from; `None`: any number. One request is
            always allowed.
        in_order: take fragments in the order in which they were asked for, instead of as they come.
        nbytes: what one request is thought to bring, until the first has come.

    Attributes:
        nbytes: what one request brings: measured, and smoothed.
    """

    def __init__(
        self, per_worker: int, *, max_bytes: float | None = None, in_order: bool = False, nbytes: float = 0.0
    ) -> None:
        self.per_worker, self.max_bytes, self.in_order, self.nbytes = per_worker, max_bytes, in_order, nbytes
        self._measured = False
        self._sent: int | None = None  # gradient steps of the weights that the workers have

    def send(self, workers: Any, policy: Any, waiting: float = 0.0) -> None:
        """Ask for what may be asked for now, with the policy's weights of now.

        Args:
            workers: a worker set.
            policy: that learns.
            waiting: bytes of fragments that came and were not learned from yet.
        """
        if self._sent != policy.gradient_steps or policy.learner.acts_by_experience:
            workers.sync_weights(policy)
            self._sent = policy.gradient_steps
        most = None
        if self.max_bytes is not None and self.nbytes > 0:
            most = max(1, int((self.max_bytes - waiting) / self.nbytes))
        workers.request(self.per_worker, policy.env_steps, most, self.in_order)

    def receive(self, workers: Any) -> Receipt:
        """What a worker process has collected; waits for it."""
        receipt = workers.receive(self.in_order)
        self.nbytes += (SMOOTHING if self._measured else 1.0) * (receipt.nbytes - self.nbytes)
        self._measured = True
        return receipt

    def has_ready(self, workers: Any) -> bool:
        """Whether `receive` would not wait."""
        return workers.has_ready(self.in_order)

    def outstanding(self, workers: Any) -> float:
        """Bytes that are asked for and not received."""
        return workers.requested * self.nbytes

    def drain(self, workers: Any) -> None:
        """Wait for all that is asked for and let it go, with its episodes: the next request finds fresh workers."""
        try:
            workers.settle()
        except (EnvError, KeyboardInterrupt) as error:
            # A checkpoint is being written: one whose workers are not quite those of this run is better than none.
            log.warning("what the workers were asked for is let go without waiting for it: %s", error)
        workers.get_metrics()
        workers.forget()
        self.start_again()

    def start_again(self) -> None:
        """The workers are others than before, or know nothing: send the weights with the next request."""
        self._sent = None

    def state_dict(self) -> dict[str, Any]:
        """The estimate."""
        return {"nbytes": float(self.nbytes), "measured": self._measured}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue with the estimate of `state`."""
        self.nbytes, self._measured = float(state["nbytes"]), bool(state["measured"])
