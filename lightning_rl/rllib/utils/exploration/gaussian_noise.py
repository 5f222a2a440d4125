"""`GaussianNoise` by RLlib's path."""

from lightning_rl.exploration import GaussianNoise

__all__ = ["GaussianNoise"]
