"""`check-env` takes names and import paths, and its exit code says whether a run would fail."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Command

OWN = """
import gymnasium as gym
import numpy as np


class Corridor(gym.Env):
    action_space = gym.spaces.Discrete(2)

    def __init__(self, size=5, scale=1.0):
        self.size, self.scale = size, scale
        self.observation_space = gym.spaces.Box(0, size, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = int(self.np_random.integers(1, self.size))
        return np.array([self.place], np.float32), {}

    def step(self, action):
        self.place += 2 * action - 1
        over = self.place in (0, self.size)
        return np.array([self.place * self.scale], np.float32), float(self.place), over, False, {}
"""


def test_a_preset_is_examined_by_its_name(command: Command):
    outcome = command("check-env", "cartpole", "--steps", "100")
    assert outcome.code == 0, outcome.out
    assert "ok    policies that fit" in outcome.out and "→ use dqn or sac for Discrete actions" in outcome.out
    assert outcome.out.splitlines()[-1].endswith(" ok, 0 warn, 0 bad")


def test_an_environment_is_named_as_for_other_verbs(command: Command, tmp_path: Path):
    (tmp_path / "corridor.py").write_text(OWN)
    for words in (
        ["env=cartpole"],
        ["env.id=corridor:Corridor", "env.kwargs.size=3"],
        ["env.check=false", "env=cartpole"],
    ):
        outcome = command("check-env", *words, "--steps", "50")
        assert outcome.code == 0, outcome.err


def test_an_own_environment_takes_keywords(command: Command, tmp_path: Path):
    (tmp_path / "corridor.py").write_text(OWN)
    good = json.loads(command("check-env", "corridor:Corridor", "env.kwargs.size=3", "--steps", "99", "--json").out)
    assert good["bad"] == 0
    texts = {finding["subject"]: finding["text"] for finding in good["findings"]}
    assert texts["observation space"] == "Box(0.0, 3.0, (1,), float32)"
    outcome = command("check-env", "corridor:Corridor", "env.kwargs.scale=1000")
    assert outcome.code == 1 and "bad   API" in outcome.out and "outside its observation_space" in outcome.out


def test_bad_input_is_one_line(command: Command):
    for arguments, start in (
        (("check-env", "cartpole", "env.kwarg.size=1"), "error: no key 'env.kwarg"),
        (("check-env", "cartpole", "policy=dqn"), "error: policy=dqn is no key of env; expected keys such as env."),
        (("check-env", "cartpole", "pendulum"), "error: pendulum is no key of env"),
        (("check-env", "nowhere:Env"), "error: env.id='nowhere:Env': there is no module 'nowhere'"),
        (("check-env", "cartpole", "--steps", "0"), "error: --steps=0; expected at least 1"),
        (("check-env",), "error: the following arguments are required: env"),
    ):
        outcome = command(*arguments)
        assert outcome.code == 2 and outcome.err.startswith(start) and outcome.err.count("\n") == 1, outcome.err
