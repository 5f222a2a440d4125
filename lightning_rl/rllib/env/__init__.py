"""RLlib's interface of environments."""

from lightning_rl.envs import EnvContext
from lightning_rl.rllib.env.external_env import ExternalEnv
from lightning_rl.rllib.env.external_multi_agent_env import ExternalMultiAgentEnv
from lightning_rl.rllib.env.multi_agent_env import MultiAgentEnv, make_multi_agent
from lightning_rl.rllib.env.policy_client import PolicyClient
from lightning_rl.rllib.env.policy_server_input import PolicyServerInput
from lightning_rl.rllib.workers import BaseEnv

__all__ = [
    "BaseEnv",
    "EnvContext",
    "ExternalEnv",
    "ExternalMultiAgentEnv",
    "MultiAgentEnv",
    "PolicyClient",
    "PolicyServerInput",
    "make_multi_agent",
]
