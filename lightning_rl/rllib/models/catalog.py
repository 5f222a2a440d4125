"""RLlib's catalog of models, and its defaults of a model config."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces

from lightning_rl.errors import ConfigError
from lightning_rl.models import catalog
from lightning_rl.models.model import InputDict, Model
from lightning_rl.rllib.models.torch.fcnet import FullyConnectedNetwork
from lightning_rl.rllib.models.torch.torch_modelv2 import TorchModelV2
from lightning_rl.rllib.models.torch.visionnet import VisionNetwork
from lightning_rl.spaces import leaf_spaces

__all__ = ["MODEL_DEFAULTS", "ModelCatalog"]

MODEL_DEFAULTS: dict[str, Any] = {
    "_use_default_native_models": False,
    "_disable_preprocessor_api": False,
    "_disable_action_flattening": False,
    "fcnet_hiddens": [256, 256],
    "fcnet_activation": "tanh",
    "conv_filters": None,
    "conv_activation": "relu",
    "post_fcnet_hiddens": [],
    "post_fcnet_activation": "relu",
    "free_log_std": False,
    "no_final_linear": False,
    "vf_share_layers": True,
    "use_lstm": False,
    "max_seq_len": 20,
    "lstm_cell_size": 256,
    "lstm_use_prev_action": False,
    "lstm_use_prev_reward": False,
    "_time_major": False,
    "use_attention": False,
    "attention_num_transformer_units": 1,
    "attention_dim": 64,
    "attention_num_heads": 1,
    "attention_head_dim": 32,
    "attention_memory_inference": 50,
    "attention_memory_training": 50,
    "attention_position_wise_mlp_dim": 32,
    "attention_init_gru_gate_bias": 2.0,
    "attention_use_n_prev_actions": 0,
    "attention_use_n_prev_rewards": 0,
    "framestack": True,
    "dim": 84,
    "grayscale": False,
    "zero_mean": True,
    "custom_model": None,
    "custom_model_config": {},
    "custom_action_dist": None,
    "custom_preprocessor": None,
    "lstm_use_prev_action_reward": -1,
}
"""RLlib's values; a key that a trainer's config does not name has that of `lightning_rl.models.MODEL_DEFAULTS`."""


def add_flat_obs(model: Any, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of a model's `forward`, with "obs_flat" in their first one."""
    if not arguments or isinstance(arguments[0], InputDict) or "obs_flat" in arguments[0]:
        return arguments
    return InputDict(model.preprocessor.transform_batch, **arguments[0]), *arguments[1:]


class ModelCatalog(catalog.ModelCatalog):
    """The catalog of this package, with RLlib's arguments."""

    @classmethod
    def get_model_v2(
        cls,
        obs_space: Space[Any],
        action_space: Space[Any],
        num_outputs: int,
        model_config: Mapping[str, Any],
        framework: str = "torch",
        name: str = "default_model",
        model_interface: type | None = None,
        default_model: Callable[..., Model] | None = None,
        **model_kwargs: Any,
    ) -> Model:
        """The model of a config; see `lightning_rl.models.ModelCatalog.get_model`.

        Called with "obs" alone, it computes "obs_flat".

        Args:
            obs_space, action_space, num_outputs: see there.
            model_config: RLlib's keys.
            framework: without effect.
            name: the name of a model with a `model_interface`.
            model_interface: a subclass of `TorchModelV2`; the model is of a class that derives from it and from
                `FullyConnectedNetwork` (`VisionNetwork` for images), which its `super().__init__` builds.
            default_model: called with the five arguments of a `TorchModelV2` where the config names no `custom_model`;
                `None`: the built-in models.
            model_kwargs: further keywords of `default_model` or of the class with `model_interface`.
        """
        if default_model is not None and model_config.get("custom_model") is None:
            return default_model(obs_space, action_space, num_outputs, model_config, name, **model_kwargs)
        if model_interface is not None:
            network = FullyConnectedNetwork if len(obs_space.shape or ()) < 3 else VisionNetwork
            base = type(network.__name__, (network, TorchModelV2), {})
            namespace = {"__module__": model_interface.__module__}
            made: Any = type(model_interface.__name__, (model_interface, base), namespace)
            return made(obs_space, action_space, num_outputs, model_config, name, **model_kwargs)
        known = {key: value for key, value in model_config.items() if key in catalog.MODEL_DEFAULTS}
        model = cls.get_model(obs_space, action_space, num_outputs, known)
        model.register_forward_pre_hook(add_flat_obs)
        return model

    @classmethod
    def get_action_dist(  # type: ignore[override]
        cls,
        action_space: Space[Any],
        config: Mapping[str, Any] | None = None,
        dist_type: Any = None,
        framework: str = "torch",
        **ignored: Any,
    ) -> tuple[Any, int]:
        """A factory of the action distribution, and the number of its inputs per row.

        Args:
            action_space: the action space of one environment.
            config: RLlib's keys of the model.
            dist_type: a class of distributions, or "deterministic" for Box actions that are the inputs themselves;
                `None`: that of the config or of the space.
            framework, ignored: without effect, as `torch` of older versions.

        Raises:
            ConfigError: `dist_type` is another text.
        """
        known = {key: value for key, value in (config or {}).items() if key in catalog.MODEL_DEFAULTS}
        if isinstance(dist_type, type):
            known["custom_action_dist"] = dist_type
        elif dist_type == "deterministic" and isinstance(action_space, spaces.Box):
            known["custom_action_dist"] = known.get("custom_action_dist") or "Deterministic"
        elif dist_type not in (None, "deterministic"):
            raise ConfigError(f"dist_type={dist_type!r}; expected None, 'deterministic' or a class of distributions")
        return catalog.ModelCatalog.get_action_dist(action_space, known)

    @classmethod
    def get_preprocessor(cls, env: Any, options: Mapping[str, Any] | None = None) -> Any:  # type: ignore[override]
        """The preprocessor of an environment, or of an observation space.

        Args:
            env: either.
            options: RLlib's keys of the model.
        """
        known = {key: value for key, value in (options or {}).items() if key in catalog.MODEL_DEFAULTS}
        return super().get_preprocessor(getattr(env, "observation_space", env), known)

    get_preprocessor_for_space = get_preprocessor

    @staticmethod
    def get_action_shape(
        action_space: Space[Any], framework: str = "torch"
    ) -> tuple[torch.dtype, tuple[int | None, ...]]:
        """The dtype and shape, with `None` for the rows, of a batch of actions; those of Dict and Tuple are flat."""
        if isinstance(action_space, spaces.Dict | spaces.Tuple):
            return torch.float32, (None, sum(math.prod(leaf.shape or ()) for _, leaf in leaf_spaces(action_space)))
        return torch.from_numpy(np.zeros(0, action_space.dtype)).dtype, (None, *(action_space.shape or ()))
