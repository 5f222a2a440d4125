"""RLlib's methods of policies that nothing else here has: learning on loaded batches, and changes by functions."""

from __future__ import annotations

import sys
from typing import Any

from lightning_rl import policies
from lightning_rl.distributed import sum_over_ranks
from lightning_rl.errors import ConfigError
from lightning_rl.learning.metrics import means
from lightning_rl.rllib.build_policy import build_policy
from lightning_rl.sample_batch import SampleBatch, env_steps, is_fragment

__all__ = ["Policy", "RLlibMethods", "TorchPolicy"]


class RLlibMethods:
    """Put before a policy class, it adds RLlib's methods to it."""

    def load_batch_into_buffer(self: Any, batch: SampleBatch, buffer_index: int = 0) -> int:
        """Keep the rows of a fragment (or postprocessed rows) on this policy's device; returns how many there are.

        Environment steps are counted and running statistics updated here, not in `learn_on_loaded_batch`.
        """
        learner, fragment = self.learner, is_fragment(batch)
        # Replayed rows were counted when they were collected.
        if learner.counts_env_steps and (fragment or not self.off_policy):
            self.env_steps += sum_over_ranks(env_steps(batch))
        learner.enter_training()
        rows = learner.rows_of(batch).to(self.device)
        if fragment:
            self.update_filters(rows)
        self.iterations += 1
        vars(self).setdefault("_loaded", {})[buffer_index] = rows
        return rows.count

    def get_num_samples_loaded_into_buffer(self: Any, buffer_index: int = 0) -> int:
        """Rows that `load_batch_into_buffer` keeps under this number."""
        rows = vars(self).get("_loaded", {}).get(buffer_index)
        return 0 if rows is None else rows.count

    def learn_on_loaded_batch(self: Any, offset: int = 0, buffer_index: int = 0) -> dict[str, float]:
        """One gradient step on loaded rows: one of `minibatches` equal parts of them, from row `offset` on.

        All sequences are learned from at once.

        Raises:
            ConfigError: no rows are loaded under this index, or the offset is out of range.
            NonFiniteError: a loss or gradient is NaN or infinite; no parameter was changed.
        """
        count = self.get_num_samples_loaded_into_buffer(buffer_index)
        if not count:
            raise ConfigError(f"buffer_index={buffer_index} holds no rows: call load_batch_into_buffer first")
        rows, learner = self._loaded[buffer_index], self.learner
        last = 0 if "seq_lens" in rows else count - 1
        if not 0 <= offset <= last:
            raise ConfigError(
                f"offset={offset} in {count} loaded rows{' of sequences' * (not last)}; expected ≤ {last}"
            )
        part = rows if "seq_lens" in rows else rows[offset : offset + -(-count // learner.minibatch_count(rows))]
        if "learn_on_batch" in self.overridden:
            return self.learn_on_batch(part)
        self.train()
        self.log_extra = True
        learner.optimiser.set_lr(self.env_steps)
        return means([learner.step(part)[0]])

    def learn_on_batch_from_replay_buffer(
        self: Any, replay_actor: Any, policy_id: str = "default_policy"
    ) -> dict[str, Any]:
        """Learn from rows that a replay buffer samples, and update their priorities with the TD errors.

        Args:
            replay_actor: a `LocalReplayBuffer`, or the Ray actor of one.
            policy_id: the policy whose rows are sampled.

        Returns:
            Metrics; empty while the buffer samples nothing.

        Raises:
            ConfigError: the buffer has no rows of that policy.
        """
        remote = hasattr(replay_actor.replay, "remote")
        # The object reference's own method gives its value without an import of Ray.
        batch = replay_actor.replay.remote(policy_id).future().result() if remote else replay_actor.replay(policy_id)
        if batch is None:
            return {}
        batch = batch.to(self.device)
        result = self.learn_on_batch(batch)
        if "weights" in batch and self.learner.td_errors is not None:
            errors = {policy_id: (batch.batch_indexes.cpu(), self.learner.td_errors.cpu())}
            update = replay_actor.update_priorities
            (update.remote if remote else update)(errors)
        return result

    @classmethod
    def with_updates(cls, name: str | None = None, **hooks: Any) -> Any:
        """A subclass with some methods replaced by functions: `PPOTorchPolicy.with_updates("Mine", loss_fn=my_loss)`.

        Args:
            name: of the class, `None`: this one's. Assign the class to a variable of that name at a module's top
                level: checkpoints import it.
            hooks: those of `build_policy`.
        """
        caller = sys._getframe(1).f_globals["__name__"]
        return build_policy(name or cls.__name__, base=cls, module=caller, **hooks)  # type: ignore[arg-type]


class Policy(RLlibMethods, policies.ScratchPolicy):
    """The abstract class there has no model either."""


class TorchPolicy(RLlibMethods, policies.Policy):
    """A policy with a model, whose class also has RLlib's methods."""
