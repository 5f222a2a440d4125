"""Trajectories of postprocessing have RLlib's columns and their episode, and policies act with the episodes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from lightning_rl import PPO
from lightning_rl.errors import ConfigError
from lightning_rl.rllib import MultiAgentEnv, build_policy
from lightning_rl.rllib.agents.a3c import A3CTrainer
from lightning_rl.rllib.agents.callbacks import DefaultCallbacks
from lightning_rl.rllib.agents.ppo import PPOTorchPolicy, PPOTrainer
from lightning_rl.rllib.agents.trainer import Trainer
from lightning_rl.rllib.evaluation import RolloutWorker
from lightning_rl.rllib.evaluation.postprocessing import compute_gae_for_sample_batch
from lightning_rl.rllib.evaluation.worker_set import WorkerSet
from lightning_rl.rllib.policy.policy import Policy
from lightning_rl.rollouts import RolloutWorker as CoreWorker


class Counter(gym.Env[Any, Any]):
    """Episodes of four steps, whose infos say the step and the action."""

    observation_space, action_space = spaces.Box(0.0, 9.0, (1,)), spaces.Discrete(3)

    def __init__(self, config: Any = None) -> None:
        self.n = 0

    def reset(self, **keywords: Any) -> Any:
        super().reset(**keywords)
        self.n = 0
        return np.array([self.n], np.float32), {"n": 0}

    def step(self, action: Any) -> Any:
        self.n += 1
        return np.array([self.n], np.float32), 10.0 * self.n, self.n == 4, False, {"n": self.n, "took": int(action)}


class Pair(MultiAgentEnv):
    """Agent 0 acts at every step, agent 1 at steps 0 and 2 of four."""

    def __init__(self, config: Any = None) -> None:
        super().__init__()
        self.observation_space, self.action_space = spaces.Box(0.0, 9.0, (1,)), spaces.Discrete(3)

    def _seen(self) -> Any:
        return {agent: np.array([self.n], np.float32) for agent in (0, 1) if agent == 0 or self.n % 2 == 0}

    def reset(self) -> Any:
        self.n = 0
        return self._seen()

    def step(self, actions: Any) -> Any:
        self.n += 1
        seen = self._seen()
        infos = {agent: {"of": agent, "n": self.n} for agent in seen}
        return seen, dict.fromkeys(seen, 1.0), {"__all__": self.n == 4}, infos


class Marks(DefaultCallbacks):
    """Numbers the episodes."""

    started = 0

    def on_episode_start(self, *, episode: Any, **keywords: Any) -> None:
        episode.user_data["number"] = self.started
        self.started += 1


def policy_that_keeps(found: list[Any]) -> Any:
    def postprocess(policy, sample_batch, other_agent_batches=None, episode=None):
        found.append((sample_batch, episode))
        return compute_gae_for_sample_batch(policy, sample_batch, other_agent_batches, episode)

    return PPOTorchPolicy.with_updates("Keeps", postprocess_fn=postprocess)


def train_on_trajectories(env: Any, **config: Any) -> list[Any]:
    found: list[Any] = []
    trainer = PPOTrainer.with_updates("OfKeeps", default_policy=policy_that_keeps(found))(
        env=env, config={"num_workers": 0, "train_batch_size": 6, "rollout_fragment_length": 6, "seed": 1, **config}
    )
    trainer.train()
    trainer.train()
    trainer.stop()
    return found


def test_a_trajectory_has_rllib_s_columns_also_where_its_episode_began_in_the_sample_before() -> None:
    """Two samples of 6 rows, resets not counted: episodes of steps 0–3, 0–1 | 2–3, 0–3."""
    found = train_on_trajectories(Counter, callbacks=Marks)
    assert [rows["t"].tolist() for rows, _ in found] == [[0, 1, 2, 3], [0, 1], [2, 3], [0, 1, 2, 3]]
    assert [rows["eps_id"].tolist() for rows, _ in found] == [[0] * 4, [1] * 2, [1] * 2, [2] * 4]
    assert [episode.user_data["number"] for _, episode in found] == [0, 1, 1, 2]
    assert found[1][1] is found[2][1] and [episode.episode_id for _, episode in found] == [0, 1, 1, 2]
    first, second, third, _ = (rows for rows, _ in found)
    assert (
        first["unroll_id"].tolist() == [second["unroll_id"][0]] * 4 and second["unroll_id"][0] != third["unroll_id"][0]
    )
    for rows, _ in found:
        assert [info["n"] for info in rows["infos"]] == (rows["t"] + 1).tolist()
        assert [info["took"] for info in rows["infos"]] == rows["actions"].tolist()
    whole = np.concatenate([second["actions"], third["actions"]])
    assert np.concatenate([second["prev_actions"], third["prev_actions"]]).tolist() == [0, *whole[:-1]]
    assert third["prev_rewards"].tolist() == [20, 30] and first["prev_rewards"].tolist() == [0, 10, 20, 30]


def test_without_callbacks_episodes_and_infos_are_there_as_well_and_in_several_environments() -> None:
    found = train_on_trajectories(Counter, num_envs_per_worker=2)
    assert all(episode.episode_id == rows["eps_id"][0] for rows, episode in found)
    assert all([info["took"] for info in rows["infos"]] == rows["actions"].tolist() for rows, _ in found)
    assert {int(rows["agent_index"][0]) for rows, _ in found} == {0, 1}


class EndsOfTrajectories(Marks):
    """Reads the episode of each trajectory, and counts trajectories where they are learned from."""

    def on_episode_start(self, *, episode: Any, worker: Any, **keywords: Any) -> None:
        super().on_episode_start(episode=episode)
        episode.user_data["played_by"] = worker.worker_index

    def on_postprocess_trajectory(self, *, worker: Any, episode: Any, policies: Any, **keywords: Any) -> None:
        episode.custom_metrics["trajectories"] = episode.custom_metrics.get("trajectories", 0) + 1
        episode.custom_metrics["length"] = episode.length
        episode.custom_metrics["reward"] = episode.total_reward
        episode.custom_metrics["played_by"] = episode.user_data["played_by"]
        episode.user_data["learned"] = worker.worker_index
        assert worker.policy_map == policies and episode.last_info_for()["n"] == episode.length


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.process)])
def test_trajectories_have_infos_and_episodes_wherever_they_are_played(workers: int) -> None:
    """Samples of 6 rows: episodes of steps 0–3, 0–1 | 2–3, 0–3, whose rewards are 10, 20, 30, 40."""
    found = train_on_trajectories(Counter, callbacks=EndsOfTrajectories, num_workers=workers)
    assert [rows["t"].tolist() for rows, _ in found] == [[0, 1, 2, 3], [0, 1], [2, 3], [0, 1, 2, 3]]
    for rows, _ in found:
        assert [info["n"] for info in rows["infos"]] == (rows["t"] + 1).tolist()
        assert [info["took"] for info in rows["infos"]] == rows["actions"].tolist()
    episodes = [episode for _, episode in found]
    assert episodes[1] is episodes[2] and [episode.user_data["number"] for episode in episodes] == [0, 1, 1, 2]
    assert [episode.episode_id for episode in episodes] == [(workers << 40) + number for number in (0, 1, 1, 2)]
    assert [episode.agent_rewards for episode in episodes] == [{("agent0", "default_policy"): 100.0}] * 4
    assert all(episode.user_data["learned"] == 0 for episode in episodes)
    assert episodes[-1].last_action_for() == found[-1][0]["actions"][-1]


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.process)])
@pytest.mark.parametrize("trainer_class", [PPOTrainer, A3CTrainer])
def test_metrics_of_trajectories_know_their_episodes(trainer_class: Any, workers: int) -> None:
    """A sample of 8 rows holds two episodes of four steps."""
    batch = {} if trainer_class is A3CTrainer else {"train_batch_size": 8}
    config = {"num_workers": workers, "rollout_fragment_length": 8, "callbacks": EndsOfTrajectories, **batch}
    trainer = trainer_class(env=Counter, config=config)
    metrics = trainer.train()["custom_metrics"]
    trainer.stop()
    found = {name: metrics[f"{name}_mean"] for name in ("trajectories", "length", "reward", "played_by")}
    assert found == {"trajectories": 1, "length": 4, "reward": 100, "played_by": workers}


@pytest.mark.process
def test_extra_batches_of_a_copy_are_refused() -> None:
    class Adds(DefaultCallbacks):
        def on_postprocess_trajectory(self, *, episode: Any, postprocessed_batch: Any, **keywords: Any) -> None:
            episode.add_extra_batch(postprocessed_batch)

    config = {"num_workers": 1, "train_batch_size": 8, "rollout_fragment_length": 8, "callbacks": Adds}
    trainer = PPOTrainer(env=Counter, config=config)
    with pytest.raises(ConfigError, match="add_extra_batch"):
        trainer.train()
    trainer.stop()


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.process)])
def test_a_set_of_workers_made_by_hand_gives_the_function_its_episodes(workers: int) -> None:
    """`foreach_worker` of a set: rows are made where they are played, and the function's columns come back."""

    def postprocess(policy, sample_batch, other_agent_batches=None, episode=None):
        sample_batch["seen"] = np.array([info["n"] * episode.length for info in sample_batch["infos"]])
        return compute_gae_for_sample_batch(policy, sample_batch, other_agent_batches, episode)

    policy = PPOTorchPolicy.with_updates("Sees", postprocess_fn=postprocess)
    config = {"rollout_fragment_length": 5}
    made = WorkerSet(env_creator=Counter, policy_class=policy, trainer_config=config, num_workers=workers)
    *_, rows = made.foreach_worker(lambda worker: worker.sample() if worker.worker_index == workers else None)
    made.stop()
    assert rows["seen"].tolist() == [4, 8, 12, 16]


