"""The interface of environments with several agents, in RLlib's style: dicts keyed by agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import Space

from lightning_rl.errors import object_at

__all__ = ["ALL", "HoldsEnv", "MultiAgentEnv", "add_all"]

ALL = "__all__"
"""The key of `terminated` and `truncated` that stands for the whole episode."""

GROUPED = "lightning_rl.envs.multi_agent.grouped_agents:GroupedAgents"  # named by text: that file needs this one
AgentDict = dict[str, Any]


class MultiAgentEnv:
    """An environment in which several agents act, together or in turns.

    A subclass sets the attributes and defines `reset` and `step`. An agent acts in the next step if it is in the
    observations and has not ended; the others wait. Agents may appear late and end early; an agent that has ended comes
    back only in the next episode.

    Attributes:
        possible_agents: names of all agents that may ever appear, in a fixed order.
        observation_spaces, action_spaces: the spaces of each of them, by name.
        state_space: space of `state()`, a Box; `None` if the environment has no state of its own.
        metadata, render_mode: see Gymnasium's `Env`.
    """

    possible_agents: list[str]
    observation_spaces: Mapping[str, Space[Any]]
    action_spaces: Mapping[str, Space[Any]]
    state_space: Space[Any] | None = None
    metadata: Mapping[str, Any] = {"render_modes": []}
    render_mode: str | None = None

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[AgentDict, AgentDict]:
        """Begin an episode.

        Returns:
            Observations of the agents that act first, and infos; an info may hold "action_mask", the allowed actions.
        """
        raise NotImplementedError(f"{type(self).__name__} must define reset(*, seed, options) -> (obs, infos)")

    def step(self, actions: AgentDict) -> tuple[AgentDict, AgentDict, AgentDict, AgentDict, AgentDict]:
        """Step with the actions of the agents whose turn it is.

        Returns:
            Dicts keyed by agent: observations (of the agents that act next, and the final ones of those that ended),
            rewards (of any agents), terminated and truncated (both with "__all__"), infos.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must define step(actions) -> (obs, rewards, terminated, truncated, infos)"
        )

    def state(self) -> np.ndarray:
        """The state of the whole environment, which a central critic or a mixing network may read."""
        raise NotImplementedError(f"{type(self).__name__} sets state_space, so it must define state()")

    def render(self) -> Any:
        """An image or text of the environment; `None` without a render mode."""
        return None

    def close(self) -> None:
        """Free what the environment holds."""

    def with_agent_groups(
        self,
        groups: Mapping[str, Sequence[str]],
        obs_space: Space[Any] | None = None,
        act_space: Space[Any] | None = None,
    ) -> MultiAgentEnv:
        """This environment with groups of agents that act as one agent (`grouped_agents.py`), as in RLlib.

        Args:
            groups: name of a group → its agents.
            obs_space, act_space: the spaces of the groups; `None`: made of the members' spaces.
        """
        return object_at(GROUPED)(self, groups, obs_space, act_space)

    @property
    def unwrapped(self) -> Any:
        """The innermost environment."""
        return self


class HoldsEnv(MultiAgentEnv):
    """A `MultiAgentEnv` around another environment, which renders and is closed.

    Attributes:
        env: that environment, of any form; a subclass sets it.
    """

    env: Any

    def render(self) -> Any:
        """As the environment renders."""
        return self.env.render()

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

    @property
    def unwrapped(self) -> Any:
        """The innermost environment."""
        return self.env.unwrapped


def add_all(terminated: AgentDict, truncated: AgentDict, over: bool) -> None:
    """Add "__all__"; an episode is truncated if an agent that is truncated, and not terminated, is among the last.

    Args:
        terminated, truncated: the flags of the agents in this step; changed in place.
        over: whether no agent is left.
    """
    cut = any(value and not terminated.get(agent, False) for agent, value in truncated.items())
    terminated[ALL], truncated[ALL] = over and not cut, over and cut
