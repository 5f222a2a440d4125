"""The page about a data set: what its sentences claim of the data, and that file names cannot inject markup."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from lightning_rl.cli import main
from lightning_rl.data.offline.data_set import open_data
from lightning_rl.data.offline.shards import write_shard
from lightning_rl.data.offline.steps import DataSpec, close_episodes
from lightning_rl.data.offline.summary import summary
from lightning_rl.reports.data_page import data_page, limits
from tests.reports.html_checker import Checker


def summarized(directory: Path, returns: list[float], actions: list[float], logp: bool = False) -> dict[str, Any]:
    """Episodes of a single step with these returns and actions in [−1, 1]; all are complete."""
    count = len(returns)
    columns: dict[Any, np.ndarray] = {
        ("obs",): np.zeros((count, 2), np.float32),
        ("actions",): np.array(actions, np.float32)[:, None],
        ("rewards",): np.array(returns, np.float32),
        ("terminated",): np.ones(count, bool),
        ("truncated",): np.zeros(count, bool),
    }
    if logp:
        columns[("action_logp",)] = np.zeros(count, np.float32)
    spec = DataSpec(spaces.Box(-np.inf, np.inf, (2,)), spaces.Box(-1, 1, (1,)))
    write_shard(directory, "part", close_episodes(columns, np.arange(count), None), spec)
    return summary(open_data(directory))


def test_the_page_says_whether_rewards_tell_good_behavior_from_bad(tmp_path: Path) -> None:
    can, cannot = limits(summarized(tmp_path / "same", [100.0] * 40, [0.0] * 40))
    assert not can and cannot[0].startswith("All returns are about the same")
    can, _ = limits(summarized(tmp_path / "mixed", [10.0, 100.0] * 20, [0.0] * 40))
    assert can[0].startswith("Returns differ (10 to 100, mean 55)")


def test_the_page_says_which_actions_never_occur(tmp_path: Path) -> None:
    """Of 10 bins from −1 to 1, those of the actions −0.95, −0.85, … 0.05 are the first 6: 4 are empty."""
    found = summarized(tmp_path, [1.0] * 11, [-0.95 + 0.1 * place for place in range(11)])
    assert any("actions: 4 of 10 ranges or values never occur (0.2" in sentence for sentence in limits(found)[1])
    assert sum(found["coverage"]["actions"]["histograms"][0]["shares"]) == pytest.approx(1.0)


def test_the_page_says_which_estimators_are_available(tmp_path: Path) -> None:
    can, _ = limits(summarized(tmp_path / "with", [1.0], [0.0], logp=True))
    assert any("importance sampling" in sentence for sentence in can)
    _, cannot = limits(summarized(tmp_path / "without", [1.0], [0.0]))
    assert any("the direct method only" in sentence for sentence in cannot)


def test_the_command_writes_a_page_whose_markup_is_closed_and_escaped(tmp_path: Path) -> None:
    directory = tmp_path / "<script>"
    found = summarized(directory, [1.0, 2.0, 4.0], [0.0, 0.5, 1.0])
    out = tmp_path / "data.html"
    assert main(["data", str(directory), "--report", str(out)]) == 0
    checker = Checker(out.read_text(encoding="utf-8"))
    assert not checker.open and not [name for name, _ in checker.seen if name == "script"]
    assert any("never occur" in text for text in checker.texts)
    assert "&lt;script&gt;" in data_page(found)
