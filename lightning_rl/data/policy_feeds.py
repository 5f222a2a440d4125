"""What each policy of several agents learns from: its own fragments, or draws from its own replay buffer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from lightning_rl.data.draws import Draws
from lightning_rl.data.replay_feed import ReplayFeed
from lightning_rl.distributed import sum_over_ranks
from lightning_rl.errors import ConfigError
from lightning_rl.sample_batch import Fragment, MultiAgentBatch, SampleBatch, typed

__all__ = ["PolicyFeeds", "trained_policies"]


class PolicyFeeds(dict[str, ReplayFeed]):
    """Policy id → the feed of a policy that learns from replay; the others learn from their fragments.

    A buffer is made when its policy is trained, and an entry may be added until then.

    Args:
        datamodule: that collects the fragments.

    Attributes:
        lockstep: whether all policies draw the rows of the same environment steps, for which their buffers have one
            seed, and hold rows of the same steps in the same places.
    """

    def __init__(self, datamodule: Any) -> None:
        super().__init__()
        self._datamodule, self.lockstep = datamodule, False
        self._policy: Any = None
        self._saved: dict[str, Any] = {}  # states of buffers that are not made yet, from a checkpoint
        self._stopped_at: dict[str, int] = {}  # env steps of policies that are not trained at present

    def prepare(self, policy: Any) -> None:
        """Make the buffers of trained policies, once.

        Args:
            policy: holds the policies; or that of a single agent.

        Raises:
            ConfigError: a buffer does not fit into the memory, or its rows do not divide by the ranks.
        """
        self._policy = policy
        for name in self._replaying():
            self._begin_training(name)

    def feed(self, batch: Any) -> Any:
        """The batch with draws in place of the fragments of policies that learn from replay.

        It is called before the batch's steps are counted, as the ratio of gradient steps to env steps needs.

        Raises:
            ConfigError: a policy in training learns from replayed transitions, and has no buffer; or in lockstep, their
                rows are not of the same steps, or they draw different numbers of them.
        """
        if not isinstance(batch, MultiAgentBatch):
            return batch  # gradients of workers
        replaying = self._replaying()
        for name in replaying:
            self._begin_training(name)
        for name in self.keys() & set(self._policy.policies) - set(replaying):
            self._stopped_at[name] = self._policy.policies[name].env_steps
        if self.lockstep:
            self._check_same_steps({name: batch[name] for name in replaying if name in batch})
        parts: dict[str, Any] = {}
        for name, part in batch.policy_batches.items():
            if name not in replaying:
                self._check_learns_from(name, part)
                parts[name] = part
            elif sum_over_ranks(int(part.valid.any())):  # the same on every rank, as all take the same steps
                parts[name] = Draws(self[name], self[name].store_and_draw(part))
        return FedBatch(parts, batch) if replaying else batch

    def _replaying(self) -> list[str]:
        """The policies in training that have a buffer."""
        return [name for name in self._policy.policies_to_train if name in self]

    def _begin_training(self, name: str) -> None:
        """Make a policy's buffer, if it has none yet; continue without the env steps in which it was not trained."""
        feed, policy = self[name], self._policy.policies[name]
        feed.datamodule, feed.seed = self._datamodule, self._datamodule.seed if self.lockstep else policy.seed
        feed.rows_differ_by_rank = True  # an agent may act on one rank, and not on another
        feed.prepare(policy)
        if name in self._saved:
            feed.load_state_dict(self._saved.pop(name))
        if name in self._stopped_at:
            feed.ratio.offset += policy.env_steps - self._stopped_at.pop(name)
            feed.force_reset()

    def _check_same_steps(self, fragments: Mapping[str, SampleBatch]) -> None:
        """Check that the next draws of the policies with these fragments are of the same environment steps."""
        first, *others = fragments
        expected = self._draws_by(first)
        for name in others:
            if not torch.equal(fragments[name].valid, fragments[first].valid):
                counts = {policy_id: int(part.valid.sum()) for policy_id, part in fragments.items()}
                raise ConfigError(
                    f"policies that draw in lockstep need rows of the same environment steps, and this sample has "
                    f"{counts} rows: their agents have to act and end together, as many of each policy"
                )
            if (found := self._draws_by(name)) != expected or found["data.prioritized"]:
                differ = {key: (expected[key], found[key]) for key in found if found[key] != expected[key]}
                raise ConfigError(
                    f"policies {first!r} and {name!r} cannot draw in lockstep: it needs uniform draws, and the same "
                    f"values for both of {', '.join(expected)}{f'; these differ: {differ}' if differ else ''}"
                )

    def _draws_by(self, name: str) -> dict[str, Any]:
        """What decides which rows a policy draws, beside the seed and which of them are valid."""
        feed = self[name]
        keys = ("capacity", "batch_size", "learning_starts", "update_to_data_ratio", "prioritized", "sequence_length")
        rows = {"iterations": self._policy.policies[name].iterations, "rows that were stored": feed.buffer.added}
        return {f"data.{key}": getattr(feed, key) for key in keys} | rows

    def _check_learns_from(self, name: str, part: Any) -> None:
        policy = self._policy.policies[name] if name in self._policy.policies_to_train else None
        if policy is not None and policy.off_policy and isinstance(typed(part), Fragment):
            raise ConfigError(
                f"policy {name!r}, a {type(policy).__name__}, learns from replayed transitions and has no buffer: give "
                f"it one by datamodule.feeds[{name!r}] = ReplayFeed(), or leave it out of policies_to_train"
            )

    def metrics(self) -> dict[str, float]:
        """Rows in each buffer and gradient steps on its draws, under the names of the metric registry."""
        found: dict[str, float] = {}
        for name, feed in self._made().items():
            found[f"replay/{name}/rows"] = float(len(feed.buffer))
            found[f"replay/{name}/updates"] = float(feed.ratio.taken)
        return found

    def state_dict(self) -> dict[str, Any]:
        """The buffers and ratios, by policy."""
        return {**self._saved, **{name: feed.state_dict() for name, feed in self._made().items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where the checkpoint was written; a buffer that is made later, then.

        Raises:
            CheckpointError: a policy's buffer is missing, or of other spaces or another size.
        """
        made = self._made()
        for name, own in state.items():
            if name in made:
                made[name].load_state_dict(own)
            else:
                self._saved[name] = own

    def force_reset(self) -> None:
        """Let the next fragments continue no stored one."""
        for feed in self.values():
            feed.force_reset()

    def _made(self) -> dict[str, ReplayFeed]:
        """The entries whose buffers are made."""
        return {name: feed for name, feed in self.items() if feed.buffer is not None}


class FedBatch(MultiAgentBatch):
    """A multi-agent batch some of whose parts are draws from replay buffers, or recorded data.

    Args:
        parts: policy id → what it learns from.
        fragments: the batch that the workers gave; no fragments where nothing but recorded data is learned from.
    """

    __slots__ = ("_fragments",)

    def __init__(self, parts: Mapping[str, Any], fragments: MultiAgentBatch) -> None:
        super().__init__(parts, fragments.env_steps, fragments.num_envs)
        self._fragments = fragments

    @property
    def fragments(self) -> MultiAgentBatch:
        """The batch that the workers gave, on the device of this one."""
        return self._fragments

    @property
    def agent_steps(self) -> int:
        """Rows of experience that the workers gave, over all policies."""
        return self._fragments.agent_steps

    def to(self, device: torch.device | str) -> FedBatch:
        """Fragments on `device`; draws come there when they are taken."""
        fragments = self._fragments.to(device)
        parts = {
            name: fragments[name] if part is self._fragments.policy_batches.get(name) else part.to(device)
            for name, part in self.policy_batches.items()
        }
        return FedBatch(parts, fragments)


def trained_policies(policy: Any) -> list[Any]:
    """The policies that learn, in a set or of a single agent."""
    return [policy.policies[policy_id] for policy_id in policy.policies_to_train]
