"""What a checkpoint holds of a config: what it cannot hold is warned of when it is saved, and refused at every door."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.wrappers import TransformReward

from lightning_rl import Algorithm
from lightning_rl.cli import main
from lightning_rl.envs import registry
from lightning_rl.errors import CheckpointError, ConfigError
from lightning_rl.policies import PPO, Policy
from lightning_rl.rllib import PPOTrainer
from lightning_rl.runs.evaluation import evaluate

SMALL = ["model.fcnet_hiddens=[4]", "workers.fragment_length=16", "workers.envs_per_worker=1"]


class Corridor(gym.Env[np.ndarray, int]):
    """Ends after four steps; remembers its keywords."""

    observation_space = spaces.Box(-1, 1, (1,), np.float32)
    action_space: Any = spaces.Discrete(2)

    def __init__(self, hook: Any = None, size: Any = 5, **others: Any) -> None:
        self.hook, self.size, self.others = hook, size, others

    def reward_of(self, step: int) -> float:
        return float(self.size)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: int) -> Any:
        self.steps += 1
        return np.zeros(1, np.float32), self.hook(self.steps) if self.hook else 0.0, self.steps == 4, False, {}


class OwnCorridor(Corridor):
    """Gives itself the function that a file cannot hold."""

    def __init__(self, size: Any = 5) -> None:
        super().__init__(hundred, size)


def hundred(step: int) -> float:
    return 100.0


def of_env(**keywords: Any) -> dict[str, Any]:
    return {"env": {"kwargs": keywords}}


@contextmanager
def warned(words: str) -> Iterator[list[str]]:
    """The warnings with these words, once the block has ended."""
    found: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield found
    found += [text for each in caught if words in (text := str(each.message))]


def save(tmp_path: Path, config: Mapping[str, Any], env: Any = Corridor) -> tuple[Path, list[str]]:
    """The checkpoint of a run with that config, saved twice, and the warnings about what it does not hold."""
    algorithm = Algorithm("pg", env, overrides=[*SMALL, f"run_dir={tmp_path}/run"], config=config)
    with warned("checkpoints cannot hold") as told:
        path = algorithm.save()
        algorithm.save()
    algorithm.stop()
    return path, told


def restored_env(path: Path, **how: Any) -> Any:
    """An environment of the run that is restored."""
    algorithm = Algorithm.restore(path, **how)
    algorithm.stop()
    return algorithm.datamodule.env.make_single().unwrapped


def test_plain_keywords_are_restored_as_they_were(tmp_path: Path) -> None:
    """NumPy's numbers become Python's; arrays, tuples, sets, and keys that are no text stay."""
    table = np.arange(6, dtype=np.uint16).reshape(2, 3)
    keywords = {
        **{"size": np.int64(4), "gain": np.float64(0.5), "on": np.bool_(True), "name": np.str_("x"), "table": table},
        **{"swapped": table.astype(">f8"), "place": (1, (2, 3)), "cells": {1, 2}, "costs": {0: 1.5, np.int64(1): 2}},
        **{"weights": torch.ones(2), "scalar": np.array(3.0)},
    }
    path, told = save(tmp_path, of_env(**keywords))
    assert not told
    env = restored_env(path)
    assert (type(env.size), env.size) == (int, 4) and env.others["costs"] == {0: 1.5, 1: 2}
    assert (env.others["place"], env.others["cells"], env.others["name"]) == ((1, (2, 3)), {1, 2}, "x")
    np.testing.assert_array_equal(env.others["table"], table)
    assert env.others["table"].dtype == np.uint16 and env.others["scalar"].shape == ()
    np.testing.assert_array_equal(env.others["swapped"], table)
    assert env.others["weights"].tolist() == [1.0, 1.0] and env.others["on"] is True and env.others["gain"] == 0.5


def test_the_arrays_of_a_policy_s_keywords_are_loaded(tmp_path: Path) -> None:
    """Also those of one of several policies; the file is read with weights_only=True."""
    path = tmp_path / "own.ckpt"
    given = {"fcnet_hiddens": (np.int64(4),), "custom_model_config": {"mean": np.arange(2.0), "scale": np.float32(2)}}
    policy = PPO(Corridor.observation_space, Corridor.action_space, model=given, entropy_coef=np.float64(0.25))
    checkpoint: dict[str, Any] = {"state_dict": policy.state_dict()}
    policy.on_save_checkpoint(checkpoint)
    torch.save(checkpoint, path)
    assert isinstance(torch.load(path, weights_only=True), dict)
    for loaded in (Policy.load(path), PPO.load_from_checkpoint(path)):
        keywords = loaded.constructor_arguments()[1]
        np.testing.assert_array_equal(keywords["model"]["custom_model_config"]["mean"], np.arange(2.0))
        assert (type(loaded.entropy_coef), loaded.entropy_coef) == (float, 0.25)


LOST: dict[str, tuple[str, dict[str, Any]]] = {
    "a lambda": ("env.kwargs.hook", of_env(hook=lambda step: 100.0)),
    "a function, whose path would be text": ("env.kwargs.hook", of_env(hook=hundred)),
    "a method": ("env.kwargs.hook", of_env(hook=Corridor(size=7).reward_of)),
    "a method of a number": ("env.kwargs.hook", of_env(hook=(2.0).__mul__)),
    "an object in a list": ("env.kwargs.size.1", of_env(size=[1, SimpleNamespace()])),
    "a file's path": ("env.kwargs.size", of_env(size=Path("x"))),
    "a key that is a tuple": ("env.kwargs.size", of_env(size={(0, 1): 2})),
    "an array of objects": ("env.kwargs.size", of_env(size=np.array([None]))),
    "a wrapper": ("env.wrappers.0", {"env": {"wrappers": [lambda env: env]}}),
    "a wrapper's keyword": ("env.wrappers.0.func", {"env": {"wrappers": [{"wrapper": TransformReward, "func": abs}]}}),
    "the evaluation's environment": (
        "evaluation.env.kwargs.hook",
        {"evaluation": {"env": {"id": Corridor, "kwargs": {"hook": lambda step: 100.0}}}},
    ),
}


@pytest.mark.parametrize("case", LOST)
def test_what_a_checkpoint_cannot_hold_is_warned_of_once_and_refused_at_every_door(case: str, tmp_path: Path) -> None:
    key, config = LOST[case]
    path, told = save(tmp_path, config)
    assert len(told) == 1 and key in told[0]
    with pytest.raises(CheckpointError, match=rf"{key} is .*restore\(path, config="):
        Algorithm.restore(path)
    with pytest.raises(ConfigError, match=rf"{key} is "):
        evaluate(path, episodes=1)
    assert isinstance(Policy.load(path), Policy), "its policy acts in any environment"
    restored_env(path, config=config)  # what is given again is restored


GIVEN: dict[str, Callable[[Any], Any]] = {
    "bound": lambda hook: functools.partial(Corridor, hook=hook),
    "a function of keywords": lambda hook: lambda **keywords: Corridor(hook=hook, **keywords),
    "a function of a keyword": lambda hook: lambda size: Corridor(hook=hook, size=size),
    "a function without arguments": lambda hook: lambda: Corridor(hook=hook, size=4),
    "a class that knows": lambda hook: OwnCorridor,
}


@pytest.mark.parametrize("case", GIVEN)
def test_an_environment_that_is_given_makes_up_for_what_is_not_in_the_file(case: str, tmp_path: Path) -> None:
    path, _ = save(tmp_path, of_env(hook=hundred, size=np.int64(4)))
    with warned("env.kwargs.hook") as told:
        restored = restored_env(path, env=GIVEN[case](hundred))
    assert (restored.hook, restored.size) == (hundred, 4) and len(told) == (case != "bound")


@pytest.mark.parametrize("env", [Corridor, f"{__name__}:Corridor"])
def test_a_class_that_takes_a_keyword_is_not_made_without_it(env: Any, tmp_path: Path) -> None:
    """It would be another environment than that of the run."""
    path, _ = save(tmp_path, of_env(hook=hundred))
    with pytest.raises(CheckpointError, match=r"env\.kwargs\.hook"):
        Algorithm.restore(path, env=env)


def test_a_registered_name_is_refused_where_it_is_not_registered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Gymnasium id of the same name would be another environment."""
    monkeypatch.setattr(registry, "_CREATORS", {"CartPole-v1": Corridor})
    path, told = save(tmp_path, {}, "CartPole-v1")
    assert len(told) == 1 and "env.id" in told[0]
    assert isinstance(restored_env(path), Corridor)
    registry._CREATORS.clear()
    with pytest.raises(CheckpointError, match=r"env\.id is 'CartPole-v1'.*register_env"):
        Algorithm.restore(path)
    with pytest.raises(ConfigError, match=r"env\.id is 'CartPole-v1'"):
        evaluate(path, episodes=1)
    assert isinstance(restored_env(path, env=Corridor), Corridor)


