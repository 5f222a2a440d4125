"""A multi-agent environment with one agent, such as one group of all, as a plain Gymnasium environment."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from lightning_rl.envs.multi_agent.multi_agent_env import ALL, MultiAgentEnv
from lightning_rl.errors import EnvError

__all__ = ["SingleAgentEnv"]


class SingleAgentEnv(gym.Env[Any, Any]):
    """The only agent's view of its environment; steps in which it does not act pass by within a step.

    Args:
        env: an environment with one possible agent.
    """

    def __init__(self, env: MultiAgentEnv) -> None:
        self.env, self.agent = env, env.possible_agents[0]
        self.observation_space = env.observation_spaces[self.agent]
        self.action_space = env.action_spaces[self.agent]
        self.metadata, self.render_mode = dict(env.metadata), env.render_mode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode.

        Raises:
            EnvError: the episode ends before the agent acts.
        """
        super().reset(seed=seed)
        obs, infos = self.env.reset(seed=seed, options=options)
        while self.agent not in obs:
            obs, _, terminated, truncated, infos = self.env.step({})
            if terminated.get(ALL) or truncated.get(ALL):
                raise EnvError(f"an episode of {type(self.env.unwrapped).__name__} ended before {self.agent!r} acted")
        self._last = obs[self.agent]
        return self._last, infos.get(self.agent) or {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step until the agent acts again or its episode has ended; the rewards on the way are summed."""
        actions, total = {self.agent: action}, 0.0
        while True:
            obs, rewards, terminated, truncated, infos = self.env.step(actions)
            total += float(rewards.get(self.agent, 0.0))
            self._last = obs.get(self.agent, self._last)
            ends = [bool(part.get(self.agent) or part.get(ALL)) for part in (terminated, truncated)]
            if self.agent in obs or any(ends):
                return self._last, total, ends[0], ends[1] and not ends[0], infos.get(self.agent) or {}
            actions = {}

    def render(self) -> Any:
        """As the environment renders."""
        return self.env.render()

    def close(self) -> None:
        """Close the environment."""
        self.env.close()
