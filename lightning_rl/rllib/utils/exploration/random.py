"""`Random` by RLlib's path."""

from lightning_rl.exploration import Random

__all__ = ["Random"]
