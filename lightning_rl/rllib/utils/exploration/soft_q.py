"""`SoftQ` by RLlib's path."""

from lightning_rl.exploration import SoftQ

__all__ = ["SoftQ"]
