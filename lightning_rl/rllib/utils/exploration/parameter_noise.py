"""`ParameterNoise` by RLlib's path."""

from lightning_rl.exploration import ParameterNoise

__all__ = ["ParameterNoise"]
