"""RLlib's groups of agents that act as one."""

from lightning_rl.rllib.env.multi_agent_env import MultiAgentEnv

__all__ = ["GroupAgentsWrapper"]

GroupAgentsWrapper = MultiAgentEnv.with_agent_groups
