"""Filters for images of another size than the known ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Box

from lightning_rl.rllib.agents.ppo import PPOTrainer
from tests.training import probes


class Frames(probes.Probe):
    length = 5

    def __init__(self, env_config):
        super().__init__()
        self.observation_space = Box(0, 255, (42, 42, 3), np.uint8)

    def observe(self):
        return self.observation_space.high


def test_convolutions_are_configured() -> None:
    """A side of 42 becomes 21, 11 and 1."""
    model = {"dim": 42, "conv_filters": [[16, [4, 4], 2], [32, [4, 4], 2], [512, [11, 11], 1]]}
    trainer: Any = PPOTrainer(env=Frames, config={"model": model, "train_batch_size": 32, "num_sgd_iter": 1})
    widths = [tuple(p.shape) for p in trainer.policy.model.parameters() if p.dim() == 4]
    assert widths[:3] == [(16, 3, 4, 4), (32, 16, 4, 4), (512, 32, 11, 11)]
    actions, _, _ = trainer.policy.compute_actions(np.zeros((2, 42, 42, 3), np.uint8))
    assert actions.shape == (2,)
    trainer.train()
    trainer.stop()
