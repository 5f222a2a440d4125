"""Where each agent of an environment is in arrays: agents with equal spaces are rows of one array.

`AgentLayout.join` makes of these arrays what a central critic or a mixing network reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from lightning_rl.envs.action_masks import choice_sizes
from lightning_rl.errors import EnvError

__all__ = ["AgentKind", "AgentLayout"]


@dataclass(frozen=True, slots=True)
class AgentKind:
    """Agents with equal spaces.

    Attributes:
        observation_space: that of each agent.
        action_space: that of each agent.
        slots: indices of these agents among all agents, ascending; the order of the rows in the kind's arrays.
    """

    observation_space: Space[Any]
    action_space: Space[Any]
    slots: tuple[int, ...]

    @property
    def has_masks(self) -> bool:
        """Whether infos may hold action masks: actions are choices, at least in part. Groups observe their masks."""
        seen = self.observation_space
        is_group = isinstance(self.action_space, spaces.Tuple) and (
            isinstance(seen, spaces.Tuple) or (isinstance(seen, spaces.Dict) and "agents" in seen.spaces)
        )
        return bool(choice_sizes(self.action_space)) and not is_group


@dataclass(frozen=True, slots=True)
class AgentLayout:
    """The agents of an environment.

    Attributes:
        agents: their names; an agent's index is its slot.
        kinds: agents grouped by their spaces, in order of their first agent.
        state_space: the state space of the environment's own state; `None` if it has none.
        masked: whether infos hold action masks.
        places: (index of the kind, row in its arrays) of each slot.
    """

    agents: tuple[str, ...]
    kinds: tuple[AgentKind, ...]
    state_space: Space[Any] | None = None
    masked: bool = False
    places: tuple[tuple[int, int], ...] = field(init=False)

    def __post_init__(self) -> None:
        places = {slot: (index, row) for index, kind in enumerate(self.kinds) for row, slot in enumerate(kind.slots)}
        object.__setattr__(self, "places", tuple(places[slot] for slot in range(len(self.agents))))

    @classmethod
    def from_spaces(
        cls,
        agents: Sequence[str],
        observation_spaces: Mapping[str, Space[Any]],
        action_spaces: Mapping[str, Space[Any]],
        state_space: Space[Any] | None = None,
        masked: bool = False,
    ) -> AgentLayout:
        """The layout of agents with these spaces."""
        found: list[tuple[Space[Any], Space[Any], list[int]]] = []
        for slot, agent in enumerate(agents):
            pair = observation_spaces[agent], action_spaces[agent]
            same = next((kind for kind in found if kind[0] == pair[0] and kind[1] == pair[1]), None)
            if same is None:
                found.append((*pair, [slot]))
            else:
                same[2].append(slot)
        kinds = tuple(AgentKind(obs, actions, tuple(slots)) for obs, actions, slots in found)
        return cls(tuple(agents), kinds, state_space, masked)

    @property
    def observation_spaces(self) -> dict[str, Space[Any]]:
        """The observation space of each agent, by name."""
        return {agent: self.kinds[self.places[slot][0]].observation_space for slot, agent in enumerate(self.agents)}

    @property
    def action_spaces(self) -> dict[str, Space[Any]]:
        """The action space of each agent, by name."""
        return {agent: self.kinds[self.places[slot][0]].action_space for slot, agent in enumerate(self.agents)}

    @property
    def central_size(self) -> int:
        """Number of values that `join` gives for an environment.

        Raises:
            EnvError: a space has no flat form of constant size.
        """
        if self.state_space is not None:
            return flat_size(self.state_space)
        return sum(len(kind.slots) * flat_size(kind.observation_space) for kind in self.kinds)

    def join(self, obs: Mapping[str, Any]) -> np.ndarray:
        """What all agents see together: the environment's state, or else their observations one after the other.

        Args:
            obs: observation of a `PackedEnv`, or of a vector of `B` of them.

        Returns:
            float32 `[S]` or `[B, S]`, a new array. Agents that are not present contribute zeros. A Discrete
            observation is one-hot; "action_mask" in a Dict is left out.
        """
        lead = obs["acts"].shape[:-1]
        if self.state_space is not None:
            return flatten(self.state_space, obs["state"], lead)
        present = obs["present"]
        parts: list[np.ndarray] = [np.zeros(0)] * len(self.agents)
        for index, kind in enumerate(self.kinds):
            rows = flatten(kind.observation_space, obs["obs"][str(index)], (*lead, len(kind.slots)))
            rows *= present[..., list(kind.slots), None]
            for row, slot in enumerate(kind.slots):
                parts[slot] = rows[..., row, :]
        return np.concatenate(parts, axis=-1)


def flat_size(space: Space[Any]) -> int:
    """Number of values that `flatten` makes of an observation.

    Raises:
        EnvError: the space has no flat form of constant size.
    """
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    if isinstance(space, spaces.MultiDiscrete):
        return int(space.nvec.sum())
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        return int(np.prod(space.shape))
    return sum(flat_size(child) for _, child in _children(space))


def flatten(space: Space[Any], value: Any, lead: tuple[int, ...]) -> np.ndarray:
    """Observations with leading dimensions `lead` as float32 `[*lead, flat_size(space)]`, a new array.

    Raises:
        EnvError: the space has no flat form of constant size.
    """
    if isinstance(space, spaces.Discrete):
        return np.eye(int(space.n), dtype=np.float32)[np.asarray(value) - space.start]
    if isinstance(space, spaces.MultiDiscrete):
        numbers, sizes = np.asarray(value).reshape(*lead, -1) - space.start.ravel(), space.nvec.ravel()
        eyes = [np.eye(int(size), dtype=np.float32)[numbers[..., index]] for index, size in enumerate(sizes)]
        return np.concatenate(eyes, axis=-1)
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        return np.asarray(value).reshape(*lead, -1).astype(np.float32)
    return np.concatenate([flatten(child, value[name], lead) for name, child in _children(space)], axis=-1)


def _children(space: Space[Any]) -> list[tuple[Any, Space[Any]]]:
    if isinstance(space, spaces.Dict):
        return [(name, child) for name, child in space.spaces.items() if name != "action_mask"]
    if isinstance(space, spaces.Tuple):
        return [*enumerate(space.spaces)]
    raise EnvError(
        f"an observation of {space} has no flat form of constant size, which a central critic needs: "
        "set state_space and define state()"
    )
