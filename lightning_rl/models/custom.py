"""Resolves and checks custom classes of a model config, so that a broken contract fails before training starts."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor, nn

from lightning_rl.errors import ConfigError, did_you_mean, import_object, short_repr
from lightning_rl.models.distributions import ActionDistribution
from lightning_rl.models.model import Model
from lightning_rl.models.preprocessors import Preprocessor, make_preprocessor
from lightning_rl.models.previous_step import initial_previous_step
from lightning_rl.sample_batch import map_leaves
from lightning_rl.schema.signatures import ImportPath, coerce
from lightning_rl.spaces import leaf_spaces, pack_leaves

__all__ = ["check_class", "custom_class", "custom_model", "is_model"]

# Of each key that names a class: the base class, and the methods that a subclass defines itself.
CONTRACTS: dict[str, tuple[type[Any], tuple[str, ...]]] = {
    "custom_model": (Model, ("forward",)),
    "custom_action_dist": (
        ActionDistribution,
        (
            "required_model_output_shape",
            "sample",
            "deterministic_sample",
            "logp",
            "entropy",
            "kl",
            "sampled_action_logp",
        ),
    ),
    "custom_preprocessor": (Preprocessor, ("_init_shape",)),
}


def custom_model(
    model_class: type[Model], config: Mapping[str, Any], arguments: tuple[Any, ...], preprocessor: Preprocessor | None
) -> Model:
    """Build a custom model, and try it on two rows.

    Args:
        model_class: that `config` names.
        config: a dict with "custom_model" and "custom_model_config".
        arguments: (obs_space, action_space, num_outputs).
        preprocessor: the custom one, if there is one.

    Raises:
        ConfigError: the class does not take the keywords, or returns something else than the contract says.
    """
    obs_space, *others = arguments
    seen, config = model_class.constructor_view(obs_space, config, preprocessor)
    keywords = dict(config["custom_model_config"] or {})
    arguments = (seen, *others)
    if preprocessor is not None and not model_class.reads_preprocessed:
        keywords["preprocessor"] = preprocessor
    config_arguments, keywords = _with_model_config(model_class, config, keywords)
    arguments = (*arguments, *config_arguments)
    try:
        inspect.signature(model_class).bind(*arguments, **keywords)
    except TypeError as error:
        raise ConfigError(_refusal(model_class, keywords, error)) from error
    try:
        model = model_class(*arguments, **keywords)
    except TypeError as error:
        if any(f"unexpected keyword argument {name!r}" in str(error) for name in keywords):  # a base class refused it
            raise ConfigError(_refusal(model_class, keywords, error)) from error
        raise
    if model_class.reads_preprocessed:
        model.preprocessor = make_preprocessor(obs_space) if preprocessor is None else preprocessor
    elif preprocessor is not None and getattr(model, "preprocessor", None) is not preprocessor:
        raise ConfigError(
            f"custom_model {model_class.__name__} drops custom_preprocessor: pass preprocessor=preprocessor to "
            "super().__init__"
        )
    _check_forward(model, obs_space)
    return model


def _refusal(model_class: type, keywords: Mapping[str, Any], error: TypeError) -> str:
    return (
        f"custom_model {model_class.__name__}: {error}; its __init__ takes (obs_space, action_space, num_outputs, "
        f"**keywords), and keywords are {sorted(keywords)} (from custom_model_config)"
    )


def _with_model_config(
    model_class: Any, config: Mapping[str, Any], keywords: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Further arguments and the keywords for a custom model.

    A class with a `model_config` (and `name`) parameter gets all of the config by keyword, and one that reads
    preprocessed observations and needs two more arguments, or takes `*args`, gets both by position.
    "custom_model_config" is part of that config, so such a class need not take these keywords one by one.
    """
    takes = inspect.signature(model_class).parameters
    kinds = {parameter.kind for parameter in takes.values()}
    further = [p.name for p in takes.values() if p.kind is p.POSITIONAL_OR_KEYWORD and p.default is p.empty][3:5]
    enough = inspect.Parameter.VAR_POSITIONAL in kinds or len(further) == 2
    by_position = model_class.reads_preprocessed and enough and not set(further) & set(keywords)
    if not by_position and ("model_config" not in takes or "model_config" in keywords):
        return (), keywords
    if inspect.Parameter.VAR_KEYWORD not in kinds:
        options = config["custom_model_config"] or {}
        keywords = {name: value for name, value in keywords.items() if name in takes or name not in options}
    named = config["custom_model"]
    name = named if isinstance(named, str) else model_class.__name__
    if by_position:
        return (dict(config), name), keywords
    return (), {"model_config": dict(config), **({"name": name} if "name" in takes else {}), **keywords}


