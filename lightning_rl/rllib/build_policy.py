"""Policies made of functions: what RLlib calls `build_torch_policy`.

A function is a method whose `self` is called `policy`. `build_policy` returns a real class, so `isinstance`,
checkpoints, workers and `python train.py policy=my_pkg:Mine` work as with any other policy.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from lightning_rl.errors import ConfigError, did_you_mean
from lightning_rl.policies.policy import Policy
from lightning_rl.rllib.function_policy import VERBS_BY_HOOKS, FunctionPolicy, settings_of
from lightning_rl.rllib.keys import policy_keywords
from lightning_rl.rllib.trajectories import takes_episode
from lightning_rl.schema.signatures import keywords_of

__all__ = ["HOOKS", "build_policy"]

HOOKS: dict[str, str] = {
    "get_default_config": "() -> dict of defaults: the constructor's keywords, and its own keys for `policy.config`",
    "validate_spaces": "(policy, obs_space, action_space, config); raises if it cannot take them",
    "before_init": "(policy, obs_space, action_space, config), before anything is built",
    "make_model": "(policy, obs_space, action_space, config) -> Model",
    "make_model_and_action_dist": "(policy, obs_space, action_space, config) -> (Model, distribution class)",
    "optimizer_fn": "(policy, config) -> torch optimizer, with its own learning rate",
    "before_loss_init": "(policy, obs_space, action_space, config), when all is built",
    "after_init": "(policy, obs_space, action_space, config), at the end of the constructor",
    "action_sampler_fn": "(policy, model, input_dict, state, *, explore, timestep) -> (actions, logp, state)",
    "action_distribution_fn": "(policy, model, input_dict, *, state_batches, …) -> (inputs, distribution class, state)",
    "extra_action_out_fn": "(policy, input_dict, state, model, dist) -> columns to record with each action",
    "postprocess_fn": "(policy, fragment, other_agent_batches) -> fragment with more columns, or rows; RLlib's form: "
    "(policy, trajectory, other_agent_batches, episode) -> trajectory, one of numpy arrays, with more columns",
    "loss_fn": "(policy, model, dist_class, train_batch) -> loss, list of losses, or (loss, metrics)",
    "extra_grad_process_fn": "(policy, optimizer, loss or None, of gradients from elsewhere) -> metrics, before a step",
    "compute_gradients_fn": "(policy, train_batch) -> (gradients, metrics), instead of loss and backward",
    "apply_gradients_fn": "(policy, gradients), instead of the optimizer's step",
    "stats_fn": "(policy, train_batch) -> metrics, after each loss",
    "extra_learn_fetches_fn": "(policy) -> metrics, once an iteration",
}
RENAMED_HOOKS = {"_after_loss_init": "after_init", "gradients_fn": "compute_gradients_fn"}


def build_policy(
    name: str, *, base: type[Policy] = Policy, mixins: Sequence[type] = (), module: str | None = None, **hooks: Any
) -> type[Policy]:
    """A policy class made of functions.

    Args:
        name: the name of the class. Assign the class to a variable of that name at a module's top level: checkpoints
            import it.
        base: the class whose methods are used where no function is given: `Policy`, or an algorithm.
        mixins: classes whose methods override the base's; call their `__init__` in `before_init` (plain attributes
            only, nothing is built yet) or in `after_init`.
        module: the class's `__module__`; `None`: the module that calls this.
        hooks: functions by the names of `HOOKS`, which lists their arguments; `None` is not a function.

    Raises:
        ConfigError: a hook is unknown or no function, or there is nothing to learn from.
    """
    given = {RENAMED_HOOKS.get(hook, hook): function for hook, function in hooks.items() if function is not None}
    for hook, function in given.items():
        if hook not in HOOKS:
            raise ConfigError(
                f"build_policy({name!r}): no hook {hook!r}.{did_you_mean(hook, HOOKS)} Hooks: {', '.join(HOOKS)}"
            )
        if not callable(function):
            raise ConfigError(f"build_policy({name!r}): {hook}={function!r}; expected a function {HOOKS[hook]}")
    derived = issubclass(base, FunctionPolicy)
    merged = {**(base.hooks if derived else {}), **given}
    root = base.base if derived else base
    if not root.has_loss and not {"loss_fn", "compute_gradients_fn"} & set(merged):
        raise ConfigError(f"build_policy({name!r}) has no loss: give loss_fn{HOOKS['loss_fn']}, or a base that has one")
    settings = _settings(root, merged)
    namespace = {
        "__module__": module or sys._getframe(1).f_globals["__name__"],
        "__qualname__": name,
        "__doc__": f"{root.__name__} with {', '.join(merged)} given as functions.",
        "__init__": _constructor(root, merged, settings),
        "base": root,
        "settings": settings,
        "hooks": merged,
        "supports_recurrent": not root.has_loss or root.supports_recurrent,
    }
    if "loss_fn" in merged:
        namespace["has_classic_loss"] = True
    if "postprocess_fn" in merged:
        namespace["reads_trajectories"] = takes_episode(merged["postprocess_fn"], 3)
    # RLlib's own `compute_actions` calls `act`, and so the functions.
    if not _is_classic(root) and not set(merged).isdisjoint(VERBS_BY_HOOKS["compute_actions"]):
        namespace["compute_actions"] = FunctionPolicy.act_by_functions
    bases = (*mixins, base) if derived else (FunctionPolicy, *mixins, base)
    return cast("type[Policy]", type(name, bases, namespace))


def _settings(base: type[Policy], hooks: Mapping[str, Any]) -> dict[str, Any]:
    """The base's keywords with the values of `get_default_config`, which are RLlib's if the base is."""
    known = settings_of(base)
    changed = {name: value for name, value in _default_config(hooks).items() if name in known}
    if _is_classic(base):
        optimizer = {name: value for name, value in changed.items() if name == "optimizer" and isinstance(value, str)}
        changed = {**policy_keywords(base, changed), **optimizer}
    return {**known, **changed}


def _default_config(hooks: Mapping[str, Any]) -> dict[str, Any]:
    return dict(hooks["get_default_config"]()) if "get_default_config" in hooks else {}


def _is_classic(base: type[Policy]) -> bool:
    """Whether a class has RLlib's methods."""
    return hasattr(base, "compute_actions_from_input_dict")


def _constructor(base: type[Policy], hooks: Mapping[str, Any], settings: Mapping[str, Any]) -> Callable[..., None]:
    """An `__init__` whose signature has the base's keywords, with the defaults of `settings`."""

    def __init__(  # noqa: N807
        self: FunctionPolicy, observation_space: Any, action_space: Any, config: Any = None, **keywords: Any
    ) -> None:
        FunctionPolicy.__init__(self, observation_space, action_space, config, **keywords)

    of_base = {name: p for name, p in keywords_of(base).items() if name in settings}
    own = {name: value for name, value in _default_config(hooks).items() if name not in of_base}
    kind = inspect.Parameter.KEYWORD_ONLY
    places = [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        for name in ("self", "observation_space", "action_space")
    ]
    config = inspect.Parameter("config", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=own or None)
    rest = [p.replace(kind=kind, default=settings[name]) for name, p in of_base.items()]
    __init__.__signature__ = inspect.Signature([*places, config, *rest])  # type: ignore[attr-defined]
    __init__.__annotations__ = {name: p.annotation for name, p in of_base.items()} | {
        "config": Mapping[str, Any] | None
    }
    return __init__
