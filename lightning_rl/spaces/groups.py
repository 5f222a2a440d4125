"""The spaces of a group: one agent whose observations and actions are those of several members."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from gymnasium import Space, spaces
from torch import Tensor

from lightning_rl.errors import UnsupportedSpaceError
from lightning_rl.spaces.structure import leaf_spaces, leaf_values, pack_leaves

__all__ = ["GroupMembers", "GroupSpaces"]

OBS_KEYS = ("action_masks", "agents", "present", "state")
NO_GROUP = (
    "use env.group_agents=all, which makes one group of the agents of an environment that has several, or another "
    "algorithm such as dqn or ppo"
)


class GroupMembers:
    """The members' observations, actions, masks and presence in the observations and actions of a group.

    A group observes the Tuple of its members' observations, or a Dict of that Tuple as "agents" and perhaps

    - "present", MultiBinary `[n]`: which members' actions count; without it all of them do;
    - "action_masks", a Tuple of MultiBinary: the allowed actions of each member; without it they are the entry
      "action_mask" of members' Dict observations, if these have it;
    - "state", of the whole environment.

    It acts with the Tuple of its members' actions.

    Args:
        observation_space, action_space: the spaces of the group.
        algorithm: that needs a group, for messages.
        supports: whether the algorithm supports the actions of a member.
        supported: a description of these, for messages.

    Attributes:
        observations, actions: spaces of the members, in order.

    Raises:
        UnsupportedSpaceError: the spaces are not those of a group, or a member's actions are not supported.
    """

    def __init__(
        self,
        observation_space: Space[Any],
        action_space: Space[Any],
        algorithm: str,
        supports: Callable[[Space[Any]], bool],
        supported: str,
    ) -> None:
        self.observation_space = observation_space
        self.observations, self.actions = take_group_apart(observation_space, action_space, algorithm, supported)
        for number, space in enumerate(self.actions):
            if not supports(space):
                raise UnsupportedSpaceError(
                    f"{algorithm} takes members whose actions are {supported}; the action space is {action_space}, "
                    f"with {space} for member {number}: use ppo, with a policy for each agent"
                )
        self._is_dict = isinstance(observation_space, spaces.Dict)
        self._leaves = dict(leaf_spaces(observation_space))
        self._present = self._leaf("present", (len(self),), algorithm)
        self._masks = [self._mask_leaf(number, algorithm) for number in range(len(self))]
        self._choices = [int(space.n) if isinstance(space, spaces.Discrete) else 0 for space in self.actions]

    def __len__(self) -> int:
        return len(self.actions)

    def path(self, member: int) -> str:
        """The path of a member's observation in the group's."""
        return f"agents.{member}" if self._is_dict else str(member)

    def of(self, obs: Any, member: int) -> Any:
        """A member's observations `[N, *]` in the group's, nested as the environment's or in batches."""
        agents = obs["agents"] if self._is_dict else obs
        return agents[member] if isinstance(agents, tuple) else agents[str(member)]

    def present(self, obs: Any) -> Tensor | None:
        """Which members' actions count, bool `[N, n]`, in observations nested in any way; `None`: all do."""
        return None if self._present is None else self._values(obs)[self._present].bool()

    def action_masks(self, obs: Any) -> Tensor | None:
        """The Discrete members' allowed actions side by side, bool `[N, Σ n]`; `None`: all are allowed."""
        if all(leaf is None for leaf in self._masks):
            return None
        leaves = self._values(obs)
        masks = []
        for size, leaf in zip(self._choices, self._masks, strict=True):
            if leaf is not None:
                masks.append(leaves[leaf].bool())
            elif size:
                masks.append(torch.ones(leaves[0].shape[0], size, dtype=torch.bool, device=leaves[0].device))
        return torch.cat(masks, dim=1)

    def _values(self, obs: Any) -> list[Tensor]:
        return leaf_values(self.observation_space, obs)

    def _mask_leaf(self, member: int, algorithm: str) -> int | None:
        space = self.actions[member]
        if not isinstance(space, spaces.Discrete):
            return None
        common = f"action_masks.{member}"
        path = common if self._is_dict and common in self._leaves else f"{self.path(member)}.action_mask"
        return self._leaf(path, (int(space.n),), algorithm)

    def _leaf(self, path: str, shape: tuple[int, ...], algorithm: str) -> int | None:
        """The index of a leaf of the group's observation; `None` if there is none."""
        if path not in self._leaves:
            return None
        if self._leaves[path].shape != shape:
            raise UnsupportedSpaceError(
                f"{algorithm}: part {path!r} of the group's observation is {self._leaves[path]}; expected shape "
                f"{list(shape)}"
            )
        return list(self._leaves).index(path)


