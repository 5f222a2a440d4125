"""An algorithm's policy with another loss, and its trainer with that policy."""

from __future__ import annotations

from typing import Any

from lightning_rl.rllib.agents.ppo import PPOTrainer
from lightning_rl.rllib.agents.ppo.ppo_torch_policy import PPOTorchPolicy


def some_custom_loss_fn(policy, model, dist_class, train_batch):
    logits, _ = model(train_batch)
    dist = dist_class(logits, model)
    return -(dist.logp(train_batch["actions"]) * train_batch["advantages"]).mean()


CustomPolicy = PPOTorchPolicy.with_updates(name="MyCustomPPOTorchPolicy", loss_fn=some_custom_loss_fn)

CustomTrainer = PPOTrainer.with_updates(default_policy=CustomPolicy)


def test_the_loss_is_the_new_one_and_everything_else_is_ppo_s() -> None:
    keys = {"train_batch_size": 200, "sgd_minibatch_size": 100}
    trainer: Any = CustomTrainer(env="CartPole-v1", config=keys)
    result = trainer.train()
    trainer.stop()
    assert isinstance(trainer.policy, PPOTorchPolicy) and "train/value_loss" not in result
    assert "train/explained_variance" in result or "train/loss" in result
    assert 180 <= result["timesteps_total"] <= 200
