"""DQN, with a switch for every extension of Rainbow."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import torch
import torch.nn.functional as F
from torch import Tensor

from lightning_rl.errors import ConfigError
from lightning_rl.learning.metrics import Metrics
from lightning_rl.losses.value import (
    c51_clip_fraction,
    c51_projection,
    double_q_values,
    quantile_huber,
    td_targets,
    weighted_mean,
)
from lightning_rl.models.distributions.base import DistFactory
from lightning_rl.models.noisy import resample_noise
from lightning_rl.models.q_model import QModel
from lightning_rl.policies.simple_q import SimpleQ, next_step
from lightning_rl.sample_batch import SampleBatch
from lightning_rl.schema.ranges import Atoms, NonNegative

__all__ = ["DQN"]

log = logging.getLogger(__name__)

MAX_CLIP_FRACTION = 0.3  # share of the targets' mass beyond the support; untrained atoms with 3 rewards of 1 have 0.14


class DQN(SimpleQ):
    """Deep Q-learning with the extensions of Rainbow. Hessel et al. 2018, arXiv:1710.02298.

    Two extensions are settings of the replay buffer: `data.n_step` and `data.prioritized`.

    Args:
        observation_space, action_space: the spaces of a single environment; actions must be Discrete.
        double: the online network selects the next action, and the target network evaluates it (arXiv:1509.06461).
        dueling: use separate heads for V(s) and the advantages A(s, a) (arXiv:1511.06581).
        noisy: use noisy layers in the head (arXiv:1706.10295); required by `exploration=noisy_network`.
        sigma0: initial scale of the noise in noisy layers.
        num_atoms: number of atoms of the return distribution (C51, arXiv:1707.06887); 1: learn the mean.
        v_min, v_max: lowest and highest atom, in units of the return.
        num_quantiles: number of quantiles of the return distribution (QR-DQN, arXiv:1710.10044); 1: learn the mean.
        hiddens, target_update_interval, tau: see `SimpleQ`.
        huber_delta: see `SimpleQ`; κ of the quantile loss with quantiles.
        keywords: arguments of `Policy`: model, exploration, gamma, lr, optimizer, optimizer_kwargs, max_grad_norm,
            filters, actions, custom_losses, seed.

    Raises:
        UnsupportedSpaceError: the actions are not Discrete.
        ConfigError: a number is out of range, two extensions exclude each other, or `exploration=noisy_network` has no
            noisy layers.
    """

    fractions: Tensor

    uses_every_parameter = True

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        double: bool = True,
        dueling: bool = False,
        noisy: bool = False,
        sigma0: NonNegative = 0.5,
        num_atoms: Atoms = 1,
        v_min: float = -10.0,
        v_max: float = 10.0,
        num_quantiles: Atoms = 1,
        **keywords: Any,
    ) -> None:
        if num_atoms > 1 and num_quantiles > 1:
            raise ConfigError(
                f"policy.num_atoms={num_atoms} and policy.num_quantiles={num_quantiles}: C51 and QR-DQN exclude each "
                "other; set one of them to 1"
            )
        if v_min >= v_max:
            raise ConfigError(f"policy.v_min={v_min}, policy.v_max={v_max}; expected v_min < v_max")
        self.double_q, self.dueling, self.noisy, self.sigma0 = double, dueling, noisy, sigma0
        self.num_atoms, self.v_min, self.v_max, self.num_quantiles = num_atoms, v_min, v_max, num_quantiles
        super().__init__(observation_space, action_space, **keywords)
        middles = (torch.arange(num_quantiles) + 0.5) / num_quantiles
        self.register_buffer("fractions", middles, persistent=False)
        self._support_reported = False

    def make_model_and_action_dist(self, model: Mapping[str, Any] | None, **head: Any) -> tuple[QModel, DistFactory]:
        """The Q-network with the extensions that are switched on."""
        if self.dueling:
            head["dueling"] = True
        if self.noisy:
            head["sigma"] = self.sigma0
        if self.num_atoms > 1:
            head |= {"atoms": self.num_atoms, "support": torch.linspace(self.v_min, self.v_max, self.num_atoms)}
        if self.num_quantiles > 1:
            head["atoms"] = self.num_quantiles
        return super().make_model_and_action_dist(model, **head)

    def loss(self, batch: SampleBatch) -> tuple[Tensor, Metrics]:
        """Mean over the rows of weight · loss."""
        if self.noisy:
            resample_noise(self.model)
            resample_noise(self.target_model)
        with torch.no_grad():
            following = self.bootstrap_values(batch) if self.distributional else batch.get("td_targets")
            following = self.targets(batch) if following is None else following
        _, returns = self.q_values(self.model, batch)
        taken = self.gather_actions(returns, batch.actions)
        if self.distributional:
            errors, td_errors = self.distribution_losses(taken, following, batch)
            loss, priorities = weighted_mean(errors, batch.get("weights")), td_errors.detach()
        else:
            td_errors = taken - following
            loss, priorities = self.td_loss(td_errors, batch)
        metrics = {"td_errors": priorities, **self.metrics_of(self.model.expected_q_values(taken), td_errors)}
        if self.num_atoms > 1 and self.log_extra:
            metrics["support_clipped"] = self.support_clip_fraction(following, batch)
        return loss, metrics

    def support_clip_fraction(self, following: Tensor, batch: SampleBatch) -> Tensor:
        """Share of the targets' mass that lies beyond the atoms; `following` are the next logits `[N, Z]`."""
        assert self.model.support is not None
        shares = c51_clip_fraction(
            following.softmax(-1), batch.rewards, batch.terminated, batch.discounts, self.model.support
        )
        return shares.mean()

    def after_iteration(self, metrics: dict[str, float]) -> None:
        """Warn once when the targets' returns lie outside the support of C51."""
        share = metrics.get("support_clipped", 0.0)
        if share > MAX_CLIP_FRACTION and not self._support_reported:
            self._support_reported = True
            log.warning(
                "%.0f %% of the targets' returns lie outside the support [%g, %g] and count as its ends: set "
                "policy.v_min and policy.v_max to the lowest and the highest discounted return, or "
                "policy.reward_filter=return_std (train/support_clipped shows the share)",
                100.0 * share,
                self.v_min,
                self.v_max,
            )

    @property
    def distributional(self) -> bool:
        """Whether the distribution of returns is learned instead of its mean."""
        return self.num_atoms > 1 or self.num_quantiles > 1

    def bootstrap_values(self, batch: SampleBatch) -> Tensor:
        """The value of the next observation `[N]`, or logits or quantiles `[N, Z]` of its return."""
        q_target, target_returns = self.target_values(batch)
        if not self.double_q:
            return self.gather_actions(target_returns, q_target.argmax(1))
        q_online, _ = self.q_values(self.model, next_step(batch))
        if target_returns.dim() == 2:
            return double_q_values(q_online, target_returns)
        return self.gather_actions(target_returns, q_online.argmax(1))

    def constant_targets(self, rows: SampleBatch) -> dict[str, Tensor]:
        """TD targets; for double or distributional DQN the target network's outputs."""
        if self.double_q or self.distributional:
            return dict(zip(("target_q", "target_returns"), self.target_values(rows), strict=True))
        return super().constant_targets(rows)

    @staticmethod
    def gather_actions(returns: Tensor, actions: Any) -> Tensor:
        """The entries `[N]` or `[N, Z]` of the actions `[N]`."""
        if returns.dim() == 2:
            return returns.gather(1, actions.unsqueeze(1)).squeeze(1)
        index = actions.view(-1, *[1] * (returns.dim() - 1))
        return returns.gather(1, index.expand(-1, 1, *returns.shape[2:])).squeeze(1)

    def distribution_losses(self, taken: Tensor, following: Tensor, batch: SampleBatch) -> tuple[Tensor, Tensor]:
        """The loss of each row's distribution, `[N]`, and the error that becomes its priority, `[N]`.

        Args:
            taken: the network's logits or quantiles of the actions taken, `[N, Z]`.
            following: the target network's logits or quantiles of the next actions, `[N, Z]`.
            batch: rewards, terminated, discounts.
        """
        rewards, terminated, discounts = batch.rewards, batch.terminated, batch.discounts
        if self.num_atoms > 1:
            assert self.model.support is not None
            target = c51_projection(following.softmax(-1), rewards, terminated, discounts, self.model.support)
            errors = -(target * F.log_softmax(taken, -1)).sum(-1)
            # Priorities are KL(target‖Z) (Rainbow, section 4): the cross-entropy contains the target's entropy as well.
            return errors, (errors - torch.special.entr(target).sum(-1)).clamp(min=0.0)
        targets = td_targets(rewards, following, terminated, discounts)
        errors = quantile_huber(taken, self.fractions, targets, self.huber_delta or 1.0)
        return errors, taken.mean(1) - targets.mean(1)