class GroupSpaces(GroupMembers):
    """A group whose members have equal spaces and Discrete actions, so that one network serves all of them.

    Args:
        observation_space, action_space: the spaces of the group, as `GroupMembers`; the Dict's "state", if there is
            one, is a Box.
        algorithm: that needs a group, for messages.

    Attributes:
        size: n, the number of members.
        num_actions: A, the number of actions of one member.
        observation: space of one member's observations.
        state: space of "state"; `None` if there is none.

    Raises:
        UnsupportedSpaceError: the spaces are not those of a group, or members differ.
    """

    def __init__(self, observation_space: Space[Any], action_space: Space[Any], algorithm: str) -> None:
        discrete = "Discrete spaces, all equal"
        super().__init__(
            observation_space, action_space, algorithm, lambda space: isinstance(space, spaces.Discrete), discrete
        )
        self.size, self.num_actions = len(self), self._choices[0]
        self.observation = _same(self.observations, "observations", algorithm)
        _same(self.actions, "actions", algorithm)
        self.state = observation_space.get("state") if isinstance(observation_space, spaces.Dict) else None

    @property
    def has_masks(self) -> bool:
        """Whether observations hold action masks."""
        return any(leaf is not None for leaf in self._masks)

    def members(self, obs: Any) -> Any:
        """The members' observations `[N, n, *]`, nested as one member's, of group observations `[N, *]`."""
        leaves = zip(*(leaf_values(self.observation, self.of(obs, member)) for member in range(self.size)), strict=True)
        return pack_leaves(self.observation, iter([torch.stack(parts, dim=1) for parts in leaves]))

    def action_masks(self, obs: Any) -> Tensor | None:
        """The members' allowed actions, bool `[N, n, A]`; `None`: all. A mask that allows nothing allows everything."""
        masks = super().action_masks(obs)
        if masks is None:
            return None
        allowed = masks.unflatten(1, (self.size, self.num_actions))
        return allowed | ~allowed.any(-1, keepdim=True)

    def stack_actions(self, actions: Any) -> Tensor:
        """The members' actions as one tensor `[N, n]`, of a tuple or nested batch of `[N]`."""
        each = [actions[member if isinstance(actions, tuple) else str(member)] for member in range(self.size)]
        return torch.stack(each, dim=1)


def take_group_apart(
    observation_space: Space[Any], action_space: Space[Any], algorithm: str, supported: str
) -> tuple[tuple[Space[Any], ...], tuple[Space[Any], ...]]:
    """The members' observation and action spaces of a group.

    Args:
        observation_space, action_space: the spaces of the group.
        algorithm: that needs a group, for messages.
        supported: a description of members' actions, for messages.

    Raises:
        UnsupportedSpaceError: the spaces are not those of a group.
    """
    if not isinstance(action_space, spaces.Tuple) or not len(action_space.spaces):
        raise UnsupportedSpaceError(
            f"{algorithm} learns for a group of agents, whose actions are a Tuple of the members' ({supported}); the "
            f"action space is {action_space}: {NO_GROUP}"
        )
    parts = dict(observation_space.spaces) if isinstance(observation_space, spaces.Dict) else {}
    members = parts.get("agents") if isinstance(observation_space, spaces.Dict) else observation_space
    if not isinstance(members, spaces.Tuple) or set(parts) - set(OBS_KEYS):
        raise UnsupportedSpaceError(
            f"{algorithm} learns for a group of agents, whose observations are a Tuple, or a Dict of "
            f"{', '.join(OBS_KEYS)} with a Tuple 'agents'; the observation space is {observation_space}: {NO_GROUP}"
        )
    if len(members.spaces) != len(action_space.spaces):
        raise UnsupportedSpaceError(
            f"{algorithm}: the group has {len(members.spaces)} observations and {len(action_space.spaces)} actions; "
            "expected one of each for every member"
        )
    return tuple(members.spaces), tuple(action_space.spaces)


def _same(members: tuple[Space[Any], ...], what: str, algorithm: str) -> Space[Any]:
    """The space that all members have.

    Raises:
        UnsupportedSpaceError: two members have different ones.
    """
    for number, space in enumerate(members):
        if space != members[0] or [path for path, _ in leaf_spaces(space)] != [p for p, _ in leaf_spaces(members[0])]:
            raise UnsupportedSpaceError(
                f"{algorithm} shares one network between the members of a group, so their {what} need equal spaces; "
                f"member 0 has {members[0]} and member {number} has {space}: pad them to one space, make a group of "
                "each kind of agents, or use a policy for each kind (ppo, dqn)"
            )
    return members[0]
