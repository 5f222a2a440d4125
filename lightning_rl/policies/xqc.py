"""CrossQ with weights of unit norm, a distributional critic and target critics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

import gymnasium as gym
import torch
from torch import Tensor, nn

from lightning_rl.errors import ConfigError
from lightning_rl.losses.value import c51_projection
from lightning_rl.models.critics import CriticEnsemble, ParallelMLP
from lightning_rl.models.filters import RewardFilterName
from lightning_rl.policies.crossq import CrossQ
from lightning_rl.policies.sac import SAC
from lightning_rl.sample_batch import SampleBatch
from lightning_rl.schema.ranges import LearningRate, Portion, Positive, Range, Whole, Width

__all__ = ["XQC"]


class XQC(CrossQ):
    """CrossQ with weights of unit norm and a categorical critic. Palenicek et al. 2025, arXiv:2509.25174.

    Every gradient step divides the weights of each linear unit by their norm, so that the learning rate alone sets how
    far a step turns them.

    Args:
        observation_space, action_space: the spaces of a single environment; actions must be a bounded float Box.
        num_atoms: number of atoms of the critics' return distributions, on [`v_min`, `v_max`].
        v_min, v_max: lowest and highest atom, in units of the filtered reward.
        tau: see `SAC`; the target critics normalize by the statistics of their own batch.
        critic_hiddens: widths of the critics' hidden layers; the default is the paper's.
        renorm_after: see `CrossQ`; the default is the paper's.
        initial_alpha: see `SAC`; the default is the paper's.
        lr, optimizer_kwargs, reward_filter: see `Policy`; the default is the paper's.
        target_entropy: see `SAC`; here "auto" is −A/2.
        keywords: see `CrossQ`; `model.batch_norm=null` means "before".

    Raises:
        UnsupportedSpaceError: the actions are not a bounded float Box.
        ConfigError: a number is out of range.
    """

    batch_norm: ClassVar[str] = "before"
    atoms: Tensor

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        num_atoms: Annotated[int, Range(2, 10_000)] = 101,
        v_min: float = -5.0,
        v_max: float = 5.0,
        tau: Portion = 0.005,
        critic_hiddens: Sequence[Width] | None = (512, 512, 512, 512),
        renorm_after: Whole | None = None,
        initial_alpha: Positive = 0.01,
        lr: LearningRate = 3e-4,
        optimizer_kwargs: Mapping[str, Any] | None = None,
        reward_filter: RewardFilterName = "return_std",
        **keywords: Any,
    ) -> None:
        if v_min >= v_max:
            raise ConfigError(f"policy.v_min={v_min}; expected less than policy.v_max={v_max}")
        self.num_atoms = num_atoms
        paper = {"initial_alpha": initial_alpha, "lr": lr, "optimizer_kwargs": optimizer_kwargs}
        own = {"critic_hiddens": critic_hiddens, "renorm_after": renorm_after, "reward_filter": reward_filter}
        super().__init__(observation_space, action_space, **paper, **own, **keywords)
        self.register_buffer("atoms", torch.linspace(v_min, v_max, num_atoms), persistent=False)
        self.tau = tau

    def make_critic(self, config: Mapping[str, Any], **more: Any) -> CriticEnsemble:
        """Logits `[K, N, Z]` of the distribution of the return."""
        return super().make_critic(config, outputs=self.num_atoms, **more)

    def make_target_critic(self) -> None:
        """As `SAC`'s, of projected weights; CrossQ has none."""
        self._weights: list[Tensor] = []
        for module in (*self.model.modules(), *self.critic.modules()):
            if isinstance(module, nn.Linear | ParallelMLP):
                self._weights.extend([module.weight] if isinstance(module, nn.Linear) else module.weights)
        self.project_weights()
        SAC.make_target_critic(self)

    def _target_entropy(self, wanted: float | str | None) -> float | None:
        found = super()._target_entropy(wanted)
        return found / 2 if found is not None and wanted == "auto" else found

    def resting_modules(self) -> list[nn.Module]:
        """None: the target critics normalize by their batch as well."""
        return []

    # -- learning ------------------------------------------------------------------------------------------------------
    def loss_of_critics(self, batch: SampleBatch, alpha: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The critics' cross-entropy against `targets`, the mean |TD error| `[N]`, and their Q-values `[K, N]`."""
        inputs, actions, next_logp = self.joint_inputs(batch)
        with torch.no_grad():
            rewards = batch.rewards - batch.discounts * ~batch.terminated * alpha * next_logp
            probs = self.lowest(self.target_critic(inputs, actions).chunk(2, dim=1)[1].softmax(-1))
            targets = c51_projection(probs, rewards, batch.terminated, batch.discounts, self.atoms)
        log_probs = self.critic(inputs, actions).chunk(2, dim=1)[0].log_softmax(-1)
        errors = -(targets * log_probs).sum(-1)  # [K, N]
        weights = batch.get("weights")
        loss = (errors if weights is None else weights * errors).mean(1).sum()
        q_values = log_probs.exp() @ self.atoms
        return loss, (q_values - targets @ self.atoms).abs().mean(0), q_values

    def lowest(self, probs: Tensor) -> Tensor:
        """In each row the distribution of the critic with the lowest mean, `[K, N, Z]` → `[N, Z]`."""
        return probs[(probs @ self.atoms).argmin(0), torch.arange(probs.shape[1], device=probs.device)]

    def actor_q_values(self, q_values: Tensor) -> Tensor:
        """The lowest mean of the critics' distributions, `[K, N, Z]` → `[N]`."""
        return super().actor_q_values(q_values.softmax(-1) @ self.atoms)

    @torch.no_grad()
    def project_weights(self) -> None:
        """Divide the weights of each linear unit by their norm; frozen ones never change."""
        for weight in self._weights:
            if weight.requires_grad:  # [outputs, inputs] of a layer, [K, inputs, outputs] of several critics'
                weight /= torch.linalg.vector_norm(weight, dim=1, keepdim=True)

    def after_step(self) -> None:
        """Project the weights, then update the target critics."""
        self.project_weights()
        SAC.after_step(self)