def test_of_several_agents_each_row_has_the_info_that_came_with_the_agent_s_next_observation() -> None:
    policies = {name: (None, None, None, {}) for name in ("a", "b")}
    section = {"policies": policies, "policy_mapping_fn": lambda agent, *_, **__: "ab"[agent]}
    found = train_on_trajectories(Pair, multiagent=section, train_batch_size=8, rollout_fragment_length=8)
    of_agents: dict[int, list[Any]] = {0: [], 1: []}
    for rows, episode in found:
        assert episode.episode_id == rows["eps_id"][0]
        of_agents[rows["infos"][0]["of"]].append([info["n"] for info in rows["infos"]])
    assert [1, 2, 3, 4] in of_agents[0] and [2, 4] in of_agents[1]


def test_a_worker_of_a_policy_s_class_gives_the_function_its_episodes() -> None:
    found: list[Any] = []
    worker = RolloutWorker(env_creator=Counter, policy=policy_that_keeps(found), rollout_fragment_length=4)
    worker.sample()
    assert [episode.length for _, episode in found] == [4]
    assert [info["n"] for info in found[0][0]["infos"]] == [1, 2, 3, 4]


class Reader(Policy):
    """Notes the episodes that it acts in."""

    def __init__(self, observation_space, action_space, config):
        super().__init__(observation_space, action_space, config)
        self.seen: list[Any] = []

    def compute_actions(self, obs_batch, state_batches=None, prev_action_batch=None, prev_reward_batch=None,
                        info_batch=None, episodes=None, **kwargs):  # fmt: skip
        assert len(episodes) == len(obs_batch)
        self.seen.append([(episode.episode_id, float(episode.last_observation_for()[0])) for episode in episodes])
        return [0 for _ in obs_batch], [], {}

    def learn_on_batch(self, samples):
        return {}

    def get_weights(self):
        return {}

    def set_weights(self, weights):
        pass


