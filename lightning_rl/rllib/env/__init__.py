"""RLlib's interface of environments."""

from lightning_rl.envs import EnvContext
from lightning_rl.envs.multi_agent import MultiAgentEnv, make_multi_agent

__all__ = ["EnvContext", "MultiAgentEnv", "make_multi_agent"]