def _check_forward(model: Model, obs_space: Space[Any]) -> None:
    """Run two rows through a custom model, so that a broken contract is found before training starts."""
    name, training = f"custom_model {type(model).__name__}", model.training
    model.eval()
    obs = pack_leaves(obs_space, iter([_two_rows(leaf) for _, leaf in leaf_spaces(obs_space)]))
    flat = model.preprocessor.transform_batch(obs)
    inputs = {
        "obs": model.preprocessor.restore(flat) if model.reads_preprocessed else obs,
        "obs_flat": flat,
        "prev_actions": None,
        "prev_rewards": None,
        "is_training": False,
        **initial_previous_step(model, obs_space, model.action_space, 2, torch.device("cpu")),
    }
    if model.prev_obs:
        inputs["prev_obs"] = map_leaves(
            lambda leaf: leaf.unsqueeze(1).expand(2, model.prev_obs, *leaf.shape[1:]), inputs["obs"]
        )
    inputs |= model.derived_inputs(inputs)
    state = [part.unsqueeze(0).expand(2, *part.shape) for part in model.get_initial_state()]
    with torch.no_grad():
        result = model(inputs, state, torch.ones(2, dtype=torch.int64) if state else None)
        if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], Tensor)):
            raise ConfigError(
                f"{name}: forward returned {type(result).__name__}; expected (outputs [N, {model.num_outputs}], state)"
            )
        if tuple(result[0].shape) != (2, model.num_outputs):
            raise ConfigError(
                f"{name}: outputs of 2 rows have shape {list(result[0].shape)}; expected [2, {model.num_outputs}] for "
                "this action space"
            )
        if type(model).value_function is not Model.value_function and tuple(model.value_function().shape) != (2,):
            raise ConfigError(
                f"{name}: values of 2 rows have shape {list(model.value_function().shape)}; expected [2]: use "
                "squeeze(-1)"
            )
    model.train(training)


def _two_rows(leaf: Space[Any]) -> Tensor:
    value = np.clip(0, leaf.low, leaf.high) if isinstance(leaf, spaces.Box) else getattr(leaf, "start", 0)
    return torch.from_numpy(np.broadcast_to(np.asarray(value, dtype=leaf.dtype), (2, *(leaf.shape or ()))).copy())


def custom_class(config: Mapping[str, Any], key: str, registry: Mapping[str, Any]) -> Any:
    """The class that a key of a model config names by a registered name, an import path, or itself; `None`: no class.

    Raises:
        ConfigError: neither registered nor importable, or it breaks its contract.
    """
    named = config[key]
    if named is None or not isinstance(named, str):
        found = named
    elif named in registry:
        found = registry[named]
    elif "." not in named and ":" not in named:
        raise ConfigError(
            f"model.{key}={short_repr(named)} is neither registered ({', '.join(registry) or 'nothing is'}) nor an "
            f"import path 'package.module:Name'.{did_you_mean(named, registry)}"
        )
    else:
        found = import_object(coerce(f"model.{key}", named, ImportPath))
    return None if found is None else check_class(found, key, named)


def is_model(found: Any) -> bool:
    """Whether a class has all methods of a `Model` without deriving from it (an `nn.Module` with a mixin)."""
    return issubclass(found, nn.Module) and all(
        hasattr(found, name) for name in (*vars(Model), *Model.__annotations__) if not name.startswith("_")
    )


def check_class(found: Any, key: str, named: Any) -> Any:
    """Return `found` if it keeps the contract of classes that a key of a model config may name.

    Raises:
        ConfigError: it does not; names the `key`, its value `named`, and what is missing.
    """
    base, methods = CONTRACTS[key]
    if not (isinstance(found, type) and (issubclass(found, base) or (base is Model and is_model(found)))):
        raise ConfigError(
            f"model.{key}={short_repr(named)} is {short_repr(found)}; expected a subclass of "
            f"{base.__module__}.{base.__name__}"
        )
    missing = [method for method in methods if getattr(found, method) is getattr(base, method)]
    if missing:
        raise ConfigError(
            f"model.{key}={named!r}: {found.__name__} does not define {', '.join(missing)}, which every "
            f"{base.__name__} needs"
        )
    return found
