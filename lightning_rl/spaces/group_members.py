"""The spaces of a group whose members may differ: one agent that observes and acts for several."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from gymnasium import Space, spaces
from torch import Tensor

from lightning_rl.errors import UnsupportedSpaceError
from lightning_rl.spaces.groups import take_group_apart
from lightning_rl.spaces.structure import leaf_spaces, leaf_values

__all__ = ["GroupMembers"]


class GroupMembers:
    """The members' observations, actions, masks and presence in the observations and actions of a group.

    A group observes the Tuple of its members' observations, or a Dict of that Tuple as "agents" and perhaps

    - "present", MultiBinary `[n]`: which members' actions count; without it all of them do;
    - "action_masks", a Tuple of MultiBinary: the allowed actions of each member; without it they are the entry
      "action_mask" of members' Dict observations, if these have it;
    - "state", of the whole environment.

    It acts with the Tuple of its members' actions.

    Args:
        observation_space, action_space: of the group.
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
        self.observations, self.actions, _ = take_group_apart(observation_space, action_space, algorithm, supported)
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
