"""`benchmark` measures runs beside plain torch with nothing but the package."""

from __future__ import annotations

import importlib
import json
import math
from argparse import Namespace
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lightning_rl.cli.benchmarks import cartpole
from lightning_rl.cli.benchmarks.sides import Learned, Round, Side, alternate, failed, ours, report, torch_loop
from tests.cli.conftest import Command


@pytest.mark.process
def test_a_round_of_equal_work_is_measured_and_written(command: Command, tmp_path: Path):
    outcome = command("benchmark", "same_work", "--repeats", "1", "--env-steps", "1024", "--json", "numbers.json")
    assert outcome.code == 0, outcome.err
    assert "same_work: medians of 1" in outcome.out and "steps_per_s: ours / torch = " in outcome.out
    assert "env steps are too few to see whether it learns" in outcome.out
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
        return {"steps_per_s": 100.0, "seconds": 1.0, "return": 500.0, "wall": 2.0, "env_steps": 5.0}

    monkeypatch.setattr(Side, "run", run)
    output = cartpole.measure([*cartpole.SCENARIOS], repeats=2, env_steps=50)
    assert [entry["scenario"] for entry in output["scenarios"]] == ["solve", "same_work", "throughput"]
    assert {ratio["median"] for entry in output["scenarios"] for ratio in entry["ratios"]} == {1.0}
    assert "total_env_steps=500" in next(side for side in reversed(ran) if side.name == "ours").overrides  # type: ignore[operator]
    assert capsys.readouterr().out.count("medians of 2") == 3


def test_ratios_are_taken_pair_by_pair(capsys: pytest.CaptureFixture):
    """Ratios 2, 3 and 0.5: their median is 2, not that of the medians, 4 / 2."""
    rounds = [{"a": {"x": ours}, "b": {"x": theirs}} for ours, theirs in ((4.0, 2.0), (9.0, 3.0), (1.0, 2.0))]
    (ratio,) = report("any", rounds, ("x",), [("a", "b", "x")], learned=None)["ratios"]  # type: ignore[misc]
    assert ratio["each"] == [2.0, 3.0, 0.5] and ratio["median"] == 2.0


LEARNED = Learned({10_000: 50.0, 100_000: 400.0}, "half of what it is worth")


@pytest.mark.parametrize(
    ("env_steps", "mean", "learned"),
    [(30_000, 9.4, False), (30_000, 60.0, True), (200_000, 60.0, False), (1_000, 9.4, True), (30_000, None, False)],
)
def test_sides_are_compared_only_if_each_has_learned_what_its_env_steps_allow(
    env_steps: int, mean: float | None, learned: bool, capsys: pytest.CaptureFixture
):
    """Beside a side that has learned, and one that never does; a return that is missing is none."""
    good = {"x": 4.0, "env_steps": 30_000.0, "return": 120.0}
    doubtful = {"x": 2.0, "env_steps": env_steps, **({} if mean is None else {"return": mean})}
    rounds: list[Round] = [{"good": good, "doubtful": doubtful, "bound": {"x": 9.0}}] * 2
    found = report("any", rounds, ("x",), [("good", "doubtful", "x")], LEARNED, idle=["bound"])
    assert bool(found["ratios"]) is learned and failed([found]) is not learned
    printed = capsys.readouterr()
    if not learned:
        assert "not compared: doubtful has a return of" in printed.out and "any" in printed.err


def test_a_collapsed_side_is_an_error_of_the_benchmark(monkeypatch: pytest.MonkeyPatch, command: Command):
    def run(self: Side, seed: int) -> dict[str, float]:
        mean = 9.4 if self.name == "torch" else 200.0
        return {"steps_per_s": 100.0, "seconds": 1.0, "return": mean, "wall": 2.0, "env_steps": 30_000.0}

    monkeypatch.setattr(Side, "run", run)
    outcome = command("benchmark", "same_work", "--repeats", "1", "--json", "numbers.json")
    assert outcome.code == 1 and "not compared: torch has a return of 9.4 after 30,000 env steps" in outcome.out
    assert json.loads(Path("numbers.json").read_text())["scenarios"][0]["ratios"] == []


@pytest.fixture
def scenarios(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Callable[[Namespace], dict[str, Any]]]:
    """Those of scripts/benchmark.py, with peers that look installed."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "scripts"))
    scripts = importlib.import_module("benchmark")
    for name in [*scripts.PACKAGES, "epymarl"]:
        (tmp_path / name / "bin").mkdir(parents=True)
        (tmp_path / name / "bin" / "python").touch()
    (tmp_path / "epymarl_src").mkdir()
    return scripts.SCENARIOS


def test_a_collapsed_side_is_an_error_of_each_scenario(
    scenarios: dict[str, Callable[[Namespace], dict[str, Any]]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """After ten million env steps a return of 10^6 is learned on every task, and none is learned on none."""
    args = Namespace(env_steps=30_000, repeats=1, one_thread=True, venvs=tmp_path)
    numbers = defaultdict(lambda: 1.0, env_steps=1e7)
    for scenario in (each for name, each in scenarios.items() if name != "replay"):  # which has buffers only
        monkeypatch.setattr(Side, "run", lambda side, seed: defaultdict(lambda: 1.0, numbers, **{"return": 1e6}))
        found = scenario(args)
        assert found["ratios"] and not found["not_learned"]
        monkeypatch.setattr(Side, "run", lambda side, seed: defaultdict(lambda: 1.0, numbers, **{"return": math.nan}))
        found = scenario(args)
        assert not found["ratios"] and any(line.startswith("ours") or "agent" in line for line in found["not_learned"])
        idle = set(found["medians"]) - {line.split(" has a return")[0] for line in found["not_learned"]}
        assert idle <= {"bound", "environment alone"}


@pytest.mark.process
def test_a_side_that_fails_shows_its_last_lines():
    failing = {"ours: exit code 2": ours("ours", policy="pppo"), "unrecognized": torch_loop("torch", "--no-such")}
    for words, side in failing.items():
        with pytest.raises(RuntimeError, match=words):
            alternate([side], 1)


def test_bad_input_is_one_line(command: Command):
    assert command("benchmark", "atari").err.startswith("error: argument scenario: invalid choice: 'atari'")
    assert command("benchmark", "--repeats", "0").err == "error: --repeats=0; expected at least 1\n"
