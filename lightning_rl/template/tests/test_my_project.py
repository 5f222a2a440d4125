"""The environment keeps Gymnasium's API and pays at its end; the network learns in a few hundred steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from lightning_rl import Algorithm, EnvCreator

from my_project.corridor import Corridor


def test_the_environment_keeps_the_api():
    EnvCreator(Corridor).spaces()


def test_going_right_pays():
    env = Corridor(length=4)
    env.reset(seed=0)
    steps = [env.step(np.int64(1)) for _ in range(3)]  # from place 0 or 1 to place 3
    assert next(reward for _, reward, terminated, *_ in steps if terminated) == 1.0
    assert all(reward == -0.01 for _, reward, terminated, *_ in steps if not terminated)


def test_the_policy_learns_with_the_network_and_the_metric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(Path(__file__).parents[1])  # ./conf is found from the project's folder
    algorithm = Algorithm("my_ppo", overrides=["env=corridor", f"run_dir={tmp_path}", "logger=none"])
    before = algorithm.policy.model.body[0].weight.detach().clone()
    result = algorithm.train()
    assert 0 <= result["train/share_right"] <= 1
    assert result["train/model/feature_penalty"] > 0
    assert not before.equal(algorithm.policy.model.body[0].weight)
    algorithm.stop()
