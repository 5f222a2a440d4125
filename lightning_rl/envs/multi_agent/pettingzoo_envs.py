"""PettingZoo's two forms as `MultiAgentEnv`: all agents at once (`ParallelEnv`), or one after the other (`AECEnv`).

The classes know PettingZoo's interface, and do not import it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightning_rl.envs.multi_agent.multi_agent_env import HoldsEnv, add_all

__all__ = ["AECAdapter", "ParallelAdapter", "is_aec_env", "is_parallel_env"]


def is_parallel_env(env: Any) -> bool:
    """Whether an object has the methods of PettingZoo's `ParallelEnv`."""
    return _has_spaces_by_agent(env) and not hasattr(env, "agent_iter")


def is_aec_env(env: Any) -> bool:
    """Whether an object has the methods of PettingZoo's `AECEnv`."""
    return _has_spaces_by_agent(env) and callable(getattr(env, "agent_iter", None)) and hasattr(env, "observe")


def _has_spaces_by_agent(env: Any) -> bool:
    return all(callable(getattr(env, name, None)) for name in ("observation_space", "action_space", "reset", "step"))


class PettingZooAdapter(HoldsEnv):
    """What both forms have in common: agents, spaces, the state.

    Args:
        env: a PettingZoo environment.
    """

    def __init__(self, env: Any) -> None:
        self.env = env
        agents = getattr(env, "possible_agents", None)
        if agents is None:  # then the agents of the first episode are all there are
            env.reset(seed=0)
            agents = env.agents
        self.possible_agents = [*agents]
        self.observation_spaces = {agent: env.observation_space(agent) for agent in agents}
        self.action_spaces = {agent: env.action_space(agent) for agent in agents}
        self.state_space = getattr(env, "state_space", None)
        self.metadata = dict(getattr(env, "metadata", None) or {"render_modes": []})
        self.render_mode = getattr(env, "render_mode", None)

    def state(self) -> Any:
        """The environment's own state."""
        return self.env.state()


class ParallelAdapter(PettingZooAdapter):
    """A PettingZoo `ParallelEnv`. The episode is over when no agent is left.

    An agent that has ended has left, also where the environment keeps it in `agents`, against PettingZoo's rules.

    Args:
        env: the environment.
    """

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> Any:
        """Begin an episode."""
        obs, infos = self.env.reset(seed=seed, options=options)
        self._ended: set[Any] = set()
        return dict(obs), dict(infos or {})

    def step(self, actions: dict[str, Any]) -> Any:
        """Step all agents that are left."""
        alive = set(self.env.agents)
        result = self.env.step(actions)
        alive = alive.union(self.env.agents) - self._ended
        found = [{agent: value for agent, value in (part or {}).items() if agent in alive} for part in result]
        obs, rewards, terminated, truncated, infos = found
        self._ended |= {agent for part in (terminated, truncated) for agent, value in part.items() if value}
        add_all(terminated, truncated, over=self._ended.issuperset(self.env.agents))
        return obs, rewards, terminated, truncated, infos


class AECAdapter(PettingZooAdapter):
    """A PettingZoo `AECEnv`: a step acts for the agent whose turn it is, and the next one observes.

    Rewards are those that the step gave to any agent. An agent that has ended leaves at once, with its final
    observation; the steps with `None` that PettingZoo asks for are taken here.

    Args:
        env: the environment.
    """

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> Any:
        """Begin an episode."""
        self.env.reset(seed=seed, options=options)
        self._ended: set[str] = set()
        agent = self.env.agent_selection
        return {agent: self.env.observe(agent)}, dict(self.env.infos)

    def step(self, actions: dict[str, Any]) -> Any:
        """Act for the agent whose turn it is."""
        env = self.env
        turn = env.agent_selection
        env.step(actions[turn])
        alive = [agent for agent in env.agents if agent not in self._ended]
        gained, dead, cut, told = env.rewards, env.terminations, env.truncations, env.infos  # wrappers take long to ask
        rewards = {agent: gained.get(agent, 0.0) for agent in alive}
        terminated = {agent: bool(dead[agent]) for agent in alive}
        truncated = {agent: bool(cut[agent]) for agent in alive}
        infos = {agent: told.get(agent, {}) for agent in alive}
        ended = [agent for agent in alive if terminated[agent] or truncated[agent]]
        obs = {agent: env.observe(agent) for agent in ended}
        self._ended.update(ended)
        while env.agents and env.agent_selection in self._ended:
            env.step(None)
        if env.agents:
            agent = env.agent_selection
            obs[agent] = env.observe(agent)
            infos[agent] = env.infos.get(agent, {})
        add_all(terminated, truncated, over=not env.agents)
        return obs, rewards, terminated, truncated, infos
