"""fast_steps: equal to the plain gradient steps, and used with tested versions only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_rl import Algorithm
from lightning_rl.learning import fast_steps, optimiser
from lightning_rl.learning.fast_steps import is_tested


@pytest.mark.parametrize(
    ("package", "version", "tested"),
    [
        ("torch", "2.13.0+cpu", True),
        ("torch", "2.6.1", True),
        ("torch", "2.5.1", False),
        ("torch", "3.0.0", False),
        ("torch", "2.99.0", False),
        ("lightning", "2.6.6", True),
        ("lightning", "2.7.0", False),
    ],
)
def test_is_tested_accepts_versions_in_the_tested_range_only(package: str, version: str, tested: bool) -> None:
    assert is_tested(package, version) is tested


@pytest.mark.parametrize(
    ("policy", "env", "overrides"),
    [
        ("ppo", "cartpole", ["workers.fragment_length=64"]),
        ("dqn", "cartpole", ["data.learning_starts=64", "data.batch_size=32"]),
        ("td3", "pendulum", ["data.learning_starts=64", "data.batch_size=32"]),
    ],
)
def test_fast_and_plain_steps_give_equal_weights(
    policy: str, env: str, overrides: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bitwise equal after five iterations."""
    weights: list[dict[str, Any]] = []
    for enabled in (True, False):
        monkeypatch.setattr(fast_steps, "ENABLED", enabled)
        monkeypatch.setattr(optimiser, "ENABLED", enabled)
        algorithm = Algorithm(policy, env, overrides=[f"run_dir={tmp_path / str(enabled)}", *overrides])
        for _ in range(5):
            algorithm.train()
        assert algorithm.policy.gradient_steps > 0
        assert (algorithm.policy.learner.optimiser._direct, algorithm.trainer.global_step > 0) == (enabled, True)
        weights.append({name: value.clone() for name, value in algorithm.policy.state_dict().items()})
        algorithm.stop()
    assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())
