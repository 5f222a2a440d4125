"""A replay buffer in shards: each stores rows, draws batches ahead of need, and updates priorities, meanwhile."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lightning_rl.errors import CheckpointError
from lightning_rl.replay.buffer import ReplayBuffer
from lightning_rl.replay.prioritized import PrioritizedReplayBuffer, to_numpy
from lightning_rl.rollouts.worker_results import as_writable
from lightning_rl.sample_batch import SampleBatch
from lightning_rl.seeding import derive_seed

__all__ = ["ReplayShard", "ReplayShards"]

MAX_INFLIGHT = 16  # updates that a shard has not done yet; more would fill the memory with fragments


class ReplayShard:
    """One shard: a buffer, and the methods that `ReplayShards` calls, in this process or in one of its own.

    Args:
        buffer: an empty one.
    """

    def __init__(self, buffer: ReplayBuffer) -> None:
        self.buffer = buffer

    def add(self, fragments: Sequence[SampleBatch]) -> int:
        """Store fragments `[T, B, …]`, as tensors or arrays.

        No fragment continues the one before it, which may be another worker's.

        Returns:
            Rows (or sequences) that can be drawn from now on.
        """
        for fragment in fragments:
            self.buffer.mark_discontinuity()
            self.buffer.add(fragment.torch())
        return len(self.buffer)

    def draw(self, batch_size: int, seed: int, env_steps: int) -> SampleBatch | None:
        """A batch as arrays; `None` while the shard has fewer rows.

        Args:
            batch_size: rows (of sequences: sequences).
            seed: the seed of the draw.
            env_steps: the number of env steps of the run so far, which β follows.
        """
        if len(self.buffer) < batch_size:
            return None
        self.buffer.env_steps = env_steps
        return self.buffer.sample(batch_size, np.random.default_rng(seed)).numpy()

    def update_priorities(self, batch_indexes: np.ndarray, td_errors: np.ndarray) -> int:
        """Set priorities by the TD errors of rows `[N]`; returns how many of the rows have been overwritten."""
        if not isinstance(self.buffer, PrioritizedReplayBuffer):
            return 0
        return self.buffer.update_priorities(batch_indexes, td_errors)

    def state_dict(self) -> dict[str, Any]:
        """Everything that is stored."""
        return self.buffer.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> int:
        """Continue from `state`; returns the rows (or sequences) that can be drawn."""
        self.buffer.load_state_dict(state)
        return len(self.buffer)


class ReplayShards:
    """All shards as one buffer. Fragments go to the shards in turn, and batches come from them in turn.

    Each shard draws `ahead` batches before they are needed, by the priorities at that time. "batch_indexes" are those
    of the shard times the number of shards, plus the number of the shard.

    Args:
        shards: objects of `ReplayShard` (`make_objects`).
        batch_size: rows of a batch.
        ahead: draws in flight in each shard; 0 draws a batch when it is needed, so that nothing is ever in flight.
        seed: the seed of the draws.

    Attributes:
        late_updates: priorities that came for overwritten rows, as far as the shards have reported.
    """

    def __init__(self, shards: Sequence[Any], batch_size: int, *, ahead: int = 2, seed: int = 0) -> None:
        self.shards, self.batch_size, self.ahead, self.seed = list(shards), batch_size, ahead, seed
        self.late_updates = self._added = self._submitted = 0
        self._rows = [0] * len(self.shards)
        self._draws: deque[tuple[int, Any]] = deque()
        self._updates: list[deque[tuple[str, Any]]] = [deque() for _ in self.shards]

    def __len__(self) -> int:
        """Rows (or sequences) that can be drawn, as far as the shards have reported."""
        return sum(self._rows)

    def add(self, fragments: Any) -> None:
        """Send a list of fragments, or a reference to one, to the next shard; without waiting."""
        self._submit(self._added % len(self.shards), "add", fragments)
        self._added += 1

    def sample(self, env_steps: int) -> SampleBatch | None:
        """The batch whose draw was submitted first; `None` while the shards have too few rows.

        Args:
            env_steps: the number of env steps of the run so far, for the draws that are submitted now.
        """
        for _ in range(max(1, self.ahead) * len(self.shards)):
            self._submit_draws(env_steps, least=1)
            shard, future = self._draws.popleft()
            arrays = future.result()
            self._submit_draws(env_steps)
            if arrays is not None:
                batch = as_writable(arrays)
                batch["batch_indexes"] = batch.batch_indexes * len(self.shards) + shard
                return batch
        return None

    def update_priorities(self, batch_indexes: Any, td_errors: Any) -> None:
        """Set the priorities of one batch's rows by their TD errors; without waiting."""
        indexes, shard = np.divmod(to_numpy(batch_indexes), len(self.shards))
        self._submit(int(shard[0]), "update_priorities", indexes, to_numpy(td_errors))

    def discard_draws(self) -> None:
        """Discard the draws in flight."""
        self._draws.clear()

    def state_dict(self) -> dict[str, Any]:
        """The states of all shards, after everything that was submitted so far."""
        futures = [shard.submit("state_dict") for shard in self.shards]
        states = [future.result() for future in futures]
        for shard in range(len(self.shards)):
            self._take_results(shard, 0)
        return {"shards": states, "added": self._added, "asked": self._submitted, "late_updates": self.late_updates}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state`.

        Raises:
            CheckpointError: it has another number of shards, or one is of another size or kind.
        """
        if len(state["shards"]) != len(self.shards):
            raise CheckpointError(
                f"the checkpoint's replay buffer has {len(state['shards'])} shards, this one {len(self.shards)}: set "
                "data.num_shards to the former, or start without the buffer"
            )
        self.discard_draws()
        pairs = zip(self.shards, state["shards"], strict=True)
        futures = [shard.submit("load_state_dict", saved) for shard, saved in pairs]
        self._rows = [future.result() for future in futures]
        self._added, self._submitted = int(state["added"]), int(state["asked"])
        self.late_updates = int(state["late_updates"])

    def stop(self) -> None:
        """End the shards' processes; safe to call again."""
        self.discard_draws()
        for updates in self._updates:
            updates.clear()
        for shard in self.shards:
            shard.stop()

    def _submit_draws(self, env_steps: int, least: int = 0) -> None:
        while len(self._draws) < max(least, self.ahead * len(self.shards)):
            shard, seed = self._submitted % len(self.shards), derive_seed(self.seed, "replay", self._submitted)
            self._draws.append((shard, self.shards[shard].submit("draw", self.batch_size, seed, env_steps)))
            self._submitted += 1

    def _submit(self, shard: int, method: str, *arguments: Any) -> None:
        self._updates[shard].append((method, self.shards[shard].submit(method, *arguments)))
        self._take_results(shard, MAX_INFLIGHT)

    def _take_results(self, shard: int, max_inflight: int) -> None:
        """Take the results of a shard's updates that are done; wait while more than `max_inflight` are not."""
        updates = self._updates[shard]
        while updates and (len(updates) > max_inflight or updates[0][1].done()):
            method, future = updates.popleft()
            if method == "add":
                self._rows[shard] = future.result()
            else:
                self.late_updates += future.result()
