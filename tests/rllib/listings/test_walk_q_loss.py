"""DQN's loss as functions, and a policy class that is built of it."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from lightning_rl.rllib.agents.dqn import DQNTrainer
from lightning_rl.rllib.agents.dqn.dqn_torch_policy import PRIO_WEIGHTS, DQNTorchPolicy
from lightning_rl.rllib.policy.policy_template import build_policy_class
from lightning_rl.rllib.policy.sample_batch import SampleBatch
from lightning_rl.rllib.utils.torch_ops import huber_loss


class QLoss:
    def __init__(self, q_t_selected, q_tp1_best, importance_weights, rewards, done_mask, gamma=0.99, n_step=1):
        q_tp1_best_masked = (1.0 - done_mask) * q_tp1_best
        # compute RHS of bellman equation
        q_t_selected_target = rewards + gamma**n_step * q_tp1_best_masked
        # compute the error (potentially clipped)
        self.td_error = q_t_selected - q_t_selected_target.detach()
        self.loss = torch.mean(importance_weights.float() * huber_loss(self.td_error))


def build_q_losses(policy, model, _, train_batch):
    config = policy.config
    # Q-network evaluation.
    q_t, _ = policy.q_values(policy.model, train_batch)
    # Target Q-network evaluation.
    q_tp1, _ = policy.target_values(train_batch)
    one_hot = F.one_hot(train_batch[SampleBatch.ACTIONS], q_t.shape[1])
    q_t_selected = (q_t * one_hot).sum(1)
    q_tp1_best = q_tp1.max(1)[0]
    policy.q_loss = QLoss(
        q_t_selected,
        q_tp1_best,
        train_batch[PRIO_WEIGHTS],
        train_batch[SampleBatch.REWARDS],
        train_batch[SampleBatch.DONES].float(),
        config["gamma"],
        config["n_step"],
    )
    return policy.q_loss.loss


def adam_optimizer(policy, config):
    return torch.optim.Adam(policy.model.parameters(), lr=config["lr"])


Policy = build_policy_class(
    name="DQNTorchPolicy",
    framework="torch",
    base=DQNTorchPolicy,
    loss_fn=build_q_losses,
    optimizer_fn=adam_optimizer,
    stats_fn=lambda policy, batch: {"td_error": policy.q_loss.td_error},
)


def test_the_trainer_learns_by_the_functions_and_sets_priorities_by_their_td_errors() -> None:
    config = {"learning_starts": 100, "timesteps_per_iteration": 200, "n_step": 2, "train_batch_size": 16, "lr": 1e-3}
    trainer: Any = DQNTrainer.with_updates("Mine", default_policy=Policy)(env="CartPole-v1", config=config)
    result = trainer.train()
    trainer.stop()
    policy = trainer.policy
    assert policy.config["n_step"] == 2 and policy.q_loss.td_error.shape == (16,) and result["train/loss"] > 0
    assert torch.equal(policy.learner.td_errors, policy.q_loss.td_error.detach())
