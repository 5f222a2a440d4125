"""EnvCreator: environments by id, import path, class or function, and one clear error for each broken API rule."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from lightning_rl.config.groups import option_text
from lightning_rl.envs import EnvCreator
from lightning_rl.errors import ConfigError, EnvError
from tests.envs import broken_envs as broken
from tests.envs.broken_envs import Fine
from tests.refusals import not_refused


def test_each_broken_promise_is_one_clear_error() -> None:
    cases = [
        (broken.OldStep, "step returned 4"),
        (broken.OldReset, r"expected reset\(self, \*, seed=None, options=None\)"),
        (broken.NoInfo, "reset returned ndarray"),
        (broken.Outside, r"observation_space.*\(2,\), float32.*\[3.0, 3.0\]"),
        (broken.WrongShape, r"\(3,\)"),
        (broken.WrongDtype, r"got list \[0.0, 0.0\], expected a numpy array"),
        (broken.NaN, r"nan at index \[1\]"),
        (broken.NoSpace, r"observation_space='four numbers'; expected a gymnasium.spaces.Space"),
        (broken.ArrayReward, r"reward.*\(2,\)"),
        (broken.NaNReward, r"reward .*nan"),
        (broken.IntegerEnd, r"terminated .*bool"),
        (broken.Raises, r"ZeroDivisionError in step 0.*no wheels"),
    ]
    assert not_refused(lambda env: EnvCreator(env).spaces(), cases, EnvError) == []


@pytest.mark.parametrize("id", ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "Blackjack-v1", "MountainCar-v0"])
def test_good_environments_raise_no_false_alarm(id: str) -> None:
    EnvCreator(id).spaces()


@pytest.mark.parametrize("installed", [False, True])
def test_the_error_for_an_id_of_a_plug_in_names_its_package(installed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec("gymnasium") if installed else None
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: found)
    way = "Name the package" if installed else "pip install minigrid"
    with pytest.raises(EnvError, match=rf"doesn't exist.*{way}.*env\.id=minigrid:MiniGrid-DoorKey-5x5-v0"):
        EnvCreator("MiniGrid-DoorKey-5x5-v0").spaces()


def test_the_example_of_a_user_environment_can_be_created() -> None:
    """`env=custom` names ids in its first line; those of plug-ins name their package."""
    (line,) = [line for line in option_text("env", "custom").splitlines() if "env.id=" in line]
    ids = re.findall(r"env\.id=([\w:-]+-v\d+)", line)
    assert ids and all(EnvCreator(id).spaces() for id in ids if ":" not in id)


def test_a_class_a_function_and_an_import_path_make_the_same_environment() -> None:
    for id in (Fine, lambda size: Fine(size), "tests.envs.broken_envs:Fine"):
        env = EnvCreator(id, {"size": 5}).make_single()
        assert env.observation_space.shape == (5,)


def test_wrappers_are_applied_in_order_with_their_keywords() -> None:
    limit = {"wrapper": "gymnasium.wrappers:TimeLimit", "max_episode_steps": 3}
    env = EnvCreator("CartPole-v1", wrappers=["gymnasium.wrappers:FlattenObservation", limit]).make_single()
    env.reset(seed=0)
    assert isinstance(env, gym.wrappers.TimeLimit)
    assert [env.step(env.action_space.sample())[3] for _ in range(3)] == [False, False, True]


def test_auto_takes_the_native_form_only_if_faster_and_without_wrappers() -> None:
    assert not hasattr(EnvCreator("CartPole-v1").make(4), "env_fns")
    assert hasattr(EnvCreator("CartPole-v1").make(3), "env_fns")
    assert hasattr(EnvCreator("CartPole-v1", wrappers=["gymnasium.wrappers:FlattenObservation"]).make(4), "env_fns")
    assert hasattr(EnvCreator("Acrobot-v1").make(2), "env_fns")
    with pytest.raises(EnvError, match="vector form"):
        EnvCreator("Acrobot-v1").make(2, "native")


def test_an_unknown_environment_names_the_nearest() -> None:
    cases = [
        ("CartPol-v1", "'CartPole-v1'"),
        ("CartPole-v7", "CartPole-v7"),
        ("no_such_package.envs:Env", "'no_such_package'"),
        ("tests.envs.broken_envs:Fin", "'Fine'"),
    ]
    assert not_refused(lambda id: EnvCreator(id).spaces(), cases, (EnvError, ConfigError)) == []


class OnlyLegal(gym.Env):  # type: ignore[type-arg]
    """Raises when an action is not allowed; the mask is in the observation or in the info."""

    def __init__(self, in_info: bool) -> None:
        self.in_info, self.action_space = in_info, gym.spaces.Discrete(4)
        box = gym.spaces.Box(0, 1, (4,), np.int8)
        self.observation_space = box if in_info else gym.spaces.Dict(action_mask=box)

    def seen(self) -> tuple[Any, dict[str, Any]]:
        self.mask = np.eye(4, dtype=np.int8)[self.np_random.integers(4)]
        return self.mask if self.in_info else {"action_mask": self.mask}, {"action_mask": self.mask}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self.seen()

    def step(self, action: int) -> Any:
        if not self.mask[action]:
            raise ArithmeticError("an illegal move")
        obs, info = self.seen()
        return obs, 0.0, False, False, info


@pytest.mark.parametrize("in_info", [True, False])
def test_the_check_takes_allowed_actions_only(in_info: bool) -> None:
    assert EnvCreator(OnlyLegal, {"in_info": in_info}).spaces()[1] == gym.spaces.Discrete(4)


class Sized(Fine):
    """Compares a size with a tuple, as environments and wrappers do that ask for one."""

    def __init__(self, size: tuple[int, int], names: list[str] | tuple[str, ...], free: Any = None) -> None:
        super().__init__()
        self.given = (size, names, free)


class SizedWrapper(gym.Wrapper[Any, Any, Any, Any]):
    def __init__(self, env: Any, shape: int | tuple[int, ...], weights: Sequence[float]) -> None:
        super().__init__(env)
        self.given = (shape, weights)


def test_a_list_in_a_config_is_a_tuple_where_code_asks_for_one():
    wrapper = {"wrapper": f"{__name__}:SizedWrapper", "shape": [3, 4], "weights": [0.5]}
    env: Any = EnvCreator(Sized, {"size": [5, 6], "names": ["a"], "free": [1]}, wrappers=[wrapper]).make_single()
    assert env.unwrapped.given == ((5, 6), ["a"], [1])
    assert env.given == ((3, 4), [0.5])
