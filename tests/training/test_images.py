"""Off-policy algorithms learn from images, with a Q-network and with an encoder that the critics share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from lightning_rl import Algorithm
from tests.training.probes import Probe

MODEL = {"conv_filters": [[8, 4, 2], [16, 3, 2]], "post_fcnet_hiddens": [32], "fcnet_hiddens": [32]}
SMALL = ["data.learning_starts=100", "data.batch_size=64", "data.capacity=1000", "data.update_to_data_ratio=1.0"]


class LitSide(Probe):
    """One step: the left or the right half of a noisy image is lit; pays 1 − (distance of the action from it)."""

    def __init__(self, continuous: bool = False) -> None:
        self.continuous, self.observation_space = continuous, spaces.Box(0, 255, (12, 12, 3), np.uint8)
        self.action_space = spaces.Box(-1.0, 1.0, (1,)) if continuous else spaces.Discrete(2)

    def observe(self) -> np.ndarray:
        self.side = int(self.np_random.integers(2))
        image = self.np_random.integers(0, 100, (12, 12, 3), dtype=np.uint8)
        image[:, 6 * self.side : 6 * self.side + 6] += 150
        return image

    def reward(self, action: Any) -> float:
        chosen = (float(action[0]) + 1.0) / 2.0 if self.continuous else float(action)
        return 1.0 - abs(chosen - self.side)


@pytest.mark.parametrize(
    ("policy", "continuous", "steps", "changes"),
    [
        ("dqn", False, 900, {"dueling": True, "target_update_interval": 50}),
        ("sac", True, 900, {"initial_alpha": 0.1}),
        pytest.param("sac", False, 900, {"target_entropy": 0.1, "initial_alpha": 0.1}, marks=pytest.mark.every),
        # Its actor saturates before the critics separate the sides, and has to recover.
        pytest.param("td3", True, 1800, {}, marks=pytest.mark.every),
    ],
)
def test_the_lit_side_is_found(policy: str, continuous: bool, steps: int, changes: dict[str, Any]) -> None:
    config = {
        "policy": {"lr": 1e-3, **changes},
        "model": MODEL,
        "exploration": {"random_timesteps": 600} if policy == "td3" else {},
        "env": {"kwargs": {"continuous": continuous}},
        "seed": 4 if policy == "td3" else 1,
    }
    overrides = [*SMALL, f"data.fragments_per_iteration={steps}", "evaluation.episodes=40"]
    made = Algorithm(policy, LitSide, overrides=overrides, config=config)
    encoder = getattr(getattr(made.policy, "critic", None), "encoder", None)
    before = [p.detach().clone() for p in encoder.parameters()] if encoder is not None else []
    made.train()
    assert made.datamodule.source.buffer.ring.columns.array("obs").dtype == np.uint8
    if policy != "dqn":
        assert before and not any(map(torch.equal, before, encoder.parameters()))  # type: ignore[union-attr]
    assert made.evaluate()["eval/ep_rew_mean"] > 0.9
    made.stop()
