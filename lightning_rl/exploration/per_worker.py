"""Constant exploration that differs by worker, from exploring to nearly greedy: Ape-X."""

from __future__ import annotations

from typing import Any

from gymnasium import Space

from lightning_rl.exploration.epsilon_greedy import EpsilonGreedy
from lightning_rl.exploration.exploration import Actor
from lightning_rl.exploration.gaussian_noise import GaussianNoise
from lightning_rl.schema.ranges import NonNegative, WholeEnvSteps

__all__ = ["PerWorkerEpsilonGreedy", "PerWorkerGaussianNoise", "per_worker_scale"]


def per_worker_scale(actor: Actor) -> float:
    """0.4^(1 + 7 i / (N − 1)) for worker i of N: 0.4 for the first, 0.00066 for the last; 0.4 for a single worker.

    Horgan et al. 2018, arXiv:1803.00933, section 4.1.
    """
    return 0.4 ** (1.0 + 7.0 * actor.worker_index / max(1, actor.num_workers - 1))


class PerWorkerEpsilonGreedy(EpsilonGreedy):
    """`EpsilonGreedy` with a constant ε per worker, 0.4^(1 + 7 i / (N − 1)): from exploring to nearly greedy.

    The workers are the logical ones (`workers.logical_workers`), so an ε does not depend on the process of its worker.

    Args:
        action_space: discrete, or nested of discrete parts.
    """

    def __init__(self, action_space: Space[Any]) -> None:
        super().__init__(action_space)

    def epsilon(self, timestep: int) -> float:
        """ε of the acting worker."""
        return per_worker_scale(self.actor)

    def info(self, timestep: int) -> dict[str, float]:
        """Nothing: every ε is constant."""
        return {}


class PerWorkerGaussianNoise(GaussianNoise):
    """`GaussianNoise` with a constant scale for each worker, 0.4^(1 + 7 i / (N − 1)): `per_worker_scale`.

    Args:
        action_space: float Boxes, or nested of them.
        random_timesteps: env steps before which actions are uniformly random.
        stddev: standard deviation at scale 1, in the policy's units.
    """

    def __init__(
        self, action_space: Space[Any], random_timesteps: WholeEnvSteps = 1000, stddev: NonNegative = 0.1
    ) -> None:
        super().__init__(action_space, random_timesteps, stddev)

    def scale(self, timestep: int) -> float:
        """The scale of the acting worker."""
        return per_worker_scale(self.actor)

    def info(self, timestep: int) -> dict[str, float]:
        """Nothing: every scale is constant."""
        return {}
