"""RLlib's interface of environments."""

from lightning_rl.envs import EnvContext
from lightning_rl.rllib.env.multi_agent_env import MultiAgentEnv, make_multi_agent
from lightning_rl.rllib.workers import BaseEnv

__all__ = ["BaseEnv", "EnvContext", "MultiAgentEnv", "make_multi_agent"]
