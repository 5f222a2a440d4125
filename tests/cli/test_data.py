"""The verbs `record` and `data`: a policy, random play or a mix becomes a data set, which says what is in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Command
from tests.trained_runs import TrainedRuns


def test_a_mix_of_a_policy_and_random_play_is_recorded_in_whole_episodes(
    command: Command, trained_runs: TrainedRuns, tmp_path: Path
) -> None:
    run = trained_runs.copy("ppo", tmp_path / "run")
    arguments = ["record", str(run), "--episodes", "6", "--random", "0.5", "--out", str(tmp_path / "data")]
    found = json.loads(command(*arguments, "--json").out)
    assert found["episodes"] == found["complete"] == 6 and found["damaged"] == {}
    assert found["steps"] == round(6 * found["lengths"]["mean"])
    assert {file.name[:9] for file in (tmp_path / "data").iterdir()} == {"worker000", "worker001"}
    assert json.loads(command("data", str(tmp_path / "data"), "--json").out) == found


def test_random_play_needs_no_checkpoint_and_episodes_without_end_are_truncated(
    command: Command, tmp_path: Path
) -> None:
    out = str(tmp_path / "data")
    played = ["record", "random", "--env", "pendulum", "--episodes", "3", "--max-steps", "7", "--out", out]
    lines = command(*played).out.splitlines()
    assert "21 steps in 3 episodes, 3 of them complete, 0 terminated" in lines
    assert command("record", "random", "--out", out).code == 2


def test_the_same_episodes_are_not_recorded_twice(command: Command, tmp_path: Path) -> None:
    arguments = ["record", "random", "--env", "cartpole", "--episodes", "2", "--out", str(tmp_path)]
    command(*arguments)
    again = command(*arguments)
    assert again.code == 2 and "--seed=1" in again.err and len([*tmp_path.iterdir()]) == 1
    assert command(*arguments, "--seed=1").code == 0 and len([*tmp_path.iterdir()]) == 2


def test_damaged_shards_are_named_and_the_command_fails(command: Command, tmp_path: Path) -> None:
    for seed in ("0", "1"):
        command("record", "random", "--env", "cartpole", "--episodes", "2", "--seed", seed, "--out", str(tmp_path))
    first, _ = sorted(tmp_path.iterdir())
    first.write_bytes(first.read_bytes()[:-20])
    outcome = command("data", str(tmp_path))
    assert outcome.code == 1 and f"damaged: {first} is damaged" in outcome.out and "2 episodes" in outcome.out


@pytest.mark.parametrize("share", ["-0.1", "1.5"])
def test_a_share_outside_of_0_to_1_is_refused(command: Command, tmp_path: Path, share: str) -> None:
    outcome = command("record", "random", "--env", "cartpole", f"--random={share}", "--out", str(tmp_path))
    assert outcome.code == 2 and "random=" in outcome.err
