"""What each policy of several agents learns from: its own fragments, or draws from a replay buffer of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Self

import torch
from torch import Tensor

from lightning_rl.data.device_transfer import to_device
from lightning_rl.data.kinds_of_data import kind_of_data
from lightning_rl.data.plans import NOT_READY, Draw
from lightning_rl.distributed import sum_over_ranks
from lightning_rl.errors import ConfigError
from lightning_rl.sample_batch import MultiAgentBatch, SampleBatch, is_fragment

__all__ = ["PolicyFeeds", "policies_in", "trained_policies"]


class FragmentDraws:
    """The draws of one iteration for one policy: iterating stores its fragment and takes the steps that are due then.

    Args:
        replay: the `ReplayDataModule` with the buffer, and how many gradient steps are due.
        fragment: of the policy.
    """

    def __init__(self, replay: Any, fragment: SampleBatch) -> None:
        self.replay, self.fragment = replay, fragment
        self.device = torch.device("cpu")

    def to(self, device: torch.device | str, **keywords: Any) -> Self:
        """Give rows on `device`; Lightning calls this."""
        self.device = torch.device(device)
        return self

    def __iter__(self) -> Iterator[Draw]:
        self.replay.store(self.fragment)
        for draw in self.replay.draws_due():
            if draw is NOT_READY:  # no step is due, or there are fewer rows than one needs
                return
            yield draw if self.device.type == "cpu" else draw._replace(rows=to_device(draw.rows, self.device))

    def update_priorities(self, batch: SampleBatch, td_errors: Tensor) -> None:
        """Set the priorities of a drawn batch's rows by its TD errors."""
        self.replay.update_priorities(batch, td_errors)


class PolicyFeeds:
    """Gives the policies that learn from replay a buffer each; the others learn from their fragments.

    Args:
        replays: id of a policy that learns from transitions → the `ReplayDataModule` with its buffer and its ratio of
            gradient steps to env steps; it makes no workers. The buffer is made when the policy is trained, and an
            entry may be added until then.
    """

    def __init__(self, replays: Mapping[str, Any] | None = None) -> None:
        self.replays = dict(replays or {})
        self._trainer: Any = None
        self._policy: Any = None
        self._saved: dict[str, Any] = {}  # states of buffers that are not made yet, from a checkpoint
        self._stopped_at: dict[str, int] = {}  # env steps of policies that are not trained at present

    def setup(self, trainer: Any, policy: Any) -> None:
        """Make the buffers of trained policies, once.

        Args:
            trainer: that trains.
            policy: holds the policies; or that of a single agent.

        Raises:
            ConfigError: a buffer does not fit into the memory, or its rows do not divide by the ranks.
        """
        self._trainer, self._policy = trainer, policy
        for name in self._replaying():
            self._begin_training(name)

    def feed(self, batch: Any) -> Any:
        """The batch with draws in place of the fragments of policies that learn from replay.

        It is called before the batch's steps are counted, as the ratio of gradient steps to env steps needs.

        Raises:
            ConfigError: a policy in training learns from replayed transitions, and has no buffer.
        """
        if not isinstance(batch, MultiAgentBatch) or not hasattr(self._policy, "policies_to_train"):
            if _needs_replay(self._policy, batch):
                raise ConfigError(
                    f"{type(self._policy).__name__} learns from replayed transitions, and got a rollout: use a "
                    "ReplayDataModule (data=replay)"
                )
            return batch
        replaying = self._replaying()
        for name in replaying:
            self._begin_training(name)
        for name in self.replays.keys() & set(self._policy.policies) - set(replaying):
            self._stopped_at[name] = self._policy.policies[name].env_steps
        parts: dict[str, Any] = {}
        for name, part in batch.policy_batches.items():
            if name not in replaying:
                self._check_learns_from(name, part)
                parts[name] = part
            elif sum_over_ranks(int(part.valid.any())):  # the same on every rank, as all take the same steps
                self.replays[name].begin_iteration()
                parts[name] = FragmentDraws(self.replays[name], part)
        return FedBatch(parts, batch) if replaying else batch

    def _replaying(self) -> list[str]:
        """The policies in training that have a buffer."""
        return [name for name in getattr(self._policy, "policies_to_train", ()) if name in self.replays]

    def _begin_training(self, name: str) -> None:
        """Make a policy's buffer, if it has none yet; go on without the env steps in which it was not trained."""
        replay = self.replays[name]
        replay.trainer, replay.learner_policy = self._trainer, self._policy.policies[name]
        replay.rows_differ_by_rank = True  # an agent may act on one rank, and not on another
        if replay.replay is None:
            replay.replay = replay.make_buffer(replay.learner_policy)
            if name in self._saved:
                replay.load_state_dict(self._saved.pop(name))
        if name in self._stopped_at:
            replay.ratio.offset += replay.learner_policy.env_steps - self._stopped_at.pop(name)
            replay.force_reset()

    def _check_learns_from(self, name: str, part: Any) -> None:
        if name in self._policy.policies_to_train and _needs_replay(policy := self._policy.policies[name], part):
            raise ConfigError(
                f"policy {name!r}, a {type(policy).__name__}, learns from replayed transitions and has no buffer: give "
                f"it one by datamodule.policy_feeds.replays[{name!r}] = ReplayDataModule(env), or leave it out of "
                "policies_to_train"
            )

    def metrics(self) -> dict[str, float]:
        """Rows in each buffer and gradient steps on its draws, under the names of the metric registry."""
        found: dict[str, float] = {}
        for name, replay in self._made().items():
            found[f"replay/{name}/rows"] = float(len(replay.replay))
            found[f"replay/{name}/updates"] = float(replay.ratio.taken)
        return found

    def state_dict(self) -> dict[str, Any]:
        """The buffers and ratios, by policy."""
        return {**self._saved, **{name: replay.state_dict() for name, replay in self._made().items()}}

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
        for replay in self.replays.values():
            replay.force_reset()

    def _made(self) -> dict[str, Any]:
        """The entries whose buffers are made."""
        return {name: replay for name, replay in self.replays.items() if replay.replay is not None}


