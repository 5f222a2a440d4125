"""RLlib's environments with several agents."""

from lightning_rl.envs.multi_agent import MultiAgentEnv, make_multi_agent

__all__ = ["MultiAgentEnv", "make_multi_agent"]
