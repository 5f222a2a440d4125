"""`StochasticSampling` by RLlib's path."""

from lightning_rl.exploration import StochasticSampling

__all__ = ["StochasticSampling"]
