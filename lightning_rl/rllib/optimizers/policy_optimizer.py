"""RLlib's path of `PolicyOptimizer`."""

from lightning_rl.rllib.samples_optimizer import PolicyOptimizer

__all__ = ["PolicyOptimizer"]
