"""ScratchPolicy, with own acting and learning, in a hand-written loop and under the Trainer."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from lightning_rl import Algorithm, Policy, RolloutWorker, SampleBatch, ScratchPolicy
from lightning_rl.envs import EnvCreator
from lightning_rl.errors import ConfigError
from lightning_rl.models.previous_step import previous_columns
from lightning_rl.policies import PPO
from tests.envs.classic_control import CARTPOLE
from tests.refusals import not_refused


class Scratch(ScratchPolicy):
    """Random actions, and one number as weights that each learn_on_batch increases by 1."""

    def __init__(self, observation_space: Any, action_space: Any, config: dict[str, Any]) -> None:
        ScratchPolicy.__init__(self, observation_space, action_space, config)
        self.w = 1.0
        self.learned: list[SampleBatch] = []

    def compute_actions(self, obs_batch: Any, state_batches: Any, prev_action_batch: Any = None, **kwargs: Any) -> Any:
        return [self.action_space.sample() for _ in obs_batch], [], {}

    def learn_on_batch(self, samples: SampleBatch) -> Any:
        self.w += 1.0
        self.learned.append(samples)
        return {"rows": samples.count, "nested": {"w": np.float32([self.w])}}

    def get_weights(self) -> Any:
        return {"w": self.w}

    def set_weights(self, weights: Any) -> None:
        self.w = weights["w"]


class Table(ScratchPolicy):
    """Tabular Q-learning, with keywords instead of a config."""

    def __init__(self, observation_space: Any, action_space: Any, *, lr: float = 0.5, seed: int = 0) -> None:
        super().__init__(observation_space, action_space, seed=seed)
        self.lr = lr
        self.q: dict[int, np.ndarray] = defaultdict(lambda: np.zeros(action_space.n))
        self.random = np.random.default_rng(seed)

    def compute_actions(self, obs: Any, state: Any, explore: bool = True) -> Any:
        greedy = np.array([self.q[int(row)].argmax() for row in obs])
        exploring = np.full(len(greedy), explore)
        return np.where(exploring, self.random.integers(self.action_space.n, size=len(greedy)), greedy), [], {}

    def learn_on_batch(self, samples: SampleBatch) -> Any:
        columns = (samples.obs, samples.actions, samples.rewards, samples.next_obs, samples.terminated)
        for obs, action, reward, after, ended in zip(*(column.tolist() for column in columns), strict=True):
            target = reward if ended else reward + 0.9 * self.q[after].max()
            self.q[obs][action] += self.lr * (target - self.q[obs][action])
        return {"states": len(self.q)}

    def get_weights(self) -> Any:
        return {"q": dict(self.q), "visited": (1, [2.5, "a"])}

    def set_weights(self, weights: Any) -> None:
        self.q.update(weights["q"])


@contextlib.contextmanager
def algorithm(policy: Any, path: Path, *overrides: str, env: str = "CartPole-v1") -> Iterator[Algorithm]:
    """An Algorithm that is stopped at the end."""
    built = Algorithm(policy, env, overrides=[f"run_dir={path}", "workers.fragment_length=16", *overrides])
    yield built
    built.stop()


# -- acting -----------------------------------------------------------------------------------------------------------
def test_a_scratch_policy_has_no_model_parameters_or_optimizer() -> None:
    policy = Scratch(*CARTPOLE.spaces(), {"a": 1})
    assert not list(policy.parameters()) and policy.configure_optimizers() is None
    assert policy.config == {"a": 1} and isinstance(policy, Policy) and not policy.is_recurrent
    assert PPO.has_model and not Scratch.has_model


def test_a_scratch_policy_acts_in_any_action_space() -> None:
    """No distribution supports a Text space."""
    space = spaces.Dict(arm=spaces.Box(-1, 1, (2,)), word=spaces.Text(3), legs=spaces.Discrete(4))
    policy = Scratch(spaces.Discrete(5), space, {})
    actions, _, _ = policy.act(np.arange(6))
    assert actions["arm"].shape == (6, 2) and actions["legs"].shape == (6,) and len(actions["word"]) == 6


def test_ppo_refuses_a_config_argument() -> None:
    with pytest.raises(ConfigError, match=r"PPO.*\*\*config"):
        PPO(*CARTPOLE.spaces(), config={"lr": 1.0})


def test_act_names_a_wrong_result_of_compute_actions() -> None:
    cases = [
        ([0, 1], "tuple"),
        (([0, 1], []), "tuple"),
        ([[0, 1], [], {}], r"list.*tuple"),
        (([0], [], {}), "1 actions for 2"),
    ]

    def call(answer: Any) -> None:
        policy = Scratch(*CARTPOLE.spaces(), {})
        policy.compute_actions = lambda *_, **__: answer
        policy.act(np.zeros((2, 4), np.float32))

    assert not_refused(call, cases) == []


class RecordingScratch(Scratch):
    """Records the keywords of compute_actions, and gives a column with a gradient."""

    def compute_actions(self, obs_batch: Any, state_batches: Any, **kwargs: Any) -> Any:
        self.given = kwargs
        return [0 for _ in obs_batch], [], {"score": torch.ones(len(obs_batch), requires_grad=True)}


def test_act_passes_all_keywords_to_a_compute_actions_with_kwargs_and_detaches_extra_columns() -> None:
    policy = RecordingScratch(*CARTPOLE.spaces(), {})
    _, _, columns = policy.act(np.zeros((2, 4), np.float32), explore=False, timestep=7)
    assert policy.given == {"explore": False, "timestep": 7}
    assert columns["score"].tolist() == [1.0, 1.0] and not columns["score"].requires_grad


class ClassicScratch(Scratch):
    """Records RLlib's argument of earlier actions."""

    def compute_actions(self, obs_batch: Any, state_batches: Any, prev_action_batch: Any = None) -> Any:  # type: ignore[override]
        self.before = prev_action_batch
        return [0 for _ in obs_batch], [], {}


