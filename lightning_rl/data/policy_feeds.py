"""What each policy of several agents learns from: its own fragments, or draws from a replay buffer of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Self

import torch

from lightning_rl.data.device_transfer import to_device
from lightning_rl.data.plans import NOT_READY
from lightning_rl.data.replay_datamodule import Draw, ReplayDataModule
from lightning_rl.sample_batch import MultiAgentBatch, SampleBatch

__all__ = ["PolicyFeeds", "policies_in", "trained_policies"]


class FragmentDraws:
    """The draws of one iteration for one policy: iterating stores its fragment and takes the steps that are due then.

    Args:
        replay: the buffer, and how many gradient steps are due.
        fragment: of the policy.
    """

    def __init__(self, replay: ReplayDataModule, fragment: SampleBatch) -> None:
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

    def update_priorities(self, batch: SampleBatch) -> None:
        """Set the priorities of a drawn batch's rows by its TD errors."""
        self.replay.update_priorities(batch)


class PolicyFeeds:
    """Gives the policies that learn from replay a buffer each; the others learn from their fragments.

    Args:
        replays: id of a trained policy that learns from transitions → the DataModule with its buffer and its ratio of
            gradient steps to env steps; it makes no workers.
    """

    def __init__(self, replays: Mapping[str, ReplayDataModule]) -> None:
        self.replays = dict(replays)

    def setup(self, trainer: Any, policy: Any) -> None:
        """Make the buffers, once.

        Args:
            trainer: that trains.
            policy: holds the policies.

        Raises:
            ConfigError: a buffer does not fit into the memory, or its rows do not divide by the ranks.
        """
        for name, replay in self.replays.items():
            replay.trainer, replay.learner_policy = trainer, policy.policies[name]
            if replay.replay is None:
                replay.replay = replay.make_buffer(replay.learner_policy)

    def feed(self, batch: MultiAgentBatch) -> MultiAgentBatch:
        """The batch with draws in place of the fragments of policies that learn from replay.

        It is called before the batch's steps are counted, as the ratio of gradient steps to env steps needs.
        """
        parts: dict[str, Any] = {}
        for name, fragment in batch.policy_batches.items():
            if name not in self.replays:
                parts[name] = fragment
            elif bool(fragment.valid.any()):
                self.replays[name].begin_iteration()
                parts[name] = FragmentDraws(self.replays[name], fragment)
        return FedBatch(parts, batch)

    def metrics(self) -> dict[str, float]:
        """Rows in each buffer and gradient steps on its draws, under the names of the metric registry."""
        found: dict[str, float] = {}
        for name, replay in self.replays.items():
            found[f"replay/{name}/rows"] = float(0 if replay.replay is None else len(replay.replay))
            found[f"replay/{name}/updates"] = float(replay.ratio.taken)
        return found

    def state_dict(self) -> dict[str, Any]:
        """The buffers and ratios, by policy."""
        return {name: replay.state_dict() for name, replay in self.replays.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where the checkpoint was written.

        Raises:
            CheckpointError: a policy's buffer is missing, or of other spaces or another size.
        """
        for name, replay in self.replays.items():
            if name in state:
                replay.load_state_dict(state[name])

    def force_reset(self) -> None:
        """Let the next fragments continue no stored one."""
        for replay in self.replays.values():
            replay.force_reset()


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
