"""Multi-agent deep deterministic policy gradient: decentralised actors, central critics."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import gymnasium as gym
import torch
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor, nn

from lightning_rl.errors import ConfigError
from lightning_rl.learning.metrics import Metrics
from lightning_rl.losses.actor_critic import critic_error
from lightning_rl.losses.value import td_targets
from lightning_rl.models import Model, ModelCatalog, model_config
from lightning_rl.models.critics import CriticEnsemble
from lightning_rl.models.distributions import (
    GumbelSoftmax,
    MultiActionDistribution,
    SquashedDeterministic,
)
from lightning_rl.models.distributions.base import ActionDistribution, DistFactory
from lightning_rl.models.distributions.nested import Part
from lightning_rl.models.group_actors import GroupActors
from lightning_rl.models.model import InputDict
from lightning_rl.models.vision import image_paths
from lightning_rl.policies.targets import frozen
from lightning_rl.policies.td3 import TD3
from lightning_rl.sample_batch import SampleBatch
from lightning_rl.schema.ranges import Count, Critics, NonNegative, Positive
from lightning_rl.spaces import GroupMembers, is_bounded_box, leaf_values

__all__ = ["MADDPG"]


class MADDPG(TD3):
    """Multi-agent DDPG: each agent of a group has an actor, and a critic of all observations and actions.

    Lowe et al. 2017, arXiv:1706.02275; the reward is that of the group. Discrete actions are relaxed by Gumbel-softmax,
    with straight-through gradients. Members may have different spaces.

    Args:
        observation_space, action_space: the spaces of a single environment whose agent is a group (see `GroupMembers`);
            actions of its members must be bounded float Boxes or Discrete.
        num_critics: number of critics per member; targets use the lowest Q-value, and the actor's loss uses the first
            critic.
        policy_delay: gradient steps of the critics per update of the actors and the target networks.
        target_noise: standard deviation of the noise on the target actors' continuous actions, as in `TD3`; above 0,
            their discrete actions are sampled instead of greedy.
        shared_critic: whether the members share their critics; with one reward for all, their values are the same.
        output_penalty: weight of the mean squared outputs of each actor (logits, and actions before tanh), which keeps
            gradients from vanishing; 1e-3 in the authors' code.
        temperature: temperature τ of the Gumbel-softmax.
        keywords: the keywords of `TD3` and `Policy`.

    Raises:
        UnsupportedSpaceError: the spaces are not those of a group, or a member's actions are neither a bounded float
            Box nor Discrete.
        ConfigError: a number is out of range, or a custom preprocessor or action distribution is given.
    """

    acts_for_group = True
    entry_owner: Tensor
    target_critic: Any

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        num_critics: Critics = 1,
        policy_delay: Count = 1,
        target_noise: NonNegative = 0.0,
        shared_critic: bool = False,
        output_penalty: NonNegative = 1e-3,
        temperature: Positive = 1.0,
        **keywords: Any,
    ) -> None:
        self.shared_critic, self.output_penalty, self.temperature = shared_critic, output_penalty, temperature
        super().__init__(
            observation_space,
            action_space,
            num_critics=num_critics,
            policy_delay=policy_delay,
            target_noise=target_noise,
            **keywords,
        )
        owners = [number for number, size in enumerate(self.sizes) for _ in range(size)]
        self.register_buffer("entry_owner", torch.tensor(owners), persistent=False)  # [A]

    def make_model_and_action_dist(self, model: Mapping[str, Any] | None) -> tuple[Model, DistFactory]:
        """The actors; the critics are built here too, so that their initial weights follow from the same seed."""
        config = {**model_config(model), "vf_share_layers": True}
        for key in ("custom_preprocessor", "custom_action_dist"):
            if config[key] is not None:
                raise ConfigError(f"model.{key}: {type(self).__name__} has one for each of its members; leave it out")
        self.members = GroupMembers(
            self.observation_space,
            self.action_space,
            type(self).__name__,
            lambda space: isinstance(space, spaces.Discrete) or is_bounded_box(space),
            "Discrete, or float Boxes with finite bounds",
        )
        policy_space: Any = self.action_transform.policy_space
        parts = [self._part(space) for space in policy_space.spaces]
        self.sizes = [part.inputs for part in parts]  # entries of each member's action: a Discrete one is a vector
        given = config["conv_filters"] is not None or config["conv_residual_channels"] is not None
        images = image_paths(self.observation_space, given)
        of_critics = {**config, "custom_model": None, "use_lstm": False, "use_gru": False, "use_attention": False}
        how = {"count": 1 if self.shared_critic else len(self.members), "action_size": sum(self.sizes)}
        self.critic: Any = nn.ModuleList(
            [CriticEnsemble(self.observation_space, policy_space, of_critics, **how) for _ in range(self.num_critics)]
        )
        actors = GroupActors(
            self.observation_space,
            self.action_space,
            self.members,
            self.sizes,
            lambda observations, actions, width: ModelCatalog.get_model(observations, actions, width, config),
            images,
        )
        return actors, partial(MultiActionDistribution, space=policy_space, parts=parts)

    def _part(self, space: spaces.Space[Any]) -> Part:
        """The distribution of one member's actions."""
        if isinstance(space, spaces.Discrete):
            choices = int(space.n)
            return Part(partial(_gumbel_softmax, relaxation=self.temperature), choices, choices, True)
        width = SquashedDeterministic.required_model_output_shape(space)
        return Part(SquashedDeterministic.for_space(space), width, 0, False)

    def _mask(self, obs: Any, column: Any) -> Tensor | None:
        return self.members.action_masks(obs) if column is None else super()._mask(obs, column)

    # -- learning ------------------------------------------------------------------------------------------------------
    def loss(self, batch: SampleBatch) -> tuple[Tensor, Metrics]:
        """Error of all critics and, every `policy_delay` steps, the actors' losses −Qᵢ(x, a₁, …, πᵢ(oᵢ), …, aₙ)."""
        with torch.no_grad():
            following = self.bootstrap_values(batch)
            ends = (batch.terminated, batch.discounts)
            targets = torch.stack([td_targets(batch.rewards, values, *ends) for values in following])  # [M, N]
        inputs, present = self.inputs_of(batch), self.members.present(batch.obs)
        actions = self.of_present(self.action_vectors(batch.actions), present)
        q_values = torch.cat([critic(inputs, actions) for critic in self.critic])  # [critics · M, N]
        targets = targets.repeat(self.num_critics, 1)
        critic_loss = critic_error(q_values, targets, batch.get("weights"))
        td_errors = (q_values.detach() - targets).abs().mean(0)
        metrics = {"value_loss": critic_loss, "q_mean": q_values.detach().mean(), "td_errors": td_errors}
        if (self.gradient_steps + 1) % self.policy_delay:
            return critic_loss, metrics
        policy_loss, penalty = self.policy_loss(batch, inputs, actions, present)
        loss = critic_loss + policy_loss + self.output_penalty * penalty
        return loss, {**metrics, "policy_loss": policy_loss, "squared_outputs": penalty}

    def policy_loss(
        self, batch: SampleBatch, inputs: InputDict, actions: Tensor, present: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The sum over the members of the mean of −Qᵢ, and of their actors' mean squared outputs.

        Lowe et al. 2017, eq. 6: Qᵢ judges the member's own action, which its actor chooses now, beside those that the
        others took. Rows in which a member is absent do not count for it.

        Args:
            batch: rows.
            inputs: the inputs of the rows.
            actions: all members' actions in the rows, `[N, A]`.
            present: `[N, n]`, or `None`: all are.
        """
        outputs, _ = self.model(inputs, (), None)
        dist: Any = self.distribution(outputs, self.mask_of(batch))
        own = self.of_present(_side_by_side(child.rsample() for child in dist.children), present)
        is_own = self.entry_owner == torch.arange(len(self.members), device=own.device).view(-1, 1, 1)
        joint = torch.where(is_own, own, actions)  # [n, N, A]
        with frozen(self.critic):
            q_values = self.values_of(self.critic[0], inputs, joint)
        if present is None:
            value = q_values.mean(1).sum()
        else:
            value = ((q_values.t() * present).sum(0) / present.sum(0).clamp(min=1)).sum()
        penalty = torch.stack([part.square().mean() for part in outputs.split(self.sizes, dim=1)]).sum()
        return -value, penalty

    def values_of(self, critic: CriticEnsemble, inputs: InputDict, joint: Tensor) -> Tensor:
        """The members' Q-values `[n, N]`, each for its own joint actions, `[n, N, A]`."""
        if self.shared_critic:
            return torch.cat([critic(inputs, actions) for actions in joint])
        return critic(inputs, joint)

    def bootstrap_values(self, batch: SampleBatch) -> Tensor:
        """The lowest target Q-values of the target actors' next actions, `[M, N]`; M: 1 if critics are shared, or n."""
        inputs = self.inputs_of(batch, following=True, is_training=self.target_model.training)
        outputs, _ = self.target_model(inputs, (), None)
        dist: Any = self.distribution(outputs, self.mask_of(batch, following=True))
        actions = self.of_present(self.target_actions(dist), self.members.present(batch.next_obs))
        return torch.stack([critic(inputs, actions) for critic in self.target_critic]).amin(0)

    def target_actions(self, dist: MultiActionDistribution) -> Tensor:
        """The target actors' actions `[N, A]`; with `target_noise` noisy ones (Boxes) and samples (Discrete)."""
        vectors, start = [], 0
        for child in dist.children:
            if isinstance(child, GumbelSoftmax):
                chosen = child.sample() if self.target_noise else child.deterministic_sample()
                vectors.append(F.one_hot(chosen, child.logits.shape[1]).float())
                continue
            vector = _side_by_side([child.deterministic_sample()])
            stop = start + vector.shape[1]
            if self.target_noise:
                noise = (torch.randn_like(vector) * self.target_noise).clamp_(
                    -self.target_noise_clip, self.target_noise_clip
                )
                vector = torch.minimum(torch.maximum(vector + noise, self.low[start:stop]), self.high[start:stop])
            vectors.append(vector)
            start = stop
        return torch.cat(vectors, dim=1)

    def action_vectors(self, actions: Any) -> Tensor:
        """Recorded actions as vectors side by side, `[N, A]`: one-hot ones of Discrete members."""
        space: Any = self.action_transform.policy_space
        return _side_by_side(
            F.one_hot(leaf.long(), int(member.n)).float() if isinstance(member, spaces.Discrete) else leaf
            for member, leaf in zip(space.spaces, leaf_values(space, actions), strict=True)
        )

    def of_present(self, actions: Tensor, present: Tensor | None) -> Tensor:
        """Actions `[N, A]` with zeros for absent members, whose actions have no effect."""
        return actions if present is None else actions * present[:, self.entry_owner]


def _gumbel_softmax(
    inputs: Tensor, model: Any = None, mask: Tensor | None = None, *, relaxation: float
) -> ActionDistribution:
    dist = GumbelSoftmax(inputs, model, mask)
    dist.relaxation = relaxation
    return dist


def _side_by_side(leaves: Any) -> Tensor:
    """The members' actions `[N, *]` as vectors in one `[N, A]`."""
    return torch.cat([leaf.reshape(len(leaf), -1) for leaf in leaves], dim=1)