def test_act_gives_rllib_s_arguments_where_it_has_them() -> None:
    policy, obs = ClassicScratch(*CARTPOLE.spaces(), {}), np.zeros((2, 4), np.float32)
    policy.act(obs)
    assert policy.before is None
    policy.act(obs, prev_actions=torch.tensor([1, 0]), prev_rewards=torch.zeros(2))
    assert isinstance(policy.before, np.ndarray) and policy.before.tolist() == [1, 0]


class Counting(Scratch):
    """Has RLlib's state of one environment."""

    def get_initial_state(self) -> Any:  # type: ignore[override]
        return [np.array([2.0, 3.0]), 1]


def test_states_of_one_environment_begin_in_each_of_several() -> None:
    first, second = Counting(*CARTPOLE.spaces(), {}).initial_states(3)
    assert first.tolist() == [[2.0, 3.0]] * 3 and second.tolist() == [1, 1, 1]


def test_earlier_actions_that_are_numbers_are_recorded_for_those_who_take_them() -> None:
    two, text, obs_space = spaces.Discrete(2), spaces.Text(3), CARTPOLE.spaces()[0]
    for numbers in (two, spaces.Dict({"a": two, "b": spaces.Box(0, 1, (2,))})):
        assert previous_columns(Scratch(obs_space, numbers, {}).model) == ["prev_actions"]
        assert previous_columns(RecordingScratch(obs_space, numbers, {}).model) == []
    for other in (text, spaces.Tuple([two, text])):
        assert previous_columns(Scratch(obs_space, other, {}).model) == []


def test_seed_exploration_seeds_the_action_space_of_a_scratch_policy() -> None:
    policy, obs, drawn = Scratch(*CARTPOLE.spaces(), {}), np.zeros((64, 4), np.float32), []
    for seed in (5, 5, 6):
        policy.seed_exploration(seed)
        drawn.append(policy.act(obs)[0].tolist())
    assert drawn[0] == drawn[1] != drawn[2]


