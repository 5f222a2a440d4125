"""RLlib's path of `AsyncGradientsOptimizer`."""

from lightning_rl.rllib.samples_optimizer import AsyncGradientsOptimizer

__all__ = ["AsyncGradientsOptimizer"]
