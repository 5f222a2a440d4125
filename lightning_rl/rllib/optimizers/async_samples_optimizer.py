"""RLlib's path of `AsyncSamplesOptimizer`."""

from lightning_rl.rllib.samples_optimizer import AsyncSamplesOptimizer

__all__ = ["AsyncSamplesOptimizer"]
