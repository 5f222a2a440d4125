"""RLlib's policies."""

from lightning_rl.rllib.multi_agent_keys import PolicySpec
from lightning_rl.rllib.policy.policy_template import build_policy_class
from lightning_rl.rllib.torch_policy import Policy, TorchPolicy, build_torch_policy

__all__ = ["Policy", "PolicySpec", "TorchPolicy", "build_policy_class", "build_torch_policy"]
