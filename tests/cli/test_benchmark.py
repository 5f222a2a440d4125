"""`benchmark` measures runs beside plain torch with nothing but the package."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lightning_rl.benchmark import cartpole
from lightning_rl.benchmark.sides import Side, alternate, ours, report, torch_loop
from tests.cli.conftest import Command


def test_a_round_of_equal_work_is_measured_and_written(command: Command, tmp_path: Path):
    outcome = command("benchmark", "same_work", "--repeats", "1", "--env-steps", "1024", "--json", "numbers.json")
    assert outcome.code == 0, outcome.err
    assert "same_work: medians of 1" in outcome.out and "steps_per_s: ours / torch = " in outcome.out
    (scenario,) = json.loads((tmp_path / "numbers.json").read_text())["scenarios"]
    (numbers,) = scenario["rounds"]
    assert set(numbers) == {"ours", "torch", "torch, plain idioms"}
    assert numbers["ours"]["env_steps"] >= 1024 and numbers["torch"]["env_steps"] >= 1024
    ratio = numbers["ours"]["steps_per_s"] / numbers["torch"]["steps_per_s"]
    assert scenario["ratios"][0]["median"] == pytest.approx(ratio)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["numbers.json"]


def test_each_scenario_has_sides_that_its_ratios_name(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    """Every side ran at 100 steps/s in both rounds, so all ratios are 1."""
    ran: list[Side] = []

    def run(self: Side, seed: int) -> dict[str, float]:
        ran.append(self)
        return {"steps_per_s": 100.0, "seconds": 1.0, "return": 9.0, "wall": 2.0, "env_steps": 5.0}

    monkeypatch.setattr(Side, "run", run)
    output = cartpole.measure([*cartpole.SCENARIOS], repeats=2, env_steps=50)
    assert [entry["scenario"] for entry in output["scenarios"]] == ["solve", "same_work", "throughput"]
    assert {ratio["median"] for entry in output["scenarios"] for ratio in entry["ratios"]} == {1.0}
    assert "total_env_steps=500" in next(side for side in reversed(ran) if side.name == "ours").overrides  # type: ignore[operator]
    assert capsys.readouterr().out.count("medians of 2") == 3


def test_ratios_are_taken_pair_by_pair(capsys: pytest.CaptureFixture):
    """Ratios 2, 3 and 0.5: their median is 2, not that of the medians, 4 / 2."""
    rounds = [
        {"a": {"x": 4.0}, "b": {"x": 2.0}},
        {"a": {"x": 9.0}, "b": {"x": 3.0}},
        {"a": {"x": 1.0}, "b": {"x": 2.0}},
    ]
    (ratio,) = report("any", rounds, ("x",), [("a", "b", "x")])["ratios"]  # type: ignore[misc]
    assert ratio["each"] == [2.0, 3.0, 0.5] and ratio["median"] == 2.0


def test_a_side_that_fails_shows_its_last_lines():
    with pytest.raises(RuntimeError, match=r"(?s)ours: exit code 2 .*no such policy"):
        alternate([ours("ours", policy="pppo")], 1)
    with pytest.raises(RuntimeError, match="unrecognized arguments"):
        alternate([torch_loop("torch", "--no-such-option")], 1)


def test_bad_input_is_one_line(command: Command):
    assert command("benchmark", "atari").err.startswith("error: argument scenario: invalid choice: 'atari'")
    assert command("benchmark", "--repeats", "0").err == "error: --repeats=0; expected at least 1\n"
