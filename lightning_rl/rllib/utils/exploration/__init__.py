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
from lightning_rl.rllib.utils.exploration.exploration import Exploration

__all__ = [
    "RND",
    "Curiosity",
    "EpsilonGreedy",
    "Exploration",
    "GaussianNoise",
    "OrnsteinUhlenbeckNoise",
    "ParameterNoise",
    "PerWorkerEpsilonGreedy",
    "PerWorkerGaussianNoise",
    "Random",
    "SoftQ",
    "StochasticSampling",
]
