"""Prioritized replay: rows with a large TD error are sampled more often, and importance weights correct for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from lightning_rl.errors import CheckpointError, NonFiniteError
from lightning_rl.replay.buffer import ReplayBuffer
from lightning_rl.replay.priorities import Proportional, Ranked
from lightning_rl.replay.sum_tree import SumTree
from lightning_rl.sample_batch import SampleBatch
from lightning_rl.schedules import schedule_value
from lightning_rl.schema.ranges import Positive, Probability, ProbabilitySchedule
from lightning_rl.schema.signatures import check_keywords

__all__ = ["PrioritizedReplayBuffer"]


class PrioritizedReplayBuffer(ReplayBuffer):
    """A ring buffer of transitions sampled by their TD errors. Schaul et al. 2016, arXiv:1511.05952.

    Sampling is stratified (appendix B.2.1): a batch of N takes one row from each N-th of the total priority, so rows
    are ordered by slot. New rows have the largest priority so far, or that of the TD errors in the fragment's column
    "priorities" `[T, B]`, if workers computed them.

    Args:
        capacity, keywords: see `ReplayBuffer`.
        alpha: exponent of the priorities, in [0, 1]; 0 samples uniformly.
        beta: exponent of the importance weights, in [0, 1]; 1 corrects the bias fully; a schedule over `env_steps`.
        eps: added to every |δ|, > 0, so that rows without error are drawn as well.
        ranked: sample by 1 / rank of the error instead of by its size.

    Raises:
        ConfigError: a number is out of range.
    """

    @check_keywords("data")
    def __init__(
        self,
        capacity: int,
        *,
        alpha: Probability = 0.6,
        beta: ProbabilitySchedule = 0.4,
        eps: Positive = 1e-6,
        ranked: bool = False,
        **keywords: Any,
    ) -> None:
        super().__init__(capacity, **keywords)
        self.alpha, self.beta, self.eps, self.ranked = alpha, beta, eps, ranked
        self.late_updates = 0
        self._tree: SumTree | None = None
        self._priorities: Proportional | Ranked = Proportional(alpha, eps)
        self._drawn: tuple[Any, ...] = (None, None, None)  # batch_indexes, slots and heads of the last sample

    # -- priorities ---------------------------------------------------------------------------------------------------
    def update_priorities(self, batch_indexes: Tensor | np.ndarray, td_errors: Tensor | np.ndarray) -> int:
        """Set the priorities of the rows `batch_indexes [N]` from their `td_errors [N]`, whose sign is ignored.

        If a row occurs twice, its last error counts. Rows that were overwritten since they were sampled are skipped.

        Returns:
            Number of skipped rows.

        Raises:
            NonFiniteError: an error is NaN or infinite; no priority has changed then.
            ValueError: there are not as many errors as rows.
        """
        errors = np.abs(to_numpy(td_errors), dtype=np.float64)
        if batch_indexes.shape != errors.shape or errors.ndim != 1:
            raise ValueError(
                f"{list(errors.shape)} TD errors for {list(batch_indexes.shape)} rows; expected one [N] for each"
            )
        if not len(errors):
            return 0
        if not errors.max() < np.inf:  # false for NaN as well
            check_errors(errors, "TD error")
        indexes, slots, heads = self._drawn
        late = 0
        # In a plain training loop these are the rows of the last sample.
        if batch_indexes is not indexes or heads is not self._ring().heads:
            slots, current = self._ring().locate(to_numpy(batch_indexes))
            late = len(slots) - int(np.count_nonzero(current))
            slots, errors = slots[current], errors[current]
            self.late_updates += late
        if len(slots):
            self._priorities.update(self.tree, slots, errors)
        return late

    @property
    def tree(self) -> SumTree:
        """The priorities of all slots; 0 for slots that cannot be drawn."""
        if self._tree is None:
            self._tree = SumTree(self.slots)
            if self.ranked:
                self._priorities = Ranked(self.alpha, self.slots)
        return self._tree

    def stats(self) -> dict[str, float]:
        """Numbers of the ring, the sum of all priorities, and the number of updates of overwritten rows."""
        total = 0.0 if self._tree is None else self._tree.total
        return {**super().stats(), "total_priority": total, "late_updates": float(self.late_updates)}

    # -- adding and drawing -------------------------------------------------------------------------------------------
    def add(self, fragment: SampleBatch) -> None:
        """Store the steps of a rollout fragment.

        Raises:
            ConfigError: see `ReplayBuffer.add`.
            NonFiniteError, ValueError: a priority computed by a worker is NaN, infinite or negative; nothing of the
                fragment is stored then.
        """
        if "priorities" in fragment:
            check_errors(to_numpy(fragment["priorities"])[to_numpy(fragment.valid)], "priority of a new row")
        super().add(fragment)

    def sample(self, batch_size: int, generator: np.random.Generator | None = None) -> SampleBatch:
        """Sample rows by priority, otherwise as `ReplayBuffer.sample`; adds "weights", importance weights ≤ 1."""
        batch = super().sample(batch_size, generator)
        self._drawn = batch.batch_indexes, self._drawn[1], self._ring().heads
        return batch

    def _on_drawable(self, slots: np.ndarray) -> None:
        ring = self._ring()
        if "priorities" not in ring.columns:
            self._priorities.new(self.tree, slots)
            return
        errors = ring.columns.array("priorities").take(slots).astype(np.float64)
        self._priorities.update(self.tree, slots, errors)

    def _on_undrawable(self, slots: np.ndarray) -> None:
        self._priorities.forget(self.tree, slots)

    def _draw(self, batch_size: int, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray | None]:
        """Slots in ascending order, and wᵢ = (N·P(i))^−β divided by the largest of the batch, so that all are ≤ 1.

        This equals (pᵢ / p)^−β with the smallest priority p of the batch: N and the total cancel.
        """
        tree = self.tree
        masses = generator.random(batch_size)
        masses += np.arange(batch_size)
        masses *= tree.total / batch_size
        slots = tree.find(masses)
        self._drawn = None, slots, None
        priorities = tree.get(slots)
        beta = schedule_value(self.beta, self.added if self.env_steps is None else self.env_steps)
        return slots, ((priorities / priorities.min()) ** -beta).astype(np.float32)

    # -- saving -------------------------------------------------------------------------------------------------------
    def state_dict(self) -> dict[str, Any]:
        """The state of the ring, and the priorities."""
        kind = {"alpha": self.alpha, "ranked": self.ranked}
        tree = None if self._tree is None else self._tree.state_dict()
        numbers = {"late_updates": self.late_updates, **kind, "tree": tree, **self._priorities.state_dict()}
        return {**super().state_dict(), "priorities": numbers}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state`: later samples equal those of the saved buffer.

        Raises:
            CheckpointError: the state is from another kind of buffer, or has no priorities or other ones; names both.
        """
        if "priorities" not in state:
            raise CheckpointError(
                "the checkpoint's replay buffer has no priorities: resume with data.prioritized=false, or start again"
            )
        numbers = state["priorities"]
        for name, own in (("alpha", self.alpha), ("ranked", self.ranked)):
            if numbers[name] != own:
                raise CheckpointError(
                    f"the checkpoint's replay buffer has {name}={numbers[name]}, this one {own}: "
                    f"set data.priority_{name} to the former, or start without the buffer"
                )
        super().load_state_dict(state)
        self.late_updates = int(numbers["late_updates"])
        if numbers["tree"] is not None:
            self.tree.load_state_dict(numbers["tree"])
            self._priorities.load_state_dict(numbers)


def to_numpy(values: Tensor | np.ndarray) -> np.ndarray:
    """A tensor of any device as a numpy array."""
    return values.numpy(force=True) if isinstance(values, Tensor) else np.asarray(values)


def check_errors(errors: np.ndarray, name: str) -> None:
    """Raise an error for errors that are not finite.

    Raises:
        NonFiniteError: names the first one.
        ValueError: one is negative.
    """
    if not len(errors) or (errors.min() >= 0.0 and errors.max() < np.inf):  # a NaN passes neither
        return
    wrong = np.flatnonzero(~((errors >= 0.0) & (errors < np.inf)))[0]
    message = f"{name} {wrong} of {len(errors)} is {errors[wrong]}; expected a finite number"
    if errors[wrong] < 0:
        raise ValueError(f"{message} ≥ 0: give the absolute error")
    raise NonFiniteError(f"{message}: look for what diverged in the loss that computed it")
