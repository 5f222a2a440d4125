"""The acting half of a policy: from observations to actions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from lightning_rl.exploration import Exploration
from lightning_rl.models.distributions import ActionDistribution, Categorical
from lightning_rl.policies.evaluating import Evaluating
from lightning_rl.policies.from_scratch import act_alone
from lightning_rl.policies.inputs import first, mapped
from lightning_rl.sample_batch import nested

__all__ = ["Acting"]

READS_OUTPUTS = ("extra_action_out", "distribution", "_mask")  # methods by which a policy may use a model's outputs
EXPLORES_BY_OUTPUTS = ("extra_action_out", "model_outputs")  # and a strategy


class Acting(Evaluating):
    """What `Policy` builds, used for acting; the attributes are made in its constructor.

    Attributes:
        exploration: makes actions of distributions.
        env_steps: environment steps learned from so far, which schedules follow.
        learns_alone: whether the class has a `learn_on_batch` of its own and no loss.
        written_from_scratch: whether it acts by its own `compute_actions`, too: there is no model.
    """

    exploration: Exploration
    env_steps: int
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
        logp: bool = True,
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
            logp: whether "action_logp" is among the columns, how likely the actions were.

        Returns:
            actions `[B, …]` in the policy's space (`env_actions` gives the environment's), the state after, and the
            columns that a worker records.
        """
        training, device = self.training, self.device
        if training:
            self.eval()
        try:
            strategy, generator = self.exploration, self._generator(device)
            timestep = self.env_steps if timestep is None else timestep
            how: dict[str, Any] = {"timestep": timestep, "explore": explore, "generator": generator}
            if not logp and action_mask is None and self._model_may_rest(obs):
                blind = strategy.blind_action(len(obs), **how)
                if blind is not None:
                    return blind, list(state), {}
            on_cpu = type(obs) is np.ndarray and device.type == "cpu"  # as nearly always, at a sixth of the price
            obs = torch.from_numpy(obs) if on_cpu else self._tensors(obs)
            inputs = self.input_dict(obs, prev_actions=prev_actions, prev_rewards=prev_rewards)
            outputs, state_out = strategy.model_outputs(self.model, inputs, self._state(state, obs), **how)
            dist = self.distribution(outputs, self._mask(inputs["obs"], action_mask))
            extra = {**strategy.extra_action_out(outputs), **self.extra_action_out(outputs, dist)}
            if not logp:
                return strategy.get_action(dist, **how), state_out, extra
            actions, probabilities = strategy.get_exploration_action(dist, **how)
            return actions, state_out, {"action_logp": probabilities, **extra}
        finally:
            if training:
                self.train()

    def _model_may_rest(self, obs: Any) -> bool:
        """Whether actions are all that a forward would be for, and none of them can be forbidden."""
        return (
            self.dist_class is Categorical
            and not self.model.forbids_actions
            and not self.is_recurrent
            and isinstance(obs, Tensor | np.ndarray)
            and all(getattr(type(self), name) is getattr(Acting, name) for name in READS_OUTPUTS)
            and all(getattr(type(self.exploration), name) is getattr(Exploration, name) for name in EXPLORES_BY_OUTPUTS)
        )

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

    def env_actions(self, actions: Any) -> Any:
        """Policy-space actions as numpy arrays in the environment's space and structure."""
        return self.action_transform.to_env(actions)

    def extra_action_out(self, outputs: Tensor, dist: ActionDistribution) -> dict[str, Tensor]:
        """More columns to record with each action; `outputs [B, K]` parametrise `dist`."""
        return {}

    def act(self, obs: Any, state: Sequence[Tensor] = (), **arguments: Any) -> tuple[Any, list[Tensor], dict[str, Any]]:
        """`compute_actions` for workers: one of a class's own is asked only for what it knows."""
        if type(self).compute_actions is not Acting.compute_actions:
            arguments.pop("logp", None)
        if self.written_from_scratch:
            return act_alone(self, obs, state, arguments)
        if torch.is_autocast_enabled(self.device.type):  # of a gradient step that asked for more experience
            with torch.autocast(self.device.type, enabled=False):
                return self.compute_actions(obs, state, **arguments)
        return self.compute_actions(obs, state, **arguments)

    def seed_exploration(self, seed: int) -> None:
        """Start the randomness of actions afresh from `seed`: a worker does it once a fragment."""
        if self.written_from_scratch:
            self.action_transform.action_space.seed(seed)  # what its own code draws from
        self._action_seed = seed
        for generator in self._generators.values():
            generator.manual_seed(seed)

    def _generator(self, device: torch.device) -> torch.Generator:
        if device not in self._generators:
            self._generators[device] = torch.Generator(device).manual_seed(self._action_seed)
        return self._generators[device]


def _one(value: Any) -> Any:
    return mapped(lambda leaf: np.asarray(leaf)[None], value)
