"""Q-values of a group's members by one network that they share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor

from lightning_rl.models.catalog import ModelCatalog
from lightning_rl.models.model import InputDict, Model
from lightning_rl.models.model_wrapper import ModelWrapper
from lightning_rl.models.preprocessors import FlattenPreprocessor, Preprocessor
from lightning_rl.models.vision import images_in
from lightning_rl.sample_batch import SampleBatch, map_leaves, row_count
from lightning_rl.spaces.groups import GroupSpaces

__all__ = ["GroupPreprocessor", "GroupQModel"]


class GroupPreprocessor(Preprocessor):
    """The members' vectors side by side, and then the state, if the observations have one: `[N, n · F + S]`.

    Args:
        obs_space: observation space of the group.
        group: parts of the group's spaces.
        member: preprocessor of one member's observation, F wide; `None`: the members' observations, images, are left
            out.
    """

    def __init__(self, obs_space: Space[Any], group: GroupSpaces, member: Preprocessor | None) -> None:
        self.group, self.member = group, member
        self.members_size = 0 if member is None else group.size * member.size
        """Width of the members' part."""
        self.state = None if group.state is None else FlattenPreprocessor(group.state)
        super().__init__(obs_space)

    def _init_shape(self, obs_space: Space[Any], options: dict[str, Any]) -> tuple[int, ...]:
        return (self.members_size + (0 if self.state is None else self.state.size),)

    def transform_batch(self, obs: Any) -> Tensor:
        """Observations of groups `[N, *]`, nested as the space is → float32 `[N, size]`."""
        parts = []
        if self.member is not None:
            members = map_leaves(_join_members, self.group.members(obs))  # [N·n, *]
            parts.append(self.member.transform_batch(members).view(-1, self.members_size))
        if self.state is not None:
            parts.append(self.state.transform_batch(obs["state"]))
        return torch.cat(parts, dim=1) if len(parts) > 1 else parts[0]


