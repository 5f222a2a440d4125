"""RLlib's abstract class of policies."""

from lightning_rl.rllib.multi_agent_keys import PolicySpec
from lightning_rl.rllib.torch_policy import Policy

__all__ = ["Policy", "PolicySpec"]
