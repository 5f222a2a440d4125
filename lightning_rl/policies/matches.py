"""Who plays against whom: a policy on a random side of each episode, drawn opponents on the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from lightning_rl.errors import ConfigError, did_you_mean
from lightning_rl.schema.ranges import NonNegative
from lightning_rl.schema.signatures import check_keywords

__all__ = ["Matches"]


class Matches:
    """Gives one side of each episode, drawn at random, to a policy, and each other side to one of its opponents.

    Args:
        agents: names of all agents.
        policy: policy id.
        opponents: policy id → relative probability of being selected; may include the policy itself.
        sides: the agents of each side, which share one policy; `None`: each agent is a separate side.
        others: policy id of each agent that belongs to no side.

    Raises:
        ConfigError: there are fewer than two sides, an agent is unknown, on two sides or without a policy, or no
            opponent can be drawn.
    """

    @check_keywords("policy_mapping")
    def __init__(
        self,
        agents: Sequence[str],
        policy: str,
        opponents: Mapping[str, NonNegative],
        sides: Sequence[Sequence[str]] | None = None,
        others: Mapping[str, str] | None = None,
    ) -> None:
        self.policy, self.others = policy, dict(others or {})
        free = [agent for agent in agents if agent not in self.others]
        self.sides = [[agent] for agent in free] if sides is None else [[*side] for side in sides]
        named = [*(agent for side in self.sides for agent in side), *self.others]
        for agent in named:
            if agent not in agents:
                raise ConfigError(f"policy_mapping: {agent!r} is not an agent.{did_you_mean(agent, agents)}")
        odd = next((agent for agent in agents if named.count(agent) != 1), None)
        if odd is not None:
            raise ConfigError(
                f"policy_mapping names agent {odd!r} {named.count(odd)} times; expected once, in `sides` or in `others`"
            )
        if len(self.sides) < 2 or not all(self.sides):
            raise ConfigError(f"policy_mapping.sides={self.sides}; matches need at least two sides, each with an agent")
        drawn = {policy_id: float(weight) for policy_id, weight in opponents.items() if weight > 0}
        if not drawn:
            raise ConfigError(f"policy_mapping.opponents={dict(opponents)}; expected at least one weight above 0")
        self.opponents = [*drawn]
        ends = np.cumsum([*drawn.values()])
        self._ends = ends / ends[-1]  # the last is exactly 1, and random numbers are below it

    def choices(self) -> dict[str, tuple[str, ...]]:
        """Agent → the policies that it may have."""
        ids = tuple(dict.fromkeys([self.policy, *self.opponents]))
        return {agent: ids for side in self.sides for agent in side} | {
            agent: (policy_id,) for agent, policy_id in self.others.items()
        }

    def assign(self, rng: np.random.Generator) -> dict[str, str]:
        """Agent → its policy in an episode that begins."""
        learner = int(rng.integers(len(self.sides)))
        found = dict(self.others)
        for place, side in enumerate(self.sides):
            drawn = int(np.searchsorted(self._ends, rng.random(), side="right"))
            policy_id = self.policy if place == learner else self.opponents[drawn]
            found |= dict.fromkeys(side, policy_id)
        return found