class GroupQModel(ModelWrapper):
    """Q-values `[N, n · A]` of a group's members, member by member, −∞ for actions that a member's mask forbids.

    Members share one network. Its observation is the member's preprocessed one, and the one-hot vectors of the member's
    last action and of its number, as in Rashid et al. 2018, arXiv:1803.11485, section 5: one vector. If the members'
    observations hold images, it is a Dict of "agent_id", "last_action" and "obs" (that of the environment).

    Args:
        obs_space, action_space: the spaces of the group.
        group: parts of the group's spaces.
        make_network: function that creates the network of a member, with outputs `[N, A]`, for the space of its
            observations.
        config: model config; its `custom_preprocessor` applies to a member's observation.
        agent_id: whether the network reads the member's index.
        last_action: whether it reads the member's last action.
    """

    values_are_cheap = True
    numbers: Tensor

    def __init__(
        self,
        obs_space: Space[Any],
        action_space: Space[Any],
        group: GroupSpaces,
        make_network: Callable[[Space[Any]], Model],
        config: Mapping[str, Any],
        *,
        agent_id: bool = True,
        last_action: bool = True,
    ) -> None:
        images = config["custom_preprocessor"] is None and images_in(group.observation, config)
        member = None if images else ModelCatalog.get_preprocessor(group.observation, config)
        preprocessor = GroupPreprocessor(obs_space, group, member)
        extra = {"agent_id": group.size} if agent_id else {}
        extra |= {"last_action": group.num_actions} if last_action else {}
        super().__init__(
            make_network(_network_space(group.observation, member, extra)),
            group.size * group.num_actions,
            obs_space=obs_space,
            action_space=action_space,
            preprocessor=preprocessor,
        )
        self.group, self.agent_id, self.last_action = group, agent_id, last_action
        self.prev_actions = max(int(last_action), self.wrapped.prev_actions)
        self.members_size = preprocessor.members_size
        self.register_buffer("numbers", torch.eye(group.size), persistent=False)

    @property
    def forbids_actions(self) -> bool:  # type: ignore[override]
        """Whether outputs may be −∞."""
        return self.group.has_masks or self.wrapped.forbids_actions

    def forward(
        self, input_dict: Mapping[str, Any], state: Sequence[Tensor] = (), seq_lens: Tensor | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        """Q-values `[N, n · A]`, and the members' states after the rows, `[S, n, …]` each."""
        group, obs = self.group, input_dict["obs"]
        rows, sequences = row_count(obs), 0 if seq_lens is None else len(seq_lens)

        def arrange(column: Tensor) -> Tensor:
            """`[N, n, *]` → `[S · n · L, *]`: each member's sequences are its own."""
            if sequences in (0, rows):
                return column.flatten(0, 1)
            return column.unflatten(0, (sequences, -1)).transpose(1, 2).flatten(0, 2)

        before = self._before(input_dict, arrange)
        inputs = self._inputs(input_dict, obs, rows, arrange)
        lens = None if seq_lens is None else seq_lens.repeat_interleave(group.size)
        network_inputs = InputDict(
            self.wrapped.preprocessor.transform_batch,
            obs=inputs,
            is_training=input_dict.get("is_training", self.training),
            **before,
        )
        if isinstance(inputs, Tensor):
            network_inputs["obs_flat"] = inputs
        values, after = self.wrapped(network_inputs, [part.flatten(0, 1) for part in state], lens)
        if sequences not in (0, rows):
            values = values.unflatten(0, (sequences, group.size, -1)).transpose(1, 2).flatten(0, 2)
        values = values.view(rows, group.size, group.num_actions)
        allowed = group.action_masks(obs)
        if allowed is not None:
            values = values.masked_fill(~allowed, -torch.inf)
        self._last.features = values, inputs
        return values.flatten(1), [part.unflatten(0, (-1, group.size)) for part in after]

    def _inputs(
        self, input_dict: Mapping[str, Any], obs: Any, rows: int, arrange: Callable[[Tensor], Tensor]
    ) -> Tensor | dict[str, Any]:
        """What the members' network observes, `[S · n · L, *]`."""
        group, extra = self.group, {}
        if self.last_action:
            actions = group.stack_actions(input_dict["prev_actions"])
            if actions.dim() == 3:  # the network reads more than one
                actions = actions[..., -1]
            choices = torch.arange(group.num_actions, device=actions.device)
            extra["last_action"] = (actions.unsqueeze(-1) == choices).float()  # −1, no action yet, is the zero vector
        if self.agent_id:
            extra["agent_id"] = self.numbers.expand(rows, -1, -1)
        if self.members_size:
            vectors = input_dict["obs_flat"][:, : self.members_size].unflatten(1, (group.size, -1))
            return arrange(torch.cat([vectors, *extra.values()], dim=2) if extra else vectors)
        members = map_leaves(arrange, group.members(obs))
        return {**{name: arrange(column) for name, column in extra.items()}, "obs": members} if extra else members

    def _before(self, input_dict: Mapping[str, Any], arrange: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
        """The earlier actions and rewards that the members' network reads itself, for each member."""
        before: dict[str, Tensor] = {}
        if self.wrapped.prev_actions:
            before["prev_actions"] = arrange(self.group.stack_actions(input_dict["prev_actions"]))
        if self.wrapped.prev_rewards:
            rewards = input_dict["prev_rewards"]
            before["prev_rewards"] = arrange(rewards.unsqueeze(1).expand(-1, self.group.size, *rewards.shape[1:]))
        return before

    def head_outputs(self) -> Tensor:
        """The members' Q-values `[N, n, A]` of the last forward."""
        return self._last.get()[0]

    def value_function(self) -> Tensor:
        """The mean of the members' best values, `[N]`, of the last forward."""
        return self.head_outputs().amax(2).mean(1)

    def custom_loss(self, policy_loss: Tensor, loss_inputs: SampleBatch) -> Tensor | list[Tensor]:
        """The network's custom loss, on "obs" `[N · n, *]` as the network read them in its last forward."""
        return self.wrapped.loss_with_custom(policy_loss, SampleBatch(obs=self._last.get()[1]))

    def get_initial_state(self) -> list[Tensor]:
        """The network's initial state for each member, `[n, …]` each."""
        return [part.expand(self.group.size, *part.shape) for part in self.wrapped.get_initial_state()]


def _network_space(observation: Space[Any], member: Preprocessor | None, extra: Mapping[str, int]) -> Space[Any]:
    """The space of the observations that the members' network reads, with vectors of the `extra` widths in them."""
    if member is not None:
        return spaces.Box(-np.inf, np.inf, (member.size + sum(extra.values()),), np.float32)
    vectors = {name: spaces.Box(0.0, 1.0, (width,)) for name, width in extra.items()}
    return spaces.Dict({**vectors, "obs": observation}) if extra else observation


def _join_members(column: Tensor) -> Tensor:
    return column.flatten(0, 1)
