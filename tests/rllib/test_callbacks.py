"""RLlib's callbacks: their arguments, the episodes that they get, and custom metrics of results."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from lightning_rl.errors import ConfigError
from lightning_rl.rllib import MultiAgentEnv
from lightning_rl.rllib.agents.callbacks import DefaultCallbacks, MultiCallbacks
from lightning_rl.rllib.agents.pg import PGTrainer
from lightning_rl.rllib.agents.ppo import PPOTrainer
from lightning_rl.rllib.callbacks import EpisodeStatistics
from tests.rllib.classic import trainer

SMALL = {"train_batch_size": 64, "num_sgd_iter": 1, "num_envs_per_worker": 2, "rollout_fragment_length": 8}


class Counting(gym.Env[Any, Any]):
    """The observation counts the steps of the episode, which are 3; rewards are 1, and infos hold the count."""

    observation_space, action_space = Box(-1, 9, (1,)), Discrete(2)
    name = "counting"

    def __init__(self, env_config: Any = None) -> None: ...

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.actions = 0, []
        return self._obs(), {"count": 0}

    def step(self, action):
        self.steps += 1
        self.actions.append(action)
        return self._obs(), 1.0, self.steps == 3, False, {"count": self.steps}

    def _obs(self):
        return np.array([self.steps], np.float32)


class Watching(DefaultCallbacks):
    """As RLlib's example: user data in, custom metrics and histograms out."""

    def on_episode_start(self, *, worker, base_env, policies, episode, env_index, **kwargs):
        assert episode.length == 0, "ERROR: `on_episode_start()` callback should be called right after env reset!"
        assert base_env.get_sub_environments()[env_index].name == "counting"
        assert list(policies) == ["default_policy"] and policies["default_policy"] is worker.get_policy()
        assert episode.last_observation_for() == [0] and episode.last_info_for() == {"count": 0}
        episode.user_data["counts"], episode.hist_data["counts"] = [], []

    def on_episode_step(self, *, worker, base_env, policies, episode, env_index, **kwargs):
        assert episode.length > 0 and episode.last_info_for()["count"] == episode.length
        env = base_env.get_sub_environments()[env_index]
        assert episode.last_action_for() == env.actions[-1] and episode.prev_reward_for() == float(episode.length > 1)
        assert episode.prev_action_for() == (env.actions[-2] if episode.length > 1 else None)
        assert episode.last_pi_info_for()["action_logp"] < 0
        episode.user_data["counts"].append(float(episode.last_observation_for()[0]))

    def on_episode_end(self, *, worker, base_env, policies, episode, env_index, **kwargs):
        assert episode.user_data["counts"] == [1, 2, 3] and episode.length == 3 and episode.total_reward == 3
        assert episode.agent_rewards == {("agent0", "default_policy"): 3} and episode.env_id == env_index
        episode.custom_metrics["count"] = episode.episode_id
        episode.custom_metrics["pair"] = np.array([1.0, 3.0])
        episode.hist_data["counts"] = episode.user_data["counts"]

    def on_sample_end(self, *, worker, samples, **kwargs):
        samples["rewards"][:] = 2.0

    def on_postprocess_trajectory(
        self, *, worker, episode, agent_id, policy_id, policies, postprocessed_batch, original_batches, **kwargs
    ):
        _, batch = original_batches[agent_id]
        assert (batch["rewards"] == 2.0).all() and len(batch["rewards"]) <= 3 and "advantages" in postprocessed_batch
        assert (batch["obs"] == postprocessed_batch["obs"]).all() and isinstance(batch["obs"], np.ndarray)
        postprocessed_batch["seen"] = postprocessed_batch["dones"]
        postprocessed_batch["advantages"][:] = 7.0
        episode.custom_metrics["parts"] = episode.custom_metrics.get("parts", 0) + 1

    def on_learn_on_batch(self, *, policy, train_batch, result, **kwargs):
        assert (train_batch["advantages"] == 7.0).all()
        result["seen_dones"] = float(train_batch["seen"].sum())

    def on_train_result(self, *, trainer, result, **kwargs):
        result["callback_ok"] = trainer.iteration_of(result)


class Trainer(PPOTrainer):
    def iteration_of(self, result):
        return result["training_iteration"]


class Filming(DefaultCallbacks):
    def on_episode_end(self, *, worker, base_env, policies, episode, env_index, **kwargs):
        episode.media["frames"] = np.full((2, 2), episode.length, np.uint8)


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.ray)])
def test_media_of_episodes_are_in_results_and_evaluations(workers: int) -> None:
    keys = {"callbacks": Filming, "num_workers": workers, "evaluation_interval": 1, "evaluation_num_episodes": 2}
    trainer: Any = PPOTrainer(env=Counting, config={**SMALL, **keys})
    result = trainer.train()
    trainer.stop()
    for part, count in ((result, result["episodes_this_iter"]), (result["evaluation"], 2)):
        frames = part["episode_media"]["frames"]
        assert len(frames) == count > 0 and all((each == np.full((2, 2), 3)).all() for each in frames)


