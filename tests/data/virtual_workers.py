"""Worker processes of given speed, on a clock that only moves when a sample is waited for."""

from __future__ import annotations

from typing import Any

import torch

from lightning_rl.rollouts.worker_results import SampleReference
from lightning_rl.sample_batch import SampleBatch

__all__ = ["Virtual", "fragment"]


def fragment(number: int, length: int = 4) -> SampleBatch:
    flags = torch.zeros(length, 1, dtype=torch.bool)
    obs = torch.full((length + 1, 1, 2), float(number))
    return SampleBatch(rewards=torch.full((length, 1), float(number)), terminated=flags, valid=~flags, obs=obs)


class Virtual:
    """Worker processes with a clock of their own: process `i` needs `durations[i]` for a fragment of 8 steps.

    Requests of one process are answered one after the other. `next_sample` lets the clock run on to the first answer.
    """

    def __init__(self, *durations: float, nbytes: int = 1000) -> None:
        self.durations, self.nbytes, self.clock, self.weights = durations, nbytes, 0.0, -1
        self.running: list[tuple[float, int, int]] = []  # done at, process, weights
        self.free: list[int] = []
        self.most, self.per_process, self.syncs, self.received = 0, 0, 0, [0] * len(durations)

    @property
    def inflight_samples(self) -> int:
        return len(self.running)

    @property
    def oldest_gradient_steps(self) -> int | None:
        return min((weights for *_, weights in self.running), default=None)

    def sync_weights(self, policy: Any) -> None:
        self.weights, self.syncs = policy.gradient_steps, self.syncs + 1

    def submit_samples(
        self, per_process: int, env_steps: int, max_inflight: int | None = None, in_order: bool = False
    ) -> None:
        self.free += [*range(len(self.durations))] * (per_process - self.per_process)
        self.per_process = per_process
        while self.free and (max_inflight is None or len(self.running) < max_inflight):
            process = self.free.pop(0)
            begin = max([self.clock, *(done for done, number, _ in self.running if number == process)])
            self.running.append((begin + self.durations[process], process, self.weights))
        self.most = max(self.most, len(self.running))

    def next_sample(self, in_order: bool = False) -> SampleReference:
        chosen = self.running[0] if in_order else min(self.running)
        self.running.remove(chosen)
        done, process, weights = chosen
        self.clock = max(self.clock, done)
        self.free.append(process)
        self.received[process] += 1
        return SampleReference([fragment(process)], 8, weights, nbytes=self.nbytes)

    def has_sample(self, in_order: bool = False) -> bool:
        return bool(self.running) and (self.running[0] if in_order else min(self.running))[0] <= self.clock

    def fetch(self, sample: SampleReference) -> list[SampleBatch]:
        return sample.fragments

    def get_metrics(self) -> dict[str, list[float]]:
        return {"episode_returns": [], "episode_lengths": []}

    def get_health(self) -> dict[str, float]:
        return {}
