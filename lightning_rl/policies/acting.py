"""The acting half of a policy: from observations to actions, and to distributions and values for learning."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from lightning.pytorch import LightningModule
from torch import Tensor

from lightning_rl.exploration import Exploration
from lightning_rl.models import Model
from lightning_rl.models.distributions import ActionDistribution
from lightning_rl.models.preprocessors import Preprocessor
from lightning_rl.policies.inputs import InputDict, first, leading_shape, mapped
from lightning_rl.sample_batch import SampleBatch, restored
from lightning_rl.spaces import ActionTransform

__all__ = ["Acting"]


class Acting(LightningModule):
    """What `Policy` builds, used for acting; the attributes are made in its constructor.

    Attributes:
        model, dist_class, exploration: make outputs, an action distribution of them, and actions of that.
        preprocessor, observation_filter: make "obs_flat".
        action_transform: the door to the environment's action space.
        env_steps: environment steps learned from so far, which schedules follow.
    """

    observation_space: gym.Space[Any]
    model: Model
    dist_class: Callable[..., ActionDistribution]
    exploration: Exploration
    preprocessor: Preprocessor
    observation_filter: Callable[[Tensor], Tensor]
    action_transform: ActionTransform
    env_steps: int
    _generators: dict[torch.device, torch.Generator]
    _action_seed: int

    @torch.no_grad()
    def compute_actions(
        self,
        obs: Any,
        state: Sequence[Tensor] = (),
        *,
        prev_actions: Any = None,
        prev_rewards: Any = None,
        explore: bool = True,
        timestep: int | None = None,
        action_mask: Any = None,
    ) -> tuple[Any, list[Tensor], dict[str, Tensor]]:
        """Actions for a batch of observations, always in eval mode.

        Args:
            obs: `[B, *]`, arrays or tensors, nested as the space is.
            state: recurrent state `[B, …]` each; empty for feed-forward models.
            prev_actions, prev_rewards: of the step before, for models that ask for them.
            explore: sample through the exploration strategy; False takes the best action.
            timestep: env steps so far, which exploration schedules follow; `None` takes `env_steps`.
            action_mask: `[B, n]`, allowed discrete actions; `None` looks for "action_mask" in a Dict observation.

        Returns:
            actions `[B, …]` in the policy's space (`env_actions` gives the environment's), the state after, and the
            columns that a worker records.
        """
        training = self.training
        if training:
            self.eval()
        try:
            inputs = self.input_dict(self._tensors(obs), prev_actions=prev_actions, prev_rewards=prev_rewards)
            outputs, state_out = self.model(inputs, state, None)
            dist = self.distribution(outputs, self._mask(inputs["obs"], action_mask))
            actions, logp = self.exploration.get_exploration_action(
                dist,
                timestep=self.env_steps if timestep is None else timestep,
                explore=explore,
                generator=self._generator(outputs.device),
            )
            return actions, state_out, {"action_logp": logp, **self.extra_action_out(outputs, dist)}
        finally:
            if training:
                self.train()

    def compute_single_action(
        self, obs: Any, state: Sequence[Tensor] | None = None, *, explore: bool = False, full_fetch: bool = False
    ) -> Any:
        """The action for one observation, ready for `env.step`.

        Returns:
            The action; with `full_fetch=True` or a `state`, the tuple (action, state after, extra columns).
        """
        batched = mapped(lambda leaf: np.asarray(leaf)[None], obs)
        states = [s.unsqueeze(0) for s in state] if state is not None else self.get_initial_state(1)
        actions, state_out, extra = self.compute_actions(batched, states, explore=explore)
        action = first(self.env_actions(actions))
        if full_fetch or state is not None:
            return action, [s[0] for s in state_out], {name: value[0] for name, value in extra.items()}
        return action

    def compute_log_likelihoods(self, actions: Any, obs: Any, *, actions_normalized: bool = True) -> Tensor:
        """Log π(a|s), `[B]`, of actions in the policy's space (`actions_normalized=False`: in the environment's)."""
        if not actions_normalized:
            actions = self.action_transform.from_env(actions)
        with torch.no_grad():
            dist, _ = self.evaluate(SampleBatch(obs=self._tensors(obs)))
            return dist.logp(self._tensors(actions))

    def env_actions(self, actions: Any) -> Any:
        """Policy-space actions as numpy arrays in the environment's space and structure."""
        return self.action_transform.to_env(actions)

    def extra_action_out(self, outputs: Tensor, dist: ActionDistribution) -> dict[str, Tensor]:
        """More columns to record with each action; `outputs [B, K]` parametrise `dist`."""
        return {}

    def seed_exploration(self, seed: int) -> None:
        """Start the randomness of actions afresh from `seed`: a worker does it once a fragment."""
        self._action_seed = seed
        for generator in self._generators.values():
            generator.manual_seed(seed)

    def get_initial_state(self, batch_size: int) -> list[Tensor]:
        """The model's state at an episode's start, `[B, …]` each; empty for feed-forward models."""
        return [s.unsqueeze(0).expand(batch_size, *s.shape).to(self.device) for s in self.model.get_initial_state()]

    @property
    def is_recurrent(self) -> bool:
        """Whether the model carries state from step to step."""
        return len(self.model.get_initial_state()) > 0

    # -- evaluating ---------------------------------------------------------------------------------------------------
    def evaluate(self, batch: SampleBatch) -> tuple[ActionDistribution, Tensor]:
        """Action distribution and values `[N]` of the rows, with gradients: one forward of the model."""
        return self.distribution_of(batch), self.model.value_function()

    def distribution_of(self, batch: SampleBatch) -> ActionDistribution:
        """Action distribution of the rows, with gradients, for algorithms without a critic."""
        inputs = self.input_dict(batch.obs, batch)
        outputs, _ = self.model(inputs, (), None)
        return self.distribution(outputs, self._mask(inputs["obs"], batch.get("action_mask")))

    @torch.no_grad()
    def values(self, obs: Any) -> Tensor:
        """V(s) of observations with any two leading dims `[T, B, *]` → `[T, B]`."""
        shape = leading_shape(obs)
        self.model(self.input_dict(mapped(lambda leaf: leaf.flatten(0, 1), obs)), (), None)
        return self.model.value_function().unflatten(0, shape)

    def distribution(self, outputs: Tensor, mask: Tensor | None = None) -> ActionDistribution:
        """The action distribution that `outputs [N, K]` parametrise, restricted to `mask`."""
        return self.dist_class(outputs, self.model, mask)

    def input_dict(self, obs: Any, batch: SampleBatch | None = None, **extra: Any) -> InputDict:
        """What the model reads: "obs" nested as the environment's, "obs_flat" when asked for, what came before."""
        columns = (
            {"prev_actions": batch.get("prev_actions"), "prev_rewards": batch.get("prev_rewards")}
            if batch is not None
            else extra
        )
        original = restored(self.observation_space, obs) if isinstance(obs, SampleBatch) else obs
        return InputDict(self.flat_observations, obs=original, is_training=self.training, **columns)

    def flat_observations(self, obs: Any) -> Tensor:
        """Observations `[N, *]`, nested as the environment's, preprocessed and filtered: `[N, size]`."""
        return self.observation_filter(self.preprocessor.transform_batch(obs))

    def _mask(self, obs: Any, mask: Any) -> Tensor | None:
        if mask is None and isinstance(obs, Mapping):
            mask = obs.get("action_mask")
        return None if mask is None else torch.as_tensor(mask, dtype=torch.bool, device=self.device)

    def _tensors(self, value: Any) -> Any:
        if isinstance(value, SampleBatch):
            return value.to(self.device)
        return mapped(lambda leaf: torch.as_tensor(leaf, device=self.device), value)

    def _generator(self, device: torch.device) -> torch.Generator:
        if device not in self._generators:
            self._generators[device] = torch.Generator(device).manual_seed(self._action_seed)
        return self._generators[device]