@pytest.mark.parametrize("more", [{}, {"batch_mode": "complete_episodes", "rollout_fragment_length": 4}])
def test_episodes_have_user_data_and_results_have_custom_metrics(more: dict[str, Any]) -> None:
    trainer: Any = Trainer(env=Counting, config={**SMALL, **more, "callbacks": Watching})
    for iteration in range(1, 3):
        result = trainer.train()
        assert result["callback_ok"] == iteration and result["train/seen_dones"] > 0
    trainer.stop()
    numbers, episodes = result["custom_metrics"], result["episodes_total"]
    named = {f"{name}_{kind}" for name in ("count", "pair", "parts") for kind in ("mean", "min", "max")}
    assert set(numbers) == {*named, "default_policy"} and numbers["count_min"] == 0
    assert numbers["pair_mean"] == 2.0
    assert 1 == numbers["parts_min"] <= numbers["parts_max"] <= 2  # an episode of 3 steps in fragments of 8 rows
    assert numbers["default_policy"] == {"seen_dones": result["train/seen_dones"]}
    counts = result["hist_stats"]["counts"]
    assert sorted(set(counts)) == [1.0, 2.0, 3.0] and len(counts) == min(3 * episodes, 100)
    assert numbers["count_max"] >= episodes - 1
    assert result["episode_reward_mean"] == 3


class Lengths(DefaultCallbacks):
    def on_episode_end(self, *, worker, base_env, policies, episode, env_index, **kwargs):
        episode.custom_metrics["id"] = episode.episode_id
        episode.hist_data["lengths"] = [episode.length]


@pytest.mark.parametrize(
    ("algorithm", "keys"),
    [("PPO", {"train_batch_size": 60, "num_sgd_iter": 1}), ("DQN", {"timesteps_per_iteration": 60})],
)
def test_results_are_over_all_episodes_since_the_one_before(algorithm: str, keys: dict[str, Any]) -> None:
    """At least 60 steps are 20 episodes of 3, of which a window of the latest 4 would have 4."""
    keys |= {"num_envs_per_worker": 1, "rollout_fragment_length": 60, "callbacks": Lengths}
    made = trainer(algorithm, env=Counting, metrics_smoothing_episodes=4, **keys)
    results = [made.train() for _ in range(2)]
    made.stop()
    for result in results:
        episodes, histograms = result["episodes_this_iter"], result["hist_stats"]
        assert episodes >= 20 and [*map(len, histograms.values())] == [episodes] * len(histograms)
        last = result["episodes_total"] - 1
        assert result["custom_metrics"]["id_max"] == last and result["custom_metrics"]["id_min"] == last - episodes + 1


def test_results_have_older_episodes_where_new_ones_are_few() -> None:
    """12 steps are 4 episodes of 3; the third result has 4 new ones and the 6 before them."""
    keys: dict[str, Any] = {"train_batch_size": 12, "num_sgd_iter": 1, "num_envs_per_worker": 1, "callbacks": Lengths}
    made = trainer(env=Counting, metrics_smoothing_episodes=10, **keys)
    sizes = [{*map(len, made.train()["hist_stats"].values())} for _ in range(3)]
    made.stop()
    assert sizes == [{4}, {8}, {10}]


def test_each_episode_of_a_sample_of_whole_episodes_is_reported_once() -> None:
    trainer: Any = Trainer(env=Counting, config={**SMALL, "batch_mode": "complete_episodes", "callbacks": Watching})
    result = trainer.train()
    trainer.stop()
    assert len(trainer.datamodule.numbers["custom_metrics/count"]) == result["episodes_total"]


@pytest.mark.process
@pytest.mark.ray
def test_custom_metrics_leave_out_nan() -> None:
    statistics = EpisodeStatistics()
    statistics.add({"custom_metrics/some": [math.nan, 1.0, 3.0, math.nan], "custom_metrics/none": [math.nan]})
    found = statistics.custom_metrics()
    assert (found["some_mean"], found["some_min"], found["some_max"]) == (2.0, 1.0, 3.0)
    assert math.isnan(found["none_mean"])


def test_custom_metrics_come_from_workers_in_other_processes() -> None:
    trainer: Any = Trainer(env=Counting, config={**SMALL, "num_workers": 2, "callbacks": Watching})
    result = trainer.train()
    trainer.stop()
    assert result["custom_metrics"]["count_max"] >= 1


