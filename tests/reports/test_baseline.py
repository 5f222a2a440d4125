"""Baselines: what is saved, and which new runs are worse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lightning_rl.errors import ConfigError
from lightning_rl.reports.baseline import check_against, read_baseline, save_baseline
from lightning_rl.reports.run_records import RunRecord, Series, read_runs
from lightning_rl.reports.summaries import Task
from tests.reports.run_files import rising, write_run, write_runs


def tasks_of(directory: Path, *lasts: float, **keywords: Any) -> list[Task]:
    return Task.all_of(read_runs([write_runs(directory, *lasts, **keywords)]))


@pytest.fixture
def baseline(tmp_path: Path) -> list[dict[str, Any]]:
    save_baseline(tmp_path / "baseline.json", tasks_of(tmp_path / "old", 400, 410, 420, 430))
    return read_baseline(tmp_path / "baseline.json")


def test_a_baseline_is_small_and_holds_scores(baseline: list[dict[str, Any]], tmp_path: Path):
    (arm,) = baseline
    assert (arm["env"], arm["arm"], arm["metric"]) == ("CartPole-v1", "PPO", "eval/ep_rew_mean")
    assert arm["scores"] == [400, 410, 420, 430] and arm["iqm"] == 415
    assert (tmp_path / "baseline.json").stat().st_size < 1000


@pytest.mark.parametrize(
    ("lasts", "fine"),
    [
        ((400, 410, 420, 430), True),
        ((392, 401, 399, 405), True),  # lower than all of the baseline's, by less than the margin
        ((300, 310, 320, 330), False),
        ((300, 310, 320, 330, 425), True),  # p = 0.11
    ],
)
def test_scores_that_the_test_shows_to_be_lower_are_a_regression(
    baseline: list[dict[str, Any]], tmp_path: Path, lasts: tuple[float, ...], fine: bool
):
    """The margin is 2 % of 415, so new scores are compared with 391.7, 401.7, 411.7 and 421.7."""
    ((found, line),) = check_against(baseline, tasks_of(tmp_path / "new", *lasts))
    assert found is fine, line
    assert line.startswith("CartPole-v1, PPO: ") and "lower by more than 8.30: p = " in line


def test_the_margin_is_a_share_of_the_baseline(baseline: list[dict[str, Any]], tmp_path: Path):
    tasks = tasks_of(tmp_path / "new", 380, 380, 380, 380)
    assert [check_against(baseline, tasks, margin)[0][0] for margin in (0.0, 0.02, 0.1)] == [False, False, True]


def test_a_check_that_could_never_fail_is_refused(baseline: list[dict[str, Any]], tmp_path: Path):
    with pytest.raises(ConfigError, match=r"4 against 3 .*1 more"):
        check_against(baseline, tasks_of(tmp_path / "new", 3, 2, 1))


def test_equal_runs_are_rarely_a_regression(baseline: list[dict[str, Any]], tmp_path: Path):
    """Five old and five new draws from one distribution, without a margin; half of the two-sided level is 2.5 %."""
    generator, (old,), worse = np.random.default_rng(3), baseline, 0
    for _ in range(200):
        before, after = generator.normal(100.0, 10.0, (2, 5))
        runs = []
        for seed, score in enumerate(after):
            curves = {old["metric"]: Series(np.array([1]), np.array([score]))}
            runs.append(RunRecord(tmp_path, {"env": {"id": old["env"]}, "seed": seed}, {}, {}, "ok", curves, ()))
        ((fine, _),) = check_against([{**old, "scores": before.tolist()}], Task.all_of(runs), margin=0.0)
        worse += not fine
    assert worse <= 10


def test_failed_and_missing_runs_are_a_regression(baseline: list[dict[str, Any]], tmp_path: Path):
    write_runs(tmp_path / "new", 500, 500)
    write_run(tmp_path / "new" / "x", seed=9, returns=rising(3, rows=2), state="failed")
    ((fine, line),) = check_against(baseline, Task.all_of(read_runs([tmp_path / "new"])))
    assert not fine and line.endswith("x failed")
    tasks = tasks_of(tmp_path / "other", 500, 500, env="Acrobot-v1")
    assert check_against(baseline, tasks) == [(False, "CartPole-v1, PPO: no new runs of this arm")]
    tasks = tasks_of(tmp_path / "unfinished", 500, state="interrupted")
    assert "no complete run" in check_against(baseline, tasks)[0][1]


def test_arms_are_compared_by_label_where_there_are_several(tmp_path: Path):
    write_runs(tmp_path / "old", 100, 110, 120, 130)
    tasks = tasks_of(tmp_path / "old", 400, 410, 420, 430, policy={"lr": 0.1})
    save_baseline(tmp_path / "b.json", tasks)
    found = check_against(read_baseline(tmp_path / "b.json"), tasks)
    assert [line.split(":")[0] for _, line in found] == ["CartPole-v1, lr=0.001", "CartPole-v1, lr=0.1"]
    assert all(fine for fine, _ in found)


def test_a_baseline_needs_four_seeds(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"PPO has 3 .*4"):
        save_baseline(tmp_path / "b.json", tasks_of(tmp_path, 100, 110, 120))
    assert not (tmp_path / "b.json").exists()


def test_what_is_no_baseline_is_refused(tmp_path: Path):
    arm: dict[str, Any] = {"env": "a", "arm": "b", "metric": "c"}
    of_arms = [arm, {**arm, "scores": [1, "x"]}, {**arm, "scores": [1, float("nan")]}]
    whole = {"format": "lightning_rl baseline 1"}
    for content in ("{", [], {"format": "other"}, whole, *({**whole, "arms": [each]} for each in of_arms)):
        (tmp_path / "b.json").write_text(content if isinstance(content, str) else json.dumps(content))
        with pytest.raises(ConfigError, match="baseline"):
            read_baseline(tmp_path / "b.json")
