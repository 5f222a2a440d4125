"""Algorithms learn from environments that fail in every way all the time."""

from __future__ import annotations

from pathlib import Path

import pytest

from lightning_rl.config import compose_config
from lightning_rl.runs import run
from lightning_rl.runs.evaluation import evaluate

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.timeout(1500)]


def test_crashing_cartpole_is_learned(tmp_path: Path) -> None:
    """PPO with 32 environments in two processes; about thirty failures, of which half cost a process."""
    config = compose_config(
        [
            *("policy=ppo", "env=cartpole", "seed=1", "evaluation.every_env_steps=0", f"run_dir={tmp_path / 'run'}"),
            *("env.id=tests.rollouts.crashing:CrashingCartPole", "env.check=false", "workers.vectorization=sync"),
            *("+env.kwargs.chance=0.0002", "+env.kwargs.how=[raise,nan,kill,hang]", "workers.step_timeout_s=3"),
            *("workers.num_workers=2", "workers.envs_per_worker=16", "workers.max_failures=30"),
            *("total_env_steps=150000", "policy.lr=[[0,1e-3],[150000,0]]", "policy.clip=[[0,0.2],[150000,0]]"),
        ]
    )
    run.train(config)
    assert evaluate(tmp_path / "run", env="CartPole-v1", episodes=30)["mean"] >= 450