@pytest.mark.process
@pytest.mark.ray
def test_custom_metrics_of_evaluations_come_from_other_processes() -> None:
    keys = {**SMALL, "evaluation_num_workers": 1, "evaluation_num_episodes": 3, "callbacks": Watching}
    trainer: Any = Trainer(env=Counting, config=keys)
    counts = [trainer.evaluate()["evaluation"]["hist_stats"]["counts"] for _ in range(2)]
    trainer.stop()
    assert counts == [[1.0, 2.0, 3.0] * 3] * 2


def test_callbacks_are_a_dict_of_functions_too() -> None:
    seen: list[Any] = []

    def on_episode_end(info):
        info["episode"].custom_metrics["length"] = info["episode"].length
        seen.append((info["env"].get_unwrapped()[0].name, list(info["policy"])))

    functions = {
        "on_episode_end": on_episode_end,
        "on_sample_end": lambda info: seen.append(info["samples"].count),
        "on_train_result": lambda info: info["result"].update(callback_ok=info["trainer"] is not None),
        "on_postprocess_traj": lambda info: seen.append(info["post_batch"]["advantages"].shape),
    }
    trainer: Any = PPOTrainer(env=Counting, config={**SMALL, "callbacks": functions})
    result = trainer.train()
    trainer.stop()
    assert result["custom_metrics"]["length_mean"] == 3 and result["callback_ok"] is True
    assert ("counting", ["default_policy"]) in seen
    assert max(each for each in seen if isinstance(each, int)) >= 8  # rows of resets come on top


def test_several_callbacks_are_called_in_order() -> None:
    class First(DefaultCallbacks):
        def on_episode_end(self, *, episode, **kwargs):
            episode.custom_metrics["who"] = 1

    class Second(DefaultCallbacks):
        def on_episode_end(self, episode):
            episode.custom_metrics["who"] += 1

    trainer: Any = PPOTrainer(env=Counting, config={**SMALL, "callbacks": lambda: MultiCallbacks([First, Second])})
    assert trainer.train()["custom_metrics"]["who_mean"] == 2
    trainer.stop()


class Two(MultiAgentEnv):
    """Two agents, of which the second gets twice as much, for 2 steps."""

    possible_agents = ("a", "b")

    def __init__(self, env_config: Any = None) -> None:
        self.observation_spaces = dict.fromkeys(self.possible_agents, Box(-9, 9, (1,)))
        self.action_spaces = dict.fromkeys(self.possible_agents, Discrete(2))

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return self._obs(), {}

    def step(self, actions):
        self.steps += 1
        over = dict.fromkeys((*self.possible_agents, "__all__"), self.steps == 2)
        return self._obs(), {"a": 1.0, "b": 2.0}, over, dict.fromkeys(over, False), {}

    def _obs(self):
        return {"a": np.array([self.steps], np.float32), "b": np.array([-self.steps], np.float32)}


class WatchingTwo(DefaultCallbacks):
    def on_episode_end(self, *, episode, **kwargs):
        assert episode.agent_rewards == {("a", "first"): 2.0, ("b", "second"): 4.0} and episode.total_reward == 6
        assert episode.policy_for("b") == "second" and set(episode.get_agents()) == {"a", "b"}
        episode.custom_metrics["last"] = float(episode.last_observation_for("b")[0])


def test_episodes_of_several_agents_know_what_each_of_them_got() -> None:
    multiagent = {
        "policies": {"first": (None, None, None, {}), "second": (None, None, None, {})},
        "policy_mapping_fn": lambda agent, *_, **__: {"a": "first", "b": "second"}[agent],
    }
    trainer: Any = PPOTrainer(env=Two, config={**SMALL, "multiagent": multiagent, "callbacks": WatchingTwo})
    result, played = trainer.train(), trainer.evaluate()["evaluation"]
    trainer.stop()
    assert played["policy_reward_mean"] == played["policy_reward_max"] == {"first": 2, "second": 4}
    assert played["hist_stats"]["policy_second_reward"] == [4] * played["episodes_this_iter"]
    assert result["custom_metrics"]["last_mean"] == -2 and result["episode_reward_mean"] == 6


class Evaluated(DefaultCallbacks):
    """Counts what it is called with, by name."""

    calls: ClassVar[list[Any]] = []

    def on_sub_environment_created(self, *, worker, sub_environment, env_context, env_index, **kwargs):
        self.calls.append((worker.stream, sub_environment.name, env_context["k"], env_context.vector_index, env_index))

    def on_episode_created(self, *, episode, **kwargs):
        assert episode.last_observation_for() is None

    def on_evaluate_start(self, *, trainer, **kwargs):
        self.calls.append("start")

    def on_evaluate_end(self, *, algorithm, evaluation_metrics, **kwargs):
        evaluation_metrics["evaluation"]["mine"] = algorithm.iteration

    def on_episode_end(self, *, worker, episode, **kwargs):
        episode.custom_metrics["length"] = episode.length
        episode.hist_data["lengths"] = [episode.length]
        self.calls.append(f"end {worker.stream}")


