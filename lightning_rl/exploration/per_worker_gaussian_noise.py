"""Gaussian noise with a constant scale per worker: Ape-X for continuous actions."""

from __future__ import annotations

from typing import Any

from gymnasium import Space

from lightning_rl.exploration.gaussian_noise import GaussianNoise
from lightning_rl.exploration.per_worker_epsilon_greedy import per_worker_scale
from lightning_rl.schema.ranges import NonNegative, WholeEnvSteps

__all__ = ["PerWorkerGaussianNoise"]


class PerWorkerGaussianNoise(GaussianNoise):
    """`GaussianNoise` with a constant scale for each worker, 0.4^(1 + 7 i / (N − 1)): `per_worker_scale`.

    Args:
        action_space: float Boxes, or nested of them.
        random_timesteps: before this many environment steps, actions are uniformly random instead.
        stddev: deviation at scale 1, in the policy's units.
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
