"""RLlib's abstract class of policies."""

from lightning_rl.rllib.torch_policy import Policy

__all__ = ["Policy"]
