"""The actors of a group: one network for each member, which sees that member's observation and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from gymnasium import Space
from torch import Tensor, nn

from lightning_rl.models.model import InputDict, Model
from lightning_rl.models.preprocessors import NestedPreprocessor
from lightning_rl.sample_batch import SampleBatch
from lightning_rl.spaces import GroupMembers

__all__ = ["GroupActors"]


class GroupActors(Model):
    """Decentralised actors: outputs `[N, K₁ + … + Kₙ]` of n networks, each of its own member's observation.

    Args:
        obs_space, action_space: the spaces of the group.
        members: parts of the group's spaces, one per member.
        widths: width K of each member's outputs.
        make_actor: function that creates a member's network from its spaces and K.
        images: paths of the parts of the group's observation that are images, which "obs_flat" leaves out.

    Attributes:
        actors: the members' networks.
    """

    def __init__(
        self,
        obs_space: Space[Any],
        action_space: Space[Any],
        members: GroupMembers,
        widths: Sequence[int],
        make_actor: Callable[[Space[Any], Space[Any], int], Model],
        images: Sequence[str] = (),
    ) -> None:
        preprocessor = NestedPreprocessor(obs_space, skipped=images)
        super().__init__(obs_space, action_space, sum(widths), preprocessor=preprocessor)
        self.members, self.widths = members, list(widths)
        each = zip(members.observations, members.actions, widths, strict=True)
        self.actors = nn.ModuleList([make_actor(*spaces_and_width) for spaces_and_width in each])
        self._networks: list[Any] = list(self.actors)
        self._columns = [_columns(preprocessor, members.path(number)) for number in range(len(members))]
        self.forbids_actions = any(actor.forbids_actions for actor in self._networks)

    def forward(
        self, input_dict: Mapping[str, Any], state: Sequence[Tensor] = (), seq_lens: Tensor | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        """Outputs of all members side by side."""
        outputs = [actor(self.inputs(input_dict, number), (), None)[0] for number, actor in enumerate(self._networks)]
        return torch.cat(outputs, dim=1), list(state)

    def inputs(self, input_dict: Mapping[str, Any], member: int) -> InputDict:
        """The inputs of a member's network: its own observation, in "obs" and in "obs_flat"."""
        columns = self._columns[member]
        return InputDict(
            lambda _: input_dict["obs_flat"][:, columns],
            obs=self.members.of(input_dict["obs"], member),
            is_training=input_dict["is_training"],
            prev_actions=None,
            prev_rewards=None,
        )

    def custom_loss(self, policy_loss: Tensor, loss_inputs: SampleBatch) -> Tensor | list[Tensor]:
        """The custom losses of all members' networks, each of the loss before it and of its own member's rows."""
        for number, actor in enumerate(self._networks):
            custom = actor.loss_with_custom(policy_loss, self._rows_of(loss_inputs, number))
            policy_loss = sum(custom[1:], custom[0]) if isinstance(custom, list | tuple) else custom
        return policy_loss

    def _rows_of(self, rows: SampleBatch, member: int) -> SampleBatch:
        """The group's rows with the observations and actions of one member."""
        own = rows.copy()
        for name in ("obs", "next_obs"):
            if name in own:
                own[name] = self.members.of(own[name], member)
        actions: Any = own.actions
        own["actions"] = actions[str(member)]
        return own

    def metrics(self) -> dict[str, Tensor | float]:
        """The metrics of the members' networks, as "0/name", "1/name", …."""
        each = enumerate(actor.metrics() for actor in self._networks)
        return {f"{number}/{name}": value for number, metrics in each for name, value in metrics.items()}

    def get_initial_state(self) -> list[Tensor]:
        """The states of the members' networks, if they have memory."""
        return [part for actor in self._networks for part in actor.get_initial_state()]


def _columns(preprocessor: NestedPreprocessor, path: str) -> slice:
    """The columns of "obs_flat" with the part of an observation that has this path."""
    start, sizes = 0, []
    for leaf, part in preprocessor.parts.items():
        if leaf == path or leaf.startswith(f"{path}."):
            sizes.append(part.size)
        elif not sizes:
            start += part.size
    return slice(start, start + sum(sizes))
