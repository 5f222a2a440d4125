"""A worker that is built again from a saved state goes on with the very episodes that ran, wherever it was saved."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from lightning_rl.envs import EnvCreator
from lightning_rl.policies import DQN, PPO, SAC
from lightning_rl.rollouts import RolloutWorker, env_positions
from lightning_rl.rollouts.env_positions import ActionLog
from tests.envs.classic_control import CARTPOLE, PENDULUM
from tests.rollouts.fragment_equality import assert_equal_fragments

MakeWorker = Callable[[], RolloutWorker]
BEGIN_ANEW = "its episodes begin anew"


class Maze(gym.Env[Any, Any]):
    """Episodes of 5 to 14 steps with nested observations, nested actions and a mask, by its own generator."""

    observation_space = spaces.Dict({"image": spaces.Box(0, 255, (4, 4), np.uint8), "place": spaces.Discrete(50)})
    action_space = spaces.Tuple((spaces.Discrete(3), spaces.Box(-1, 1, (2,), np.float32)))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(5, 15))
        self.place = 0
        return self._see(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.place = (self.place + int(action[0]) + int(self.np_random.integers(2))) % 50
        self.left -= 1
        return self._see(), float(action[1].sum()), self.left == 0, self.left == 1, {}

    def _see(self) -> dict[str, Any]:
        return {"image": self.np_random.integers(0, 255, (4, 4), dtype=np.uint8), "place": self.place}


class SometimesMasked(gym.Wrapper[Any, Any, Any, Any]):
    """CartPole with a mask in every third step's info."""

    def reset(self, **keywords: Any) -> tuple[Any, dict[str, Any]]:
        self.count = 0
        return self.env.reset(**keywords)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self.count += 1
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, reward, terminated, truncated, {"action_mask": [1, 0]} if self.count % 3 == 0 else info


class Unrepeatable(gym.ObservationWrapper[Any, Any, Any]):
    """Adds a number to each observation that no seed decides."""

    def observation(self, observation: Any) -> Any:
        return observation + np.float32(np.random.default_rng().uniform(0, 0.01))


class Smoothed(gym.ObservationWrapper[Any, Any, Any]):
    """Half the observation, half what was seen before in the episode: a memory within episodes."""

    def reset(self, **keywords: Any) -> tuple[Any, dict[str, Any]]:
        self.seen = 0.0
        return super().reset(**keywords)

    def observation(self, observation: Any) -> Any:
        self.seen = (0.5 * self.seen + 0.5 * observation).astype(np.float32)
        return self.seen


def maker(policy: type, env: EnvCreator, keywords: dict[str, Any] | None = None, **options: Any) -> MakeWorker:
    """Workers that are alike, each with a policy of its own."""

    def make() -> RolloutWorker:
        own = policy(*env.spaces(), **(keywords or {}))
        return RolloutWorker(env, own, **{"num_envs": 3, "fragment_length": 7, "vectorization": "sync", **options})

    return make


