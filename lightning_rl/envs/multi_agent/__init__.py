"""Environments with several agents: the interface, adapters of other libraries' forms, wrappers, and packing."""

from lightning_rl.envs.multi_agent.adapters import as_multi_agent
from lightning_rl.envs.multi_agent.agent_layout import AgentKind, AgentLayout
from lightning_rl.envs.multi_agent.copies import Copies, make_multi_agent
from lightning_rl.envs.multi_agent.grouped_agents import GroupedAgents
from lightning_rl.envs.multi_agent.multi_agent_env import ALL, MultiAgentEnv
from lightning_rl.envs.multi_agent.packed_env import PackedEnv
from lightning_rl.envs.multi_agent.packed_vector_env import PackedVectorEnv
from lightning_rl.envs.multi_agent.pettingzoo_envs import AECAdapter, ParallelAdapter
from lightning_rl.envs.multi_agent.single_agent_env import SingleAgentEnv
from lightning_rl.envs.multi_agent.tuple_env import TupleEnv
from lightning_rl.envs.multi_agent.wrappers import EpisodeLimit, MultiAgentWrapper

__all__ = [
    "ALL",
    "AECAdapter",
    "AgentKind",
    "AgentLayout",
    "Copies",
    "EpisodeLimit",
    "GroupedAgents",
    "MultiAgentEnv",
    "MultiAgentWrapper",
    "PackedEnv",
    "PackedVectorEnv",
    "ParallelAdapter",
    "SingleAgentEnv",
    "TupleEnv",
    "as_multi_agent",
    "make_multi_agent",
]
