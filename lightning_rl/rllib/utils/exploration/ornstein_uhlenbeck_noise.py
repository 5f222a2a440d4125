"""`OrnsteinUhlenbeckNoise` by RLlib's path."""

from lightning_rl.exploration import OrnsteinUhlenbeckNoise

__all__ = ["OrnsteinUhlenbeckNoise"]
