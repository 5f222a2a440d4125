"""The spaces of a group: one agent whose observations and actions are those of several members."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from gymnasium import Space, spaces
from torch import Tensor

from lightning_rl.errors import UnsupportedSpaceError
from lightning_rl.spaces.structure import leaf_spaces, leaf_values, pack_leaves

__all__ = ["GroupSpaces"]

OBS_KEYS = ("action_masks", "agents", "present", "state")
NO_GROUP = (
    "use env.group_agents=all, which makes one group of the agents of an environment that has several, or another "
    "algorithm such as dqn or ppo"
)


@dataclass(frozen=True, slots=True)
class GroupSpaces:
    """The parts of a group's observation and action space.

    A group's observation is the Tuple of its members' observations, or a Dict with that Tuple as "agents" and

    - "present" MultiBinary `[n]`: which members take part now; all of them, if it is missing;
    - "state": a Box with the state of the whole environment;
    - "action_masks": a Tuple with a MultiBinary `[A]` for each member, the actions that it may take. Without it masks
      are the entries "action_mask" of members' Dict observations.

    A group's action is the Tuple of its members' Discrete actions. Members have equal spaces.

    Args:
        size: n, the number of members.
        observation, action: spaces of one member.
        state: space of "state".
        has_present, has_masks: whether the Dict has "present" and "action_masks".
        is_dict: whether the group's observation is a Dict.
    """

    size: int
    observation: Space[Any]
    action: spaces.Discrete
    state: spaces.Box | None = None
    has_present: bool = False
    has_masks: bool = False
    is_dict: bool = False

    @classmethod
    def of(cls, observation_space: Space[Any], action_space: Space[Any], algorithm: str) -> GroupSpaces:
        """Take the spaces of a group apart.

        Args:
            observation_space, action_space: of one environment.
            algorithm: that needs a group, for messages.

        Raises:
            UnsupportedSpaceError: the spaces are not those of a group, or members differ.
        """
        if not isinstance(action_space, spaces.Tuple) or not len(action_space.spaces):
            raise UnsupportedSpaceError(
                f"{algorithm} learns for a group of agents, whose actions are a Tuple of Discrete spaces; the action "
                f"space is {action_space}: {NO_GROUP}"
            )
        is_dict = isinstance(observation_space, spaces.Dict)
        parts = dict(observation_space.spaces) if isinstance(observation_space, spaces.Dict) else {}
        members = parts.get("agents") if is_dict else observation_space
        if not isinstance(members, spaces.Tuple) or set(parts) - set(OBS_KEYS):
            raise UnsupportedSpaceError(
                f"{algorithm} learns for a group of agents, whose observations are a Tuple, or a Dict of {OBS_KEYS} "
                f"with a Tuple 'agents'; the observation space is {observation_space}: {NO_GROUP}"
            )
        size = len(action_space.spaces)
        if len(members.spaces) != size:
            raise UnsupportedSpaceError(
                f"{algorithm}: the group has {len(members.spaces)} observations and {size} actions; expected as many"
            )
        action = _same(action_space.spaces, "actions", algorithm)
        if not isinstance(action, spaces.Discrete):
            raise UnsupportedSpaceError(
                f"{algorithm} compares all actions of a Discrete space; a member's action space is {action}: use maddpg"
            )
        state, present, masks = (parts.get(name) for name in ("state", "present", "action_masks"))
        _check_part("state", state, state is None or isinstance(state, spaces.Box), "a Box", algorithm)
        flags = present is None or (isinstance(present, spaces.MultiBinary) and present.shape == (size,))
        _check_part("present", present, flags, f"MultiBinary({size})", algorithm)
        mask, count = spaces.MultiBinary(int(action.n)), int(action.n)
        fitting = masks is None or (isinstance(masks, spaces.Tuple) and masks.spaces == (mask,) * size)
        _check_part("action_masks", masks, fitting, f"a Tuple of {size} × MultiBinary({count})", algorithm)
        return cls(
            size=size,
            observation=_same(members.spaces, "observations", algorithm),
            action=action,
            state=state if isinstance(state, spaces.Box) else None,
            has_present=present is not None,
            has_masks=masks is not None,
            is_dict=is_dict,
        )

    @property
    def num_actions(self) -> int:
        """A, the number of actions of one member."""
        return int(self.action.n)

    def members(self, obs: Any) -> Any:
        """The members' observations `[N, n, *]`, nested as one member's, of group observations `[N, *]`."""
        each = obs["agents"] if self.is_dict else obs
        leaves = zip(*(leaf_values(self.observation, _entry(each, member)) for member in range(self.size)), strict=True)
        return pack_leaves(self.observation, iter([torch.stack(parts, dim=1) for parts in leaves]))

    def present(self, obs: Any) -> Tensor | None:
        """Which members take part, bool `[N, n]`; `None`: all."""
        return obs["present"].bool() if self.has_present else None

    def action_masks(self, obs: Any) -> Tensor | None:
        """The members' allowed actions, bool `[N, n, A]`; `None`: all. A mask that allows nothing allows everything."""
        if self.has_masks:
            each = [_entry(obs["action_masks"], member) for member in range(self.size)]
        elif isinstance(self.observation, spaces.Dict) and "action_mask" in self.observation.spaces:
            agents = obs["agents"] if self.is_dict else obs
            each = [_entry(agents, member)["action_mask"] for member in range(self.size)]
        else:
            return None
        allowed = torch.stack(each, dim=1).bool()
        return allowed | ~allowed.any(-1, keepdim=True)

    def stack_actions(self, actions: Any) -> Tensor:
        """The members' actions as one tensor `[N, n]`, of a tuple or nested batch of `[N]`."""
        return torch.stack([_entry(actions, member) for member in range(self.size)], dim=1)


def _entry(values: Any, member: int) -> Any:
    """One member's entry of a tuple, or of a nested batch, whose entries are named "0", "1" and so on."""
    return values[member] if isinstance(values, tuple | list) else values[str(member)]


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


def _check_part(name: str, space: Space[Any] | None, fits: bool, expected: str, algorithm: str) -> None:
    if not fits:
        raise UnsupportedSpaceError(
            f"{algorithm}: the entry {name!r} of the group's observation space is {space}; expected {expected}"
        )