def test_a_run_of_a_registered_name_is_resumed_where_it_is_registered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(registry, "_CREATORS", {"CartPole-v1": Corridor})
    run = ["policy=pg", "env.id=CartPole-v1", "logger=none", "total_env_steps=32", "evaluation=none", *SMALL]
    with pytest.warns(UserWarning, match=r"env\.id"):
        assert main(["train", *run, f"run_dir={tmp_path}/run"]) == 0
    assert main(["resume", f"{tmp_path}/run", "total_env_steps=64"]) == 0
    registry._CREATORS.clear()
    assert main(["resume", f"{tmp_path}/run", "total_env_steps=96"]) == 2
    assert "env.id is 'CartPole-v1'" in capsys.readouterr().err


def test_a_trainer_restores_into_its_own_config(tmp_path: Path) -> None:
    """As RLlib's: the file gives weights and counters; environments and keys are those of the constructor."""

    def made(**keys: Any) -> PPOTrainer:
        config = {"train_batch_size": 32, "model": {"fcnet_hiddens": [4]}, **keys}
        return PPOTrainer(env=lambda context: Corridor(**context), config=config)

    source = made(env_config={"hook": lambda step: 1.0})
    source.train()
    with pytest.warns(UserWarning, match=r"env\.kwargs\.hook"):
        path = source.save(tmp_path / "saved.ckpt")
    source.stop()
    other = made(env_config={"hook": hundred}, lr=0.125)
    other.train()
    other.restore(path)
    result = other.train()
    other.stop()
    assert result["training_iteration"] == 2 and result["episode_reward_max"] == 400.0
    assert other.run_config["policy"]["lr"] == 0.125 and other.run_config["env"]["kwargs"]["hook"] is hundred