def through_a_file(state: Any) -> Any:
    """The state as a checkpoint gives it back."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def saved_after(worker: RolloutWorker, fragments: int) -> Any:
    for _ in range(fragments):
        worker.sample()
    return through_a_file(worker.state_dict())


def go_on_equally(first: RolloutWorker, second: RolloutWorker, fragments: int = 4) -> None:
    """Raise unless both give the same fragments and the same episodes."""
    first.get_metrics()
    for _ in range(fragments):
        assert_equal_fragments(first.sample(), second.sample())
    assert first.get_metrics() == second.get_metrics()


LSTM = {"model": {"use_lstm": True, "lstm_cell_size": 4, "lstm_use_prev_action": True, "lstm_use_prev_reward": True}}
NOISE = {"random_timesteps": 0}
KINDS = {
    "sync": maker(PPO, CARTPOLE),
    "continuous": maker(PPO, PENDULUM, fragment_length=30),
    "native": maker(PPO, CARTPOLE, vectorization="native"),
    "nested, wrapped": maker(PPO, EnvCreator(Maze)),
    "async": maker(PPO, EnvCreator(Maze), vectorization="async"),
    "same step": maker(PPO, CARTPOLE, mode=AutoresetMode.SAME_STEP),
    "no autoreset": maker(PPO, CARTPOLE, mode=AutoresetMode.DISABLED),
    "a wrapper's memory": maker(PPO, EnvCreator("CartPole-v1", wrappers=[Smoothed])),
    "a time limit": maker(PPO, EnvCreator("Pendulum-v1", max_episode_steps=10)),
    "masks in some steps": maker(PPO, EnvCreator("CartPole-v1", wrappers=[SometimesMasked])),
    "recurrent": maker(PPO, CARTPOLE, LSTM),
    "running returns": maker(PPO, CARTPOLE, {"reward_filter": "return_std"}),
    "epsilon": maker(DQN, CARTPOLE),
    "ornstein uhlenbeck": maker(SAC, PENDULUM, {"exploration": {"type": "ornstein_uhlenbeck_noise", **NOISE}}),
    "gsde": maker(SAC, PENDULUM, {"exploration": {"type": "gsde", "sample_freq": 5}}),
    "parameter noise": maker(
        DQN,
        CARTPOLE,
        {"exploration": {"type": "parameter_noise", **NOISE, "sub_exploration": {"type": "epsilon_greedy"}}},
    ),
}


@pytest.mark.parametrize("name", KINDS)
def test_a_worker_built_again_continues_the_running_episodes(name: str) -> None:
    first = KINDS[name]()
    for fragments in (3,) if name == "async" else (1, 1, 1, 3):  # in the first episode, and later
        second = KINDS[name]()
        second.load_state_dict(saved_after(first, fragments))
        go_on_equally(first, second)
        second.stop()
    first.stop()


def test_a_state_is_handed_on_by_a_worker_that_has_not_sampled_since() -> None:
    first, second, third = (KINDS["recurrent"]() for _ in range(3))
    second.load_state_dict(saved_after(first, 2))
    third.load_state_dict(through_a_file(second.state_dict()))
    go_on_equally(first, third)


def forget_memory(saved: Any) -> None:
    for part in ("now", "first"):
        saved["memory"][part]["state_in"]["0"] = saved["memory"][part]["state_in"]["0"] + 1.0


def forget_noise(saved: Any) -> None:
    saved["exploration"]["x"] += 1.0


def forget_returns(saved: Any) -> None:
    saved["running_returns"]["running"] += 1.0


def forget_lengths(saved: Any) -> None:
    saved["tracker"]["lengths"] += 1


def forget_native_state(saved: Any) -> None:
    saved["envs"]["env"]["state"] *= 0.5


def forget_generator(saved: Any) -> None:
    saved["envs"]["env"]["_np_random"]["state"]["state"] += 1


@pytest.mark.parametrize(
    ("name", "forget"),
    [
        ("recurrent", forget_memory),
        ("ornstein uhlenbeck", forget_noise),
        ("running returns", forget_returns),
        ("native", forget_lengths),
        ("native", forget_native_state),
        ("native", forget_generator),
    ],
)
def test_each_part_of_the_state_is_needed(name: str, forget: Callable[[Any], None]) -> None:
    first, second = KINDS[name](), KINDS[name]()
    state = saved_after(first, 2)
    forget(state["episodes"])
    second.load_state_dict(state)
    with pytest.raises(AssertionError):
        go_on_equally(first, second, fragments=12)


@pytest.mark.parametrize(
    "wrappers", [[Unrepeatable], [gym.wrappers.NormalizeObservation]], ids=["unrepeatable", "statistics"]
)
def test_environments_that_do_not_repeat_themselves_begin_new_episodes_and_say_so(
    wrappers: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    make = maker(PPO, EnvCreator("Pendulum-v1", wrappers=wrappers, check=False))
    first, second = make(), make()
    second.load_state_dict(saved_after(first, 40))
    assert second.sample().t[0].tolist() == [0, 0, 0]
    assert caplog.text.count(BEGIN_ANEW) == 1
    assert ("NormalizeObservation" in first.describe_loss()) == (wrappers != [Unrepeatable])


def test_a_changed_action_is_noticed(caplog: pytest.LogCaptureFixture) -> None:
    first, second = KINDS["continuous"](), KINDS["continuous"]()
    state = saved_after(first, 2)
    state["episodes"]["envs"]["actions"]["actions"][3, 1] *= -1.0
    second.load_state_dict(state)
    assert second.sample().t[0].tolist() == [0, 0, 0] and BEGIN_ANEW in caplog.text


def test_a_replay_that_takes_too_long_is_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(env_positions, "LONGEST_REPLAY_S", -1.0)
    first, second = KINDS["sync"](), KINDS["sync"]()
    second.load_state_dict(saved_after(first, 1))
    assert second.sample().t[0].tolist() == [0, 0, 0] and BEGIN_ANEW in caplog.text


def test_whole_episodes_and_evaluations_keep_no_actions() -> None:
    for options in ({"batch_mode": "complete_episodes"}, {"stream": "evaluation"}):
        worker = maker(PPO, CARTPOLE, **options)()
        worker.sample()
        assert worker._log is None and worker.state_dict()["episodes"] is None


def test_the_state_of_1000_environments_after_1000_steps_is_below_a_megabyte() -> None:
    log = ActionLog()
    log.restart(range(1000))
    generator = np.random.default_rng(0)
    for _ in range(1000):
        log.append(generator.integers(0, 18, 1000))
    file = io.BytesIO()
    torch.save(log.state_dict(), file)
    assert file.tell() <= 1.05 * 2**20


def test_actions_of_episodes_that_are_over_are_dropped_and_those_of_endless_ones_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = ActionLog()
    log.restart([0, 1])
    for step in range(20_000):
        log.append(np.zeros(2, np.int64))
        if step % 100 == 99:
            log.begin(np.array([True, True]))
    assert len(log.actions) < 2500 and log.state_dict() is not None
    monkeypatch.setattr(env_positions, "MOST_BYTES", 200_000)
    for _ in range(5000):
        log.append(np.zeros(2, np.int64))
    assert len(log.actions) < 2500 and log.state_dict() is None  # too long to be replayed
    log.begin(np.array([True, True]))
    assert log.state_dict() is not None


class Opaque(VectorEnv[Any, Any, Any]):
    """A native form with an attribute of an unknown kind."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012 - as Gymnasium's

    def __init__(self, num_envs: int = 1, **keywords: Any) -> None:
        self.inner = gym.make_vec("CartPole-v1", num_envs, vectorization_mode="vector_entry_point")
        self.num_envs = num_envs
        for name in ("single_observation_space", "single_action_space", "observation_space", "action_space"):
            setattr(self, name, getattr(self.inner, name))

    def reset(self, **keywords: Any) -> Any:
        return self.inner.reset(**keywords)

    def step(self, actions: Any) -> Any:
        return self.inner.step(actions)


def test_a_native_form_whose_state_cannot_be_copied_begins_new_episodes(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = copy.copy(gym.registry["CartPole-v1"])
    spec.id, spec.vector_entry_point = "Opaque-v0", Opaque
    monkeypatch.setitem(gym.registry, "Opaque-v0", spec)
    make = maker(PPO, EnvCreator("Opaque-v0"), vectorization="native")
    first, second = make(), make()
    state = saved_after(first, 2)
    assert state["episodes"] is None and "Opaque" in first.describe_loss()
    second.load_state_dict(state)
    assert second.sample().t[0].tolist() == [0, 0, 0]
