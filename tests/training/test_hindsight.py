"""Goals that random actions do not reach are learned with hindsight, and not without."""

from __future__ import annotations

from pathlib import Path

import pytest

from lightning_rl.config import compose_config
from lightning_rl.runs import run
from lightning_rl.runs.evaluation import evaluate

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
TASKS = {"bit_flipping": ("dqn", -16.0), "point_reach": ("sac", -50.0)}  # and the return of an episode that fails


def success_rate(env: str, goals: int, seed: int, run_dir: Path) -> float:
    """Share of 50 episodes with the best actions that reach the goal."""
    policy, failure = TASKS[env]
    overrides = [
        f"policy={policy}",
        f"env={env}",
        f"data.hindsight_goals={goals}",
        f"seed={seed}",
        f"run_dir={run_dir}",
    ]
    run.train(compose_config([*overrides, "evaluation=none", "logger=none"]))
    returns = evaluate(run_dir, episodes=50)["returns"]
    return sum(each > failure for each in returns) / len(returns)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("env", TASKS)
def test_goals_are_reached_with_hindsight_and_not_without(env: str, seed: int, tmp_path: Path) -> None:
    assert success_rate(env, 4, seed, tmp_path / "with") >= 0.95
    assert success_rate(env, 0, seed, tmp_path / "without") <= 0.4  # some pass a point on their way to nowhere
