"""two_trainer_workflow: one execution plan in which PPO and DQN learn a policy each from the same rollouts."""

from __future__ import annotations

import gymnasium as gym

from lightning_rl.rllib import register_env
from lightning_rl.rllib.agents import with_common_config
from lightning_rl.rllib.agents.dqn.dqn_torch_policy import DQNTorchPolicy
from lightning_rl.rllib.agents.ppo.ppo_torch_policy import PPOTorchPolicy
from lightning_rl.rllib.agents.trainer_template import build_trainer
from lightning_rl.rllib.execution.common import _get_shared_metrics
from lightning_rl.rllib.execution.concurrency_ops import Concurrently
from lightning_rl.rllib.execution.metric_ops import StandardMetricsReporting
from lightning_rl.rllib.execution.replay_buffer import LocalReplayBuffer
from lightning_rl.rllib.execution.replay_ops import Replay, StoreToReplayBuffer
from lightning_rl.rllib.execution.rollout_ops import (
    ConcatBatches,
    ParallelRollouts,
    SelectExperiences,
    StandardizeFields,
)
from lightning_rl.rllib.execution.train_ops import TrainOneStep, UpdateTargetNetwork
from tests.rllib.examples.envs import MultiAgentCartPole


def custom_training_workflow(workers, config):
    local_replay_buffer = LocalReplayBuffer(num_shards=1, learning_starts=500, buffer_size=50000, replay_batch_size=64)

    def add_ppo_metrics(batch):
        assert set(batch.policy_batches) == {"ppo_policy"} and batch.agent_steps() > 0
        _get_shared_metrics().counters["agent_steps_trained_PPO"] += batch.agent_steps()
        return batch

    def add_dqn_metrics(batch):
        _get_shared_metrics().counters["agent_steps_trained_DQN"] += batch.agent_steps()
        return batch

    r1, r2 = ParallelRollouts(workers, mode="bulk_sync").duplicate(n=2)

    dqn_store_op = r1.for_each(SelectExperiences(["dqn_policy"])).for_each(
        StoreToReplayBuffer(local_buffer=local_replay_buffer)
    )
    dqn_replay_op = (
        Replay(local_buffer=local_replay_buffer)
        .for_each(add_dqn_metrics)
        .for_each(TrainOneStep(workers, policies=["dqn_policy"]))
        .for_each(UpdateTargetNetwork(workers, target_update_freq=500, policies=["dqn_policy"]))
    )
    dqn_train_op = Concurrently([dqn_store_op, dqn_replay_op], mode="round_robin", output_indexes=[1])

    ppo_train_op = (
        r2.for_each(SelectExperiences(["ppo_policy"]))
        .combine(ConcatBatches(min_batch_size=200, count_steps_by="env_steps"))
        .for_each(add_ppo_metrics)
        .for_each(StandardizeFields(["advantages"]))
        .for_each(TrainOneStep(workers, policies=["ppo_policy"], num_sgd_iter=10, sgd_minibatch_size=128))
    )
    train_op = Concurrently([ppo_train_op, dqn_train_op], mode="async", output_indexes=[1])
    return StandardMetricsReporting(train_op, workers, config)


def test_both_algorithms_learn_from_the_same_rollouts() -> None:
    """Each policy plays two of the four poles; DQN takes one step on 64 rows for each fragment of 50 steps."""
    register_env("multi_agent_cartpole", lambda _: MultiAgentCartPole({"num_agents": 4}))
    single_env = gym.make("CartPole-v1")
    obs_space, act_space = single_env.observation_space, single_env.action_space
    policies = {
        "ppo_policy": (PPOTorchPolicy, obs_space, act_space, {}),
        "dqn_policy": (DQNTorchPolicy, obs_space, act_space, {"target_network_update_freq": 500}),
    }

    def policy_mapping_fn(agent_id, episode, worker, **kwargs):
        return "ppo_policy" if agent_id % 2 == 0 else "dqn_policy"

    MyTrainer = build_trainer(  # noqa: N806
        name="PPO_DQN_MultiAgent",
        default_config=with_common_config({}),
        default_policy=None,
        execution_plan=custom_training_workflow,
    )
    config = {
        "rollout_fragment_length": 50,
        "num_workers": 0,
        "env": "multi_agent_cartpole",
        "multiagent": {
            "policies": policies,
            "policy_mapping_fn": policy_mapping_fn,
            "policies_to_train": ["dqn_policy", "ppo_policy"],
        },
        "framework": "torch",
        "seed": 0,
    }
    trainer = MyTrainer(config=config)
    before = trainer.get_weights()
    rewards = {}
    for _ in range(2000):
        result = trainer.train()
        rewards = result["policy_reward_mean"]
        if rewards and result["training_iteration"] >= 20:
            break
    after = trainer.get_weights()
    trainer.stop()
    assert rewards.keys() == set(policies)
    assert result["info"]["agent_steps_trained_PPO"] > 200
    assert result["info"]["agent_steps_trained_DQN"] // 64 >= (result["timesteps_total"] - 500) // 50 > 10
    for name in policies:
        assert any((before[name][key] != after[name][key]).any() for key in after[name])
