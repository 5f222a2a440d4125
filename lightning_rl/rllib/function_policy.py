"""The class behind `build_policy`: a policy whose methods call functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import gymnasium as gym
import torch
from torch import Tensor

from lightning_rl.errors import ConfigError
from lightning_rl.fast_torch import in_eval_mode
from lightning_rl.learning.metrics import Metrics, as_tensors
from lightning_rl.models.catalog import ModelCatalog
from lightning_rl.models.custom import is_model
from lightning_rl.models.distributions import ActionDistribution
from lightning_rl.models.distributions.base import DistFactory
from lightning_rl.models.model import InputDict, Model
from lightning_rl.models.previous_step import PREVIOUS
from lightning_rl.policies.policy import Policy
from lightning_rl.rllib.function_optimizer import FunctionOptimizer
from lightning_rl.rllib.sample_batch import SampleBatch as ClassicBatch
from lightning_rl.rllib.trajectories import postprocess_trajectories, takes_episode
from lightning_rl.sample_batch import Fragment, SampleBatch, to_tensors, typed
from lightning_rl.schema.signatures import call_with_accepted_args, keywords_of

__all__ = [
    "VERBS_BY_HOOKS",
    "BatchModel",
    "FunctionPolicy",
    "act_by_functions",
    "checked_model",
    "loss_and_metrics",
    "settings_of",
    "td_errors_of",
]

# The hooks that replace a policy's methods.
VERBS_BY_HOOKS = {
    "compute_actions": ("action_sampler_fn", "action_distribution_fn"),
    "compute_gradients": ("compute_gradients_fn",),
    "apply_gradients": ("apply_gradients_fn",),
}


class BatchModel:
    """The model that a `loss_fn` receives: calling it (or `from_batch`) with a training batch runs it on the rows.

    The policy preprocesses, filters and pads the rows; all other attributes are those of the policy's model.

    Args:
        policy: the owner of the model.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._mask: Tensor | None = None
        self._kept: Tensor | None = None

    def __call__(self, inputs: Any, state: Sequence[Tensor] = (), seq_lens: Any = None) -> tuple[Tensor, list[Tensor]]:
        """Outputs `[N, K]` of a batch's rows, and no state.

        A dict with "obs" is preprocessed and filtered like the rows; a model's own input dict goes to it as it is.
        """
        if not isinstance(inputs, SampleBatch):
            if not isinstance(inputs, InputDict):
                before = {name: inputs[name] for name in PREVIOUS if name in inputs}
                inputs = self._policy.input_dict(inputs["obs"], **before)
            return self._policy.model(inputs, state, seq_lens)
        outputs, self._mask, self._kept = self._policy.outputs_of(inputs)
        return outputs, []

    from_batch = __call__

    def value_function(self) -> Tensor:
        """Values `[N]` of the rows of the last call."""
        values = self._policy.model.value_function()
        return values if self._kept is None else values[self._kept]

    def distribution(self, inputs: Tensor, model: Any = None, mask: Tensor | None = None) -> ActionDistribution:
        """The action distribution that `inputs` parametrize, with the action mask of the rows of the last call."""
        return self._policy.distribution(inputs, self._mask if mask is None else mask)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._policy.model, name)


