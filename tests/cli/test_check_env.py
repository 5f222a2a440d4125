"""`check-env` takes names and import paths, and its exit code says whether a run would fail."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Command, not_refused

OWN = """
import gymnasium as gym
import numpy as np
from gymnasium.envs.toy_text import FrozenLakeEnv


class Corridor(gym.ObservationWrapper):
    def __init__(self, size=15, scale=1.0):
        super().__init__(FrozenLakeEnv())
        self.observation_space, self.scale = gym.spaces.Box(0, size, (1,), np.float32), scale

    def observation(self, place):
        return np.array([place * self.scale], np.float32)
"""


def test_a_preset_is_examined_by_its_name(command: Command):
    outcome = command("check-env", "cartpole", "--steps", "100")
    assert outcome.code == 0, outcome.out
    assert "ok    policies that fit" in outcome.out and ": use dqn or sac for Discrete actions" in outcome.out
    assert outcome.out.splitlines()[-1].endswith(" ok, 0 warn, 0 bad")


def test_an_environment_is_named_as_for_other_verbs(command: Command, tmp_path: Path):
    (tmp_path / "corridor.py").write_text(OWN)
    for words in ("env=cartpole", "env.id=corridor:Corridor env.kwargs.size=30", "env.check=false env=cartpole"):
        outcome = command("check-env", *words.split(), "--steps", "50")
        assert outcome.code == 0, outcome.err


def test_an_own_environment_takes_keywords(command: Command, tmp_path: Path):
    (tmp_path / "corridor.py").write_text(OWN)
    good = json.loads(command("check-env", "corridor:Corridor", "env.kwargs.size=30", "--steps", "99", "--json").out)
    texts = {finding["subject"]: finding["text"] for finding in good["findings"]}
    assert good["bad"] == 0 and texts["observation space"] == "Box(0.0, 30.0, (1,), float32)"
    outcome = command("check-env", "corridor:Corridor", "env.kwargs.scale=1000")
    assert outcome.code == 1 and "bad   API" in outcome.out and "outside its observation_space" in outcome.out


def test_bad_input_is_one_line(command: Command):
    cases = {
        "check-env cartpole env.kwarg.size=1": "no key 'env.kwarg",
        "check-env cartpole policy=dqn": "policy=dqn is not a key of env; expected keys such as env.",
        "check-env cartpole pendulum": "pendulum is not a key of env",
        "check-env nowhere:Env": "env.id='nowhere:Env': there is no module 'nowhere'",
        "check-env cartpole --steps 0": "--steps=0; expected at least 1",
        "check-env": "the following arguments are required: env",
    }
    assert not_refused(command, cases) == {}