# -- the classic loop -------------------------------------------------------------------------------------------------
def test_a_worker_builds_a_scratch_policy_and_samples_transitions_in_order() -> None:
    """Rows of one environment, then of the other: time goes on but at an end and at one border."""
    worker = RolloutWorker(lambda config: gym.make("CartPole-v1"), Scratch, fragment_length=60, num_envs=2, seed=1)
    rows = worker.sample()
    assert rows.columns == ["actions", "rewards", "terminated", "truncated", "t", "obs", "prev_actions", "next_obs"]
    ended = (rows.terminated | rows.truncated)[:-1]
    torch.testing.assert_close(rows.next_obs[:-1][~ended][:50], rows.obs[1:][~ended][:50])
    following = rows.t[1:] - rows.t[:-1]
    assert (rows.t == 0).sum() > 2 and bool((following[ended] <= 0).all())
    assert int((following[~ended] != 1).sum()) <= 1


def test_next_obs_of_a_terminated_row_is_the_final_observation() -> None:
    rows = RolloutWorker("CartPole-v1", Scratch, fragment_length=200, seed=1).sample()
    last = rows.next_obs[rows.terminated]
    assert len(last) > 2 and bool(((last[:, 0].abs() > 2.4) | (last[:, 2].abs() > 0.2095)).all())


def test_worker_weights_are_keyed_by_policy_id() -> None:
    worker = RolloutWorker("CartPole-v1", Scratch)
    worker.set_weights({"default_policy": {"w": 7.0}})
    assert worker.get_weights() == {"default_policy": {"w": 7.0}} and worker.get_policy().w == 7.0
    worker.set_weights({"w": 8.0})
    assert worker.policy.w == 8.0
    with pytest.raises(ConfigError, match="no policy 'other'"):
        worker.get_policy("other")


def test_concat_samples_joins_the_transitions_of_several_workers() -> None:
    workers = [RolloutWorker("CartPole-v1", Scratch, fragment_length=20, worker_index=index) for index in range(3)]
    policy = Scratch(*CARTPOLE.spaces(), {})
    parts = [worker.sample() for worker in workers]
    batch = SampleBatch.concat_samples(parts)
    assert batch.count == sum(part.count for part in parts)
    torch.testing.assert_close(batch.obs[: parts[0].count], parts[0].obs)
    assert policy.learn_on_batch(batch)["rows"] == batch.count


def test_ppo_s_class_works_in_the_classic_loop_of_workers() -> None:
    """Workers give postprocessed rows, learn on them, and apply gradients."""
    worker = RolloutWorker(CARTPOLE, PPO, num_envs=2, fragment_length=16, policy_config={"seed": 3, "passes": 1})
    rows = SampleBatch.concat_samples([worker.sample(), worker.sample()])
    assert {"advantages", "value_targets", "action_logp"} <= set(rows.columns)
    before = worker.get_weights()["default_policy"]
    assert worker.learn_on_batch(rows)["grad_norm"] > 0
    gradients, info = worker.compute_gradients(rows)
    worker.apply_gradients(gradients)
    assert info["loss"] != 0 and any((before[name] != now).any() for name, now in worker.policy.get_weights().items())


def test_concat_samples_joins_fragments_along_environments() -> None:
    """Joined along time, [T+1] observations and [T] actions would be misaligned."""
    policy = PPO(*CARTPOLE.spaces(), seed=1)
    workers = [RolloutWorker(CARTPOLE, policy, num_envs=2, fragment_length=8, worker_index=i) for i in range(2)]
    fragments = [worker.sample() for worker in workers]
    batch = SampleBatch.concat_samples(fragments)
    assert batch.obs.shape == (9, 4, 4) and batch.actions.shape == (8, 4)
    assert np.isfinite(policy.learn_on_batch(batch)["loss"])


def test_a_worker_refuses_a_policy_config_that_does_not_fit_the_class() -> None:
    with pytest.raises(ConfigError, match="'lambda_'"):
        RolloutWorker("FrozenLake-v1", Table, policy_config={"lambda_": 1})
    with pytest.raises(ConfigError, match="its class"):
        RolloutWorker("CartPole-v1", PPO(*CARTPOLE.spaces()), policy_config={"lr": 1})