class FunctionPolicy(Policy):
    """Calls `hooks` in place of methods; without a hook the base class's method runs.

    Attributes:
        config: all settings by name, for the functions to read: the constructor's keywords, and the further keys of
            `get_default_config` and `config`.
        settings: the base's keywords with the defaults that the class gives them.
    """

    base: ClassVar[type[Policy]] = Policy
    hooks: ClassVar[Mapping[str, Callable[..., Any]]] = {}
    settings: ClassVar[Mapping[str, Any]] = {}

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Set `overridden`: the verbs that the base overrides, and those that hooks replace; a subclass inherits it."""
        super().__init_subclass__(**keywords)
        if "hooks" not in vars(cls):
            # cloudpickle makes a class of the main program before it sets its attributes, and only those that differ
            # from the bases': what is set here would stay.
            del cls.overridden, cls.has_loss
            return
        by_hooks = {verb for verb, hooks in VERBS_BY_HOOKS.items() if not cls.hooks.keys().isdisjoint(hooks)}
        cls.overridden = cls.base.overridden | by_hooks
        cls.has_loss = cls.base.has_loss or "loss_fn" in cls.hooks

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        config: Mapping[str, Any] | None = None,
        **keywords: Any,
    ) -> None:
        known = self.settings
        self.config = {**self._call_hook("get_default_config", {}), **known, **(config or {}), **keywords}
        spaces = (observation_space, action_space)
        for hook in ("validate_spaces", "before_init"):
            self._call_hook(hook, None, self, *spaces, self.config)
        self.base.__init__(self, observation_space, action_space, **{name: self.config[name] for name in known})
        if {"optimizer_fn", "extra_grad_process_fn"} & set(self.hooks):
            self.learner.optimizer = FunctionOptimizer(self.learner.optimizer, self.hooks)
        for hook in ("before_loss_init", "after_init"):
            self._call_hook(hook, None, self, *spaces, self.config)

    def _call_hook(self, hook: str, otherwise: Any, *arguments: Any) -> Any:
        """Call the function of that name with as many arguments as it takes; `otherwise` if there is none."""
        return call_with_accepted_args(self.hooks[hook], *arguments) if hook in self.hooks else otherwise

    # -- building -----------------------------------------------------------------------------------------------------
    def make_model_and_action_dist(self, model: Mapping[str, Any] | None) -> tuple[Model, DistFactory]:
        """The model and the distribution class that the functions return, or else the base's."""
        arguments = (self, self.observation_space, self.action_space, self.config)
        both = self._call_hook("make_model_and_action_dist", None, *arguments)
        if both is None and "make_model" not in self.hooks:
            return super().make_model_and_action_dist(model)
        if both is None:
            policy_space = self.action_transform.policy_space
            dist_class, _ = ModelCatalog.get_action_dist(self.action_space, model, policy_space)
            both = self._call_hook("make_model", None, *arguments), dist_class
        return checked_model(both[0]), both[1]

    # -- acting -------------------------------------------------------------------------------------------------------
    def actions_to_record(self, obs: Any, state: Sequence[Tensor] = (), **given: Any) -> tuple[Any, list[Tensor], Any]:
        """As `Policy`, with `action_sampler_fn` or `action_distribution_fn` if there is one."""
        if self.hooks.keys().isdisjoint(VERBS_BY_HOOKS["compute_actions"]):
            return super().actions_to_record(obs, state, **given)
        return self.act_by_functions(obs, state, **given)

    def act_by_functions(self, obs: Any, state: Sequence[Tensor] = (), **given: Any) -> tuple[Any, list[Tensor], Any]:
        """What `compute_actions` is where a function replaces it."""
        return act_by_functions(self, self.hooks, obs, state, **given)

    def input_dict(self, obs: Any, **before: Any) -> InputDict:
        """As `Policy.input_dict`; stores the result for `extra_action_out_fn`."""
        self._inputs = super().input_dict(obs, **before)
        return self._inputs

    def extra_action_out(self, outputs: Tensor, dist: ActionDistribution) -> dict[str, Tensor]:
        """The base's columns and those of `extra_action_out_fn`."""
        extra = self._call_hook("extra_action_out_fn", {}, self, self._inputs, [], self.model, dist)
        return {**super().extra_action_out(outputs, dist), **extra}

    # -- learning -----------------------------------------------------------------------------------------------------
    def postprocess_trajectory(self, batch: SampleBatch, other_agent_batches: Any = None) -> SampleBatch:
        """The rows of `postprocess_fn`; a fragment that it returns is flattened."""
        if "postprocess_fn" not in self.hooks:
            return super().postprocess_trajectory(batch, other_agent_batches)
        function = self.hooks["postprocess_fn"]
        if takes_episode(function, 3):
            return postprocess_trajectories(self, partial(function, self), batch, other_agent_batches)
        result = call_with_accepted_args(function, self, batch.copy(), other_agent_batches)
        if not isinstance(result, SampleBatch):
            raise ConfigError(f"postprocess_fn returned {type(result).__name__}; expected a SampleBatch")
        result = result.torch()
        return self.flatten_fragment(result) if isinstance(typed(result), Fragment) else result

    def loss(self, *arguments: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The loss and metrics of `loss_fn` (or the base), with the metrics of `stats_fn`."""
        if len(arguments) > 1:  # a method in RLlib's form hands its arguments on
            inherited: Any = super().loss
            return self.hooks["loss_fn"](self, *arguments) if "loss_fn" in self.hooks else inherited(*arguments)
        rows = arguments[-1]  # pyright: ignore[reportGeneralTypeIssues]
        batch = ClassicBatch.of(rows)
        if "loss_fn" in self.hooks:
            model, self.base_metrics = BatchModel(self), {}
            loss, metrics = loss_and_metrics(self.hooks["loss_fn"](self, model, model.distribution, batch))
            metrics = {**td_errors_of(self.base_metrics), **metrics}
        else:
            loss, metrics = super().loss(rows)
        return loss, {**metrics, **as_tensors(td_errors_of(self._call_hook("stats_fn", {}, self, batch)))}

    def compute_gradients(self, batch: SampleBatch) -> tuple[Any, dict[str, float]]:
        """Gradients of `compute_gradients_fn`, in any form that `apply_gradients_fn` (or the base) takes."""
        if "compute_gradients_fn" not in self.hooks:
            return super().compute_gradients(batch)
        return self.hooks["compute_gradients_fn"](self, self.learner.rows_of(batch))

    def apply_gradients(self, gradients: Any) -> Tensor | None:
        """Call `apply_gradients_fn`, or the base's method."""
        if "apply_gradients_fn" not in self.hooks:
            return super().apply_gradients(gradients)
        self.hooks["apply_gradients_fn"](self, gradients)
        return None

    def batch_metrics(self, rows: SampleBatch) -> dict[str, float]:
        """The base's metrics, unless a `postprocess_fn` replaces its columns, and those of `extra_learn_fetches_fn`."""
        base = {} if "postprocess_fn" in self.hooks else super().batch_metrics(rows)
        return {**base, **self._call_hook("extra_learn_fetches_fn", {}, self)}


def act_by_functions(
    policy: Policy,
    hooks: Mapping[str, Callable[..., Any]],
    obs: Any,
    state: Sequence[Tensor] = (),
    *,
    explore: bool = True,
    timestep: int | None = None,
    **before: Any,
) -> tuple[Any, list[Tensor], Any]:
    """Actions, state and recorded columns, as "action_sampler_fn" or "action_distribution_fn" of `hooks` chooses them.

    Args:
        policy: that acts.
        hooks: the functions by their names.
        obs, state, explore, timestep, before: see `Policy.compute_actions`.
    """
    before = {name: before[name] for name in PREVIOUS if name in before}
    how: dict[str, Any] = {"explore": explore, "timestep": policy.env_steps if timestep is None else timestep}
    with torch.no_grad(), in_eval_mode(policy):
        inputs = policy.input_dict(to_tensors(obs, policy.device), **before)
        function = hooks.get("action_sampler_fn") or hooks["action_distribution_fn"]
        third = next(iter([*inspect.signature(function).parameters.values()][2:]), None)
        named = {}
        if third is not None and third.kind is third.KEYWORD_ONLY:  # a method of RLlib 2.0's policies
            named = {"obs_batch": inputs, "state_batches": state}
        if hooks.get("action_sampler_fn"):
            given = () if named else (inputs, state)
            actions, logp, state_out = function(policy, policy.model, *given, **named, **how)
            return actions, list(state_out), {"action_logp": logp}
        if named:
            outputs, dist_class, state_out = function(
                policy, policy.model, **named, seq_lens=None, is_training=False, **how
            )
        elif third is not None and third.name.startswith("obs"):
            # RLlib's older form, which gets the observations as its models do.
            obs = inputs["obs" if isinstance(policy.observation_space, gym.spaces.Box) else "obs_flat"]
            outputs, dist_class, state_out = function(policy, policy.model, obs, is_training=False, **how)
        else:
            outputs, dist_class, state_out = function(
                policy, policy.model, inputs, state_batches=state, seq_lens=None, is_training=False, **how
            )
        dist = dist_class(outputs, policy.model)
        generator = policy.generators[outputs.device]
        actions, logp = policy.exploration.get_exploration_action(dist, generator=generator, **how)
        return actions, list(state_out), {"action_logp": logp, **policy.extra_action_out(outputs, dist)}


def checked_model(made: Any) -> Any:
    """The result of a `make_model`.

    Raises:
        ConfigError: it is not a model.
    """
    if not is_model(type(made)):
        raise ConfigError(f"make_model returned {made!r}; expected a lightning_rl.models.Model")
    return made


def settings_of(base: type[Policy]) -> dict[str, Any]:
    """The keywords of a policy's constructor that have defaults, and the defaults."""
    keywords = {name: parameter.default for name, parameter in keywords_of(base).items() if name != "config"}
    return {name: default for name, default in keywords.items() if default is not inspect.Parameter.empty}


def td_errors_of(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Metrics with RLlib's "td_error" `[N]`, of which rows get their priorities, under this package's name."""
    of_rows = isinstance(metrics.get("td_error"), Tensor) and metrics["td_error"].dim() == 1
    return {"td_errors" if name == "td_error" and of_rows else name: value for name, value in metrics.items()}


def loss_and_metrics(result: Any) -> tuple[Tensor, Metrics]:
    """The result of a `loss_fn`, in any of its allowed forms, as a scalar and metrics."""
    metrics: Mapping[str, Any] = {}
    if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], Mapping):
        result, metrics = result
    loss = sum(result[1:], result[0]) if isinstance(result, list | tuple) else result
    if not isinstance(loss, Tensor) or loss.dim() != 0:
        raise ConfigError(f"loss_fn returned {loss!r}; expected a scalar tensor, a list of them, or (scalar, metrics)")
    return loss, as_tensors(td_errors_of(metrics))
