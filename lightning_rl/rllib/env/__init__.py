"""RLlib's interface of environments."""

from lightning_rl.envs import EnvContext
from lightning_rl.envs.multi_agent import MultiAgentEnv, make_multi_agent
from lightning_rl.rllib.callbacks import BaseEnv

__all__ = ["BaseEnv", "EnvContext", "MultiAgentEnv", "make_multi_agent"]
