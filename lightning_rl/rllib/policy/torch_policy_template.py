"""RLlib's policies made of functions."""

from lightning_rl.rllib.torch_policy import build_torch_policy

__all__ = ["build_torch_policy"]
