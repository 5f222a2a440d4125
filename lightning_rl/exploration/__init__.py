"""Exploration strategies: how actions are chosen from an action distribution in training. One file per strategy."""

from lightning_rl.exploration.catalog import STRATEGIES, make_exploration, strategy_class
from lightning_rl.exploration.curiosity import Curiosity
from lightning_rl.exploration.epsilon_greedy import EpsilonGreedy
from lightning_rl.exploration.exploration import Actor, Exploration
from lightning_rl.exploration.gaussian_noise import GaussianNoise
from lightning_rl.exploration.group_noise import GroupNoise
from lightning_rl.exploration.gsde import GSDE
from lightning_rl.exploration.noisy_network import NoisyNetwork, require_noisy_layers
from lightning_rl.exploration.ornstein_uhlenbeck_noise import OrnsteinUhlenbeckNoise
from lightning_rl.exploration.parameter_noise import ParameterNoise
from lightning_rl.exploration.per_worker import PerWorkerEpsilonGreedy, PerWorkerGaussianNoise
from lightning_rl.exploration.random import Random
from lightning_rl.exploration.rnd import RND
from lightning_rl.exploration.soft_q import SoftQ
from lightning_rl.exploration.stochastic_sampling import StochasticSampling

__all__ = [
    "GSDE",
    "RND",
    "STRATEGIES",
    "Actor",
    "Curiosity",
    "EpsilonGreedy",
    "Exploration",
    "GaussianNoise",
    "GroupNoise",
    "NoisyNetwork",
    "OrnsteinUhlenbeckNoise",
    "ParameterNoise",
    "PerWorkerEpsilonGreedy",
    "PerWorkerGaussianNoise",
    "Random",
    "SoftQ",
    "StochasticSampling",
    "make_exploration",
    "require_noisy_layers",
    "strategy_class",
]
