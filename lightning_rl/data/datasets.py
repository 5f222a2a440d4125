"""The datasets that Lightning iterates: iterations of training, and the episodes of an evaluation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import IterableDataset

from lightning_rl.errors import ConfigError
from lightning_rl.sample_batch import SampleBatch

__all__ = ["ENDLESS", "EvaluationDataset", "PlanDataset"]

ENDLESS = 2**31
"""Iterations that no epoch reaches."""


class PlanDataset(IterableDataset[Any]):
    """An execution plan as a training dataset without an end; one item = one Lightning batch = one iteration.

    It has a length all the same, because Lightning prefetches one batch from a dataset that has none, and on-policy
    data would be one update old. The length is the most that an epoch can have, not what it will have.

    The plan continues from one epoch to the next, so that training does not depend on when evaluations take place.

    Args:
        datamodule: its source gives the items, in which its feeds replace what policies of several agents learn from.
        policy: that learns.
    """

    def __init__(self, datamodule: Any, policy: Any) -> None:
        self.datamodule, self.policy = datamodule, policy
        self._running: Iterator[Any] | None = None

    def iterations(self) -> Iterator[Any]:
        """The items; begun again where they end."""
        items = self.datamodule.source.iterations(self.policy)
        return map(self.datamodule.feeds.feed, items) if self.policy.agents else items

    def __len__(self) -> int:
        return ENDLESS

    def __iter__(self) -> Iterator[Any]:
        if self._running is None:
            self._running = self._repeat()
        return self._running

    def _repeat(self) -> Iterator[Any]:
        while True:
            count = 0
            for item in self.iterations():
                count += 1
                yield item
            if not count:
                name = type(self.datamodule.source).__name__
                raise ConfigError(f"the execution plan of {name} ended without giving a batch: data.plan")


class EvaluationDataset(IterableDataset[SampleBatch]):
    """One item: the returns and lengths of an evaluation's whole episodes, on their own environments.

    With several agents, "policy_returns.<id>" has the mean return of each policy's agents; NaN where it had none.

    Args:
        play: plays the episodes.
    """

    def __init__(self, play: Callable[[], Sequence[tuple[float, int]]]) -> None:
        self.play = play

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[SampleBatch]:
        played = self.play()
        columns = {"episode_returns": [ret for ret, _ in played], "episode_lengths": [length for _, length in played]}
        by_policy: list[Mapping[str, float]] = [getattr(episode, "by_policy", {}) for episode in played]
        for name in dict.fromkeys(name for own in by_policy for name in own):
            columns[f"policy_returns.{name}"] = [own.get(name, math.nan) for own in by_policy]
        yield SampleBatch({name: torch.tensor(values, dtype=torch.float64) for name, values in columns.items()})
