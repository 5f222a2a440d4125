"""Evaluations whose length a function decides while they are played."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lightning_rl.data.evaluator import Episodes, Evaluator

__all__ = ["RoundsOfEpisodes"]


class RoundsOfEpisodes(Evaluator):
    """Plays rounds of episodes as long as there is something left to do.

    Args:
        evaluator: that of an evaluation with a number of episodes; a round has at most as many.
        left: returns what is left of the duration, called with what was played.
        in_steps: whether `left` counts steps of episodes, and not the episodes.
    """

    def __init__(self, evaluator: Evaluator, left: Callable[[int], int], in_steps: bool) -> None:
        super().__init__(evaluator.workers, evaluator.episodes, evaluator.parallel, evaluator.max_episode_steps)
        self.left, self.in_steps = left, in_steps

    def evaluate(self, policy: Any) -> Episodes:
        """The episodes of all rounds, each played with the present weights."""
        played: Episodes = []
        round_size = self.episodes
        while (left := self.left(sum(length for _, length in played) if self.in_steps else len(played))) > 0:
            self.episodes = round_size if self.in_steps else min(round_size, left)
            played += super().evaluate(policy)
        return played
