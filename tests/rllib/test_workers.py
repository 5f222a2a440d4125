"""Workers and worker sets that are made by hand take RLlib's arguments."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
import torch

from lightning_rl.errors import ConfigError
from lightning_rl.rllib import DefaultCallbacks, make_multi_agent
from lightning_rl.rllib.agents.dqn import DQNTrainer
from lightning_rl.rllib.agents.pg import PGTorchPolicy
from lightning_rl.rllib.agents.ppo import PPOTorchPolicy, PPOTrainer
from lightning_rl.rllib.evaluation.rollout_worker import RolloutWorker
from lightning_rl.rllib.evaluation.worker_set import WorkerSet
from lightning_rl.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch, concat_samples


def create(context: Any) -> gym.Env[Any, Any]:
    return gym.make("CartPole-v1")


class Lengths(DefaultCallbacks):
    seen: ClassVar[list[int]] = []

    def on_episode_end(self, *, worker: Any, episode: Any, **keywords: Any) -> None:
        self.seen.append(episode.length)


def test_a_worker_takes_rllib_s_arguments_and_samples_postprocessed_rows() -> None:
    worker = RolloutWorker(
        env_creator=create,
        validate_env=lambda env, context: None,
        policy_spec=PPOTorchPolicy,
        policy_config={"gamma": 0.5, "framework": "torch"},
        model_config={"fcnet_hiddens": [8]},
        observation_filter="MeanStdFilter",
        clip_rewards=True,
        rollout_fragment_length=50,
        episode_horizon=7,
        env_config={"k": 1},
        callbacks=Lengths,
        seed=1,
        log_level="WARN",
        num_workers=0,
    )
    Lengths.seen = []
    policy, batch = worker.get_policy(), worker.sample()
    assert type(batch) is SampleBatch and batch.count == 50 and batch["advantages"].shape == batch["dones"].shape
    assert policy.config["gamma"] == 0.5 and policy.model_config["fcnet_hiddens"] == [8]
    assert policy.observation_filter is worker.filters["default_policy"] and policy.reward_filter.name == "sign"
    assert type(policy.observation_filter).__name__ == "MeanStdFilter"
    assert Lengths.seen == [7] * 7
    assert worker.foreach_env_with_context(lambda env, context: dict(context)) == [{"k": 1}]
    before = worker.get_weights()["default_policy"]
    assert np.isfinite(worker.learn_on_batch(batch)["loss"]) and worker.policy_map == {"default_policy": policy}
    after = worker.get_weights()["default_policy"]
    assert any(not np.array_equal(before[name], after[name]) for name in before)


def test_a_worker_has_several_policies() -> None:
    worker = RolloutWorker(
        lambda context: make_multi_agent("CartPole-v1")({"num_agents": 2}),
        policy={"a": (PGTorchPolicy, None, None, {"gamma": 0.5}), "b": (PGTorchPolicy, None, None, {})},
        policy_mapping_fn=lambda agent, **keywords: "ab"[int(agent[-1])],
        policies_to_train=["a"],
        batch_steps=20,
    )
    batch = worker.sample()
    assert type(batch) is MultiAgentBatch and set(batch.policy_batches) == {"a", "b"} and batch.env_steps() == 20
    assert "dones" in batch["a"] and worker.policies_to_train == ["a"]
    assert worker.policy_mapping_fn("agent_1", None, worker=worker) == "b"
    assert [worker.get_policy(name).config["gamma"] for name in "ab"] == [0.5, 0.99]


def test_a_worker_needs_a_policy() -> None:
    with pytest.raises(ConfigError, match="policy=None"):
        RolloutWorker(env_creator=create)
    with pytest.raises(ConfigError, match="class"):
        RolloutWorker(lambda context: make_multi_agent("CartPole-v1")({}), policy={"a": (None, None, None, {})})


def test_a_worker_set_takes_its_arguments_by_position_or_by_name() -> None:
    config = {"rollout_fragment_length": 20}
    by_position = WorkerSet(create, None, PGTorchPolicy, config, 0)
    by_name = WorkerSet(policy=PGTorchPolicy, env_creator=create, trainer_config=config)
    assert by_position.local_worker().sample().count == by_name.local_worker().sample().count == 20


def test_a_worker_knows_its_place_and_its_policies() -> None:
    worker = RolloutWorker(create, PGTorchPolicy, rollout_fragment_length=12, env_config={"k": 1}, num_workers=3)
    batch, count = worker.sample_with_count()
    assert count == batch.count == worker.rollout_fragment_length == 12
    worker.set_global_vars({"timestep": 40})
    assert worker.global_vars == worker.get_global_vars() == {"timestep": 40} == {"timestep": worker.policy.env_steps}
    assert worker.policy_config is worker.get_policy().config and worker.num_workers == 3
    assert worker.env_context == {"k": 1} and worker.env_context.num_workers == 3
    assert worker.policy_mapping_fn("agent", None) == "default_policy" and worker.is_policy_to_train("default_policy")
    assert worker.spaces == {"default_policy": (worker.policy.observation_space, worker.policy.action_space)}
    assert len(worker.async_env.get_sub_environments()) == 1 and worker.get_filters() == worker.filters


def test_a_worker_set_calls_functions_of_indexes_and_of_trained_policies() -> None:
    workers = WorkerSet(create, None, PGTorchPolicy, {"rollout_fragment_length": 20}, 0)
    assert workers.foreach_worker_with_index(lambda worker, index: (worker.rollout_fragment_length, index)) == [(20, 0)]
    assert workers.foreach_trainable_policy(lambda policy, policy_id: policy_id) == ["default_policy"]
    assert workers.is_policy_to_train("default_policy") and not workers.is_policy_to_train("other")


def test_a_worker_set_has_the_policies_of_its_config() -> None:
    section = {"policies": {"a": (None, None, None, {"gamma": 0.5})}, "policy_mapping_fn": lambda agent: "a"}
    config = {"rollout_fragment_length": 8, "multiagent": section}
    workers = WorkerSet(lambda context: make_multi_agent("CartPole-v1")({"num_agents": 2}), None, PGTorchPolicy, config)
    batch = workers.local_worker().sample()
    assert set(batch.policy_batches) == {"a"} and workers.local_worker().get_policy("a").config["gamma"] == 0.5


def episodes_are_whole_between_ends(batch: Any) -> bool:
    """Whether each part of `split_by_episode` is of one episode, with consecutive steps."""
    parts = batch.split_by_episode()
    consecutive = all((part["t"].diff() == 1).all() for part in parts)
    return consecutive and all(not part["dones"][:-1].any() for part in parts) and len(parts) > 2


def test_the_workers_of_a_trainer_sample_rows_of_one_episode_after_the_other() -> None:
    """Two environments of 40 steps each; episodes that continue in the next sample keep their ids."""
    keys = {"num_envs_per_worker": 2, "rollout_fragment_length": 40, "model": {"fcnet_hiddens": [8]}}
    trainer = PPOTrainer(env="CartPole-v1", config=keys)
    worker = trainer.workers.local_worker()
    assert (worker.env.observation_space.shape, worker.env.action_space.n) == ((4,), 2)  # of one environment
    first, second = worker.sample(), worker.sample()
    (remote,) = trainer.workers.foreach_worker(lambda worker: worker.sample())
    for batch in (first, second, remote):
        assert batch["advantages"].shape == batch["value_targets"].shape == batch["dones"].shape == (batch.count,)
        assert episodes_are_whole_between_ends(batch)
    continued = {int(part["eps_id"][0]) for part in second.split_by_episode() if part["t"][0] > 0}
    assert continued and continued <= {int(part["eps_id"][-1]) for part in first.split_by_episode()}
    assert np.isfinite(trainer.get_policy().learn_on_batch(concat_samples([first, second]))["loss"])
    trainer.stop()
    replaying = DQNTrainer(env="CartPole-v1", config=keys)
    batch = replaying.workers.local_worker().sample()
    same = batch["eps_id"][1:] == batch["eps_id"][:-1]
    assert torch.equal(batch["new_obs"][:-1][same], batch["obs"][1:][same]) and episodes_are_whole_between_ends(batch)
    replaying.stop()


def test_the_workers_of_a_trainer_with_several_policies_sample_rows_of_each() -> None:
    section = {"policies": {"a", "b"}, "policy_mapping_fn": lambda agent, *_, **keywords: "ab"[int(agent[-1])]}
    keys = {"env_config": {"num_agents": 2}, "num_envs_per_worker": 2, "rollout_fragment_length": 40}
    trainer = PPOTrainer(env=make_multi_agent("CartPole-v1"), config={**keys, "multiagent": section})
    batch = trainer.workers.local_worker().sample()
    trainer.stop()
    assert type(batch) is MultiAgentBatch and set(batch.policy_batches) == {"a", "b"}
    assert all("advantages" in part and episodes_are_whole_between_ends(part) for _, part in batch.items())


@pytest.mark.process
@pytest.mark.ray
def test_workers_continue_after_an_error_of_a_function_that_they_call() -> None:
    keys = {"num_workers": 1, "rollout_fragment_length": 40, "train_batch_size": 40, "model": {"fcnet_hiddens": [8]}}
    trainer = PPOTrainer(env="CartPole-v1", config=keys)
    with pytest.raises(ZeroDivisionError) as caught:
        trainer.workers.foreach_worker(lambda worker: 1 // (worker.env is None))
    assert "1 // (worker.env is None)" in caught.value.__notes__[0]  # the traceback of the worker's process
    assert trainer.workers.foreach_worker(lambda worker: worker.env is not None)[-1]
    with pytest.raises(ConfigError, match="has no environments"):
        trainer.workers.local_worker().sample()
    assert trainer.workers.num_remote_workers() == len(trainer.workers.remote_workers()) == 1
    assert trainer.workers.local_worker().env is None and trainer.train()["timesteps_total"] >= 40
    trainer.stop()


@pytest.mark.ray
@pytest.mark.process
def test_functions_of_every_worker_reach_the_policy_that_learns() -> None:
    """It has no environments if processes sample; evaluations in processes leave it alone."""
    keys = {"num_workers": 1, "num_envs_per_worker": 2, "rollout_fragment_length": 10, "train_batch_size": 20}
    trainer = PPOTrainer(env="CartPole-v1", config={**keys, "num_sgd_iter": 1, "evaluation_num_workers": 1})
    workers, policy = trainer.workers, trainer.get_policy()
    assert [len(found) for found in workers.foreach_env(lambda env: env.spec.id)] == [0, 2]
    assert workers.foreach_env_with_context(lambda env, context: context.vector_index) == [[], [0, 1]]
    zeros = {name: np.zeros_like(value) for name, value in policy.get_weights().items()}
    trainer.evaluation_workers.foreach_worker(lambda worker: worker.set_weights({"default_policy": zeros}))
    assert any(np.any(value) for value in policy.get_weights().values())
    workers.foreach_worker(lambda worker: worker.set_weights({"default_policy": zeros}))
    assert not any(np.any(value) for value in policy.get_weights().values())
    workers.foreach_policy(lambda policy, name: setattr(policy, "entropy_coeff", 0.5))
    assert (
        policy.entropy_coeff == 0.5
        and workers.foreach_trainable_policy(lambda policy, name: name) == ["default_policy"] * 2
    )
    result = trainer.train()
    trainer.stop()
    assert np.isfinite(result["info"]["learner"]["default_policy"]["total_loss"])


class Placed(gym.Env[Any, Any]):
    """Keeps its place."""

    observation_space, action_space = gym.spaces.Box(-1.0, 1.0, (1,)), gym.spaces.Discrete(2)

    def __init__(self, config: Any) -> None:
        self.place = config.worker_index, config.vector_index

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.zeros(1, np.float32), 0.0, True, False, {}


@pytest.mark.ray
@pytest.mark.process
def test_workers_in_processes_count_from_1() -> None:
    """0 is the process that learns, whose environments evaluate here."""
    keys = {"num_workers": 2, "num_envs_per_worker": 1, "rollout_fragment_length": 10, "model": {"fcnet_hiddens": [8]}}
    trainer = PPOTrainer(env=Placed, config=keys)
    workers = trainer.workers
    assert workers.foreach_worker(lambda worker: worker.worker_index) == [0, 1, 2]
    assert workers.foreach_worker_with_index(lambda worker, index: index) == [0, 1, 2]
    assert workers.foreach_env(lambda env: env.place) == [[], [(1, 0)], [(2, 0)]]
    assert workers.foreach_env_with_context(lambda env, context: context.worker_index) == [[], [1], [2]]
    assert trainer.evaluation_workers.foreach_worker(lambda worker: worker.worker_index) == [0]
    assert {*trainer.evaluation_workers.foreach_env(lambda env: env.place[0])[0]} == {0}
    trainer.stop()
