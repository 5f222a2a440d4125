"""Where each agent of an environment lies in arrays: agents with equal spaces are rows of one array."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gymnasium import Space, spaces

from lightning_rl.errors import EnvError

__all__ = ["AgentKind", "AgentLayout"]


@dataclass(frozen=True, slots=True)
class AgentKind:
    """Agents with equal spaces.

    Attributes:
        observation_space, action_space: of each of them.
        slots: their indices among all agents, ascending; the order of the rows in the kind's arrays.
    """

    observation_space: Space[Any]
    action_space: Space[Any]
    slots: tuple[int, ...]

    @property
    def has_masks(self) -> bool:
        """Whether an action mask has a meaning: for Discrete actions only."""
        return isinstance(self.action_space, spaces.Discrete)


@dataclass(frozen=True, slots=True)
class AgentLayout:
    """The agents of an environment.

    Attributes:
        agents: their names; an agent's index is its slot.
        kinds: agents grouped by their spaces, in order of their first agent.
        state_space: of the environment's own state; `None` if it has none.
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
        """The layout of agents with these spaces.

        Raises:
            EnvError: an agent has no space.
        """
        found: list[tuple[Space[Any], Space[Any], list[int]]] = []
        for slot, agent in enumerate(agents):
            for name, given in (("observation_spaces", observation_spaces), ("action_spaces", action_spaces)):
                if not isinstance(given.get(agent), Space):
                    raise EnvError(f"agent {agent!r} has no space in {name}: give each of possible_agents one")
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