@pytest.mark.parametrize(("more", "length"), [({}, 3), ({"evaluation_config": {"horizon": 2}}, 2)])
def test_callbacks_see_the_episodes_of_evaluations(more: dict[str, Any], length: int) -> None:
    """Each of those that count is seen once, where a horizon cuts it as well."""
    keys = {**SMALL, "callbacks": Evaluated, "env_config": {"k": 7}, "evaluation_interval": 1, **more}
    for episodes in (3, 17):  # more than are played together
        Evaluated.calls.clear()
        trainer: Any = PPOTrainer(env=Counting, config={**keys, "evaluation_num_episodes": episodes})
        first, second = trainer.train()["evaluation"], trainer.train()["evaluation"]
        trainer.stop()
        for played in (first, second):
            assert played["custom_metrics"] == {f"length_{kind}": length for kind in ("mean", "min", "max")}
            assert played["hist_stats"]["lengths"] == [length] * episodes == played["hist_stats"]["episode_lengths"]
        calls = Evaluated.calls
        assert calls.count("start") == 2 and calls.count("end evaluation") == 2 * episodes and second["mine"] == 1
        assert calls[0] == ("rollout", "counting", 7, 0, 0)
        created = [each[3:] for each in calls if isinstance(each, tuple) and each[0] == "evaluation"]
        assert created == [(index, index) for index in range(min(episodes, len(created)))]


class Telling(Two):
    """An info of each agent."""

    def step(self, actions):
        found = super().step(actions)[:4]
        return *found, {agent: {"agent": agent, "steps": self.steps, "action": actions[agent]} for agent in actions}


class WatchingInfos(DefaultCallbacks):
    seen: ClassVar[list[Any]] = []

    def on_episode_start(self, *, episode, **kwargs):
        assert episode.last_info_for("a") == {}

    def on_episode_step(self, *, episode, **kwargs):
        for agent in ("a", "b"):
            action = episode.last_action_for(agent)
            assert episode.last_info_for(agent) == {"agent": agent, "steps": episode.length, "action": action}
        self.seen.append(episode.length)


def test_each_of_several_agents_has_its_own_info() -> None:
    trainer: Any = PPOTrainer(env=Telling, config={**SMALL, "callbacks": WatchingInfos})
    trainer.train()
    trainer.stop()
    assert set(WatchingInfos.seen) == {1, 2}


class Doubles(DefaultCallbacks):
    """Doubles the rewards of each sample, and keeps the sample and the trajectories that are learned from."""

    samples: ClassVar[list[Any]] = []
    learned: ClassVar[list[Any]] = []

    def on_sample_end(self, *, worker: Any, samples: Any, **keywords: Any) -> None:
        samples["rewards"] *= 2
        samples["mine"] = np.arange(samples.count)
        self.samples.append(samples)

    def on_postprocess_trajectory(self, *, original_batches: Any, agent_id: Any, **keywords: Any) -> None:
        self.learned.append(original_batches[agent_id][1])


def test_what_a_callback_changes_in_a_sample_is_learned_from() -> None:
    """CartPole's rewards are 1. Trajectories follow each other as the rows of the sample do."""
    Doubles.samples, Doubles.learned = [], []
    keys = {"num_envs_per_worker": 2, "train_batch_size": 60, "rollout_fragment_length": 30, "callbacks": Doubles}
    trainer = PGTrainer(env="CartPole-v1", config=keys)
    trainer.train()
    trainer.stop()
    (sample,) = Doubles.samples
    steps = [part["t"].tolist() for part in Doubles.learned]
    assert [part["t"].tolist() for part in sample.split_by_episode()] == steps
    assert np.concatenate([part["mine"] for part in Doubles.learned]).tolist() == list(range(sample.count))
    assert all((part["rewards"] == 2).all() for part in Doubles.learned)


def test_a_callback_cannot_leave_rows_of_a_sample_out() -> None:
    class Drops(DefaultCallbacks):
        def on_sample_end(self, *, worker: Any, samples: Any, **keywords: Any) -> None:
            for name in [*samples]:
                samples[name] = samples[name][:5]

    trainer = PGTrainer(env="CartPole-v1", config={"rollout_fragment_length": 20, "callbacks": Drops})
    with pytest.raises(ConfigError, match="5 rows in place of"):
        trainer.train()
    trainer.stop()
