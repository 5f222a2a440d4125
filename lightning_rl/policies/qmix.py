"""QMIX: Q-learning for a group of agents with one reward, whose joint value is a monotonic function of the members'."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import gymnasium as gym
import torch
from torch import Tensor, nn

from lightning_rl.errors import UnsupportedSpaceError, short_repr
from lightning_rl.learning.metrics import Metrics
from lightning_rl.losses.mixing import mean_over_present, sum_mix
from lightning_rl.losses.value import double_q_values, huber, td_targets, weighted_mean
from lightning_rl.models.distributions.base import DistFactory
from lightning_rl.models.group_q_model import GroupQModel
from lightning_rl.models.mixing import QMixer
from lightning_rl.policies.policy import Policy
from lightning_rl.policies.q_networks import group_q_model_and_action_dist
from lightning_rl.policies.replayed_sequences import run_burn_in, sequence_loss, trains_after_burn_in
from lightning_rl.policies.simple_q import SOFT_UPDATE_TAU, next_step
from lightning_rl.policies.targets import PolyakUpdate, target_copy
from lightning_rl.sample_batch import SampleBatch, from_nested_batch
from lightning_rl.schema.ranges import Count, LearningRate, Portion, Positive, Probability, Width
from lightning_rl.spaces.groups import GroupSpaces

__all__ = ["QMIX", "Mixer"]

Mixer = Literal["qmix", "vdn", "none"]


class QMIX(Policy):
    """Q-learning for a group of agents that share one reward. Rashid et al. 2018, arXiv:1803.11485.

    The members share one network of action values. A mixing network, whose weights depend on the state, combines the
    values of their actions to Q_tot, which learns from the group's reward; it never falls where a member's value rises,
    so each member acts greedily by its own values. The mixing network is used in learning only.

    Args:
        observation_space, action_space: the spaces of a group (`GroupSpaces`), which `env.group_agents=all` creates.
        mixer: "qmix"; "vdn": Q_tot is the sum of the members' values (arXiv:1706.05296); "none": each member learns
            independently from the group's reward (Tan 1993).
        mixing_embed_dim: width of the mixing network's hidden layer.
        hypernet_hiddens: widths of hidden layers between the state and the weights of the mixing network.
        agent_id: add the member's index (one-hot) to the input of the members' network.
        last_action: add the member's last action (one-hot) to the input.
        double: the online network selects the next actions, and the target network evaluates them (arXiv:1509.06461).
        hiddens: widths of hidden layers between the model's features and the Q-values.
        target_update_interval: gradient steps between updates of the target networks.
        tau: update rate τ of θ_target ← τ θ + (1 − τ) θ_target, in (0, 1]; 1 copies. `None`: 0.005 if the target
            networks are updated at every gradient step, otherwise 1.
        huber_delta: δ of the Huber loss; `None`: the squared error.
        priority_eta: η of a sequence's priority η max |δ| + (1 − η) mean |δ|, with prioritized sequences.
        lr, max_grad_norm: see `Policy`.
        keywords: arguments of `Policy`: model, exploration, gamma, optimizer, optimizer_kwargs, filters, custom_losses,
            seed.

    Raises:
        UnsupportedSpaceError: the spaces are not those of a group, or its members have different ones; or QMIX finds no
            state: the environment has none, and observations are images.
        ConfigError: a number is out of range.
    """

    data = "group_sequences"
    off_policy = True
    supports_recurrent = True
    acts_for_group = True
    uses_every_parameter = True
    model: GroupQModel

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        mixer: Mixer = "qmix",
        mixing_embed_dim: Width = 32,
        hypernet_hiddens: Sequence[Width] = (),
        agent_id: bool = True,
        last_action: bool = True,
        double: bool = True,
        hiddens: Sequence[Width] = (),
        target_update_interval: Count = 200,
        tau: Portion | None = None,
        huber_delta: Positive | None = None,
        priority_eta: Probability = 0.9,
        lr: LearningRate = 5e-4,
        max_grad_norm: Positive | None = 10.0,
        **keywords: Any,
    ) -> None:
        # First: the base class builds the model.
        self.group = GroupSpaces(observation_space, action_space, type(self).__name__)
        self.mixing, self.hiddens = mixer, tuple(hiddens)
        self.mixing_sizes: dict[str, Any] = {"embed_dim": mixing_embed_dim, "hypernet_hiddens": tuple(hypernet_hiddens)}
        self.reads = {"agent_id": agent_id, "last_action": last_action}
        self.mixer: QMixer | None = None
        super().__init__(observation_space, action_space, lr=lr, max_grad_norm=max_grad_norm, **keywords)
        self.double_q, self.target_update_interval, self.huber_delta = double, target_update_interval, huber_delta
        self.priority_eta = priority_eta
        default_tau = SOFT_UPDATE_TAU if target_update_interval == 1 else 1.0
        self.tau = default_tau if tau is None else tau
        self.target_model = target_copy(self.model)
        self.target_mixer = None if self.mixer is None else target_copy(self.mixer)
        self._polyak_update = PolyakUpdate(
            nn.ModuleList([part for part in (self.target_model, self.target_mixer) if part is not None]),
            nn.ModuleList([part for part in (self.model, self.mixer) if part is not None]),
        )

    def make_model_and_action_dist(self, model: Mapping[str, Any] | None) -> tuple[GroupQModel, DistFactory]:
        """The members' shared network, the mixing network, and a Categorical of each member's Q-values."""
        group_model, dist_class = group_q_model_and_action_dist(self, self.group, model, self.hiddens, **self.reads)
        if self.mixing == "qmix":
            self.mixer = QMixer(self.group.size, self._state_size(group_model), **self.mixing_sizes)
        return group_model, dist_class

    def _state_size(self, group_model: GroupQModel) -> int:
        """Width of the mixing network's state: the environment's, or the members' observations side by side."""
        size = group_model.preprocessor.size
        if size == 0:
            raise UnsupportedSpaceError(
                f"{type(self).__name__} mixes by the state, and there is none: the members observe images "
                f"({short_repr(self.group.observation)}): give the observation a Box 'state', or use vdn"
            )
        return size if self.group.state is None else size - group_model.members_size

    # -- learning -----------------------------------------------------------------------------------------------------
    def q_values(self, model: GroupQModel, batch: SampleBatch) -> Tensor:
        """The members' Q-values `[N, n, A]`, −∞ at forbidden actions; burn-in rows have no gradient."""
        if not trains_after_burn_in(batch):
            values, mask, _ = self.outputs_of(batch, model)
            values = values if mask is None else values.masked_fill(~mask, -torch.inf)
            return values.unflatten(1, (self.group.size, -1))
        before, trained = run_burn_in(self, model, batch)
        values = before.unflatten(1, (self.group.size, -1))
        values[~batch["burn_in"]] = self.q_values(model, trained)
        return values

    def mix(self, mixer: QMixer | None, values: Tensor, obs: Any) -> Tensor:
        """Q_tot `[N]` of the members' values `[N, n]`, or these values, if each member learns by itself.

        A member that is not present has the value 0.
        """
        obs = from_nested_batch(self.observation_space, obs)
        present = self.group.present(obs)
        if present is not None:
            values = values.masked_fill(~present, 0.0)
        if self.mixing == "vdn":
            return sum_mix(values)
        return values if mixer is None else mixer(values, self.mixing_state(obs))

    def mixing_state(self, obs: Any) -> Tensor:
        """The state `[N, S]` that the mixing network reads: the environment's, or the members' observations joined."""
        flat = self.flat_observations(obs)
        return flat if self.group.state is None else flat[:, self.model.members_size :]

    @torch.no_grad()
    def targets(self, batch: SampleBatch) -> Tensor:
        """R + γ Q_tot of the next step by the target networks, `[N]`; `[N, n]` if each member learns by itself."""
        following = next_step(batch)
        values = self.q_values(self.target_model, following)
        if self.double_q:
            values = double_q_values(self.q_values(self.model, following).flatten(0, 1), values.flatten(0, 1))
            values = values.unflatten(0, (-1, self.group.size))
        else:
            values = values.amax(-1)
        values = self.mix(self.target_mixer, values, following.obs)
        if "bootstrap_rows" in batch:
            values = values[batch["bootstrap_rows"]]
        rewards, terminated, discounts = batch.rewards, batch.terminated, batch.discounts
        if values.dim() == 1:
            return td_targets(rewards, values, terminated, discounts)
        each = [td_targets(rewards, member, terminated, discounts) for member in values.unbind(1)]
        return torch.stack(each, dim=1)

    def loss(self, batch: SampleBatch) -> tuple[Tensor, Metrics]:
        """Squared (or Huber) error of Q_tot(s, a) − (r + γ Q_tot(s', a') by the target networks)."""
        targets = self.targets(batch)
        actions = self.group.stack_actions(batch.actions)
        chosen = self.q_values(self.model, batch).gather(2, actions.unsqueeze(2)).squeeze(2)
        values = self.mix(self.mixer, chosen, batch.obs)
        td_errors = values - targets
        errors = huber(td_errors, self.huber_delta)
        present = self.group.present(batch.obs)
        if errors.dim() == 2:
            errors, td_errors = mean_over_present(errors, present), mean_over_present(td_errors.abs(), present)
        if "seq_lens" in batch:
            loss, priorities = sequence_loss(errors, td_errors.detach(), batch, self.priority_eta)
        else:
            loss, priorities = weighted_mean(errors, batch.get("weights")), td_errors.detach()
        if not self.log_extra:
            return loss, {"td_errors": priorities}
        members = mean_over_present(chosen.detach(), present)
        return loss, {
            "td_errors": priorities,
            "q_mean": members.mean(),
            "q_total": values.detach().mean(),
            "td_error": td_errors.detach().abs().mean(),
        }

    def after_step(self) -> None:
        """Update the target networks every `target_update_interval` gradient steps."""
        if self.gradient_steps % self.target_update_interval == 0:
            self._polyak_update(self.tau)
