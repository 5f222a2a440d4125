"""`train -m`: one directory per job, a failing job stops nobody, a table closes the sweep."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from tests.cli.conftest import Command

SHORT = ("total_env_steps=300", "workers.fragment_length=16", "policy.minibatches=1", "evaluation=none", "logger=none")

FRAGILE = '''
import gymnasium as gym
import numpy as np


class Fragile(gym.Env):
    """Raises after `lasts` steps."""

    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, lasts):
        self.lasts, self.steps = lasts, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        if self.steps > self.lasts:
            raise RuntimeError("the gripper is stuck")
        return np.zeros(2, np.float32), 1.0, self.steps % 5 == 0, False, {}
'''


def test_a_failing_job_leaves_its_traceback_and_does_not_stop_the_others(command: Command, tmp_path: Path):
    (tmp_path / "fragile.py").write_text(FRAGILE)
    once = (*SHORT, "workers.max_env_restarts=0")  # a new environment would last as long again
    told = command("train", "-m", "env.id=fragile:Fragile", "env.kwargs.lasts=25,1000", "run_dir=sweep", *once)
    assert told.code == 1
    failed, done = tmp_path / "sweep" / "0_ppo_custom", tmp_path / "sweep" / "1_ppo_custom"
    states = [json.loads((job / "status.json").read_text())["state"] for job in (failed, done)]
    assert states == ["failed", "ok"]
    assert "RuntimeError: the gripper is stuck" in (failed / "train.log").read_text()
    assert not (done / "train.log").exists()
    assert yaml.safe_load((done / "config.yaml").read_text())["run_dir"] == str(done)

    table = told.out[told.out.index("job  overrides") :].splitlines()
    assert table[0].split() == ["job", "overrides", "state", "env", "steps", "return", "best", "seconds"]
    assert [row.split()[0] for row in table[1:3]] == ["0", "1"]
    assert "env.kwargs.lasts=25 " in table[1]
    assert "failed" in table[1]
    assert " ok " in table[2]
    assert table[3] == str(tmp_path / "sweep")


def test_all_jobs_are_checked_before_the_first_one_starts(command: Command, tmp_path: Path):
    told = command("train", "-m", "policy=ppo,a2c", "seed=1,x", "run_dir=sweep", *SHORT[:2])
    assert (told.code, told.out) == (2, "")
    assert told.err == "error: seed='x' is text; expected integer\n"
    assert command("train", "-m", "policy=ppo,pppo").err.startswith("error: policy=pppo: no such policy.")
    assert list(tmp_path.iterdir()) == []


def test_jobs_of_different_policies_take_the_values_tuned_for_each(command: Command, tmp_path: Path):
    told = command("train", "-m", "policy=ppo,a2c", "run_dir=sweep", *SHORT[:2], *SHORT[3:])
    assert told.code == 0
    configs = {job.name: yaml.safe_load((job / "config.yaml").read_text()) for job in (tmp_path / "sweep").glob("?_*")}
    assert set(configs) == {"0_ppo_cartpole", "1_a2c_cartpole"}
    assert configs["0_ppo_cartpole"]["policy"]["gamma"] != configs["1_a2c_cartpole"]["policy"]["gamma"]
