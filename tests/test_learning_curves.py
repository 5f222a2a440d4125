"""`scripts/learning_curves.py` draws real runs, and knows a pair for each algorithm."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lightning_rl.config import check_config, compose_config
from lightning_rl.runs import run
from scripts import learning_curves

ROOT = Path(__file__).parents[1]


@pytest.mark.every
def test_every_pair_composes() -> None:
    for pair in learning_curves.PAIRS:
        check_config(compose_config(learning_curves.command(*pair).split()[2:]))


def test_the_mean_is_taken_where_all_seeds_have_values() -> None:
    """From 10 to 40; at 20 the lines are at 2 and 4, at 40 at 4 and 8."""
    short, long = (np.array([10.0, 40.0]), np.array([1.0, 4.0])), (np.array([0.0, 50.0]), np.array([0.0, 10.0]))
    steps, mean = learning_curves.mean_curve([short, long])
    assert (steps[0], steps[-1], len(steps)) == (10.0, 40.0, learning_curves.POINTS)
    np.testing.assert_allclose(np.interp([20.0, 40.0], steps, mean), [3.0, 6.0])


def test_a_run_is_drawn_once_it_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib", reason='pictures need the extra bench: pip install -e ".[bench]"')
    pair = ("ppo", "cartpole")
    run_dir = learning_curves.run_dir_of(tmp_path, pair, 0)
    assert not learning_curves.is_complete(run_dir)
    words = learning_curves.command(*pair).split()[2:]
    run.train(compose_config([*words, "total_env_steps=4000", "report_every_env_steps=1", f"run_dir={run_dir}"]))
    assert learning_curves.is_complete(run_dir)
    steps, returns = learning_curves.curve_of(run_dir)
    assert len(steps) == len(returns) >= 2 and (np.diff(steps) > 0).all() and returns.min() > 5
    for picture in (tmp_path / "one.svg", tmp_path / "again.svg"):
        learning_curves.draw([(steps, returns)], "a title", picture)
    text = (tmp_path / "one.svg").read_text(encoding="utf-8")
    assert "a title" in text and "environment steps" in text and len(text) < 50_000
    assert text == (tmp_path / "again.svg").read_text(encoding="utf-8")
