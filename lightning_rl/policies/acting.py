"""The acting half of a policy: from observations to actions, and to distributions and values for learning."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import torch
from lightning.pytorch import LightningModule
from torch import Tensor

from lightning_rl.exploration import Exploration
from lightning_rl.models import Model
from lightning_rl.models.distributions import ActionDistribution
from lightning_rl.models.preprocessors import Preprocessor
from lightning_rl.policies.from_scratch import act_alone
from lightning_rl.policies.inputs import InputDict, first, leading_shape, mapped, no_actions, row_count
from lightning_rl.sample_batch import STEP_INPUTS, SampleBatch, nested, restored
from lightning_rl.sequences import padding
from lightning_rl.spaces import ActionTransform

__all__ = ["Acting"]


class Acting(LightningModule):
    """What `Policy` builds, used for acting; the attributes are made in its constructor.

    Attributes:
        model, dist_class, exploration: make outputs, an action distribution of them, and actions of that.
        preprocessor, observation_filter: make "obs_flat".
        action_transform: the door to the environment's action space.
        env_steps: environment steps learned from so far, which schedules follow.
        is_recurrent: whether the model carries state from step to step.
        learns_alone: whether the class has a `learn_on_batch` of its own and no loss.
        written_from_scratch: whether it acts by its own `compute_actions`, too: there is none of the above.
    """

    observation_space: gym.Space[Any]
    model: Model
    dist_class: Callable[..., ActionDistribution]
    exploration: Exploration
    preprocessor: Preprocessor
    observation_filter: Callable[[Tensor], Tensor]
    action_transform: ActionTransform
    env_steps: int
    is_recurrent: bool
    learns_alone: ClassVar[bool] = False
    written_from_scratch: ClassVar[bool] = False
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
            prev_actions, prev_rewards: of the step(s) before, for models that ask for them (`Model.forward` has their
                form); `None` at an episode's start.
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
            obs = self._tensors(obs)
            inputs = self.input_dict(obs, prev_actions=prev_actions, prev_rewards=prev_rewards)
            strategy = self.exploration
            how: dict[str, Any] = {
                "timestep": self.env_steps if timestep is None else timestep,
                "explore": explore,
                "generator": self._generator(self.device),
            }
            outputs, state_out = strategy.model_outputs(self.model, inputs, self._state(state, obs), **how)
            dist = self.distribution(outputs, self._mask(inputs["obs"], action_mask))
            actions, logp = strategy.get_exploration_action(dist, **how)
            extra = {**strategy.extra_action_out(outputs), **self.extra_action_out(outputs, dist)}
            return actions, state_out, {"action_logp": logp, **extra}
        finally:
            if training:
                self.train()

    def compute_single_action(
        self,
        obs: Any,
        state: Sequence[Tensor] | None = None,
        *,
        prev_action: Any = None,
        prev_reward: float | None = None,
        explore: bool = False,
        full_fetch: bool = False,
    ) -> Any:
        """The action for one observation, ready for `env.step`.

        Args:
            obs: as the environment gave it.
            state: of a recurrent policy: what the call before returned, `[]` at an episode's start.
            prev_action, prev_reward: of the step before, for models that ask for one of them; the action in the
                policy's space.
            explore: sample through the exploration strategy.
            full_fetch: return the tuple below.

        Returns:
            The action; with `full_fetch=True` or a `state`, the tuple (action, state after, extra columns).
        """
        before = {"prev_actions": prev_action, "prev_rewards": prev_reward}
        actions, state_out, extra = self.act(
            _one(obs),
            [s.unsqueeze(0) for s in state or ()],
            **{name: self._tensors(nested(_one(value))) for name, value in before.items() if value is not None},
            explore=explore,
        )
        action = first(self.env_actions(actions))
        if full_fetch or state is not None:
            return action, [s[0] for s in state_out], {name: value[0] for name, value in extra.items()}
        return action

    def compute_log_likelihoods(
        self, actions: Any, obs: Any, state: Sequence[Tensor] = (), *, actions_normalized: bool = True, **before: Any
    ) -> Tensor:
        """Log π(a|s), `[B]`, of actions in the policy's space (`actions_normalized=False`: in the environment's).

        Args:
            actions: `[B, …]`.
            obs, state: as in `compute_actions`.
            actions_normalized: whether `actions` are in the policy's space.
            before: "prev_actions" and "prev_rewards", as in `compute_actions`.
        """
        if not actions_normalized:
            actions = self.action_transform.from_env(actions)
        with torch.no_grad(), self.in_eval_mode():
            obs = self._tensors(obs)
            inputs = self.input_dict(obs, **before)
            outputs, _ = self.model(inputs, self._state(state, obs), None)
            return self.distribution(outputs, self._mask(inputs["obs"], None)).logp(self._tensors(actions))

    @contextmanager
    def in_eval_mode(self) -> Iterator[None]:
        """Inside, batch norm uses its running statistics without changing them, and dropout and noise are off."""
        training = self.training
        if training:
            self.eval()
        try:
            yield
        finally:
            if training:
                self.train()

    def env_actions(self, actions: Any) -> Any:
        """Policy-space actions as numpy arrays in the environment's space and structure."""
        return self.action_transform.to_env(actions)

    def extra_action_out(self, outputs: Tensor, dist: ActionDistribution) -> dict[str, Tensor]:
        """More columns to record with each action; `outputs [B, K]` parametrise `dist`."""
        return {}

    def act(self, obs: Any, state: Sequence[Tensor] = (), **arguments: Any) -> tuple[Any, list[Tensor], dict[str, Any]]:
        """`compute_actions` for workers: one written from scratch is asked only for what it knows."""
        if self.written_from_scratch:
            return act_alone(self, obs, state, arguments)
        return self.compute_actions(obs, state, **arguments)

    def seed_exploration(self, seed: int) -> None:
        """Start the randomness of actions afresh from `seed`: a worker does it once a fragment."""
        if self.written_from_scratch:
            self.action_transform.action_space.seed(seed)  # what its own code draws from
        self._action_seed = seed
        for generator in self._generators.values():
            generator.manual_seed(seed)

    def get_initial_state(self, batch_size: int) -> list[Tensor]:
        """The model's state at an episode's start, `[B, …]` each; empty for feed-forward models."""
        return [s.unsqueeze(0).expand(batch_size, *s.shape).to(self.device) for s in self.model.get_initial_state()]

    @property
    def prev_actions(self) -> int:
        """Of how many steps before the model reads the actions."""
        return self.model.prev_actions

    @property
    def prev_rewards(self) -> int:
        """Of how many steps before the model reads the rewards."""
        return self.model.prev_rewards

    def nothing_before(self, batch_size: int) -> dict[str, Any]:
        """The "prev_actions" and "prev_rewards" that the model reads at an episode's start."""
        actions, rewards = self.model.prev_actions, self.model.prev_rewards
        before: dict[str, Any] = {}
        if actions:
            leading = (batch_size, actions) if actions > 1 else (batch_size,)
            before["prev_actions"] = no_actions(self.action_transform.policy_space, leading, self.device)
        if rewards:
            before["prev_rewards"] = torch.zeros((batch_size, rewards)[: min(rewards, 2)], device=self.device)
        return before

    # -- evaluating ---------------------------------------------------------------------------------------------------
    def evaluate(self, batch: SampleBatch) -> tuple[ActionDistribution, Tensor]:
        """Action distribution and values `[N]` of the rows, with gradients: one forward of the model."""
        dist, kept = self._evaluated(batch)
        values = self.model.value_function()
        return dist, values if kept is None else values[kept]

    def distribution_of(self, batch: SampleBatch) -> ActionDistribution:
        """Action distribution of the rows, with gradients, for algorithms without a critic."""
        return self._evaluated(batch)[0]

    def _evaluated(self, batch: SampleBatch) -> tuple[ActionDistribution, Tensor | None]:
        """The distribution of the rows; and which of the model's rows they are, if it also got padding."""
        outputs, mask, kept = self.outputs_of(batch)
        return self.distribution(outputs, mask), kept

    def outputs_of(self, batch: SampleBatch, model: Model | None = None) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """The model's outputs `[N, K]` of the rows, with gradients; their action mask; their places among padding."""
        model = self.model if model is None else model
        obs, seq_lens = batch.obs, batch.get("seq_lens")
        gaps = None if seq_lens is None else padding(seq_lens)
        before: dict[str, Any] = {name: batch.get(name) for name in ("prev_actions", "prev_rewards")}
        mask = self._mask(self._original(obs), batch.get("action_mask"))
        if gaps is not None:
            obs, before = (
                obs[gaps.rows],
                {name: value[gaps.rows] for name, value in before.items() if value is not None},
            )
        outputs, _ = model(self.input_dict(obs, **before), _listed(batch.get("state_in")), seq_lens)
        outputs = outputs if gaps is None else outputs[gaps.kept]
        return outputs, mask, None if gaps is None else gaps.kept

    @torch.no_grad()
    def values(self, obs: Any, fragment: SampleBatch | None = None) -> Tensor:
        """V(s) of observations with any two leading dims `[T, B, *]` → `[T, B]`, in eval mode.

        Args:
            obs: what the values are of.
            fragment: that holds, with the same leading dims, what models with memory read beside the observation.
        """
        shape = leading_shape(obs)
        before = {} if fragment is None else {name: fragment.get(name) for name in STEP_INPUTS[1:]}
        rows = {
            name: mapped(lambda leaf: leaf.flatten(0, 1), value) for name, value in before.items() if value is not None
        }
        state = _listed(rows.pop("state_in", None))
        obs = mapped(lambda leaf: leaf.flatten(0, 1), obs)
        with self.in_eval_mode():  # targets: no dropout, and batch statistics learn from gradient steps alone
            self.model(self.input_dict(obs, **rows), self._state(state, obs), None)
            return self.model.value_function().unflatten(0, shape)

    def distribution(self, outputs: Tensor, mask: Tensor | None = None) -> ActionDistribution:
        """The action distribution that `outputs [N, K]` parametrise, restricted to `mask`."""
        return self.dist_class(outputs, self.model, mask)

    def input_dict(self, obs: Any, *, prev_actions: Any = None, prev_rewards: Any = None) -> InputDict:
        """What the model reads: "obs" nested as the environment's, "obs_flat" when asked for, what came before."""
        columns: dict[str, Any] = {"prev_actions": prev_actions, "prev_rewards": prev_rewards}
        model = self.model
        if (model.prev_actions and prev_actions is None) or (model.prev_rewards and prev_rewards is None):
            nothing = self.nothing_before(row_count(obs))
            columns = {name: nothing.get(name) if value is None else value for name, value in columns.items()}
        return InputDict(self.flat_observations, obs=self._original(obs), is_training=self.training, **columns)

    def _original(self, obs: Any) -> Any:
        return restored(self.observation_space, obs) if isinstance(obs, SampleBatch) else obs

    def _state(self, state: Sequence[Tensor], obs: Any) -> Sequence[Tensor]:
        """`state`, or the state at an episode's start where there is none yet."""
        return state if len(state) > 0 or not self.is_recurrent else self.get_initial_state(row_count(obs))

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


def _listed(state: SampleBatch | None) -> list[Tensor]:
    return [] if state is None else [state[str(number)] for number in range(len(state.columns))]


def _one(value: Any) -> Any:
    return mapped(lambda leaf: np.asarray(leaf)[None], value)
