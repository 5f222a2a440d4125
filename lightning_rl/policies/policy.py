"""The Policy: a LightningModule that acts and learns and owns no data.

A new algorithm overrides `postprocess_trajectory` (the columns that its loss needs beside the recorded ones) and
`loss`. `policy_module.py` has Lightning's hooks, `learning/learner.py` the iteration of learning, `acting.py` the step
of the model, and `checkpoints.py` the contents of a checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from lightning_rl.envs.action_masks import flat_mask
from lightning_rl.errors import CheckpointError, ConfigError, UnsupportedSpaceError
from lightning_rl.exploration import Exploration, make_exploration, require_noisy_layers
from lightning_rl.fast_torch import in_eval_mode, set_mode
from lightning_rl.learning.custom_losses import CustomLosses, LossEntries
from lightning_rl.learning.learner import Learner
from lightning_rl.learning.lightning_limits import check_lightning_methods
from lightning_rl.learning.metrics import Metrics
from lightning_rl.learning.policy_optimizer import PolicyOptimizer
from lightning_rl.learning.protocols import OUTPUT_READERS, VERBS, overridden_methods
from lightning_rl.models.catalog import ModelCatalog, ModelOptions, model_config
from lightning_rl.models.central_critic import CentralCritic, actor_options
from lightning_rl.models.distributions import ActionDistribution, log_std_columns
from lightning_rl.models.distributions.base import DistFactory
from lightning_rl.models.filters import MeanStdFilter, RewardFilter, RewardFilterName, make_observation_filter
from lightning_rl.models.model import InputDict, Model
from lightning_rl.models.noisy import NoisyLinear
from lightning_rl.models.previous_step import PREVIOUS, initial_previous_step, previous_columns
from lightning_rl.policies.acting import DeviceGenerators, can_skip_model, run_model, state_or_start
from lightning_rl.policies.checkpoints import (
    counters,
    load_as,
    load_policy,
    set_counters,
)
from lightning_rl.policies.export import export_policy
from lightning_rl.policies.policy_module import PolicyModule
from lightning_rl.policies.replayed_sequences import sequences_of
from lightning_rl.sample_batch import (
    DEFAULT_POLICY,
    STEP_INPUTS,
    SampleBatch,
    action_mask_of,
    first_row,
    flatten_fragment,
    from_nested_batch,
    leading_shape,
    map_leaves,
    padding,
    row_count,
    to_nested_batch,
    to_tensors,
    transition_rows,
)
from lightning_rl.schema.ranges import LearningRate, Positive, Probability, Seed
from lightning_rl.schema.signatures import check_keywords
from lightning_rl.seeding import derive_seed
from lightning_rl.spaces import ActionTransform, as_arrays, naming_another_form

__all__ = ["Policy"]


class Policy(PolicyModule):
    """Model, action distribution, exploration, filters, loss and optimizer of one agent.

    `Algorithm` or Lightning's Trainer trains a policy; its methods `train` and `eval` are `nn.Module`'s and set a mode.
    A class without a model and a loss, which defines how it acts and learns, derives from `ScratchPolicy`.

    Args:
        observation_space: space of a single environment's observations, before any preprocessing.
        action_space: space of a single environment's actions.
        config: the attribute `config` of a `ScratchPolicy`; other policies take keywords instead.
        model: keys of `MODEL_DEFAULTS` that differ from their defaults; `None`: the defaults.
        exploration: `{type: name or import path, **keywords}`; `None` samples from the action distribution.
        gamma: discount per environment step, in [0, 1].
        lr: learning rate: a number, `[[env_step, rate], …]` with linear interpolation, or `{type: cosine, initial:
            3e-4, final: 0, steps: 1_000_000}`; types are constant, linear, piecewise, exponential, and cosine.
        optimizer: "adam", "adamw", "rmsprop", "sgd", or an import path.
        optimizer_kwargs: keywords of the optimizer, such as `eps`.
        max_grad_norm: clip the global norm of the gradients to this; `None`: no clipping.
        observation_filter: "none", or "mean_std" to normalize by running statistics (constant within a rollout and in
            evaluation).
        reward_filter: "none", "sign", "clip" (to ±1), or "return_std" (divide by the running standard deviation of the
            discounted return).
        normalize_actions: let the policy act in [−1, 1], and scale bounded Box actions to the environment's bounds.
        clip_actions: clip Box actions to their bounds if they are not normalized.
        custom_losses: additional losses `{loss: import path or callable, weight: 1.0, **keywords}`, added in every
            gradient step.
        freeze: names or patterns ("model.trunk.*") of parameters that never change: they get no gradient, and the
            optimizer excludes them.
        seed: seed of initial weights, minibatches, and (without workers) actions.

    Raises:
        UnsupportedSpaceError: this algorithm does not support the space or the model; the message names alternatives.
        ConfigError: a keyword is of another type or out of its range, a model key, optimizer or exploration is unknown,
            the exploration needs noisy layers and the model has none, or the class should derive from `ScratchPolicy`.

    Attributes:
        model, dist_class: compute outputs from inputs, and an action distribution from outputs.
        model_config: all keys of the model's config.
        preprocessor, observation_filter: compute "obs_flat" from observations.
        action_transform: converts actions of the policy's space into the environment's.
        learner: takes the gradient steps.
        passes, minibatches, microbatches: sweeps per iteration; gradient steps per sweep, `None` for minibatches of
            about 64 rows; parts of a minibatch whose gradients are summed into one step.
        log_extra: whether `loss` should report the metrics that cost extra operations.
    """

    supports_recurrent: ClassVar[bool] = False
    # What `loss` reads of replayed rows beside their usual columns: "next_actions" (0 after an episode's last recorded
    # step), and with data=offline "returns_to_go" (discounted, without a value after a cut).
    replay_columns: ClassVar[tuple[str, ...]] = ()
    acts_for_group: ClassVar[bool] = False  # its actions are those of several agents, one component each
    has_loss: ClassVar[bool] = False
    overridden: ClassVar[frozenset[str]] = frozenset()  # those of `VERBS` that the class defines itself
    central_obs_size: int = 0  # width S of the column `central_obs` that a central critic reads; 0: there is none
    reads_outputs: ClassVar[bool] = False  # whether acting uses the model's outputs for more than the actions
    free_log_std: ClassVar[bool] = False  # what `model.free_log_std=null` means for Gaussian actions

    policies_to_train = (DEFAULT_POLICY,)
    policy_id: str | None = None  # among the policies of several agents

    model: Any  # a `Model`; algorithms say which kind
    model_config: dict[str, Any]
    dist_class: Callable[..., ActionDistribution]
    exploration: Exploration
    observation_filter: Callable[[Tensor], Tensor]
    passes: int
    minibatches: int | None
    mode_modules: list[nn.Module] | None = None

    # -- construction -------------------------------------------------------------------------------------------------
    def __init_subclass__(cls, **keywords: Any) -> None:
        """Set `overridden`, `reads_outputs` and `has_loss`."""
        super().__init_subclass__(**keywords)
        cls.overridden = overridden_methods(cls, Policy, VERBS)
        cls.reads_outputs = bool(overridden_methods(cls, Policy, OUTPUT_READERS))
        cls.has_loss = bool(overridden_methods(cls, Policy, ["loss"]))

    @check_keywords("policy")  # the keywords that a subclass handed on
    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        config: Mapping[str, Any] | None = None,
        *,
        model: ModelOptions | None = None,
        exploration: Mapping[str, Any] | None = None,
        gamma: Probability = 0.99,
        lr: LearningRate = 3e-4,
        optimizer: str = "adam",
        optimizer_kwargs: Mapping[str, Any] | None = None,
        max_grad_norm: Positive | None = None,
        observation_filter: Literal["none", "mean_std"] = "none",
        reward_filter: RewardFilterName = "none",
        normalize_actions: bool = True,
        clip_actions: bool = False,
        custom_losses: LossEntries = (),
        freeze: Sequence[str] = (),
        seed: Seed = 0,
    ) -> None:
        super().__init__(observation_space, action_space, seed)
        self.gamma, self.frozen_names = gamma, tuple(freeze)
        self.passes, self.minibatches, self.microbatches = 1, 1, 1
        self.log_extra = True
        self.generators = DeviceGenerators(derive_seed(seed, "rollout"))
        if not self.has_model:
            return  # `ScratchPolicy` has something else in the place of each of the following
        if config:
            raise ConfigError(f"{type(self).__name__} takes keywords, not a config: write **config")
        if self.overridden >= {"compute_actions", "learn_on_batch"} and not self.has_loss:
            raise ConfigError(
                f"{type(self).__name__} acts and learns by methods of its own, without a loss: derive it from "
                "lightning_rl.ScratchPolicy, for which no model and no optimizer are built"
            )
        check_lightning_methods(self)
        self.action_transform = ActionTransform(action_space, normalize=normalize_actions, clip=clip_actions)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed(seed, "init"))
            options = actor_options(model) if self.central_obs_size else model
            self.model, self.dist_class = self.make_model_and_action_dist(options)
            self.model_config = model_config(model)
            self.max_seq_len = int(self.model_config["max_seq_len"])
            self.is_recurrent = len(self.model.get_initial_state()) > 0
            self.exploration = make_exploration(exploration, self.action_transform.policy_space, observation_space)
            self.exploration.prepare_policy(self)
            if self.central_obs_size:
                self.model = CentralCritic(self.model, self.central_obs_size, model, observation_filter == "mean_std")
        require_noisy_layers(self.exploration, self.model)
        self.preprocessor = self.model.preprocessor
        self.observation_filter = make_observation_filter(observation_filter, observation_space, self.preprocessor)
        self._filters_observations = observation_filter != "none"
        self.reward_filter = RewardFilter(reward_filter, gamma)
        steps = PolicyOptimizer(self, optimizer, optimizer_kwargs or {}, lr, max_grad_norm)
        self.learner = Learner(self, steps, CustomLosses(custom_losses))
        if self.is_recurrent and not self.supports_recurrent:
            raise UnsupportedSpaceError(
                f"{type(self).__name__} does not learn from recurrent models; {type(self.model).__name__} has state: "
                "choose a feed-forward model (model.use_lstm, use_gru and use_attention false), or an algorithm that "
                "does, such as ppo, a2c, impala, r2d2 or recurrent_sac"
            )

    def make_model_and_action_dist(self, model: Mapping[str, Any] | None) -> tuple[Model, DistFactory]:
        """The model of a model config, and the class of action distributions over its outputs."""
        policy_space, options = self.action_transform.policy_space, dict(model or {})
        dist_class, num_outputs = ModelCatalog.get_action_dist(self.action_space, options, policy_space)
        if self.free_log_std and options.get("free_log_std") is None and not options.get("custom_action_dist"):
            options["free_log_std"] = bool(log_std_columns(self.action_space))
        return ModelCatalog.get_model(self.observation_space, self.action_space, num_outputs, options), dist_class

    # -- acting -------------------------------------------------------------------------------------------------------
    @torch.no_grad()
    def compute_actions(
        self,
        obs: Any,
        state: Sequence[Tensor] = (),
        *,
        prev_obs: Any = None,
        prev_actions: Any = None,
        prev_rewards: Any = None,
        explore: bool | None = True,
        timestep: int | None = None,
        action_mask: Any = None,
        logp: bool = True,
    ) -> tuple[Any, list[Tensor], dict[str, Tensor]]:
        """Actions for a batch of observations, always in eval mode.

        Args:
            obs: `[B, *]`, arrays or tensors, nested as the space is.
            state: recurrent state `[B, …]` each; empty for feed-forward models.
            prev_obs, prev_actions, prev_rewards: the observations, actions and rewards of the step(s) before, for
                models that read them (`Model.forward` documents the shapes); `None` at an episode's start.
            explore: True or `None`: sample through the exploration strategy; False: take the best action.
            timestep: env steps so far, for exploration schedules; `None`: `env_steps`.
            action_mask: `[B, n]`, allowed discrete actions; `None`: "action_mask" of a Dict observation, if any.
            logp: whether to return the column "action_logp", log π(a|s).

        Returns:
            actions `[B, …]` in the policy's space (`env_actions` converts them into the environment's), the next state,
            and the columns that a worker records.
        """
        training, device = self.training, self.device
        if training:
            self.eval()
        try:
            strategy, generator = self.exploration, self.generators[device]
            timestep = self.env_steps if timestep is None else timestep
            explore = explore is None or explore
            how: dict[str, Any] = {"timestep": timestep, "explore": explore, "generator": generator}
            if not logp and action_mask is None and can_skip_model(self, obs):
                blind = strategy.blind_action(len(obs), **how)
                if blind is not None:
                    return blind, list(state), {}
            on_cpu = type(obs) is np.ndarray and device.type == "cpu"  # the usual case, six times as fast
            obs = torch.from_numpy(obs) if on_cpu else to_tensors(obs, device)
            before = {"prev_obs": prev_obs, "prev_actions": prev_actions, "prev_rewards": prev_rewards}
            dist, outputs, state_out = run_model(self, obs, state, before, action_mask, how)
            extra = {**strategy.extra_action_out(outputs), **self.extra_action_out(outputs, dist)}
            if not logp:
                return strategy.get_action(dist, **how), state_out, extra
            actions, probabilities = strategy.get_exploration_action(dist, **how)
            return actions, state_out, {"action_logp": probabilities, **extra}
        finally:
            if training:
                self.train()

    def compute_single_action(
        self,
        obs: Any,
        state: Sequence[Tensor] | None = None,
        prev_action: Any = None,
        prev_reward: float | None = None,
        *,
        explore: bool | None = False,
        timestep: int | None = None,
        action_mask: Any = None,
        full_fetch: bool = False,
    ) -> Any:
        """The action for one observation, ready for `env.step`.

        Args:
            obs: one observation of the environment, without a batch dimension.
            state: the state of a recurrent policy: the state that the last call returned, `[]` at an episode's start.
            prev_action, prev_reward: the previous action and reward of the step before, for models that read one of
                them; the action in the policy's space.
            explore: sample through the exploration strategy.
            timestep: see `compute_actions`.
            action_mask: the allowed actions as the environment's info gives them (`info["action_mask"]`); `None`:
                "action_mask" of a Dict observation, if any.
            full_fetch: return the tuple below.

        Returns:
            The action; with `full_fetch=True` or a `state`, the tuple (action, next state, extra columns).

        Raises:
            ValueError: the observation has another form than the observation space, or the mask does not fit the
                action space.
        """
        given = {"prev_actions": prev_action, "prev_rewards": prev_reward}
        before = {
            name: to_tensors(to_nested_batch(_batch_of_one(value)), self.device)
            for name, value in given.items()
            if value is not None
        }
        if action_mask is not None:
            before["action_mask"] = flat_mask(self.action_space, action_mask)[None]
        if timestep is not None:
            before["timestep"] = timestep
        states = [torch.as_tensor(s, device=self.device).unsqueeze(0) for s in state or ()]
        with naming_another_form(self.observation_space, obs):
            batch = _batch_of_one(as_arrays(self.observation_space, obs))
            actions, state_out, extra = self.act(batch, states, **before, explore=explore)
        action = self.single_action(actions)
        if full_fetch or state is not None:
            return action, [s[0] for s in state_out], {name: value[0] for name, value in extra.items()}
        return action

    def single_action(self, actions: Any) -> Any:
        """What `compute_single_action` returns of the policy-space actions `[1, …]`: the environment's."""
        return first_row(self.env_actions(actions))

    def compute_log_likelihoods(
        self, actions: Any, obs: Any, state: Sequence[Tensor] = (), *, actions_normalized: bool = True, **before: Any
    ) -> Tensor:
        """Log π(a|s), `[B]`, of actions in the policy's space (`actions_normalized=False`: in the environment's).

        Args:
            actions: `[B, …]`.
            obs, state: see `compute_actions`.
            actions_normalized: whether `actions` are in the policy's space.
            before: "prev_actions" and "prev_rewards", as in `compute_actions`.
        """
        if not actions_normalized:
            actions = self.action_transform.from_env(actions)
        with torch.no_grad(), in_eval_mode(self):
            obs = to_tensors(obs, self.device)
            inputs = self.input_dict(obs, **before)
            outputs, _ = self.model(inputs, state_or_start(self, state, obs), None)
            return self.distribution(outputs, self._mask(obs, None)).logp(to_tensors(actions, self.device))

    def env_actions(self, actions: Any) -> Any:
        """Policy-space actions as numpy arrays in the environment's space and structure."""
        return self.action_transform.to_env(actions)

    def extra_action_out(self, outputs: Tensor, dist: ActionDistribution) -> dict[str, Tensor]:
        """Further columns to record with each action; `outputs [B, K]` parametrize `dist`."""
        return {}

    def act(self, obs: Any, state: Sequence[Tensor] = (), **arguments: Any) -> tuple[Any, list[Tensor], dict[str, Any]]:
        """Call `compute_actions` as workers do: without `logp` if the class overrides it, and never under autocast."""
        if "compute_actions" in self.overridden:
            arguments.pop("logp", None)
        if torch.is_autocast_enabled(self.device.type):  # within a gradient step that collects more experience
            with torch.autocast(self.device.type, enabled=False):
                return self.actions_to_record(obs, state, **arguments)
        return self.actions_to_record(obs, state, **arguments)

    def actions_to_record(
        self, obs: Any, state: Sequence[Tensor] = (), **arguments: Any
    ) -> tuple[Any, list[Tensor], dict[str, Any]]:
        """`compute_actions` in tensors, as workers record them; a class whose method has another form converts it."""
        return self.compute_actions(obs, state, **arguments)

    def seed_exploration(self, seed: int) -> None:
        """Seed the random generators of actions; a worker does this once per fragment."""
        self.generators = DeviceGenerators(seed)

    # -- a model's outputs on rows ------------------------------------------------------------------------------------
    def distribution_and_values(self, batch: SampleBatch) -> tuple[ActionDistribution, Tensor]:
        """Action distribution and values `[N]` of the rows, with gradients: one forward of the model."""
        outputs, mask, kept = self.outputs_of(batch)
        values = self.model.value_function().float()  # whatever precision the network computes in
        return self.distribution(outputs, mask), values if kept is None else values[kept]

    def distribution_of(self, batch: SampleBatch) -> ActionDistribution:
        """Action distribution of the rows, with gradients and without values, for algorithms without a critic."""
        outputs, mask, _ = self.outputs_of(batch)
        return self.distribution(outputs, mask)

    def outputs_of(self, batch: SampleBatch, model: Any = None) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """The model's outputs `[N, K]` of the rows, with gradients; their action mask; indices among padded rows."""
        model = self.model if model is None else model
        # Without state the rows of a sequence are independent of each other: no padding.
        obs, seq_lens = batch.obs, batch.get("seq_lens") if self.is_recurrent else None
        if seq_lens is None and not (model.prev_obs or model.prev_actions or model.prev_rewards):  # the usual case
            inputs = self.input_dict(obs, is_training=model.training, central_obs=batch.get("central_obs"))
            return model(inputs, (), None)[0], self.mask_of(batch), None
        gaps = None if seq_lens is None else padding(seq_lens)
        before: dict[str, Any] = {name: batch.get(name) for name in (*PREVIOUS, "central_obs")}
        mask = self.mask_of(batch)
        if gaps is not None:
            obs, before = (
                obs[gaps.rows],
                {name: value[gaps.rows] for name, value in before.items() if value is not None},
            )
        inputs = self.input_dict(obs, is_training=model.training, **before)
        outputs, _ = model(inputs, _state_list(batch.get("state_in")), seq_lens)
        outputs = outputs if gaps is None else outputs[gaps.kept]
        return outputs, mask, None if gaps is None else gaps.kept

    @torch.no_grad()
    def values(self, obs: Any, fragment: SampleBatch | None = None) -> Tensor:
        """V(s) of observations with any two leading dims `[T, B, *]` → `[T, B]`, in eval mode.

        Args:
            obs: the observations.
            fragment: a batch with the same leading dims, for the further columns that models with memory and central
                critics read.
        """
        shape = leading_shape(obs)
        before: dict[str, Any] = {}
        for name in STEP_INPUTS[1:]:
            if fragment is not None and name in fragment:
                before[name] = map_leaves(_flatten_rows, fragment[name])
        state = _state_list(before.pop("state_in", None))
        obs = map_leaves(_flatten_rows, obs)
        with in_eval_mode(self):  # targets: no dropout, and only gradient steps update batch statistics
            self.model(self.input_dict(obs, **before), state_or_start(self, state, obs), None)
            return self.model.value_function().float().unflatten(0, shape)

    def distribution(self, outputs: Tensor, mask: Tensor | None = None) -> ActionDistribution:
        """The action distribution that `outputs [N, K]` parametrize, restricted to `mask`."""
        return self.dist_class(outputs, self.model, mask)

    def input_dict(
        self,
        obs: Any,
        *,
        prev_obs: Any = None,
        prev_actions: Any = None,
        prev_rewards: Any = None,
        central_obs: Tensor | None = None,
        is_training: bool | None = None,
    ) -> InputDict:
        """The model's inputs: "obs" nested as the environment's, "obs_flat" computed on access, earlier steps.

        A model that reads preprocessed observations gets them as "obs" (`Model.reads_preprocessed`).

        Args:
            obs, prev_obs, prev_actions, prev_rewards: the observations of `N` rows, and the earlier ones, actions and
                rewards.
            central_obs: `[N, S]`, for a central critic; `None` in acting, which needs no values.
            is_training: whether the model is in train mode; `None`: the mode of this policy.
        """
        columns: dict[str, Any] = {"prev_obs": prev_obs, "prev_actions": prev_actions, "prev_rewards": prev_rewards}
        model = self.model
        if any(columns[name] is None for name in previous_columns(model)):
            nothing = self.initial_previous_step(row_count(obs))
            columns = {name: nothing.get(name) if value is None else value for name, value in columns.items()}
        if central_obs is not None:
            columns["central_obs"] = central_obs
        columns["is_training"] = self.training if is_training is None else is_training
        if isinstance(obs, SampleBatch):
            obs = from_nested_batch(self.observation_space, obs)
        if model.reads_preprocessed:
            columns["obs_flat"] = flat = self.flat_observations(obs)
            obs = self.preprocessor.restore(flat)
        if model.prev_obs:
            columns["prev_obs"] = self._earlier_observations(columns["prev_obs"])
        inputs = InputDict(self.flat_observations, obs=obs, **columns)
        inputs.update(model.derived_inputs(inputs))
        return inputs

    def _earlier_observations(self, windows: Any) -> Any:
        """Observations `[N, n, *]` in the form in which the model reads "obs"."""
        windows = from_nested_batch(self.observation_space, to_nested_batch(windows))
        if not self.model.reads_preprocessed:
            return windows
        flat = self.flat_observations(map_leaves(lambda leaf: leaf.flatten(0, 1), windows))
        return map_leaves(lambda leaf: leaf.unflatten(0, (-1, self.model.prev_obs)), self.preprocessor.restore(flat))

    def inputs_of(self, rows: SampleBatch, *, following: bool = False, is_training: bool | None = None) -> InputDict:
        """The inputs of a model without state for the rows' observations, or (`following`) the next ones."""
        prefix = "next_" if following else ""
        before = {name: rows.get(f"{prefix}{name}") for name in previous_columns(self.model)}
        return self.input_dict(rows[f"{prefix}obs"], is_training=is_training, **before)

    def inputs_and_distribution(
        self, rows: SampleBatch, following: bool = False
    ) -> tuple[InputDict, ActionDistribution]:
        """As `inputs_of`, and the action distribution; a mask restricts Discrete actions only."""
        inputs = self.inputs_of(rows, following=following, is_training=self.model.training)
        outputs, _ = self.model(inputs, (), None)
        discrete = isinstance(self.action_space, gym.spaces.Discrete)
        return inputs, self.distribution(outputs, self.mask_of(rows, following=following) if discrete else None)

    def flat_observations(self, obs: Any) -> Tensor:
        """Observations `[N, *]`, nested as the environment's, preprocessed and filtered: `[N, size]`."""
        flat = self.preprocessor.transform_batch(obs)
        return self.observation_filter(flat) if self._filters_observations else flat

    def mask_of(self, rows: SampleBatch, *, following: bool = False) -> Tensor | None:
        """The action mask `[N, …]` of the rows, or (`following`) of the next observations; `None`: all are allowed."""
        prefix = "next_" if following else ""
        return self._mask(rows[f"{prefix}obs"], rows.get(f"{prefix}action_mask"))

    def _mask(self, obs: Any, column: Any) -> Tensor | None:
        mask = action_mask_of(obs, column)
        if mask is None:
            return None
        mask = torch.as_tensor(mask, dtype=torch.bool, device=self.device)
        return mask if mask.ndim < 3 else mask.flatten(1)  # of a MultiDiscrete space perhaps [N, entries, values]

    # -- the model's inputs at an episode's start ---------------------------------------------------------------------
    def get_initial_state(self, batch_size: int) -> list[Tensor]:
        """The model's state at an episode's start, `[B, …]` each; empty for feed-forward models."""
        return [s.unsqueeze(0).expand(batch_size, *s.shape).to(self.device) for s in self.model.get_initial_state()]

    @property
    def prev_obs(self) -> int:
        """The number of earlier observations that the model reads."""
        return self.model.prev_obs

    @property
    def prev_actions(self) -> int:
        """The number of earlier steps of which the model reads the actions."""
        return self.model.prev_actions

    @property
    def prev_rewards(self) -> int:
        """The number of earlier steps of which the model reads the rewards."""
        return self.model.prev_rewards

    def initial_previous_step(self, batch_size: int) -> dict[str, Any]:
        """The "prev_obs", "prev_actions" and "prev_rewards" that the model reads at an episode's start."""
        return initial_previous_step(
            self, self.observation_space, self.action_transform.policy_space, batch_size, self.device
        )

    # -- modes --------------------------------------------------------------------------------------------------------
    def train(self, mode: bool = True) -> Self:
        """As `nn.Module.train`, but `resting_modules` stay in eval mode; faster in `switching_modes`."""
        if self.mode_modules is None:
            super().train(mode)
            for module in self.resting_modules() if mode else ():
                module.training = False
            return self
        set_mode(self.mode_modules, mode)
        return self

    def resting_modules(self) -> list[nn.Module]:
        """The modules that stay in eval mode: target networks use neither dropout nor batch statistics.

        Noisy layers are excluded: targets draw their own noise (Fortunato et al. 2018, section 3.1).
        """
        targets = [child for name, child in self.named_children() if name.startswith("target_")]
        return [module for target in targets for module in target.modules() if not isinstance(module, NoisyLinear)]

    # -- learning: methods that algorithms override --------------------------------------------------------------------
    def postprocess_trajectory(self, batch: SampleBatch, other_agent_batches: Any = None) -> SampleBatch:
        """Turn a fragment `[T, B, …]` into the rows `[N, …]` that `loss` reads, with the columns that it needs.

        Args:
            batch: the fragment, with filtered rewards and intrinsic rewards added.
            other_agent_batches: policy id → (policy, its fragment) of the other agents of the same environments,
                whether their policies learn, replay or are frozen; `None` with a single agent. Agents that share this
                policy are found under its own id (`sample_batch.other_agent_batches`).
        """
        if not self.has_loss and "learn_on_batch" in self.overridden:
            return transition_rows(batch)
        if not self.off_policy:
            return self.flatten_fragment(batch)
        if self.is_recurrent:
            return sequences_of(batch, self.max_seq_len, self.gamma)
        batch = batch.copy()
        for name in previous_columns(self.model):
            if name in batch:
                batch[f"next_{name}"] = batch[name][1:]
        if "action_mask" in batch:
            after = torch.cat([batch.action_mask[1:], torch.ones_like(batch.action_mask[:1])])
            batch["next_action_mask"] = after | ~after.any(-1, keepdim=True)  # a reset row has none
        rows = transition_rows(batch)
        rows["discounts"] = torch.full_like(rows.rewards, self.gamma)
        return rows

    def flatten_fragment(self, fragment: SampleBatch) -> SampleBatch:
        """The valid rows `[N, …]` of a fragment; in sequences if the model is recurrent."""
        return flatten_fragment(fragment, self.max_seq_len if self.is_recurrent else None)

    def loss(self, batch: SampleBatch) -> tuple[Tensor, Metrics]:
        """The loss of these rows, a scalar, and metrics, scalars to log.

        The metric "td_errors" `[N]` is not logged: it becomes the priorities of replayed rows.
        """
        raise NotImplementedError(f"{type(self).__name__} must define loss(batch) -> (scalar, metrics)")  # abstract

    def after_step(self) -> None:
        """Called after every gradient step, for example to update target networks."""

    def after_iteration(self, metrics: dict[str, float]) -> None:
        """Called after an iteration's last gradient step with the means of its metrics, to adapt coefficients."""

    def before_next_sweep(self, rows: SampleBatch, fragment: SampleBatch) -> None:
        """Called before each sweep but the first with the rows and their fragment, for example to update targets."""

    def keep_learning(self, metrics: Metrics) -> bool:
        """Whether to take the next gradient step; called before each step with its minibatch's metrics."""
        return True

    def parameter_groups(self) -> list[dict[str, Any]]:
        """The optimizer's parameter groups; `lr_scale` multiplies a group's `lr`, `every=n` steps it each n-th time."""
        return [{"params": [p for p in self.parameters() if p.requires_grad]}]

    def prepare(self, rows: SampleBatch, steps: int) -> Iterable[SampleBatch]:
        """Replayed rows as the batches of `steps` gradient steps; each is taken from the iterable after the last step.

        An algorithm may add columns that stay the same for several of them.
        """
        return [rows] if steps == 1 else rows.timeslices(rows.count // steps)

    def batch_metrics(self, rows: SampleBatch) -> dict[str, float]:
        """Metrics of the whole training batch, once per iteration."""
        return {}

    def update_filters(self, rows: SampleBatch) -> None:
        """Update the observation filter's running statistics, if it has any, with rows `[N, …]`."""
        if isinstance(self.observation_filter, MeanStdFilter):
            self.observation_filter.update(
                self.preprocessor.transform_batch(from_nested_batch(self.observation_space, rows.obs))
            )
            if isinstance(self.model, CentralCritic):
                self.model.update_filter(rows.central_obs)

    # -- learning: methods that loops and pipelines call ---------------------------------------------------------------
    def training_step(self, batch: Any, batch_idx: int = 0) -> None:
        """One iteration: Lightning calls it with one rollout, the draws from a replay buffer, or a plan's next step."""
        self.learner.update(batch)

    def learn_on_batch(self, batch: SampleBatch) -> dict[str, float]:
        """Learn from a fragment or from postprocessed rows; returns means of the metrics. See `Learner`."""
        return self.learner.learn_on_batch(batch)

    def compute_gradients(self, batch: SampleBatch) -> tuple[Any, dict[str, float]]:
        """Gradients of one minibatch (a fragment is postprocessed first), as arrays in the order of `parameters()`."""
        return self.learner.compute_gradients(batch)

    def apply_gradients(self, gradients: Any) -> Tensor | None:
        """Step with gradients from `compute_gradients`, perhaps of another copy of this policy.

        Returns:
            Their 2-norm before clipping, where it is known.

        Raises:
            NonFiniteError: a gradient is NaN or infinite; no parameter was changed.
        """
        return self.learner.apply_gradients(gradients)

    # -- Lightning ----------------------------------------------------------------------------------------------------
    @property
    def policies(self) -> Mapping[str, Policy]:
        """This policy, by the id "default_policy"."""
        return {DEFAULT_POLICY: self}

    def predict_step(self, batch: Any, batch_idx: int = 0) -> Any:
        """The best actions for observations `[B, *]`, as the environment takes them."""
        return self.env_actions(self.act(batch, explore=False)[0])

    # -- weights and state -------------------------------------------------------------------------------------------
    def get_state(self) -> dict[str, Any]:
        """Copies of weights, optimizer state and counters, on the CPU."""
        optimizer = deepcopy(self.learner.optimizer.torch_optimizer.state_dict())
        for moments in optimizer["state"].values():
            moments |= {name: value.cpu() for name, value in moments.items() if isinstance(value, Tensor)}
        return {"weights": self.get_weights(), "counters": counters(self), "optimizer": optimizer}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Set weights, optimizer state and counters from the `get_state` of another policy."""
        self.set_weights(state["weights"])
        if "optimizer" in state:
            self.learner.optimizer.torch_optimizer.load_state_dict(deepcopy(state["optimizer"]))
        set_counters(self, state["counters"])

    # -- checkpoints --------------------------------------------------------------------------------------------------
    # -- export -------------------------------------------------------------------------------------------------------
    def export_model(
        self, export_dir: str | Path, rows: SampleBatch | None = None, *, format: str = "onnx"
    ) -> dict[str, Any]:
        """Write this policy as a file that goes from the environment's observation to its action; see docs/deploy.md.

        Args:
            export_dir: gets `policy.onnx` (`.pt`, `.pt2`) and `policy.json`.
            rows: a worker's fragment, or rows `[N, …]`, with the observations on which the file is checked against this
                policy; with a column "action_mask" the file has such an input. `None`: samples of the observation
                space.
            format: "onnx", "torchscript" or "torch.export".

        Returns:
            The contents of policy.json, among them the result of the check.

        Raises:
            ConfigError: this policy or its model cannot be exported, or the file's answers differ from the policy's.
        """
        return export_policy(self, export_dir, rows, format=format)

    @classmethod
    def load(
        cls,
        path: str | Path,
        policy_class: type[Policy] | None = None,
        *,
        trust: str | Sequence[str] = (),
        policy_id: str | None = None,
    ) -> Self:
        """The policy in a checkpoint, ready to act; needs neither Ray nor Hydra nor a Trainer.

        `Policy.load` takes a policy of any class, or a `PolicySet`; `PPO.load` a policy of that class or a subclass.

        Args:
            path: the file.
            policy_class: the policy's class, if it cannot be imported or is not trusted; `None` imports it.
            trust: your own packages (import prefixes, such as "my_pkg") whose classes the file may name, beside
                those of LIGHTNING_RL_TRUST and this package's own; loading runs their code.
            policy_id: the id of a file with the policies of several agents, the one to load; `None`: all of them in
                one.

        Raises:
            CheckpointError: the file is missing, damaged, of a newer version or not a checkpoint of this package, or
                it holds no such policy or one of another class, or it names a class that is not trusted or no longer
                exists.
        """
        found: Any = load_policy(path, policy_class, trust, policy_id)
        if cls is not Policy and not isinstance(found, cls):
            held = (
                f"several policies: give policy_id={' or '.join(map(repr, found.policies))}"
                if found.agents
                else (f"a {type(found).__name__}: use {type(found).__name__}.load, or Policy.load for any class")
            )
            raise CheckpointError(f"{cls.__name__}.load: checkpoint {path} holds {held}")
        return found

    @classmethod
    def load_from_checkpoint(
        cls,
        checkpoint_path: Any,
        map_location: Any = None,
        hparams_file: Any = None,
        strict: bool | None = None,
        weights_only: bool | None = None,
        trust: str | Sequence[str] = (),
        **kwargs: Any,
    ) -> Self:
        """Lightning's name for `load`: this class with the keywords, spaces, weights and counters in a checkpoint.

        It builds the class that it is called on, so none is imported; `Policy` itself imports the class in the file.

        Args:
            checkpoint_path: a file of this package's or of Lightning's ModelCheckpoint.
            map_location: device for the policy; `None` is the CPU.
            hparams_file: must be `None`: the checkpoint holds the keywords.
            strict: whether the weights in the file must be exactly those of the policy; `None`: they must.
            weights_only: must not be False: only plain data is ever loaded.
            trust: packages that the file may name, as `load`.
            kwargs: constructor's keywords that replace those in the file.

        Raises:
            CheckpointError: the file is missing, damaged or foreign, or holds a policy of another class or other
                weights.
            ConfigError: the class does not take a keyword, or an argument is not supported here.
        """
        if hparams_file is not None or weights_only is False:
            raise ConfigError(
                f"hparams_file={hparams_file!r}, weights_only={weights_only}: leave both out; a checkpoint of a policy "
                "holds its keywords, as plain data, and nothing else is loaded"
            )
        if not isinstance(map_location, str | int | torch.device | None):
            raise ConfigError(f"map_location={map_location!r}; expected a device, such as 'cuda:0'")
        if cls is Policy:
            if kwargs or strict is False:
                raise ConfigError("Policy.load_from_checkpoint takes a file as it is: call it on the class in the file")
            policy = load_policy(checkpoint_path, trust=trust)
        else:
            policy = load_as(cls, checkpoint_path, kwargs, strict=strict, trust=trust)
        return policy if map_location is None else policy.to(map_location)  # type: ignore[return-value]


def _state_list(state: SampleBatch | None) -> list[Tensor]:
    return [] if state is None else [state[str(number)] for number in range(len(state.columns))]


def _flatten_rows(leaf: Tensor) -> Tensor:
    """`[T, B, *]` as rows `[T·B, *]`."""
    return leaf.flatten(0, 1)


def _batch_of_one(value: Any) -> Any:
    return map_leaves(lambda leaf: np.asarray(leaf)[None], value)
