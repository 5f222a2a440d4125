"""A policy's model at work: from rows to distributions and values, for acting as for learning."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

import gymnasium as gym
import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn

from lightning_rl.models import Model
from lightning_rl.models.distributions import ActionDistribution
from lightning_rl.models.fast_attributes import AtHand
from lightning_rl.models.noisy import NoisyLinear
from lightning_rl.models.preprocessors import Preprocessor
from lightning_rl.models.previous_step import nothing_before
from lightning_rl.policies.inputs import InputDict, leading_shape, mapped, row_count
from lightning_rl.sample_batch import STEP_INPUTS, SampleBatch, action_mask_of, padding, restored
from lightning_rl.spaces import ActionTransform

__all__ = ["Evaluating"]


class Evaluating(AtHand, LightningModule):
    """What `Policy` builds, used on rows; the attributes are made in its constructor.

    Attributes:
        model, dist_class: make outputs, and an action distribution of them.
        preprocessor, observation_filter: make "obs_flat".
        action_transform: the door to the environment's action space.
        is_recurrent: whether the model carries state from step to step.
    """

    observation_space: gym.Space[Any]
    model: Model
    dist_class: Callable[..., ActionDistribution]
    preprocessor: Preprocessor
    observation_filter: Callable[[Tensor], Tensor]
    action_transform: ActionTransform
    is_recurrent: bool
    _switched: list[nn.Module] | None = None

    def evaluate(self, batch: SampleBatch) -> tuple[ActionDistribution, Tensor]:
        """Action distribution and values `[N]` of the rows, with gradients: one forward of the model."""
        dist, kept = self._evaluated(batch)
        values = self.model.value_function().float()  # whatever precision the network computes in
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
        # Without state the rows of a sequence have nothing to do with each other: no padding.
        obs, seq_lens = batch.obs, batch.get("seq_lens") if self.is_recurrent else None
        if seq_lens is None and not (model.prev_actions or model.prev_rewards):  # most of the time
            inputs = self.input_dict(obs, is_training=model.training)
            return model(inputs, (), None)[0], self.mask_of(batch), None
        gaps = None if seq_lens is None else padding(seq_lens)
        before: dict[str, Any] = {name: batch.get(name) for name in ("prev_actions", "prev_rewards")}
        mask = self.mask_of(batch)
        if gaps is not None:
            obs, before = (
                obs[gaps.rows],
                {name: value[gaps.rows] for name, value in before.items() if value is not None},
            )
        inputs = self.input_dict(obs, is_training=model.training, **before)
        outputs, _ = model(inputs, _listed(batch.get("state_in")), seq_lens)
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
            return self.model.value_function().float().unflatten(0, shape)

    def distribution(self, outputs: Tensor, mask: Tensor | None = None) -> ActionDistribution:
        """The action distribution that `outputs [N, K]` parametrise, restricted to `mask`."""
        return self.dist_class(outputs, self.model, mask)

    def acting_distribution(self, rows: SampleBatch) -> ActionDistribution:
        """The distribution that the rows' actions were drawn from: of "action_dist_inputs", masked as it was then."""
        return self.distribution(rows.action_dist_inputs, self.mask_of(rows))

    def input_dict(
        self, obs: Any, *, prev_actions: Any = None, prev_rewards: Any = None, is_training: bool | None = None
    ) -> InputDict:
        """What the model reads: "obs" nested as the environment's, "obs_flat" when asked for, what came before.

        Args:
            obs, prev_actions, prev_rewards: of `N` rows.
            is_training: whether the model is in train mode; `None`: as this policy.
        """
        columns: dict[str, Any] = {"prev_actions": prev_actions, "prev_rewards": prev_rewards}
        model = self.model
        if (model.prev_actions and prev_actions is None) or (model.prev_rewards and prev_rewards is None):
            nothing = self.nothing_before(row_count(obs))
            columns = {name: nothing.get(name) if value is None else value for name, value in columns.items()}
        columns["is_training"] = self.training if is_training is None else is_training
        return InputDict(self.flat_observations, obs=self._original(obs), **columns)

    def inputs_of(self, rows: SampleBatch, *, following: bool = False, is_training: bool | None = None) -> InputDict:
        """What a model without state reads in the rows' observations, or in those that follow."""
        prefix = "next_" if following else ""
        before = {name: rows.get(f"{prefix}{name}") for name in self.read_before()}
        return self.input_dict(rows[f"{prefix}obs"], is_training=is_training, **before)

    def _original(self, obs: Any) -> Any:
        return restored(self.observation_space, obs) if isinstance(obs, SampleBatch) else obs

    def _state(self, state: Sequence[Tensor], obs: Any) -> Sequence[Tensor]:
        """`state`, or the state at an episode's start where there is none yet."""
        return state if len(state) > 0 or not self.is_recurrent else self.get_initial_state(row_count(obs))

    def flat_observations(self, obs: Any) -> Tensor:
        """Observations `[N, *]`, nested as the environment's, preprocessed and filtered: `[N, size]`."""
        return self.observation_filter(self.preprocessor.transform_batch(obs))

    def mask_of(self, rows: SampleBatch, *, following: bool = False) -> Tensor | None:
        """The action mask `[N, …]` of the rows, or of what follows them; `None`: everything is allowed."""
        prefix = "next_" if following else ""
        return self._mask(rows[f"{prefix}obs"], rows.get(f"{prefix}action_mask"))

    def _mask(self, obs: Any, column: Any) -> Tensor | None:
        mask = action_mask_of(obs, column)
        return None if mask is None else torch.as_tensor(mask, dtype=torch.bool, device=self.device)

    def _tensors(self, value: Any) -> Any:
        if isinstance(value, SampleBatch):
            return value.to(self.device)
        device = self.device
        return mapped(lambda leaf: torch.as_tensor(leaf, device=device), value)

    # -- what a model reads at an episode's start ---------------------------------------------------------------------
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

    def read_before(self) -> list[str]:
        """Which of "prev_actions" and "prev_rewards" the model reads."""
        return [name for name in ("prev_actions", "prev_rewards") if getattr(self.model, name)]

    def nothing_before(self, batch_size: int) -> dict[str, Any]:
        """The "prev_actions" and "prev_rewards" that the model reads at an episode's start."""
        return nothing_before(self.model, self.action_transform.policy_space, batch_size, self.device)

    # -- modes --------------------------------------------------------------------------------------------------------
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

    def train(self, mode: bool = True) -> Self:
        """As `nn.Module.train`, but `resting_modules` stay in eval mode; quickly where `switching_modes` knows them."""
        if self._switched is None:
            super().train(mode)
            for module in self.resting_modules() if mode else ():
                module.training = False
            return self
        for module in self._switched:
            module.__dict__["training"] = mode
        return self

    def resting_modules(self) -> list[nn.Module]:
        """Modules of target networks: their values depend on one row, not on a batch, and not on what is dropped.

        Noise is no such thing: targets have their own (Fortunato et al. 2018, section 3.1).
        """
        targets = [child for name, child in self.named_children() if name.startswith("target_")]
        return [module for target in targets for module in target.modules() if not isinstance(module, NoisyLinear)]

    @contextmanager
    def switching_modes(self) -> Iterator[None]:
        """Inside, acting and gradient steps take turns, and no module is added: the modules are listed once."""
        resting = {id(module) for module in self.resting_modules()}
        self._switched = [module for module in self.modules() if id(module) not in resting]
        try:
            yield
        finally:
            self._switched = None


def _listed(state: SampleBatch | None) -> list[Tensor]:
    return [] if state is None else [state[str(number)] for number in range(len(state.columns))]
