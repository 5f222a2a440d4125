"""RLlib's policies made of functions."""

from lightning_rl.rllib.torch_policy import build_torch_policy as build_policy_class

__all__ = ["build_policy_class"]
