"""The time split and the health lights: each induced trouble gives its own light, and a calm run none."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lightning_rl.reports.health import LIGHTS, findings
from lightning_rl.reports.run_records import RunRecord, read_run
from lightning_rl.reports.time_split import PARTS, advice_on, time_split
from tests.edited_runs import edit_config
from tests.reports.run_files import ROWS, rising, write_run

LONG = 60  # rows: enough for the running median of gradient norms
CALM: dict[str, Sequence[Any]] = {
    "train/loss": [1.0] * LONG,
    "train/approx_kl": [0.01] * LONG,
    "train/clip_fraction": [0.1] * LONG,
    "train/entropy": [0.69 - 0.005 * row for row in range(LONG)],
    "train/explained_variance": [0.8] * LONG,
    "train/grad_norm": [1.0] * LONG,
    "train/q_mean": [50.0] * LONG,
    "eval/ep_len_mean": [200.0] * LONG,
    "rollout/policy_lag": [0.0] * LONG,
    "sys/worker_restarts": [0.0] * LONG,
    "sys/env_restarts": [0.0] * LONG,
}
TROUBLES: dict[str, tuple[dict[str, Sequence[Any]], str]] = {
    "NaN and infinity": ({"train/loss": [1.0] * (LONG - 1) + ["nan"]}, "trouble"),
    "Policy step (KL)": ({"train/approx_kl": [0.01] * 50 + [0.2] * 10}, "trouble"),
    "Clipped ratios": ({"train/clip_fraction": [0.4] * LONG}, "watch"),
    "Entropy": ({"train/entropy": [0.69] * 10 + [0.001] * 50}, "trouble"),
    "Explained variance": ({"train/explained_variance": [-0.1] * LONG}, "watch"),
    "Q-values": ({"train/q_mean": [400.0] * LONG}, "trouble"),
    "Gradient spikes": ({"train/grad_norm": [1.0] * 55 + [50.0] + [1.0] * 4}, "trouble"),
    "Policy lag": ({"rollout/policy_lag": [8.0] * LONG}, "watch"),
    "Restarts": ({"sys/worker_restarts": [0.0] * 50 + [2.0] * 10}, "watch"),
}


def run_with(directory: Path, metrics: dict[str, Sequence[Any]], **keywords: Any) -> RunRecord:
    return read_run(write_run(directory, returns=rising(200, LONG), metrics=metrics, **keywords))


def levels(run: RunRecord) -> dict[str, str]:
    return {finding.light.name: finding.worst for finding in findings([[run]])}


def test_a_calm_run_has_green_lights_for_all_that_it_recorded(tmp_path: Path):
    assert levels(run_with(tmp_path / "run", CALM)) == {light.name: "ok" for light in LIGHTS}


@pytest.mark.parametrize("name", [light.name for light in LIGHTS])
def test_each_trouble_gives_its_own_light(tmp_path: Path, name: str):
    metrics, level = TROUBLES[name]
    found = levels(run_with(tmp_path / "run", {**CALM, **metrics}))
    assert {light: found[light] for light in found if found[light] != "ok"} == {name: level}


def test_a_light_whose_metrics_are_missing_is_not_there(tmp_path: Path):
    found = levels(run_with(tmp_path / "run", {"train/loss": [1.0] * LONG, "rollout/policy_lag": [0.0] * LONG}))
    assert set(found) == {"NaN and infinity", "Policy lag"}


def test_q_values_are_compared_with_the_reward_per_step_over_1_minus_gamma(tmp_path: Path):
    """A return of 200 in 200 steps: 1 per step, at most 1 / (1 − 0.99) = 100; a Q-value of 160 is 1.6 times that."""
    run = run_with(tmp_path / "run", {**CALM, "train/q_mean": [160.0] * LONG})
    (reading,) = next(finding.readings for finding in findings([[run]]) if finding.light.name == "Q-values")
    assert reading is not None and (reading.number, reading.level) == ("1.60 ×", "watch")


def test_q_values_of_filtered_rewards_are_not_judged(tmp_path: Path):
    run = run_with(tmp_path / "run", {**CALM, "train/q_mean": [400.0] * LONG}, policy={"reward_filter": "sign"})
    assert "Q-values" not in levels(run)


def test_a_run_that_ended_by_numbers_that_are_not_finite_is_red(tmp_path: Path):
    run = run_with(tmp_path / "run", CALM, state="failed", error="NonFiniteError: loss is nan")
    assert levels(run)["NaN and infinity"] == "trouble"


def test_the_worst_run_decides_and_the_others_are_counted(tmp_path: Path):
    calm = run_with(tmp_path / "0", CALM)
    stale = run_with(tmp_path / "1", {**CALM, "rollout/policy_lag": [20.0] * LONG})
    (finding,) = (each for each in findings([[calm, stale], [calm]]) if each.light.name == "Policy lag")
    first, second = finding.readings
    assert first is not None and second is not None
    assert (first.level, first.number, first.runs, first.of) == ("trouble", "20", 1, 2)
    assert (second.level, finding.worst) == ("ok", "trouble")


# -- time --------------------------------------------------------------------------------------------------------------


def test_the_time_split_adds_up_to_the_wall_time(tmp_path: Path):
    """20 rows of 2 s: a quarter collecting, half learning, one evaluation of 0.5 s, the rest is other."""
    split = time_split([read_run(write_run(tmp_path / "run", returns=rising(1)))])
    assert split is not None
    assert split.seconds == pytest.approx({"collect": 10.0, "learn": 20.0, "eval": 0.5, "other": 9.5})
    assert (split.total, split.bottleneck) == (pytest.approx(2.0 * ROWS), "learn")
    assert advice_on(split).startswith("Gradient steps took 50% of the time.") and "policy.passes" in advice_on(split)


def test_with_worker_processes_collecting_is_waiting(tmp_path: Path):
    directory = write_run(tmp_path / "run", returns=rising(1), metrics={"time/collect_s": [0.45] * ROWS})
    edit_config(directory, "workers.num_workers", 2)
    edit_config(directory, "evaluation.parallel", True)
    split = time_split([read_run(directory)])
    assert split is not None and split.seconds["idle"] == pytest.approx(36.0)
    assert not {"collect", "eval"} & set(split.seconds) and split.bottleneck == "idle"
    assert "workers.num_workers" in advice_on(split)


def test_short_runs_and_replay_have_advice_of_their_own(tmp_path: Path):
    updates = {"replay/updates": [5] * ROWS}
    short = time_split([read_run(write_run(tmp_path / "0", returns=[1.0]))])
    replay = time_split([read_run(write_run(tmp_path / "1", returns=rising(1), metrics=updates))])
    assert short is not None and "too short to tell" in advice_on(short)
    assert replay is not None and "data.update_to_data_ratio" in advice_on(replay)


def test_there_is_no_split_without_recorded_times(tmp_path: Path):
    assert time_split([read_run(write_run(tmp_path / "run"))]) is None
    assert set(PARTS) == {"collect", "idle", "learn", "eval", "other"}
