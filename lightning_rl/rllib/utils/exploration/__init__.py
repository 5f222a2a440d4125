"""Exploration strategies by RLlib's names."""

from lightning_rl.exploration import (
    RND,
    Curiosity,
    EpsilonGreedy,
    GaussianNoise,
    OrnsteinUhlenbeckNoise,
    ParameterNoise,
    PerWorkerEpsilonGreedy,
    PerWorkerGaussianNoise,
    Random,
    SoftQ,
    StochasticSampling,
)

__all__ = [
    "RND",
    "Curiosity",
    "EpsilonGreedy",
    "GaussianNoise",
    "OrnsteinUhlenbeckNoise",
    "ParameterNoise",
    "PerWorkerEpsilonGreedy",
    "PerWorkerGaussianNoise",
    "Random",
    "SoftQ",
    "StochasticSampling",
]
