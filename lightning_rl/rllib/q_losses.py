"""RLlib's loss of DQN as functions, for policies that are made of functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lightning_rl.losses.value import c51_projection, huber
from lightning_rl.policies.simple_q import next_step
from lightning_rl.rllib.sample_batch import SampleBatch

__all__ = ["PRIO_WEIGHTS", "QLoss", "adam_optimizer", "build_q_losses"]

PRIO_WEIGHTS = "weights"


class QLoss:
    """The loss of Q(s, a) against r + γⁿ Q(s', a'), or of their distributions (C51).

    Mnih et al. 2015, doi:10.1038/nature14236; Bellemare et al. 2017, arXiv:1707.06887.

    Args:
        q_t_selected: Q(s, a) of the actions taken, `[N]`; carries the gradient.
        q_logits_t_selected: logits of its distribution, `[N, Z]`; read if `num_atoms` is above 1.
        q_tp1_best: Q of the next observation's action, `[N]`.
        q_probs_tp1_best: its distribution, `[N, Z]`; read if `num_atoms` is above 1.
        importance_weights: the weights of the rows, `[N]`.
        rewards: sums of n steps, `[N]`.
        done_mask: `[N]`, 1 where nothing follows.
        gamma, n_step: discount per step, a number or one for each row `[N]`, and the number of steps.
        num_atoms, v_min, v_max: atoms of the distribution; 1 learns its mean.

    Attributes:
        loss: scalar.
        td_error: `[N]`, for priorities; the cross-entropy with several atoms.
        stats: numbers to log.
    """

    def __init__(
        self,
        q_t_selected: Tensor,
        q_logits_t_selected: Tensor | None,
        q_tp1_best: Tensor,
        q_probs_tp1_best: Tensor | None,
        importance_weights: Tensor,
        rewards: Tensor,
        done_mask: Tensor,
        gamma: float | Tensor = 0.99,
        n_step: int = 1,
        num_atoms: int = 1,
        v_min: float = -10.0,
        v_max: float = 10.0,
    ) -> None:
        discount = gamma**n_step
        if num_atoms > 1:
            assert q_logits_t_selected is not None and q_probs_tp1_best is not None
            atoms = torch.linspace(v_min, v_max, num_atoms, device=rewards.device)
            target = c51_projection(q_probs_tp1_best, rewards, done_mask.bool(), discount, atoms).detach()
            self.td_error = -(target * F.log_softmax(q_logits_t_selected, -1)).sum(-1)
            self.loss = (self.td_error * importance_weights).mean()
        else:
            target = rewards + discount * q_tp1_best * (1.0 - done_mask.float())
            self.td_error = q_t_selected - target.detach()
            self.loss = (importance_weights.float() * huber(self.td_error)).mean()
        self.stats = {"mean_q": q_t_selected.detach().mean(), "mean_td_error": self.td_error.detach().mean()}


def build_q_losses(policy: Any, model: Any, dist_class: Any, train_batch: SampleBatch) -> Tensor:
    """DQN's loss of a training batch, a scalar, for `loss_fn` of a policy whose base is `DQNTorchPolicy`.

    Args:
        policy: gets the attribute `q_loss`, of which the metric "td_error" becomes the rows' priorities.
        model, dist_class: not read: the networks are the policy's own, online and target.
        train_batch: replayed rows.
    """
    batch = SampleBatch.of(train_batch)
    _, logits = policy.q_values(policy.model, batch)
    q_target, target_logits = policy.target_values(batch)
    with torch.no_grad():
        online = policy.q_values(policy.model, next_step(batch))[0] if policy.double_q else q_target
    best = online.argmax(1)
    taken = policy.gather_actions(logits, batch.actions)
    policy.q_loss = QLoss(
        policy.model.expected_q_values(taken),
        taken,
        policy.gather_actions(q_target, best),
        policy.gather_actions(target_logits, best).softmax(-1) if policy.num_atoms > 1 else None,
        batch[PRIO_WEIGHTS],
        batch[SampleBatch.REWARDS],
        batch[SampleBatch.DONES].float(),
        batch["discounts"],
        1,
        policy.num_atoms,
        policy.v_min,
        policy.v_max,
    )
    policy.base_metrics = {"td_error": policy.q_loss.td_error, **policy.q_loss.stats}
    return policy.q_loss.loss


def adam_optimizer(policy: Any, config: Mapping[str, Any]) -> torch.optim.Adam:
    """Adam for `optimizer_fn`, with "lr" (`cur_lr` of a policy with `LearningRateSchedule`) and "adam_epsilon"."""
    rate = getattr(policy, "cur_lr", config["lr"])
    return torch.optim.Adam(policy.model.parameters(), lr=rate, eps=config.get("adam_epsilon", 1e-8))
