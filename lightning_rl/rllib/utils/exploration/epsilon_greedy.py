"""`EpsilonGreedy` by RLlib's path."""

from lightning_rl.exploration import EpsilonGreedy

__all__ = ["EpsilonGreedy"]
