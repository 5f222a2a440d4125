"""Reference curves: marks, bands, and files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lightning_rl.config import compose_config
from lightning_rl.config.groups import group_options
from lightning_rl.errors import ConfigError
from lightning_rl.reports.reference import (
    MARKS,
    ReferenceCurves,
    curve_at_marks,
    load_reference,
    reference_names,
)
from lightning_rl.reports.run_records import read_run
from tests.families import each

ROOT = Path(__file__).parents[2]
RISING = [float(10 * mark) for mark in range(MARKS)]  # 0 … 190
BETTER = [value + 20.0 for value in RISING]


@pytest.fixture
def reference() -> ReferenceCurves:
    """Medians rise from 10 to 200, so the margin is 19; the lowest at the end is 190."""
    middle = [value + 10.0 for value in RISING]
    return ReferenceCurves(("policy=ppo",), 2000, (0, 1, 2), (RISING, middle, BETTER), {"torch": "2"})


def test_a_curve_has_the_first_evaluation_at_or_after_each_mark(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text("env_steps,eval/ep_rew_mean\n100,1\n199,2\n205,3\n1800,4\n")
    curve = curve_at_marks(read_run(tmp_path), 2000)
    assert curve == [1.0, 3.0, *[4.0] * 18]  # the marks are 100, 200, …; the run ended before the last two


def test_a_run_like_the_reference_runs_or_better_is_inside_their_band(reference: ReferenceCurves) -> None:
    found = reference.compare(RISING)
    assert (found.ok, found.low, found.high, found.margin) == (True, 0, 0, 19.0)
    assert (found.last, found.lowest, found.highest) == (190.0, 190.0, 210.0)
    better = reference.compare([value + 5.0 for value in BETTER])
    assert better.ok and better.high == MARKS


@pytest.mark.parametrize(("last", "ok"), [(171.0, True), (170.9, False), (float("nan"), False)])
def test_the_last_evaluation_may_be_lower_by_the_margin(reference: ReferenceCurves, last: float, ok: bool) -> None:
    assert reference.compare([*RISING[:-1], last]).ok is ok


@pytest.mark.parametrize(("low", "ok"), [(3, True), (4, False)])
def test_a_fifth_of_the_evaluations_before_the_last_may_be_low(reference: ReferenceCurves, low: int, ok: bool) -> None:
    curve = [value - 100.0 if mark < low else value for mark, value in enumerate(RISING)]
    comparison = reference.compare(curve)
    assert (comparison.ok, comparison.low) == (ok, low)


def test_runs_that_are_at_their_best_from_the_start_have_a_margin(reference: ReferenceCurves) -> None:
    flat = ReferenceCurves((), 2000, (0,), ([500.0] * MARKS,), {})
    assert flat.compare([490.0] * MARKS).ok and not flat.compare([489.0] * MARKS).ok


WITHOUT_REFERENCE = {
    "hours of a run on images": {"a2c_pong", "pong_42", "ppo_atari", "ppo_breakout", "ppo_pong"},
    "hours of a run": {"ppo_halfcheetah", "sac_halfcheetah", "td3_halfcheetah"},
    "half an hour of a run": {"qmix_simple_spread", "qmix_simple_speaker_listener"},
    "two million env steps": {"ars_pendulum", "es_pendulum"},
    "ten minutes of a run": {"ppo_simple_spread"},
    "opponents that learn too": {"ppo_connect_four", "ppo_rock_paper_scissors", "ppo_simple_tag"},
}


def test_every_shipped_experiment_has_a_reference_but_those_that_the_docs_name() -> None:
    without = set.union(*WITHOUT_REFERENCE.values())
    assert set(group_options("experiment")) - {"none"} == set(reference_names()) | without
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in page for name in without)


@pytest.mark.parametrize("name", each(reference_names(), default=("ppo_cartpole", "dqn_cartpole", "sac_pendulum")))
def test_shipped_reference_curves_belong_to_an_experiment_as_it_is(name: str) -> None:
    reference = load_reference(name)
    config = compose_config(list(reference.overrides))
    assert config["total_env_steps"] == reference.total_env_steps, "the experiment changed: train its reference again"
    assert len(reference.seeds) == len(set(reference.seeds)) == len(reference.returns) >= 3
    assert {len(returns) for returns in reference.returns} == {MARKS}
    assert all(reference.compare(returns).ok for returns in reference.returns)


def test_saved_curves_are_read_again(
    reference: ReferenceCurves, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "reference").mkdir()
    reference.save(tmp_path / "reference" / "mine.json")
    monkeypatch.setattr("lightning_rl.reports.reference.shipped_conf", lambda: tmp_path)
    assert reference_names() == ["mine"]
    loaded = load_reference("mine")
    assert loaded.compare(RISING) == reference.compare(RISING) and list(loaded.seeds) == [0, 1, 2]
    with pytest.raises(ConfigError, match=r"'min'.*'mine'"):
        load_reference("min")


def test_a_run_without_evaluations_is_refused(tmp_path: Path) -> None:
    for text in (None, "env_steps,eval/ep_rew_mean\n10,\n"):
        if text is not None:
            (tmp_path / "metrics.csv").write_text(text)
        with pytest.raises(ConfigError, match=r"no evaluation, in metrics\.csv"):
            curve_at_marks(read_run(tmp_path), 100)


def test_one_reference_run_in_eight_is_below_the_others_of_its_experiment() -> None:
    """What `verify` and its page say of an unchanged program: 24 of 188 shipped runs."""
    found = []
    for reference in map(load_reference, reference_names()):
        for place, curve in enumerate(returns := [*reference.returns]):
            others = returns[:place] + returns[place + 1 :]
            found.append(replace(reference, returns=others).compare(curve).ok)
    assert 1 / 10 < 1 - sum(found) / len(found) < 1 / 7
