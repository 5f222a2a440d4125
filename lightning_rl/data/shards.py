"""A replay buffer in shards that are asked ahead: rows come in, batches are drawn and priorities go back meanwhile."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lightning_rl.errors import CheckpointError
from lightning_rl.replay.buffer import ReplayBuffer
from lightning_rl.replay.prioritized import PrioritizedReplayBuffer, to_numpy
from lightning_rl.rollouts.gather import owned
from lightning_rl.sample_batch import SampleBatch
from lightning_rl.seeding import derive_seed

__all__ = ["ReplayShard", "ReplayShards"]

UNANSWERED = 16  # requests to a shard that may wait for their turn; more would fill the memory with fragments


class ReplayShard:
    """One shard: a buffer, and the verbs that `ReplayShards` asks it for, in this process or in its own.

    Args:
        buffer: an empty one.
    """

    def __init__(self, buffer: ReplayBuffer) -> None:
        self.buffer = buffer

    def add(self, fragments: Sequence[SampleBatch]) -> int:
        """Store fragments `[T, B, …]`, as tensors or arrays, one after the other; how much can be drawn from now on.

        Each is one of its own: the one before it may be another worker's.
        """
        for fragment in fragments:
            self.buffer.mark_discontinuity()
            self.buffer.add(fragment.torch())
        return len(self.buffer)

    def draw(self, batch_size: int, seed: int, env_steps: int) -> SampleBatch | None:
        """A batch as arrays; `None` while there are fewer rows.

        Args:
            batch_size: rows (of sequences: sequences).
            seed: of the draw.
            env_steps: of the run so far, which β follows.
        """
        if len(self.buffer) < batch_size:
            return None
        if isinstance(self.buffer, PrioritizedReplayBuffer):
            self.buffer.env_steps = env_steps
        return self.buffer.sample(batch_size, np.random.default_rng(seed)).numpy()

    def update_priorities(self, batch_indexes: np.ndarray, td_errors: np.ndarray) -> int:
        """Rows `[N]` have these TD errors; how many of the rows have been overwritten."""
        if not isinstance(self.buffer, PrioritizedReplayBuffer):
            return 0
        return self.buffer.update_priorities(batch_indexes, td_errors)

    def state_dict(self) -> dict[str, Any]:
        """Everything that is stored."""
        return self.buffer.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> int:
        """Continue from `state`; how much can be drawn."""
        self.buffer.load_state_dict(state)
        return len(self.buffer)


class ReplayShards:
    """All shards as one buffer. Fragments go to them in turn, and batches come from them in turn.

    Each shard has `ahead` batches drawn before they are wanted, by the priorities of then. "batch_indexes" are those of
    the shard times the number of shards, plus the shard.

    Args:
        shards: services of `ReplayShard`.
        batch_size: rows of a batch.
        ahead: batches asked for before they are wanted, in each shard.
        seed: of the draws.

    Attributes:
        late_updates: priorities that came for rows which were overwritten, as far as the shards have told.
    """

    def __init__(self, shards: Sequence[Any], batch_size: int, *, ahead: int = 2, seed: int = 0) -> None:
        self.shards, self.batch_size, self.ahead, self.seed = list(shards), batch_size, ahead, seed
        self.late_updates = self._added = self._asked = 0
        self._rows = [0] * len(self.shards)
        self._draws: deque[tuple[int, Any]] = deque()
        self._unanswered: list[deque[tuple[str, Any]]] = [deque() for _ in self.shards]

    def __len__(self) -> int:
        """Rows (or sequences) that can be drawn, as far as the shards have told."""
        return sum(self._rows)

    def add(self, fragments: Any) -> None:
        """Give a list of fragments, or what stands for one in another process, to the next shard; without waiting."""
        self._tell(self._added % len(self.shards), "add", fragments)
        self._added += 1

    def sample(self, env_steps: int) -> SampleBatch | None:
        """The batch that was asked for first; `None` while the shards have too few rows.

        Args:
            env_steps: of the run so far, for the batches that are asked for now.
        """
        self._ask_ahead(env_steps)
        for _ in range(len(self._draws)):
            shard, answer = self._draws.popleft()
            arrays = answer.result()
            self._ask_ahead(env_steps)
            if arrays is not None:
                batch = owned(arrays)
                batch["batch_indexes"] = batch.batch_indexes * len(self.shards) + shard
                return batch
        return None

    def update_priorities(self, batch_indexes: Any, td_errors: Any) -> None:
        """The rows of one batch have these TD errors; without waiting."""
        indexes, shard = np.divmod(to_numpy(batch_indexes), len(self.shards))
        self._tell(int(shard[0]), "update_priorities", indexes, to_numpy(td_errors))

    def mark_discontinuity(self) -> None:
        """Nothing: here each fragment continues no other one anyway."""

    def forget_draws(self) -> None:
        """Let the batches go that were asked for ahead."""
        self._draws.clear()

    def state_dict(self) -> dict[str, Any]:
        """All shards, after everything that they were told so far."""
        answers = [shard.ask("state_dict") for shard in self.shards]
        states = [answer.result() for answer in answers]
        for shard in range(len(self.shards)):
            self._listen(shard, 0)
        return {"shards": states, "added": self._added, "asked": self._asked, "late_updates": self.late_updates}

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
        self.forget_draws()
        pairs = zip(self.shards, state["shards"], strict=True)
        answers = [shard.ask("load_state_dict", saved) for shard, saved in pairs]
        self._rows = [answer.result() for answer in answers]
        self._added, self._asked = int(state["added"]), int(state["asked"])
        self.late_updates = int(state["late_updates"])

    def stop(self) -> None:
        """End the shards' processes; safe to call again."""
        self.forget_draws()
        for unanswered in self._unanswered:
            unanswered.clear()
        for shard in self.shards:
            shard.stop()

    def _ask_ahead(self, env_steps: int) -> None:
        while len(self._draws) < self.ahead * len(self.shards):
            shard, seed = self._asked % len(self.shards), derive_seed(self.seed, "replay", self._asked)
            self._draws.append((shard, self.shards[shard].ask("draw", self.batch_size, seed, env_steps)))
            self._asked += 1

    def _tell(self, shard: int, method: str, *arguments: Any) -> None:
        self._unanswered[shard].append((method, self.shards[shard].ask(method, *arguments)))
        self._listen(shard, UNANSWERED)

    def _listen(self, shard: int, most: int) -> None:
        """Take the answers that a shard has given; wait where more than `most` are missing."""
        unanswered = self._unanswered[shard]
        while unanswered and (len(unanswered) > most or unanswered[0][1].ready):
            method, answer = unanswered.popleft()
            if method == "add":
                self._rows[shard] = answer.result()
            else:
                self.late_updates += answer.result()