@pytest.mark.process
def test_a_policy_from_scratch_acts_with_the_episode_in_a_worker_process() -> None:
    """Workers of processes count from 1, in "eps_id" as well; `Reader` refuses to act without episodes."""
    trainer = Trainer.with_updates("OfReader", default_policy=Reader)(
        env=Counter, config={"train_batch_size": 8, "rollout_fragment_length": 8, "num_workers": 1}
    )
    trainer.train()
    _, seen = trainer.workers.foreach_worker(lambda worker: worker.get_policy().seen)
    trainer.stop()
    assert seen[:5] == [[((1 << 40) + episode, n)] for episode, n in ((0, 0), (0, 1), (0, 2), (0, 3), (0, 4))]


def test_a_policy_from_scratch_acts_with_the_episode_of_each_environment() -> None:
    trainer = Trainer.with_updates("OfReader", default_policy=Reader)(
        env=Counter, config={"train_batch_size": 14, "rollout_fragment_length": 7, "num_envs_per_worker": 2}
    )
    trainer.train()
    policy: Any = trainer.get_policy()
    # The action between two episodes, in which nothing is observed but the final state, is ignored.
    wanted = [*[(0, n) for n in range(5)], (2, 0), (2, 1)]
    assert [each[0] for each in policy.seen[:7]] == wanted
    assert [each[1][0] for each in policy.seen[:7]] == [1] * 5 + [3] * 2
    trainer.stop()
    given = SimpleNamespace(episode_id=7, last_observation_for=lambda: [3.0])
    policy.compute_single_action(np.zeros(1, np.float32), episode=given)
    assert policy.seen[-1] == [(7, 3.0)]


def test_functions_over_a_policy_of_this_package_number_the_trajectories_of_a_sample() -> None:
    found: list[Any] = []

    def postprocess(policy, sample_batch, other_agent_batches, episode):
        found.append((sample_batch, episode))
        return sample_batch

    made: Any = build_policy("OverCore", base=PPO, postprocess_fn=postprocess, loss_fn=lambda *_: None)
    policy = made(Counter.observation_space, Counter.action_space)
    policy.postprocess_trajectory(CoreWorker(Counter, policy, fragment_length=7, num_envs=2).sample())
    assert len({int(rows["eps_id"][0]) for rows, _ in found}) == 4 and {episode for _, episode in found} == {None}
