"""RLlib's configs that are put together by methods."""

from lightning_rl.rllib.algorithm_config import AlgorithmConfig

__all__ = ["AlgorithmConfig"]