class GivenStats(Scratch):
    """Records its mode, and reports `stats`."""

    stats: Any = None

    def learn_on_batch(self, samples: SampleBatch) -> Any:
        self.mode = self.training
        return self.stats


def policy_after_step(stats: Any = None) -> tuple[Any, list[str]]:
    """A policy after one training_step, and the names of the hooks that were called."""
    policy = GivenStats(*CARTPOLE.spaces(), {})
    fragment = RolloutWorker(CARTPOLE, RandomSearch(*CARTPOLE.spaces()), num_envs=2, fragment_length=8, seed=1).sample()
    calls: list[str] = []

    class Listener:
        def on_postprocess_trajectory(self, *, policy: Any, postprocessed_batch: Any, original_batch: Any) -> None:
            assert "next_obs" in postprocessed_batch and original_batch is fragment
            calls.append("rows")
            self.rows = postprocessed_batch

        def on_learn_on_batch(self, *, policy: Any, train_batch: Any, result: Any) -> None:
            assert train_batch is self.rows and result is policy.iteration_metrics
            calls.append("learned")

    policy._trainer = SimpleNamespace(callbacks=[Listener()], training=False)
    policy.stats = stats
    policy.eval().training_step(fragment)
    return policy, calls


def test_training_step_of_a_scratch_policy_runs_in_train_mode_and_is_counted_and_reported() -> None:
    policy, calls = policy_after_step({"rows": np.int64(3), "nested": {"loss": torch.tensor([0.5]), "one": 1}})
    assert policy.mode and policy.iterations == 1 and policy.env_steps == 16
    assert calls == ["rows", "learned"]
    assert policy.iteration_metrics == {"rows": 3.0, "nested/loss": 0.5, "nested/one": 1.0}


def test_learn_seconds_covers_a_scratch_policy_s_learn_on_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reading adds 1 to the clock; it is read at the start and at the end."""
    clock = SimpleNamespace(perf_counter=count(10.0).__next__)
    monkeypatch.setattr("lightning_rl.learning.learner.time", clock)
    assert policy_after_step()[0].learn_seconds == 1.0


def test_training_step_refuses_results_that_are_no_dict_of_numbers() -> None:
    wrong: list[Any] = [{"two": np.zeros(2)}, {"two": torch.zeros(2)}, {"text": "1"}, {"list": [1.0]}, 3.0]
    cases = [(stats, r"GivenStats\.learn_on_batch returned") for stats in wrong]
    assert not_refused(policy_after_step, cases) == []


# -- under the Trainer ------------------------------------------------------------------------------------------------
def test_a_scratch_policy_trains_evaluates_saves_loads_and_resumes(tmp_path: Path) -> None:
    with algorithm(Scratch, tmp_path, "policy.config.a=2") as trained:
        result, policy = trained.train(), trained.policy
        rows = policy.learned[0]
        assert policy.config == {"a": 2} and policy.iterations == 1
        assert result["env_steps"] == rows.count == result["train/rows"] and result["train/nested/w"] == 2.0
        assert {"obs", "next_obs", "actions"} <= set(rows.columns)
        assert trained.evaluate()["eval/ep_len_mean"] > 5
        path = trained.save()
    loaded: Any = Policy.load(str(path))
    assert loaded.w == 2.0 and loaded.env_steps == result["env_steps"] and loaded.config == {"a": 2}
    assert loaded.compute_single_action(np.zeros(4, np.float32)) in (0, 1)
    resumed = Algorithm.restore(path)
    assert resumed.policy.w == 2.0
    resumed.train()
    assert resumed.policy.w == 3.0 and resumed.policy.env_steps > result["env_steps"]
    resumed.stop()


def test_the_run_s_seed_seeds_a_scratch_policy_s_action_space(tmp_path: Path) -> None:
    """`action_space.sample()` follows the run's seed."""
    actions = []
    for seed in (1, 1, 2):
        with algorithm(Scratch, tmp_path, f"seed={seed}") as trained:
            trained.train()
            actions.append(trained.policy.learned[0].actions[:100].tolist())
    assert actions[0] == actions[1] != actions[2]


