"""`Curiosity` by RLlib's path."""

from lightning_rl.exploration import Curiosity

__all__ = ["Curiosity"]
