"""Arms, their labels, targets, curves over seeds, and which keys matter."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from lightning_rl.envs import EnvCreator
from lightning_rl.reports.arms import Arm, arms_of, band, differences, importance, target_of
from lightning_rl.reports.run_records import read_runs
from lightning_rl.reports.statistics import interquartile_mean
from lightning_rl.reports.summaries import Task
from tests.reports.run_files import ROWS, STEPS, rising, write_run, write_runs

RETURN = "rollout/ep_rew_mean"


def arms_in(directory: Path) -> list[Arm]:
    return arms_of(read_runs([directory]))


def test_runs_that_differ_in_the_seed_alone_are_one_arm(tmp_path: Path):
    """Seeds are in the config twice, and so are places of files."""
    write_runs(tmp_path, 10, 10, 10)
    write_runs(tmp_path, 10, policy={"lr": 0.1})
    assert [(arm.label, len(arm.runs)) for arm in arms_in(tmp_path)] == [("lr=0.001", 3), ("lr=0.1", 1)]


def test_arms_are_called_by_their_classes_and_by_the_first_keys_that_differ(tmp_path: Path):
    a2c = {"_target_": "lightning_rl.policies.A2C", "gae_lambda": 1.0}
    for policy in ({}, a2c, {"lr": 0.1}):
        write_runs(tmp_path / "a", 1, policy=policy)
    assert [arm.label for arm in arms_in(tmp_path / "a")] == ["PPO lr=0.001", "A2C", "PPO lr=0.1"]
    for value in (1, 2):
        write_runs(tmp_path / "b", 1, policy=dict.fromkeys("abcd", value))
    assert [arm.label for arm in arms_in(tmp_path / "b")] == ["a=1 b=1 c=1 +1 keys", "a=2 b=2 c=2 +1 keys"]


def test_a_job_that_failed_before_its_config_belongs_to_the_arm_with_its_overrides(tmp_path: Path):
    """It is of the environment of the others."""
    for number, (seed, lr) in enumerate(((0, 0.1), (0, 0.2), (1, 0.2))):
        overrides, policy = ["policy=ppo", f"policy.lr={lr}", f"seed={seed}"], {"lr": lr}
        directory = tmp_path / str(number)
        write_run(directory, seed=seed, returns=rising(1), policy=policy, overrides=overrides)
    (directory / "config.yaml").unlink()
    (directory / "metrics.csv").unlink()
    (task,) = Task.all_of(read_runs([tmp_path]))
    arms = [(each.arm.label, len(each.arm.runs), len(each.arm.counted)) for each in task.summaries]
    assert task.env == "CartPole-v1" and sorted(arms) == [("lr=0.1", 1, 1), ("lr=0.2", 2, 1)]


def test_statistics_are_about_complete_runs_only_if_there_are_any(tmp_path: Path):
    write_run(tmp_path / "0", seed=0, returns=rising(10))
    write_run(tmp_path / "1", seed=1, returns=rising(100, rows=5), state="failed")
    write_run(tmp_path / "2", seed=2, returns=rising(50, rows=5), state="interrupted")
    (arm,) = arms_in(tmp_path)
    assert arm.complete and arm.scores(RETURN).tolist() == [10.0]
    unfinished = Arm("", [run for run in arm.runs if run.state != "ok"])
    assert not unfinished.complete and unfinished.scores(RETURN).tolist() == [50.0]


def test_a_band_is_the_interquartile_mean_of_curves_and_a_complete_run_keeps_its_last_value(tmp_path: Path):
    """The second run ends at half of the steps with 40: beyond that it counts with 40."""
    write_run(tmp_path / "0", seed=0, returns=rising(20))
    write_run(tmp_path / "1", seed=1, returns=rising(40, rows=ROWS // 2))
    (arm,) = arms_in(tmp_path)
    middle = band(arm, RETURN, "env_steps")
    assert middle is not None and (middle.x[0], middle.x[-1]) == (STEPS, ROWS * STEPS)
    assert middle.middle[-1] == interquartile_mean(np.array([20.0, 40.0])) == 30.0
    at_half = np.interp(ROWS * STEPS / 2, middle.x, middle.middle)
    assert at_half == pytest.approx((10 + 40) / 2, rel=0.02)  # the grid need not hold the kink


def test_the_band_of_runs_in_progress_ends_with_the_first(tmp_path: Path):
    write_run(tmp_path / "0", seed=0, returns=rising(20), state="interrupted")
    write_run(tmp_path / "1", seed=1, returns=rising(40, rows=5), state="interrupted")
    middle = band(arms_in(tmp_path)[0], RETURN, "seconds")
    assert middle is not None and (middle.x[0], middle.x[-1]) == (2.0, 10.0)


def test_a_band_has_an_interval_from_five_runs_on(tmp_path: Path):
    middle = band(arms_in(write_runs(tmp_path, 20, 21, 22, 23))[0], RETURN, "env_steps")
    assert middle is not None and middle.low is None
    write_run(tmp_path / "4", seed=4, returns=rising(24))
    middle = band(arms_in(tmp_path)[0], RETURN, "env_steps")
    assert middle is not None and middle.low is not None and middle.high is not None
    assert 20 <= middle.low[-1] < middle.middle[-1] == 22 < middle.high[-1] <= 24


def test_the_target_is_stop_return_or_the_environment_s_own_threshold(tmp_path: Path):
    write_run(tmp_path / "own", returns=rising(500))
    write_run(tmp_path / "stop", returns=rising(500), stop={"return": 100.0})
    write_run(tmp_path / "none", returns=rising(500), env="NoSuch-v0")
    targets = [target_of(Arm("", [run]), "eval/ep_rew_mean") for run in read_runs([tmp_path])]
    none, own, stop = targets  # by name
    assert none is None and own is not None and stop is not None
    assert (own.value, own.metric) == (475.0, "eval/ep_rew_mean")
    assert (stop.value, stop.metric, stop.source) == (100.0, RETURN, "stop.return")
    write_run(tmp_path / "stop_nan", returns=rising(500), stop={"return": float("nan")})
    assert target_of(Arm("", read_runs([tmp_path / "stop_nan"])), "eval/ep_rew_mean") == own


def test_the_threshold_of_one_agent_is_no_target_of_the_sum_over_copies(tmp_path: Path):
    write_run(tmp_path / "run", returns=rising(500))
    (run,) = read_runs([tmp_path])
    several = replace(run, config={**run.config, "env": {**run.config["env"], "agents": 30}})
    assert target_of(Arm("", [run]), RETURN) is not None and target_of(Arm("", [several]), RETURN) is None
    assert EnvCreator("CartPole-v1").reward_threshold == 475.0
    assert EnvCreator("CartPole-v1", agents=30).reward_threshold is None


def test_a_mean_over_training_episodes_counts_once_it_is_over_enough_of_them(tmp_path: Path):
    """Rows hold 200 episodes more each, so 500 of them are there in the third row, at 3000 steps and 6 s."""
    write_run(tmp_path / "0", returns=[200.0] * 10, stop={"return": 100.0, "min_episodes": 500})
    run = read_runs([tmp_path])[0]
    target = target_of(Arm("", [run]), RETURN)
    assert target is not None
    reached = target.reached(run)
    assert reached is not None and 2000 < reached[0] <= 3000 and reached[1] == pytest.approx(reached[0] / 500)


def test_differences_leave_out_seeds_places_and_copies(tmp_path: Path):
    one = {"seed": 1, "run_dir": "/a", "env": {"seed": 1}, "model": {"size": 3}, "policy": {"model": {"size": 3}}}
    other = {"seed": 2, "run_dir": "/b", "env": {"seed": 2}, "model": {"size": 4}, "policy": {"model": {"size": 4}}}
    assert differences([one, other]) == {"model.size": [3, 4]}
    other["policy"] = {"model": {"size": 5}, "extra": None}
    of_policy = {"policy.model.size": ["—", 5], "policy.extra": ["—", None]}
    assert differences([one, other]) == {"model.size": [3, 4], **of_policy}


def test_importance_is_the_variance_that_keys_explain_and_joins_keys_that_change_together(tmp_path: Path):
    for number, (lr, clip, seed) in enumerate(product((0.1, 0.2), (1, 2), range(3))):
        policy, score = {"lr": lr, "twin": lr, "clip": clip}, 100 * lr + 0.1 * seed
        write_run(tmp_path / str(number), seed=seed, returns=[score], policy=policy)
    first, second = importance(arms_in(tmp_path), RETURN)
    assert list(first.keys) == ["policy.lr", "policy.twin"] and first.share is not None and first.share > 0.99
    assert list(second.keys) == ["policy.clip"] and second.share is None


def test_importance_is_unknown_with_too_few_runs(tmp_path: Path):
    for number, lr in enumerate((0.1, 0.2, 0.3)):
        write_run(tmp_path / str(number), returns=[lr], policy={"lr": lr})
    assert [each.share for each in importance(arms_in(tmp_path), RETURN)] == [None]
