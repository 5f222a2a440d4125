"""Ape-X: every worker has its own ε, and keeps it."""

from __future__ import annotations

from typing import Any

from gymnasium import Space

from lightning_rl.exploration.epsilon_greedy import EpsilonGreedy
from lightning_rl.exploration.exploration import Actor

__all__ = ["PerWorkerEpsilonGreedy", "per_worker_scale"]


def per_worker_scale(actor: Actor) -> float:
    """0.4^(1 + 7 i / (N − 1)) for worker i of N: 0.4 for the first, 0.00066 for the last; 0.4 for one alone.

    Horgan et al. 2018, arXiv:1803.00933, section 4.1.
    """
    return 0.4 ** (1.0 + 7.0 * actor.worker_index / max(1, actor.num_workers - 1))


class PerWorkerEpsilonGreedy(EpsilonGreedy):
    """`EpsilonGreedy` with a constant ε for each worker, 0.4^(1 + 7 i / (N − 1)): from bold to nearly greedy.

    The workers are the logical ones (`workers.logical_workers`), so an ε does not depend on where its worker runs.

    Args:
        action_space: discrete, or nested of discrete parts.
    """

    def __init__(self, action_space: Space[Any]) -> None:
        super().__init__(action_space)

    def epsilon(self, timestep: int) -> float:
        """ε of the worker that acts."""
        return per_worker_scale(self.actor)

    def info(self, timestep: int) -> dict[str, float]:
        """Nothing: no ε ever changes."""
        return {}
