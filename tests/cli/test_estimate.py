"""The verb `estimate`: what a policy would return, from recorded episodes."""

from __future__ import annotations

import json
from pathlib import Path

from lightning_rl.config import descriptions
from tests.cli.conftest import Command
from tests.trained_runs import TrainedRuns


def test_the_policy_that_recorded_is_worth_what_it_got(
    command: Command, trained_runs: TrainedRuns, tmp_path: Path
) -> None:
    """Every ratio is 1, so importance sampling gives the mean of the recorded returns, and each episode counts."""
    run, data = trained_runs.copy("ppo", tmp_path / "run"), str(tmp_path / "data")
    command("record", str(run), "--episodes", "12", "--explore", "--out", data)
    arguments = ["estimate", str(run), data, "--estimators", "is", "wis", "pdis"]
    found = json.loads(command(*arguments, "--json").out)
    behavior = found["estimates"].pop("behavior")
    assert abs(found["effective_episodes"] - 12.0) < 1e-3 and found["gamma"] == 0.99
    assert abs(found["mean_ratio"] - 1.0) < 1e-4
    for name, estimate in found["estimates"].items():
        assert abs(estimate["value"] - behavior["value"]) < 1e-3, name
    shown = command(*arguments).out
    assert "12.0 episodes" in shown and "the data lack" not in shown


def test_other_actions_than_recorded_are_worth_what_the_ratios_say(
    command: Command, trained_runs: TrainedRuns, tmp_path: Path
) -> None:
    """Random play records the probabilities of its actions, so that every estimator has what it reads."""
    run, data = trained_runs.copy("ppo", tmp_path / "run"), str(tmp_path / "data")
    command("record", "random", "--env", "cartpole", "--episodes", "5", "--out", data)
    found = json.loads(command("estimate", str(run), data, "--fqe-steps", "20", "--json").out)
    assert set(found["estimates"]) == {"behavior", "is", "pdis", "wis", "dm", "dr"}
    assert found["effective_episodes"] < 5.0
    assert "the data lack" in descriptions.estimates({**found, "mean_ratio": 0.1})
