"""From spaces and a model config to the preprocessor, the action distribution and the model: once, never per step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from gymnasium import Space

from lightning_rl.errors import ConfigError, UnsupportedSpaceError, did_you_mean
from lightning_rl.models.custom import DIST_METHODS, checked, custom_model, found_class
from lightning_rl.models.distributions import (
    ActionDistribution,
    Deterministic,
    DiagGaussian,
    distribution_class,
    log_std_columns,
)
from lightning_rl.models.distributions.base import DistFactory
from lightning_rl.models.fully_connected import FullyConnectedNetwork
from lightning_rl.models.model import Model
from lightning_rl.models.preprocessors import Preprocessor, make_preprocessor
from lightning_rl.models.vision import VisionNetwork, is_image
from lightning_rl.spaces import check_supported, leaf_spaces

__all__ = ["MODEL_DEFAULTS", "ModelCatalog", "model_config"]

MODEL_DEFAULTS: dict[str, Any] = {
    "fcnet_hiddens": [64, 64],
    "fcnet_activation": "tanh",
    "fcnet_weights_initializer": "orthogonal",  # or normc, default
    "conv_filters": None,  # [[out_channels, kernel, stride], …]; None: found for the image size
    "conv_activation": "relu",
    "post_fcnet_hiddens": None,  # None: [512] behind found convolutions, else none
    "post_fcnet_activation": "relu",
    "free_log_std": False,  # log σ of Gaussian actions: parameters instead of functions of the observation
    "log_std_init": 0.0,  # their first value
    "log_std_clip_param": 20.0,  # log σ stays within ± this
    "no_final_linear": False,
    "vf_share_layers": False,
    "custom_model": None,  # registered name, import path or class
    "custom_model_config": {},  # keywords of its __init__
    "custom_action_dist": None,
    "custom_preprocessor": None,
}
VISION_KEYS = (
    "conv_filters",
    "conv_activation",
    "fcnet_weights_initializer",
    "post_fcnet_hiddens",
    "post_fcnet_activation",
    "vf_share_layers",
)
FC_KEYS = (
    "fcnet_hiddens",
    "fcnet_activation",
    "fcnet_weights_initializer",
    "post_fcnet_hiddens",
    "post_fcnet_activation",
    "no_final_linear",
    "vf_share_layers",
)


def model_config(given: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """`MODEL_DEFAULTS` with the `given` keys put in.

    Raises:
        ConfigError: a key is unknown.
    """
    for key in given or {}:
        if key not in MODEL_DEFAULTS:
            raise ConfigError(
                f"model.{key} is unknown.{did_you_mean(key, MODEL_DEFAULTS)} Known: {', '.join(MODEL_DEFAULTS)}"
            )
    return {**MODEL_DEFAULTS, **(given or {})}


class ModelCatalog:
    """Built-in and registered models, action distributions and preprocessors."""

    _models: ClassVar[dict[str, Any]] = {}
    _dists: ClassVar[dict[str, Any]] = {"DiagGaussian": DiagGaussian, "Deterministic": Deterministic}
    _preprocessors: ClassVar[dict[str, Any]] = {}

    # -- registration ------------------------------------------------------------------------------------------------
    @classmethod
    def register_custom_model(cls, name: str, model_class: type[Model]) -> None:
        """Let `custom_model: name` mean this class, in this process; an import path works in all."""
        cls._models[name] = checked(model_class, Model, "custom_model", name, ("forward",))

    @classmethod
    def register_custom_action_dist(cls, name: str, dist_class: type[ActionDistribution]) -> None:
        """Let `custom_action_dist: name` mean this class, in this process."""
        cls._dists[name] = checked(dist_class, ActionDistribution, "custom_action_dist", name, DIST_METHODS)

    @classmethod
    def register_custom_preprocessor(cls, name: str, preprocessor_class: type[Preprocessor]) -> None:
        """Let `custom_preprocessor: name` mean this class, in this process."""
        cls._preprocessors[name] = checked(
            preprocessor_class, Preprocessor, "custom_preprocessor", name, ("_init_shape",)
        )

    # -- look-up -----------------------------------------------------------------------------------------------------
    @classmethod
    def get_preprocessor(cls, obs_space: Space[Any], config: Mapping[str, Any] | None = None) -> Preprocessor:
        """The preprocessor of a space: the built-in one, or `custom_preprocessor`.

        Raises:
            UnsupportedSpaceError: no built-in one takes the space.
            ConfigError: the custom one is not there, or breaks its contract.
        """
        config = model_config(config)
        custom = config["custom_preprocessor"]
        if custom is None:
            return make_preprocessor(obs_space, config)
        found = found_class(custom, cls._preprocessors, "custom_preprocessor")
        return checked(found, Preprocessor, "custom_preprocessor", custom, ("_init_shape",))(obs_space, config)

    @classmethod
    def get_action_dist(
        cls, action_space: Space[Any], config: Mapping[str, Any] | None = None
    ) -> tuple[DistFactory, int]:
        """What makes the distribution, called with `(inputs, model, mask)`, and how many inputs per row it takes.

        Raises:
            UnsupportedSpaceError: no built-in distribution takes the space.
            ConfigError: the custom one is not there, or breaks its contract.
        """
        config = model_config(config)
        custom = config["custom_action_dist"]
        if custom is None:
            check_supported(action_space, "action")
            dist_class = distribution_class(action_space)
        else:
            found = found_class(custom, cls._dists, "custom_action_dist")
            dist_class = checked(found, ActionDistribution, "custom_action_dist", custom, DIST_METHODS)
        return dist_class.for_space(action_space), int(dist_class.required_model_output_shape(action_space, config))

    @classmethod
    def get_model(
        cls, obs_space: Space[Any], action_space: Space[Any], num_outputs: int, config: Mapping[str, Any] | None = None
    ) -> Model:
        """The model: `custom_model`, a vision network for images, a fully connected one for everything else.

        Raises:
            UnsupportedSpaceError: no built-in model takes the observations.
            ConfigError: a setting does not fit, or the custom model is not there or breaks its contract.
        """
        config = model_config(config)
        preprocessor = cls.get_preprocessor(obs_space, config) if config["custom_preprocessor"] is not None else None
        if config["custom_model"] is not None:
            model = custom_model(cls._models, config, (obs_space, action_space, num_outputs), preprocessor)
        else:
            model = _built_in_model(config, obs_space, action_space, num_outputs, preprocessor)
        model.log_std_clip = float(config["log_std_clip_param"])
        return model


def _built_in_model(
    config: Mapping[str, Any],
    obs_space: Space[Any],
    action_space: Space[Any],
    num_outputs: int,
    preprocessor: Preprocessor | None,
) -> Model:
    free: dict[str, Any] = {}
    if config["free_log_std"]:
        columns = log_std_columns(action_space)
        if not columns or distribution_class(action_space).required_model_output_shape(action_space) != num_outputs:
            raise ConfigError(
                f"model.free_log_std=true needs Gaussian actions (a float Box); the action space is {action_space}: "
                "set it to false"
            )
        free = {"free_columns": columns, "free_init": config["log_std_init"]}
    shape = (obs_space.shape or ()) if preprocessor is None else preprocessor.shape
    if (preprocessor is None and is_image(obs_space)) or (
        len(shape) == 3 and (preprocessor is not None or config["conv_filters"] is not None)
    ):
        keywords = {key: config[key] for key in VISION_KEYS}
        return VisionNetwork(obs_space, action_space, num_outputs, preprocessor=preprocessor, **keywords, **free)
    pictures = [] if preprocessor is not None else [path for path, leaf in leaf_spaces(obs_space) if is_image(leaf)]
    if pictures:
        raise UnsupportedSpaceError(
            f"observation part {pictures[0]!r} is an image inside a {type(obs_space).__name__}; the built-in models "
            "take an image alone, or "
            "parts that are no images: use gymnasium.wrappers.FilterObservation, or a model.custom_model that reads "
            "input_dict['obs']"
        )
    keywords = {key: config[key] for key in FC_KEYS}
    return FullyConnectedNetwork(obs_space, action_space, num_outputs, preprocessor=preprocessor, **keywords, **free)
