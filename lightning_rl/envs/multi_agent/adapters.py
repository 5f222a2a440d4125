"""The one place that recognises the forms of environments with several agents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightning_rl.envs.multi_agent.multi_agent_env import MultiAgentEnv
from lightning_rl.envs.multi_agent.pettingzoo_envs import AECAdapter, ParallelAdapter, is_aec_env, is_parallel_env
from lightning_rl.envs.multi_agent.tuple_env import TupleEnv, is_tuple_env
from lightning_rl.envs.multi_agent.wrappers import MultiAgentWrapper

__all__ = ["as_multi_agent"]


def as_multi_agent(env: Any) -> MultiAgentEnv | None:
    """An environment of any known form as `MultiAgentEnv`; `None` for one with a single agent.

    Known are `MultiAgentEnv`, RLlib's class of this name, PettingZoo's `ParallelEnv` and `AECEnv`, and Gymnasium
    environments whose two spaces are tuples with a part for each agent and which say how many agents they have.
    """
    if isinstance(env, MultiAgentEnv):
        return env
    if is_aec_env(env):
        return AECAdapter(env)
    if is_parallel_env(env):
        return ParallelAdapter(env)
    if is_tuple_env(env):
        return TupleEnv(env)
    return RLlibAdapter(env) if _has_dicts_of_agents(env) else None


class RLlibAdapter(MultiAgentWrapper):
    """An environment with the attributes and methods of `MultiAgentEnv` that is no subclass of it, such as RLlib's.

    Args:
        env: the environment.
    """

    def __init__(self, env: Any) -> None:
        self.env = env
        self.possible_agents = [*env.possible_agents]
        self.observation_spaces, self.action_spaces = dict(env.observation_spaces), dict(env.action_spaces)
        self.state_space = getattr(env, "state_space", None)
        self.metadata = dict(getattr(env, "metadata", None) or {"render_modes": []})
        self.render_mode = getattr(env, "render_mode", None)

    @property
    def unwrapped(self) -> Any:
        """The environment itself."""
        return self.env


def _has_dicts_of_agents(env: Any) -> bool:
    parts = [getattr(env, name, None) for name in ("observation_spaces", "action_spaces")]
    return bool(getattr(env, "possible_agents", None)) and all(isinstance(part, Mapping) for part in parts)
