"""Base class of strategies with intrinsic rewards: computes, scales and adds them before learning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
from gymnasium import Space
from torch import Tensor

from lightning_rl.exploration.features import Features
from lightning_rl.exploration.wrapper import ExplorationWrapper
from lightning_rl.models.filters import MeanStdFilter, NoFilter, ReturnNormalizer
from lightning_rl.models.vision import VisionNetwork
from lightning_rl.sample_batch import SampleBatch, from_nested_batch, map_leaves
from lightning_rl.schedules import Schedule, schedule_value

__all__ = ["IntrinsicReward"]


class IntrinsicReward(ExplorationWrapper):
    """Rewards novelty; a subclass defines `novelty` and `own_loss`.

    The learner computes the intrinsic rewards of a whole rollout with the current networks, and
    adds them to the (filtered) rewards (`Learner.transform_rewards`), for every algorithm and wherever its workers run.
    The networks are parameters of the policy; its optimizer trains them on every minibatch.

    Args:
        action_space, observation_space: see `Exploration`.
        encoder: reads observations; its preprocessor serves all networks of the strategy.
        coefficient: factor of the (normalized) rewards, a schedule over env steps.
        normalize: divide by the running standard deviation of the discounted sum of these rewards, γ = 0.99 (Burda et
            al. 2019, arXiv:1808.04355, section 2.2).
        observation_filter: filter of vectors before the networks: "none", or "mean_std" (clipped to ±5). Images are not
            filtered.
        sub_exploration: `{type: …, **keywords}` of the strategy that chooses the actions; `None` samples from the
            action distribution.
    """

    def __init__(
        self,
        action_space: Space[Any],
        observation_space: Space[Any],
        encoder: Features,
        coefficient: Schedule,
        /,
        normalize: bool = True,
        observation_filter: Literal["none", "mean_std"] = "none",
        sub_exploration: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(action_space, observation_space, sub_exploration)
        self.observation_space, self.encoder, self.coefficient = observation_space, encoder, coefficient
        self.normalizer = ReturnNormalizer(gamma=0.99) if normalize else None
        self.preprocessor = encoder.model.preprocessor
        self.reads_vectors = not isinstance(encoder.model, VisionNetwork)
        filtered = observation_filter == "mean_std" and self.reads_vectors and self.preprocessor.size > 0
        self.observation_filter = MeanStdFilter(self.preprocessor.size, clip=5.0) if filtered else NoFilter()
        self._mean = 0.0  # mean reward of the last rollout

    reads_next_obs = True

    def novelty(self, obs: dict[str, Any], actions: Any, next_obs: dict[str, Any]) -> Tensor:
        """Novelty of each transition, `[N]`, ≥ 0; observations come as a model's inputs."""
        raise NotImplementedError  # abstract

    def own_loss(self, obs: dict[str, Any], actions: Any, next_obs: dict[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss of the strategy's networks on these transitions, and its parts for logging."""
        raise NotImplementedError  # abstract

    def postprocess_trajectory(self, policy: Any, batch: SampleBatch) -> SampleBatch:
        """Add "next_obs", which the loss needs, and "intrinsic_rewards" `[T, B]`, 0 on invalid rows."""
        batch = super().postprocess_trajectory(policy, batch).copy()
        valid = batch.valid
        batch["next_obs"] = map_leaves(lambda leaf: leaf[1:], batch.obs)
        obs = map_leaves(lambda leaf: leaf[:-1].flatten(0, 1), batch.obs)
        next_obs = map_leaves(lambda leaf: leaf.flatten(0, 1), batch.next_obs)
        actions = map_leaves(lambda leaf: leaf.flatten(0, 1), batch.actions)
        if isinstance(self.observation_filter, MeanStdFilter):
            flat = self.preprocessor.transform_batch(from_nested_batch(self.observation_space, next_obs))
            self.observation_filter.update(flat, valid.flatten())
        with torch.no_grad():
            novelty = self.novelty(self._inputs(obs), actions, self._inputs(next_obs)).view_as(valid)
        if self.normalizer is not None:
            self.normalizer.update(novelty, valid, batch.t)
            novelty = self.normalizer(novelty)
        paid = schedule_value(self.coefficient, policy.env_steps) * torch.where(valid, novelty, 0.0)
        self._mean = float(paid.sum() / valid.sum().clamp(min=1))
        others = batch.get("intrinsic_rewards")
        batch["intrinsic_rewards"] = paid if others is None else paid + others
        return batch

    def loss(self, policy: Any, batch: SampleBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """`own_loss` of rows that `postprocess_trajectory` made, plus the loss of the wrapped strategy."""
        following = batch.get("step_next_obs", batch.next_obs)  # not the observation n steps later
        loss, metrics = self.own_loss(self._inputs(batch.obs), batch.actions, self._inputs(following))
        other = super().loss(policy, batch)
        return (loss, metrics) if other is None else (loss + other[0], {**other[1], **metrics})

    def info(self, timestep: int) -> dict[str, float]:
        """Mean intrinsic reward of the last rollout."""
        return {**super().info(timestep), "intrinsic_reward": self._mean}

    def _inputs(self, obs: Any) -> dict[str, Any]:
        """Inputs of the networks for observations `[N, *]`."""
        obs = from_nested_batch(self.observation_space, obs)
        inputs = {"obs": obs, "prev_actions": None, "prev_rewards": None, "is_training": self.training}
        if self.reads_vectors:
            inputs["obs_flat"] = self.observation_filter(self.preprocessor.transform_batch(obs))
        return inputs
