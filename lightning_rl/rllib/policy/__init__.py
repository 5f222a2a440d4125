"""RLlib's policies."""

from lightning_rl.rllib.torch_policy import Policy, TorchPolicy, build_torch_policy

__all__ = ["Policy", "TorchPolicy", "build_torch_policy"]
