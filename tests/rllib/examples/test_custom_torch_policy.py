"""custom_torch_policy: a policy of one function, and a trainer of that policy."""

from __future__ import annotations

from lightning_rl.rllib.agents.trainer_template import build_trainer
from lightning_rl.rllib.policy.sample_batch import SampleBatch
from lightning_rl.rllib.policy.torch_policy_template import build_torch_policy


def policy_gradient_loss(policy, model, dist_class, train_batch):
    logits, _ = model({SampleBatch.CUR_OBS: train_batch[SampleBatch.CUR_OBS]})
    action_dist = dist_class(logits, model)
    log_probs = action_dist.logp(train_batch[SampleBatch.ACTIONS])
    return -train_batch[SampleBatch.REWARDS].dot(log_probs)


MyTorchPolicy = build_torch_policy(name="MyTorchPolicy", loss_fn=policy_gradient_loss)
MyTrainer = build_trainer(name="MyCustomTrainer", default_policy=MyTorchPolicy)


def test_it_makes_what_it_did_likelier() -> None:
    """Rewards of 1 without a baseline: the loss is −Σ log π, and descending it makes the policy deterministic."""
    trainer = MyTrainer(config={"env": "CartPole-v0", "num_workers": 0, "framework": "torch", "lr": 1e-2})
    losses = [trainer.train()["info"]["learner"]["default_policy"]["loss"] for _ in range(10)]
    trainer.stop()
    assert losses[-1] < losses[0] / 2, losses