class FedBatch(MultiAgentBatch):
    """A multi-agent batch some of whose parts are draws from replay buffers.

    Args:
        parts: policy id → what it learns from.
        fragments: the batch that the workers gave.
    """

    __slots__ = ("_agent_steps",)

    def __init__(self, parts: Mapping[str, Any], fragments: MultiAgentBatch) -> None:
        super().__init__(parts, fragments.env_steps, fragments.num_envs)
        self._agent_steps = fragments.agent_steps

    @property
    def agent_steps(self) -> int:
        """Rows of experience that the workers gave, over all policies."""
        return self._agent_steps

    @property
    def fragments(self) -> MultiAgentBatch:
        """The batch that the workers gave, on the device of this one."""
        parts = {
            name: to_device(part.fragment, part.device) if isinstance(part, FragmentDraws) else part
            for name, part in self.policy_batches.items()
        }
        return MultiAgentBatch(parts, self.env_steps, self.num_envs)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> FedBatch:
        """Fragments on `device`; draws come there when they are taken."""
        return FedBatch(
            {name: part.to(device, non_blocking=non_blocking) for name, part in self.policy_batches.items()}, self
        )


def trained_policies(policy: Any) -> list[Any]:
    """The policies that learn among those that a policy of several agents holds, or the policy itself."""
    trained = getattr(policy, "policies_to_train", None)
    return [policy] if trained is None else [policy.policies[policy_id] for policy_id in trained]


def policies_in(policy: Any) -> list[Any]:
    """The policies that a policy of several agents holds, or the policy itself."""
    return [*policy.policies.values()] if hasattr(policy, "policies") else [policy]


def _needs_replay(policy: Any, batch: Any) -> bool:
    """Whether the policy learns from replayed transitions, and the batch is a rollout fragment."""
    return kind_of_data(type(policy)) == "transitions" and isinstance(batch, SampleBatch) and is_fragment(batch)
