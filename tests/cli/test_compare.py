"""`lightning-rl compare`: figures side by side, config and version differences, and where equal runs part."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Command
from tests.reports.run_files import rising, write_run, write_session


def test_two_sets_of_seeds_are_compared(command: Command, tmp_path: Path):
    for seed in range(5):
        run_dir = write_run(tmp_path / "a" / str(seed), seed=seed, returns=rising(480 + seed))
        write_session(run_dir, versions={"torch": "2.9.0"})
        run_dir = write_run(tmp_path / "b" / str(seed), seed=seed, returns=rising(200 + seed), policy={"lr": 0.5})
        write_session(run_dir, versions={"torch": "2.8.0"})
    outcome = command("compare", "a", "b")
    assert outcome.code == 0
    lines = [" ".join(line.split()) for line in outcome.out.splitlines()]
    for line in (
        "return of the last evaluation (10 episodes) 482 [480, 484] 202 [200, 204]",
        "env steps to 475 20,000 —",
        "time to 475 40 s —",
        "env steps/s 500 500",
        "A run of A scores more than one of B with probability 100% (p = 0.0079, Mann-Whitney U test): A is better.",
        "config: 1 difference",
        "policy.lr 0.001 0.5",
        "versions and machines: 1 difference",
        "versions.torch 2.9.0 2.8.0",
    ):
        assert line in lines, line
    found = json.loads(command("compare", "b", "a", "--json").out)
    assert (found["probability_of_improvement"], found["better"]) == (0.0, "b")
    assert found["p_value"] == pytest.approx(2 / 252) and found["config"] == {"policy.lr": [0.5, 0.001]}
    assert found["a"]["score"] == [202.0, 200.0, 204.0] and found["a"]["steps_to_target"] is None


def test_three_against_three_seeds_are_too_few_to_name_the_better(command: Command, tmp_path: Path):
    for seed in range(3):
        write_run(tmp_path / "a" / str(seed), seed=seed, returns=rising(480 + seed))
        write_run(tmp_path / "b" / str(seed), seed=seed, returns=rising(200 + seed), policy={"lr": 0.5})
    outcome = command("compare", "a", "b")
    assert "3 against 3 seeds cannot show a difference at 5%: run 1 more of A and 1 more of B." in outcome.out
    found = json.loads(command("compare", "a", "b", "--json").out)
    assert found["better"] is None and found["p_value"] is None and found["a"]["score"] == [481.0, None, None]


def test_runs_of_one_config_and_seed_are_equal_or_part_somewhere(command: Command, tmp_path: Path):
    write_run(tmp_path / "a", returns=rising(100), metrics={"train/loss": ["nan"] * 20})
    write_run(tmp_path / "b", returns=rising(100), metrics={"train/loss": ["nan"] * 20}, seconds_per_row=3.0)
    other = [*rising(100)[:10], 99.0, *rising(100)[11:]]
    write_run(tmp_path / "c", returns=other, metrics={"train/loss": ["nan"] * 20})
    assert "Seed 0: all metrics are equal, times and memory apart." in command("compare", "a", "b").out
    parted = command("compare", "a", "c").out
    assert "Seed 0: the runs differ from env step 11,000 on (rollout/ep_rew_mean)." in parted
    assert "1 against 1 seed cannot show a difference at 5%: run 3 more of A and 3 more of B." in parted


def test_an_evaluation_that_one_of_two_equal_runs_postponed_is_no_difference(command: Command, tmp_path: Path):
    evaluations = [str(value) for value in range(20)]
    for name, postponed, changed in (("a", (), ()), ("b", (3, 7), ()), ("c", (3,), (9,))):
        own = ["" if row in postponed else "-1.0" if row in changed else value for row, value in enumerate(evaluations)]
        write_run(tmp_path / name, returns=rising(100), metrics={"eval/ep_rew_mean": own})
    assert "Seed 0: all metrics are equal" in command("compare", "a", "b").out
    assert "Seed 0: the runs differ from env step 10,000 on (eval/ep_rew_mean)." in command("compare", "a", "c").out


def test_environments_that_differ_are_not_compared(command: Command, tmp_path: Path):
    write_run(tmp_path / "a", returns=rising(100))
    write_run(tmp_path / "b", returns=rising(100), env="Acrobot-v1")
    outcome = command("compare", "a", "b")
    assert outcome.code == 0 and "The environments differ, so the returns cannot be compared." in outcome.out


def test_a_directory_of_several_configs_is_refused(command: Command, tmp_path: Path):
    write_run(tmp_path / "a" / "0", returns=rising(100))
    write_run(tmp_path / "a" / "1", returns=rising(100), policy={"lr": 0.5})
    refusal = command("compare", "a/0", "a").refusal
    assert refusal.startswith("a holds runs of 2 configs: lr=0.001 (a/0), lr=0.5 (a/1); compare takes two runs, or two")
