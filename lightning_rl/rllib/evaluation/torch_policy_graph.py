"""RLlib's policy with a model by its first name."""

from lightning_rl.rllib.torch_policy import TorchPolicy as TorchPolicyGraph

__all__ = ["TorchPolicyGraph"]
