"""Environments that call the policy: `ExternalEnv` and `ExternalMultiAgentEnv`."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from lightning_rl.errors import ConfigError, EnvApiError, EnvError
from lightning_rl.rllib import PPOTrainer
from lightning_rl.rllib.agents.dqn import DQNTrainer
from lightning_rl.rllib.agents.impala import ImpalaTrainer
from lightning_rl.rllib.env.external_env import ExternalEnv
from lightning_rl.rllib.env.external_multi_agent_env import ExternalMultiAgentEnv
from lightning_rl.rllib.evaluation import RolloutWorker
from lightning_rl.rllib.offline import InputReader
from lightning_rl.rllib.policy import Policy
from lightning_rl.rllib.policy.sample_batch import SampleBatch
from tests.rllib.examples.training import train_until
from tests.rllib.external import LEARNS, AgentsServing, Classic, Counting, MultiServing, SimpleServing


class Mock(Policy):
    """Always acts 0."""

    def compute_actions(self, obs_batch: Any, state_batches: Any = None, **keywords: Any) -> Any:  # type: ignore[override]
        return np.zeros(len(obs_batch), np.int64), [], {}


def learn(env: Any, reward: float, iterations: int, trainer: Any = PPOTrainer, **keys: Any) -> dict[str, Any]:
    """Train until `episode_reward_mean`; the last result."""
    made = trainer(env=lambda context: env(), config={**LEARNS, **keys})
    try:
        return train_until(made, reward, iterations)
    finally:
        made.stop()


def test_a_loop_that_asks_for_actions_trains_ppo() -> None:
    result = learn(lambda: SimpleServing(Classic()), 60, 20)
    assert result["timesteps_total"] % 1000 < 200 and result["episodes_total"] > 50


def test_episodes_of_one_loop_may_overlap() -> None:
    """Two of five environments act in turn; the loops of two workers are threads of the process."""
    learn(lambda: MultiServing(Classic), 50, 20, num_workers=2)


@pytest.mark.slow
def test_dqn_learns_where_a_fifth_of_the_actions_is_logged() -> None:
    generator = np.random.default_rng(0)
    keys = {"timesteps_per_iteration": 1000, "exploration_config": {"epsilon_timesteps": 2000}, "train_batch_size": 32}
    random = lambda step: generator.integers(2) if generator.random() < 0.2 else None  # noqa: E731
    made = DQNTrainer(env=lambda context: SimpleServing(Classic(), random), config={"lr": 1e-3, **keys})
    rewards = [made.train()["episode_reward_mean"] for _ in range(12)]
    made.stop()
    assert max(rewards) > 60 > rewards[0]


@pytest.mark.parametrize(("mode", "rows"), [("complete_episodes", 50), ("truncate_episodes", 40)])
def test_a_rollout_worker_samples_as_many_rows_as_in_rllib(mode: str, rows: int) -> None:
    """Episodes of 25 steps and fragments of 40: two whole ones, or 40 steps."""
    worker = RolloutWorker(lambda _: SimpleServing(Counting(25)), Mock, rollout_fragment_length=40, batch_mode=mode)
    batches = [worker.sample() for _ in range(3)]
    metrics = worker.get_metrics()
    worker.stop()
    assert [batch.count for batch in batches] == [rows] * 3
    assert metrics["episode_returns"] == [25.0] * (3 * rows // 25) and set(metrics["episode_lengths"]) == {25}
    now = np.concatenate([batch["obs"][:, 0] for batch in batches])
    assert now.tolist() == [float(step % 25) for step in range(3 * rows)]


def test_a_recurrent_policy_remembers_logged_actions() -> None:
    env = lambda context: SimpleServing(Counting(10), lambda step: 2 if step % 3 else None)  # noqa: E731
    model = {"use_lstm": True, "lstm_cell_size": 8, "lstm_use_prev_action": True, "lstm_use_prev_reward": True}
    keys = {"train_batch_size": 30, "rollout_fragment_length": 30, "observation_filter": "MeanStdFilter"}
    made = PPOTrainer(env=env, config={"model": model, **keys})
    fragment = made.datamodule.source.run_plan.over(made.workers.workers, made.policy).sample()
    result = made.train()
    made.stop()
    same = fragment.valid[1:, 0] & fragment.valid[:-1, 0]
    assert torch.equal(fragment["prev_actions"][1:-1, 0][same], fragment.actions[:-1, 0][same])
    assert fragment["state_in"]["0"].any() and result["timesteps_total"] == 30


def test_logged_actions_are_recorded_with_the_policy_s_probability_of_them() -> None:
    env = lambda context: SimpleServing(Counting(10), lambda step: 2 if step % 3 else None)  # noqa: E731
    made = PPOTrainer(env=env, config={"train_batch_size": 60, "rollout_fragment_length": 60})
    fragment = made.datamodule.source.run_plan.over(made.workers.workers, made.policy).sample()
    rows = fragment.valid[:, 0]
    actions, obs, logp = fragment.actions[rows, 0], fragment.obs[:-1][rows, 0], fragment.action_logp[rows, 0]
    expected = made.policy.compute_log_likelihoods(actions, obs)
    made.stop()
    assert len(actions) == 60 and (actions[[step % 3 > 0 for step in range(60)]] == 2).all()
    assert np.allclose(logp, expected, atol=1e-5)
    after = fragment.obs[1:][rows, 0]
    assert (after[:, 1] == actions).all(), "the environment took the action that is recorded"


def test_episodes_without_training_act_and_are_not_learned_from() -> None:
    class Serving(SimpleServing):
        def start_episode(self, episode_id: Any = None, training_enabled: bool = True) -> str:
            self.number = getattr(self, "number", 0) + 1
            self.env.length = 10 if self.number % 2 else 7
            return super().start_episode(episode_id, training_enabled=bool(self.number % 2))

    worker = RolloutWorker(lambda _: Serving(Counting(10)), Mock, rollout_fragment_length=30)
    batches = [worker.sample() for _ in range(4)]
    lengths = worker.get_metrics()["episode_lengths"]
    worker.stop()
    assert [row for batch in batches for row in batch["obs"][:, 0].tolist()] == [float(now) for now in range(10)] * 12
    assert lengths.count(10) == 12 and lengths.count(7) > 3 and set(lengths) == {7, 10}


@pytest.mark.parametrize("names", [("a", "b"), (0, 1)])
@pytest.mark.parametrize("chosen", [None, 2])
def test_several_agents_have_their_own_actions_rewards_and_ends(names: tuple[Any, Any], chosen: int | None) -> None:
    """One agent ends after 3 steps, the other after 5."""
    first, second = names
    made = RolloutWorker(
        lambda _: AgentsServing({first: 3, second: 5}, chosen),
        {name: (Mock, Counting.observation_space, Counting.action_space, {}) for name in ("one", "two")},
        lambda agent, *episode, **keywords: "one" if agent == first else "two",
        rollout_fragment_length=10,
    )
    batch, metrics = made.sample(), made.get_metrics()
    made.stop()
    assert {name: part.count for name, part in batch.policy_batches.items()} == {"one": 6, "two": 10}
    assert all((part["actions"] == (chosen or 0)).all() for part in batch.policy_batches.values())
    assert batch.policy_batches["one"]["dones"].tolist() == [False, False, True] * 2
    assert metrics["episode_returns"] == [8.0, 8.0] and metrics["policy_returns"] == {
        "one": [3.0] * 2,
        "two": [5.0] * 2,
    }


def test_several_agents_train() -> None:
    policies = {"shared": (None, Counting.observation_space, Counting.action_space, {})}
    keys = {"multiagent": {"policies": policies, "policy_mapping_fn": lambda agent, *more, **keywords: "shared"}}
    made = PPOTrainer(env=lambda context: AgentsServing({0: 3, 1: 5}), config={"train_batch_size": 50, **keys})
    result = made.train()
    made.stop()
    assert result["episode_reward_mean"] == 8 and result["timesteps_total"] == 50


def test_a_loop_that_fails_or_returns_ends_the_training() -> None:
    class Failing(SimpleServing):
        def run(self) -> None:
            episode = self.start_episode()
            self.get_action(episode, np.zeros(2 if self.choose(0) is None else 3))

    for choose, said in ((lambda step: None, "has returned"), (lambda step: 1, r"EnvApiError: observation .*\(3,\)")):
        made = PPOTrainer(env=lambda context: Failing(Counting(5), choose), config={"train_batch_size": 50})  # noqa: B023
        with pytest.raises(EnvError, match=said):
            made.train()
        made.stop()


class Nothing(InputReader):
    """Has no batch, as a server without clients."""

    def next(self) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        return SampleBatch()


class Waiting(SimpleServing):
    """Asks for no action."""

    def run(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait()


@pytest.mark.parametrize("keys", [{"env": lambda context: Waiting(Counting(5))}, {"input": lambda context: Nothing()}])
def test_sigterm_ends_the_wait_for_experience(keys: dict[str, Any]) -> None:
    spaces = {"observation_space": Counting.observation_space, "action_space": Counting.action_space}
    made = PPOTrainer(config={**({} if "env" in keys else spaces), **keys})
    with pytest.raises(KeyboardInterrupt):
        made.train()
    made.stop()


def test_threads_end_with_the_trainer() -> None:
    before = threading.active_count()
    made = PPOTrainer(env=lambda context: MultiServing(lambda seed: Counting(9)), config={"train_batch_size": 50})
    made.train()
    assert threading.active_count() > before
    own = [thread for thread in threading.enumerate() if "MultiServing" in f"{thread} {thread.name}"]
    made.stop()
    for thread in own:
        thread.join(timeout=20)
    assert len(own) >= 3 and not any(thread.is_alive() for thread in own)


def test_ids_and_values_that_do_not_fit_are_refused() -> None:
    env = ExternalEnv(spaces.Discrete(2), spaces.Dict(a=spaces.Box(0, 1, (2,))), max_concurrent=1)
    episode = env.start_episode()
    for call, error, said in (
        (lambda: env.start_episode(episode), ValueError, "is open already"),
        (lambda: env.start_episode(), ValueError, "max_concurrent"),
        (lambda: env.get_action("other", {}), ValueError, "'other'"),
        (lambda: env.get_action(episode, {"a": np.zeros(3)}), EnvApiError, r"observation\['a'\].*\(3,\)"),
        (lambda: env.get_action(episode, {"b": np.zeros(2)}), EnvApiError, "observation"),
        (lambda: env.log_action(episode, {"a": np.zeros(2)}, 2), EnvApiError, "action 2"),
    ):
        with pytest.raises(error, match=said):
            call()
    env.end_episode(episode, {"a": [0, 1]})
    with pytest.raises(ValueError, match=episode):
        env.log_returns(episode, 1.0)


@pytest.mark.parametrize("obs", [[1, 2, 3, 300], [-1, 0, 0, 0], [0.2, 0.4, 0.6, 0.8], ["1", "2", "3", "4"]], ids=str)
def test_observations_that_a_cast_would_change_are_refused(obs: list[Any]) -> None:
    env = ExternalEnv(spaces.Discrete(2), spaces.Box(0, 255, (4,), np.uint8))
    with pytest.raises(EnvApiError, match=r"observation \[.*Box\(0, 255"):
        env.get_action(env.start_episode(), obs)
    env.end_episode(env.start_episode(), [1, 2, 3, 255])


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("place", ["observation", "info"])
def test_masks_that_allow_no_action_are_refused_where_they_are_sent(several: bool, place: str) -> None:
    masked = spaces.Dict(x=spaces.Box(0, 1, (1,)), action_mask=spaces.MultiBinary(2))
    space, choices = masked if place == "observation" else masked["x"], spaces.Discrete(2)
    env: Any = ExternalMultiAgentEnv({"a": choices}, {"a": space}) if several else ExternalEnv(choices, space)
    episode, x, nothing = env.start_episode(), np.zeros(1), np.zeros(2, np.int8)
    obs: Any = {"x": x, "action_mask": nothing} if place == "observation" else x
    if place == "info":
        info = {"action_mask": nothing}
        env.log_returns(episode, {"a": 0.0} if several else 0.0, {"a": info} if several else info)
    with pytest.raises(EnvApiError, match=r"action_mask=\[0, 0\].*forbids every action"):
        env.get_action(episode, {"a": obs} if several else obs)


def test_an_algorithm_that_samples_by_itself_is_refused() -> None:
    with pytest.raises(ConfigError, match="'env'"):
        ImpalaTrainer(env=lambda context: SimpleServing(Counting(5)), config={})
