"""Environments with several agents: the interface, adapters of other libraries' forms, wrappers, and packing."""

from lightning_rl.envs.multi_agent.agent_layout import AgentKind, AgentLayout
from lightning_rl.envs.multi_agent.multi_agent_env import MultiAgentEnv
from lightning_rl.envs.multi_agent.packed_env import PackedEnv
from lightning_rl.envs.multi_agent.packed_vector_env import PackedVectorEnv

__all__ = ["AgentKind", "AgentLayout", "MultiAgentEnv", "PackedEnv", "PackedVectorEnv"]
