"""What the check of an environment takes, what it warns about, and what it refuses."""

from __future__ import annotations

import logging
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from lightning_rl.diagnosis.environment import examine_determinism
from lightning_rl.envs import EnvCreator
from lightning_rl.envs.check import misfit
from lightning_rl.errors import EnvError, UnsupportedSpaceError
from lightning_rl.spaces import check_supported
from tests.envs.broken_envs import ArrayReward, Fine, IntegerEnd, OldReset, OldStep, Outside, Unseeded, WrongDtype
from tests.envs.multi_agent import broken_envs as several
from tests.refusals import not_refused


class OneArray(Fine):
    """Writes each observation into the same array; it draws them from no seed."""

    def observe(self) -> Any:
        if not hasattr(self, "written"):
            self.written = np.zeros(2, np.float32)
        self.written[:] = np.random.default_rng().uniform(-1, 1, 2)
        return self.written


class IgnoresSeedZero(Fine):
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed or None)
        return self.observe(), {}

    def observe(self) -> Any:
        return self.np_random.uniform(-1, 1, 2).astype(np.float32)


class NextToTheBound(Fine):
    def observe(self) -> Any:
        return np.full(2, np.nextafter(np.float32(1), np.float32(2)))


class Doubles(Fine):
    def observe(self) -> Any:
        return np.zeros(2)


@pytest.mark.parametrize("lenient", [IgnoresSeedZero, NextToTheBound, Doubles])
def test_what_a_run_can_use_as_it_is_passes_without_a_word(lenient: type, caplog: pytest.LogCaptureFixture) -> None:
    creator = EnvCreator(lenient)
    creator.spaces()
    env = creator.make_single()
    assert not caplog.records and examine_determinism(creator, env).level == "ok"


@pytest.mark.parametrize("unseeded", [Unseeded, OneArray, several.Unseeded])
def test_an_environment_that_does_not_repeat_is_warned_about(unseeded: type, caplog: pytest.LogCaptureFixture) -> None:
    """It can be learned from; its runs cannot be repeated or resumed exactly."""
    EnvCreator(unseeded).spaces()
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert unseeded.__name__ in record.getMessage() and "env.check=false" in record.getMessage()
    EnvCreator(unseeded, check=False).spaces()
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    ("wrapper", "instead"),
    [("NormalizeObservation", "policy.observation_filter=mean_std"), ("NormalizeReward", "policy.reward_filter")],
)
def test_a_wrapper_with_own_statistics_is_named(wrapper: str, instead: str, caplog: pytest.LogCaptureFixture) -> None:
    EnvCreator("CartPole-v1", wrappers=[f"gymnasium.wrappers.{wrapper}"]).spaces()
    (record,) = caplog.records
    assert wrapper in record.getMessage() and instead in record.getMessage()


def test_an_observation_is_in_its_space_within_a_rounding() -> None:
    box, whole = gym.spaces.Box(-1, 1000, (1,), np.float32), gym.spaces.Box(0, 9, (1,), np.int64)
    nested = gym.spaces.Dict(a=box, b=gym.spaces.Tuple([whole]))
    inside = {"a": np.array([1000.005], np.float32), "b": (np.array([9]),)}
    assert not misfit(nested, inside)
    changes: list[Any] = [{"a": np.array([number], np.float32)} for number in (1000.1, np.nan)]
    changes += [{"b": (np.array([number]),)} for number in (10, 1.0)]
    for outside in ({"a": inside["a"]}, *({**inside, **change} for change in changes)):
        assert misfit(nested, outside)


class NeverConverted:
    """As the environments of packages that have stayed with gym."""

    def reset(self) -> Any:
        return np.zeros(2)


def test_the_error_of_what_can_be_helped_names_what_helps() -> None:
    """The key that skips the check, what converts an old environment, or a wrapper that weighs several rewards."""
    cases = [
        *((each, r"env\.check=false") for each in (Outside, WrongDtype, IntegerEnd)),
        (ArrayReward, "LinearReward"),
    ]
    cases += [(old, "shimmy") for old in (NeverConverted, OldReset, OldStep)]
    assert not_refused(lambda env: EnvCreator(env).spaces(), cases, EnvError) == []


def test_the_text_of_minigrid_is_answered_with_its_own_wrappers() -> None:
    class MissionSpace(gym.spaces.Text):
        """The name of MiniGrid's class."""

    with pytest.raises(UnsupportedSpaceError, match=r"ImgObsWrapper.*FlatObsWrapper"):
        check_supported(gym.spaces.Dict(mission=MissionSpace(5)), "observation")


class OneEntryOutside(Fine):
    """A Dict of which one entry leaves its bounds; the others are long."""

    def __init__(self) -> None:
        super().__init__()
        inner = gym.spaces.Dict(tries=gym.spaces.Box(0, 3, (2,), np.int8), grid=gym.spaces.Box(0, 9, (30, 30), np.int8))
        self.observation_space = gym.spaces.Dict(board=inner, turn=gym.spaces.Discrete(2))

    def observe(self) -> Any:
        return {"board": {"tries": np.array([3, -2], np.int8), "grid": np.zeros((30, 30), np.int8)}, "turn": 0}


class OneKeyMore(OneEntryOutside):
    def observe(self) -> Any:
        return {**super().observe(), "score": 1}


def test_an_observation_outside_of_its_space_is_named_by_its_part_and_entry():
    with pytest.raises(EnvError, match=r"part 'board/tries': .*: -2 at index \[1\] is outside \[0, 3\]") as outside:
        EnvCreator(OneEntryOutside).spaces()
    assert "grid" not in str(outside.value)
    with pytest.raises(EnvError, match=r"\['board', 'turn', 'score'\].*\['board', 'turn'\]"):
        EnvCreator(OneKeyMore).spaces()


class RaisesInside(Fine):
    """Raises in a function of NumPy that its own line calls."""

    def __init__(self, call: str) -> None:
        super().__init__()
        self.call = call
        self.fail_in("__init__")

    def fail_in(self, call: str) -> None:
        if call == self.call:
            np.concatenate([np.zeros(1), np.zeros((1, 2))])

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.fail_in("reset")
        return super().reset(seed=seed)

    def step(self, action: int) -> Any:
        self.fail_in("step")
        return super().step(action)


@pytest.mark.parametrize("call", ["__init__", "reset", "step"])
def test_an_error_of_an_environment_names_the_line_of_its_code(call: str):
    line = RaisesInside.fail_in.__code__.co_firstlineno + 2
    with pytest.raises(EnvError, match=rf"ValueError.*test_check\.py, line {line}\)"):
        EnvCreator(RaisesInside, {"call": call}).spaces()


def test_an_error_that_no_line_of_an_environment_raised_names_none():
    with pytest.raises(EnvError, match="'size'") as error:
        EnvCreator("CartPole-v1", {"size": 3}).spaces()
    assert ", line " not in str(error.value)
