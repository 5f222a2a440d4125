"""Classic verbs of learning in two steps: load a batch once, learn on parts of it; or learn on what a buffer draws."""

from __future__ import annotations

from typing import Any

import torch

from lightning_rl.distributed import sum_over_ranks
from lightning_rl.errors import ConfigError
from lightning_rl.policies.learning import Learning
from lightning_rl.policies.metrics import means
from lightning_rl.sample_batch import SampleBatch, env_steps, is_fragment

__all__ = ["LoadedBatches"]


class LoadedBatches(Learning):
    """For loops written by hand, alone or with RLlib's; `Policy.training_step` does not use these."""

    def load_batch_into_buffer(self, batch: SampleBatch, buffer_index: int = 0) -> int:
        """Keep the rows of a fragment (or postprocessed rows) on this policy's device, in place of those before.

        Its steps are counted and running statistics take it in, here and not when it is learned from.

        Args:
            batch: as `learn_on_batch` takes it.
            buffer_index: under which number it is kept.

        Returns:
            How many rows there are.
        """
        fragment = is_fragment(batch)
        if fragment or not self.off_policy:  # rows that were replayed have been counted when they came
            self.env_steps += sum_over_ranks(env_steps(batch))
        if not self.learns_alone:
            self._begin_iteration()
        rows = self._rows(batch).to(self.device)
        if fragment and not self.learns_alone:
            self._watch(rows)
        self.iterations += 1
        self.__dict__.setdefault("_loaded", {})[buffer_index] = rows
        return rows.count

    def get_num_samples_loaded_into_buffer(self, buffer_index: int = 0) -> int:
        """Rows that `load_batch_into_buffer` keeps under this number."""
        rows = self.__dict__.get("_loaded", {}).get(buffer_index)
        return 0 if rows is None else rows.count

    def learn_on_loaded_batch(self, offset: int = 0, buffer_index: int = 0) -> dict[str, float]:
        """One gradient step on loaded rows: one of `minibatches` equal parts of them, from row `offset` on.

        Sequences are learned from all at once.

        Returns:
            The step's metrics.

        Raises:
            ConfigError: nothing is loaded there, or there is no such row.
            NonFiniteError: as `learn_on_batch`.
        """
        count = self.get_num_samples_loaded_into_buffer(buffer_index)
        if not count:
            raise ConfigError(f"buffer_index={buffer_index} holds no rows: call load_batch_into_buffer first")
        rows: SampleBatch = self.__dict__["_loaded"][buffer_index]
        last = 0 if "seq_lens" in rows else count - 1
        if not 0 <= offset <= last:
            raise ConfigError(
                f"offset={offset} in {count} loaded rows{' of sequences' * (not last)}; expected ≤ {last}"
            )
        part = rows if "seq_lens" in rows else rows[offset : offset + -(-count // self.minibatch_count(rows))]
        if self.learns_alone:
            return self.learn_on_batch(part)
        self.train()
        self.diagnosing = True
        self.optimiser.set_lr(self.env_steps)
        return means([self.descended(*self.total_loss(part))])

    def learn_on_batch_from_replay_buffer(self, replay_actor: Any, policy_id: str = "default_policy") -> dict[str, Any]:
        """Learn on what a replay buffer draws, and tell it the rows' TD errors.

        Args:
            replay_actor: a `LocalReplayBuffer`, or the Ray actor of one.
            policy_id: whose rows.

        Returns:
            Metrics; none while the buffer gives nothing.

        Raises:
            ConfigError: the buffer has no rows of that policy.
        """
        remote = hasattr(replay_actor.replay, "remote")
        # An object reference gives its value by itself: Ray is imported by nobody who does not ask for it.
        batch = replay_actor.replay.remote(policy_id).future().result() if remote else replay_actor.replay(policy_id)
        if batch is None:
            return {}
        batch = batch.to(self.device)
        result = self.learn_on_batch(batch)
        if "weights" in batch and "td_errors" in batch:
            errors = {policy_id: (batch.batch_indexes.cpu(), torch.as_tensor(batch["td_errors"]).cpu())}
            update = replay_actor.update_priorities
            (update.remote if remote else update)(errors)
        return result
