"""SimpleQ's and DQN's execution plans, and the chain of trainers that are built with them."""

from __future__ import annotations

import itertools

import gymnasium as gym
import pytest

from lightning_rl.errors import ConfigError
from lightning_rl.rllib.agents.dqn.dqn_torch_policy import DQNTorchPolicy
from lightning_rl.rllib.agents.dqn.simple_q_torch_policy import SimpleQTorchPolicy
from lightning_rl.rllib.agents.trainer_template import build_trainer
from lightning_rl.rllib.execution.concurrency_ops import Concurrently
from lightning_rl.rllib.execution.metric_ops import StandardMetricsReporting
from lightning_rl.rllib.execution.replay_buffer import LocalReplayBuffer
from lightning_rl.rllib.execution.replay_ops import Replay, StoreToReplayBuffer
from lightning_rl.rllib.execution.rollout_ops import ParallelRollouts
from lightning_rl.rllib.execution.train_ops import TrainOneStep, UpdateTargetNetwork

pytestmark = pytest.mark.filterwarnings("ignore:.*(retired|out of date).*")
SIMPLE_Q_CONFIG = {
    **{"framework": "torch", "learning_starts": 64, "buffer_size": 5000, "train_batch_size": 32, "lr": 1e-3},
    **{"rollout_fragment_length": 4, "target_network_update_freq": 100, "timesteps_per_iteration": 200},
    **{"prioritized_replay": False, "multiagent": {"replay_mode": "independent"}},
    "model": {"fcnet_hiddens": [64], "fcnet_activation": "relu"},
}
DQN_CONFIG = {**SIMPLE_Q_CONFIG, "prioritized_replay": True, "n_step": 3, "double_q": True, "dueling": False}
updates: list[int] = []  # env steps at which the target network moved


class Watched(UpdateTargetNetwork):
    def __call__(self, item):
        before = self.last
        item = super().__call__(item)
        if self.last != before:
            updates.append(self.last)
        return item


def simple_q_execution_plan(workers, config):
    local_replay_buffer = LocalReplayBuffer(
        num_shards=1,
        learning_starts=config["learning_starts"],
        buffer_size=config["buffer_size"],
        replay_batch_size=config["train_batch_size"],
        prioritized_replay_alpha=0.0,
        replay_mode=config["multiagent"]["replay_mode"],
    )
    # Generate and store
    rollouts = ParallelRollouts(workers, mode="bulk_sync")
    store_op = rollouts.for_each(StoreToReplayBuffer(local_buffer=local_replay_buffer))
    # Read and train
    replay_op = Replay(local_buffer=local_replay_buffer).for_each(TrainOneStep(workers))
    replay_op = replay_op.for_each(Watched(workers, config["target_network_update_freq"]))
    train_op = Concurrently([store_op, replay_op], mode="round_robin", output_indexes=[1])
    return StandardMetricsReporting(train_op, workers, config)


def dqn_execution_plan(workers, config):
    names = ("learning_starts", "buffer_size", "n_step", "prioritized_replay_alpha", "prioritized_replay_eps")
    local_replay_buffer = LocalReplayBuffer(
        replay_batch_size=config["train_batch_size"], **{name: config[name] for name in names}
    )
    rollouts = ParallelRollouts(workers, mode="bulk_sync")
    store_op = rollouts.for_each(StoreToReplayBuffer(local_buffer=local_replay_buffer))

    def update_prio(item):
        samples, info = item
        assert samples["weights"].max() == 1 and local_replay_buffer.stats()["num_added"] >= config["learning_starts"]
        priorities = {name: (samples["batch_indexes"], of["td_error"]) for name, of in info.items()}
        local_replay_buffer.update_priorities(priorities)
        return info

    replay_op = Replay(local_buffer=local_replay_buffer).for_each(TrainOneStep(workers)).for_each(update_prio)
    replay_op = replay_op.for_each(UpdateTargetNetwork(workers, config["target_network_update_freq"]))
    weights = config["round_robin"]
    train_op = Concurrently([store_op, replay_op], mode="round_robin", output_indexes=[1], round_robin_weights=weights)
    return StandardMetricsReporting(train_op, workers, config)


def get_policy_class(config):
    if config["framework"] == "torch":
        return SimpleQTorchPolicy
    return None


def get_dqn_policy_class(config):
    if config["framework"] == "torch":
        return DQNTorchPolicy
    return None


def validate_config(config):
    """As there: weights of the two operators from the rows that each gives."""
    if config["n_step"] < 1:
        raise ValueError("n_step must be at least 1")
    config["round_robin"] = [1, 1]


SimpleQTrainer = build_trainer(
    name="SimpleQTrainer",
    default_policy=SimpleQTorchPolicy,
    get_policy_class=get_policy_class,
    execution_plan=simple_q_execution_plan,
    default_config=SIMPLE_Q_CONFIG,
)
GenericOffPolicyTrainer = SimpleQTrainer.with_updates(
    name="GenericOffPolicyTrainer",
    # No Policy preference.
    default_policy=None,
    get_policy_class=None,
    # Use DQN's config and exec. plan as base for
    # all other OffPolicy algos.
    default_config=DQN_CONFIG,
    validate_config=validate_config,
    execution_plan=dqn_execution_plan,
)
DQNTrainer = GenericOffPolicyTrainer.with_updates(
    name="DQN", default_policy=DQNTorchPolicy, get_policy_class=get_dqn_policy_class, default_config=DQN_CONFIG
)


def test_the_plan_of_simple_q_trains() -> None:
    updates.clear()
    trainer = SimpleQTrainer(env="CartPole-v0", config={"seed": 1})
    assert type(trainer.policy) is SimpleQTorchPolicy
    results = [trainer.train() for _ in range(3)]
    trainer.stop()
    assert [result["training_iteration"] for result in results] == [1, 2, 3]
    steps = [result["timesteps_total"] for result in results]
    assert all(200 <= later - before <= 204 for before, later in itertools.pairwise([0, *steps]))
    # A gradient step after every fragment of up to 4 rows, once there are 64.
    assert (steps[-1] - 64) / 4 <= results[-1]["gradient_steps"] <= (steps[-1] - 64) / 4 * 1.1 + 2
    assert all(100 <= later - before <= 104 for before, later in itertools.pairwise(updates))
    assert len(updates) in (5, 6)
    assert results[-1]["train/loss"] > 0 and results[-1]["episode_reward_mean"] > 8


def test_the_chain_of_trainers_ends_in_dqn() -> None:
    class StockTradingEnv(gym.Wrapper):
        def __init__(self, env_config):
            super().__init__(gym.make("CartPole-v1"))

    assert issubclass(DQNTrainer, GenericOffPolicyTrainer) and issubclass(GenericOffPolicyTrainer, SimpleQTrainer)
    with pytest.raises(ConfigError, match="GenericOffPolicyTrainer"):
        GenericOffPolicyTrainer(env="CartPole-v0")
    _config = {"lr": 5e-4}
    with pytest.raises(ValueError, match="n_step"):
        DQNTrainer({**_config, "n_step": 0}, env=StockTradingEnv)
    agent = DQNTrainer(_config, env=StockTradingEnv)
    assert type(agent.policy) is DQNTorchPolicy and agent.policy.double_q
    for _epoch in range(0, 2):
        result = agent.train()
    assert result["gradient_steps"] > 50 and result["info"]["learner"]["default_policy"]["loss"] > 0
    agent.stop()