def test_tabular_q_learning_solves_frozen_lake_and_its_table_is_saved_and_loaded(tmp_path: Path) -> None:
    env, keys = EnvCreator("FrozenLake-v1", {"is_slippery": False}), ["env.kwargs.is_slippery=false"]
    with algorithm(Table, tmp_path, *keys, "workers.fragment_length=64", env="FrozenLake-v1") as trained:
        while trained.policy.env_steps < 40_000 and trained.policy.q[0].max() < 0.9**5 - 0.01:
            trained.train()
        loaded: Any = Policy.load(str(trained.save()))
    assert trained.policy.q[0].max() == pytest.approx(0.9**5, abs=0.02)  # the reward comes at the sixth step
    assert RolloutWorker(env, trained.policy, explore=False).run_episodes(1) == [(1.0, 6)]
    assert set(loaded.q) >= set(trained.policy.q) and isinstance(loaded.q[0], np.ndarray)
    np.testing.assert_array_equal(loaded.q[0], trained.policy.q[0])


def test_algorithm_train_names_a_result_that_is_no_number(tmp_path: Path) -> None:
    class TextResult(Scratch):
        def learn_on_batch(self, samples: SampleBatch) -> Any:
            return {"said": "hello"}

    with (
        algorithm(TextResult, tmp_path) as trained,
        pytest.raises(ConfigError, match=r"TextResult\.learn_on_batch returned said='hello'"),
    ):
        trained.train()


def test_a_scratch_policy_is_refused_on_several_ranks(tmp_path: Path) -> None:
    two_ranks = algorithm(Scratch, tmp_path, "trainer.devices=2", "workers.logical_workers=2")
    with pytest.raises(ConfigError, match=r"trainer\.devices=1"), two_ranks:
        pass


class RandomSearch(Policy):
    """Acts with the model, and learns by adding noise to it."""

    def learn_on_batch(self, batch: SampleBatch) -> Any:
        with torch.no_grad():
            for parameter in self.parameters():
                parameter += 0.01 * torch.randn_like(parameter)
        return {"mean_reward": batch.rewards.mean()}


def test_a_policy_with_a_model_may_override_learn_on_batch_without_a_loss(tmp_path: Path) -> None:
    with algorithm(RandomSearch, tmp_path) as trained:
        result = trained.train()
    assert result["train/mean_reward"] == 1.0 and result["env_steps"] > 0


# -- in Ray -----------------------------------------------------------------------------------------------------------
@pytest.mark.ray
def test_the_classic_loop_with_remote_workers() -> None:
    import ray

    env = gym.make("CartPole-v1")
    policy = Scratch(env.observation_space, env.action_space, {})
    workers = [RolloutWorker.as_remote().remote(lambda config: gym.make("CartPole-v1"), Scratch) for _ in range(2)]
    for turn in range(2):
        batch = SampleBatch.concat_samples(ray.get([worker.sample.remote() for worker in workers]))
        assert batch.count > 200 and policy.learn_on_batch(batch)["rows"] == batch.count
        weights = ray.put({"default_policy": policy.get_weights()})
        for worker in workers:
            worker.set_weights.remote(weights)
        expected = {"default_policy": {"w": 2.0 + turn}}
        assert ray.get([worker.get_weights.remote() for worker in workers]) == [expected] * 2


@pytest.mark.ray
def test_a_scratch_policy_s_weights_reach_worker_processes(tmp_path: Path) -> None:
    """The second rollout uses the weights learned from the first."""
    with algorithm(Scratch, tmp_path, "workers.num_workers=2") as trained:
        for _ in range(2):
            trained.train()
        seen = trained.datamodule.workers.foreach_worker(lambda worker: worker.policy.w)
    assert seen == [2.0, 2.0] and trained.policy.w == 3.0
