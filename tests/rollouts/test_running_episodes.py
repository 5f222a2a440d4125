"""A worker that is built again from a saved state goes on with the very episodes that ran, wherever it was saved."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from functools import reduce
from operator import getitem
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.vector import AutoresetMode

from lightning_rl.envs import EnvCreator
from lightning_rl.policies import DQN, PPO, SAC, PolicySet
from lightning_rl.rollouts import RolloutWorker, env_positions
from lightning_rl.rollouts.env_positions import ActionLog
from lightning_rl.sample_batch import MultiAgentBatch, SampleBatch
from tests.envs.broken_envs import Unseeded
from tests.envs.classic_control import CARTPOLE, PENDULUM
from tests.envs.masked_envs import Masked
from tests.envs.nested_spaces import Nested
from tests.rollouts.fragment_equality import assert_equal_fragments

MakeWorker = Callable[[], RolloutWorker]
BEGIN_ANEW = "its episodes start from scratch"


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
        here, there = first.sample(), second.sample()
        for name in here.policy_batches if isinstance(here, MultiAgentBatch) else ():
            assert_equal_fragments(here[name], there[name])
        if isinstance(here, SampleBatch):
            assert_equal_fragments(here, there)
    assert first.get_metrics() == second.get_metrics()


LSTM = {"model": {"use_lstm": True, "lstm_cell_size": 4, "lstm_use_prev_action": True, "lstm_use_prev_reward": True}}
NOISE = {"random_timesteps": 0}
GREEDY = {"sub_exploration": {"type": "epsilon_greedy"}}
STACKED = {"wrapper": gym.wrappers.FrameStackObservation, "stack_size": 3}
KINDS = {
    "sync": maker(PPO, CARTPOLE),
    "continuous": maker(PPO, PENDULUM, fragment_length=30),
    "native": maker(PPO, CARTPOLE, vectorization="native"),
    "nested, wrapped": maker(PPO, EnvCreator(Nested)),
    "async": maker(PPO, EnvCreator(Nested), vectorization="async"),
    "same step": maker(PPO, CARTPOLE, mode=AutoresetMode.SAME_STEP),
    "no autoreset": maker(PPO, CARTPOLE, mode=AutoresetMode.DISABLED),
    "a wrapper's memory": maker(PPO, EnvCreator("CartPole-v1", wrappers=[STACKED])),
    "a time limit": maker(PPO, EnvCreator("Pendulum-v1", max_episode_steps=10)),
    "masks in some steps": maker(PPO, EnvCreator(Masked, {"actions": "discrete", "time": "third", "form": "lists"})),
    "recurrent": maker(PPO, CARTPOLE, LSTM),
    "running returns": maker(PPO, CARTPOLE, {"reward_filter": "return_std"}),
    "epsilon": maker(DQN, CARTPOLE),
    "ornstein uhlenbeck": maker(SAC, PENDULUM, {"exploration": {"type": "ornstein_uhlenbeck_noise", **NOISE}}),
    "gsde": maker(SAC, PENDULUM, {"exploration": {"type": "gsde", "sample_freq": 5}}),
    "parameter noise": maker(DQN, CARTPOLE, {"exploration": {"type": "parameter_noise", **NOISE, **GREEDY}}),
}


def agents_maker(env: EnvCreator, mapping: Any = None, **options: Any) -> MakeWorker:
    """Workers with two recurrent policies, which are mapped to the agents of the environment."""

    def make() -> RolloutWorker:
        entry = {"_target_": PPO, **LSTM, "reward_filter": "return_std"}
        agents = [*env.spaces()[0]]  # type: ignore[misc]
        given = {agents[0]: "a", "*": "b"} if mapping is None else mapping
        policy = PolicySet(*env.spaces(), policies={"a": entry, "b": entry}, policy_mapping=given)
        return RolloutWorker(env, policy, **{"num_envs": 3, "fragment_length": 7, **options})

    return make


def either(agent_id: str, rng: np.random.Generator) -> str:
    """One of both policies for an episode."""
    return "ab"[rng.integers(2)]


COPIES = EnvCreator("CartPole-v1", agents=3)
KINDS |= {
    "agents": agents_maker(COPIES, vectorization="sync"),
    "agents, async": agents_maker(COPIES, vectorization="async"),
    "agents, mapped anew": agents_maker(COPIES, either, vectorization="sync"),
    "agents, turns": agents_maker(EnvCreator("pettingzoo.classic.connect_four_v3"), vectorization="sync"),
}


@pytest.mark.parametrize("name", KINDS)
def test_a_worker_built_again_continues_the_running_episodes(name: str) -> None:
    first = KINDS[name]()
    for fragments in (3,) if "async" in name else (1, 1, 1, 3):  # in the first episode, and later
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


@pytest.mark.parametrize(
    ("name", "part", "key"),
    [
        ("recurrent", "lanes default_policy memory now state_in", "0"),
        ("agents", "lanes a memory now state_in", "0"),
        ("agents", "lanes b running_returns", "running"),
        ("agents", "tracker", "gains"),
        ("agents, turns", "lanes b held", "held_rewards"),
        ("agents, mapped anew", "", "eps_id"),
        ("ornstein uhlenbeck", "lanes default_policy exploration", "x"),
        ("running returns", "lanes default_policy running_returns", "running"),
        ("native", "tracker", "lengths"),
        ("native", "envs env", "state"),
        ("native", "envs env _np_random state", "state"),
    ],
)
def test_each_part_of_the_state_is_needed(name: str, part: str, key: str) -> None:
    first, second = KINDS[name](), KINDS[name]()
    state = saved_after(first, 2)
    changed = reduce(getitem, part.split(), state["episodes"])
    changed[key] = changed[key] + 1
    second.load_state_dict(state)
    with pytest.raises(AssertionError):
        go_on_equally(first, second, fragments=12)


NORMALISED = EnvCreator("Pendulum-v1", wrappers=[gym.wrappers.NormalizeObservation], check=False)


@pytest.mark.parametrize(("env", "normalized"), [(EnvCreator(Unseeded, check=False), False), (NORMALISED, True)])
def test_environments_that_do_not_repeat_themselves_begin_new_episodes_and_say_so(
    env: EnvCreator, normalized: bool, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = (maker(PPO, env)() for _ in range(2))
    second.load_state_dict(saved_after(first, 40))
    assert second.sample().t[0].tolist() == [0, 0, 0]
    assert caplog.text.count(BEGIN_ANEW) == 1
    assert ("NormalizeObservation" in first.describe_loss()) == normalized


@pytest.mark.parametrize("what", ["a changed action", "a replay that takes too long"])
def test_a_replay_that_differs_or_takes_too_long_is_given_up(
    what: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = KINDS["continuous"](), KINDS["continuous"]()
    state = saved_after(first, 2)
    if what == "a changed action":
        state["episodes"]["envs"]["actions"]["actions"][3, 1] *= -1.0
    else:
        monkeypatch.setattr(env_positions, "LONGEST_REPLAY_S", -1.0)
    second.load_state_dict(state)
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


def test_actions_of_episodes_that_are_over_or_endless_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
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


class Opaque(CartPoleVectorEnv):
    """A native form with an attribute of an unknown kind."""

    def __init__(self, num_envs: int = 1, **keywords: Any) -> None:
        super().__init__(num_envs, **keywords)
        self.opaque = object()


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
