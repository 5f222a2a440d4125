"""Data sets that tests read: recorded by workers, or made by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from lightning_rl.data.evaluator import EVALUATION_DEFAULTS
from lightning_rl.data.offline.recorder import Recorder
from lightning_rl.data.offline.source import OfflineSource
from lightning_rl.data.offline.steps import DataSpec, Steps
from lightning_rl.envs import EnvCreator
from lightning_rl.policies import PPO
from lightning_rl.rollouts.worker_set import WorkerSet
from lightning_rl.sample_batch import SampleBatch

NESTED = DataSpec(
    spaces.Dict({"image": spaces.Box(0, 255, (3, 4, 2), np.uint8), "goal": spaces.Box(-1.0, 1.0, (2,))}),
    spaces.Tuple((spaces.Discrete(3), spaces.Box(-2.0, 2.0, (1,)))),
    {"seed": 7},
)


def nested_steps(lengths: tuple[int, ...] = (3, 1, 4), seed: int = 0) -> Steps:
    """Episodes of these lengths with random content in the spaces of `NESTED`; the second one terminates."""
    rng, count = np.random.default_rng(seed), sum(lengths) + len(lengths)
    closing = np.cumsum(np.array(lengths) + 1) - 1
    valid = np.ones(count, bool)
    valid[closing] = False
    ended = np.zeros((2, count), bool)
    for episode, row in enumerate(closing):
        ended[int(episode != 1), row - 1] = True
    return Steps(
        {
            ("obs", "image"): rng.integers(0, 256, (count, 3, 4, 2), np.uint8),
            ("obs", "goal"): rng.uniform(-1, 1, (count, 2)).astype(np.float32),
            ("actions", "0"): rng.integers(0, 3, count),
            ("actions", "1"): rng.uniform(-1, 1, (count, 1)).astype(np.float32),
            ("rewards",): rng.normal(size=count).astype(np.float32),
            ("terminated",): ended[0],
            ("truncated",): ended[1],
            ("valid",): valid,
            ("action_mask",): rng.random((count, 3)) < 0.5,
        },
        {"normalize": True, "clip": False},
    )


def record(directory: Path, env: EnvCreator, samples: int = 4, policy: Any = None, **worker: Any) -> list[SampleBatch]:
    """Record the experience of a PPO with random weights, or of this policy; returns the fragments."""
    torch.manual_seed(0)
    policy = PPO(*env.spaces(), model={"fcnet_hiddens": [8]}) if policy is None else policy
    options = {"num_envs": 2, "fragment_length": 64, **worker}
    workers = WorkerSet(env, policy, callbacks=[Recorder(directory)], **options)
    fragments = [workers.sample() for _ in range(samples)]
    workers.stop()
    return fragments


class Place:
    """The part of a DataModule that a source reads."""

    seed = 3
    evaluation = EVALUATION_DEFAULTS

    def __init__(self, rank: int = 0, ranks: int = 1) -> None:
        self.rank, self.ranks = rank, ranks


def source(policy: Any, directory: Path, place: Place | None = None, **keywords: Any) -> OfflineSource:
    made = OfflineSource(input=str(directory), **keywords)
    made.attach(Place() if place is None else place)
    made.prepare(policy)
    return made
