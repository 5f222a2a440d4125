"""restore_1_of_n_agents_from_checkpoint: one of two policies starts as it was in a checkpoint, and stays so."""

from __future__ import annotations

import gymnasium as gym

from lightning_rl.rllib.agents.callbacks import DefaultCallbacks
from lightning_rl.rllib.agents.ppo import PPOTrainer
from tests.rllib.examples.envs import MultiAgentCartPole


def test_policy_0_is_that_of_the_checkpoint(tmp_path) -> None:
    single_env = gym.make("CartPole-v1")
    policies = {f"policy_{i}": (None, single_env.observation_space, single_env.action_space, {}) for i in range(2)}

    def policy_mapping_fn(agent_id, episode, worker, **kwargs):
        return f"policy_{agent_id % 2}"

    config = {
        "env": MultiAgentCartPole,
        "env_config": {"num_agents": 2},
        "framework": "torch",
        "num_sgd_iter": 2,
        "train_batch_size": 400,
        "multiagent": {"policies": policies, "policy_mapping_fn": policy_mapping_fn},
    }
    trainer = PPOTrainer(config=config)
    trainer.train()
    checkpoint = trainer.save(str(tmp_path))
    kept = trainer.get_weights(["policy_0"])["policy_0"]
    trainer.stop()

    dummy_trainer = PPOTrainer(config=config)
    dummy_trainer.restore(checkpoint)
    restored_policy_0_weights = dummy_trainer.get_policy("policy_0").get_weights()
    dummy_trainer.stop()

    class RestoreWeightsCallback(DefaultCallbacks):
        def on_trainer_init(self, *, trainer, **kwargs):
            trainer.set_weights({"policy_0": restored_policy_0_weights})

    config["multiagent"]["policies_to_train"] = ["policy_1"]
    config["callbacks"] = RestoreWeightsCallback
    trainer = PPOTrainer(config=config)
    before = trainer.get_weights(["policy_1"])["policy_1"]
    trainer.train()
    after = trainer.get_weights()
    trainer.stop()
    assert all((after["policy_0"][name] == value).all() for name, value in kept.items())
    assert any((after["policy_1"][name] != value).any() for name, value in before.items())
