"""Chooses the preprocessor, the action distribution and the model for given spaces and a model config."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from gymnasium import Space

from lightning_rl.errors import ConfigError
from lightning_rl.models import distributions
from lightning_rl.models.batch_norm import NormPlace
from lightning_rl.models.complex_input import ComplexInputNetwork
from lightning_rl.models.custom import check_class, custom_class, custom_model
from lightning_rl.models.distributions import ActionDistribution, action_dist, log_std_columns
from lightning_rl.models.distributions.base import DistFactory
from lightning_rl.models.fully_connected import FullyConnectedNetwork
from lightning_rl.models.layers import Activation
from lightning_rl.models.memory import MemoryConfig, add_memory, memory_kind
from lightning_rl.models.model import Model
from lightning_rl.models.preprocessors import Preprocessor, make_preprocessor
from lightning_rl.models.recurrent import RecurrentModel
from lightning_rl.models.vision import Channels, ConvFilters, VisionNetwork, image_paths, undivided_images
from lightning_rl.schema.ranges import LogStd, Positive, Width
from lightning_rl.schema.signatures import Section, coerce
from lightning_rl.spaces import check_supported

__all__ = ["MODEL_DEFAULTS", "ModelCatalog", "ModelConfig", "ModelOptions", "model_config"]

Hiddens = Sequence[Width]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig(MemoryConfig):
    """The keys of a model config, their types, ranges and defaults."""

    fcnet_hiddens: Hiddens = (64, 64)
    fcnet_activation: Activation | None = "tanh"
    fcnet_weights_initializer: Literal["orthogonal", "normc", "default"] = "orthogonal"
    fcnet_residual: bool = False  # SimBa: each hidden layer is a residual block with layer normalization
    conv_filters: ConvFilters | None = None  # [[out_channels, kernel, stride], …]; None: chosen by image size
    conv_activation: Activation | None = "relu"
    conv_residual_channels: Sequence[Channels] | None = None  # widths of IMPALA's residual stacks
    post_fcnet_hiddens: Hiddens | None = None  # None: 128 to 512 after default convolutions, 256 after a Dict's parts
    post_fcnet_activation: Activation | None = "relu"
    # Whether log σ of Gaussian actions is independent of the observation; None: the algorithm's choice.
    free_log_std: bool | None = None
    log_std_init: LogStd = 0.0  # initial value of log σ
    log_std_clip_param: Positive = 20.0  # log σ stays within ± this
    no_final_linear: bool = False
    layer_norm: bool = False  # before the activation of every fully connected hidden layer
    # Of these layers' inputs and outputs, before or after the activation; None: the algorithm's choice.
    batch_norm: NormPlace | None = None
    vf_share_layers: bool = False
    custom_model: str | type | None = None  # registered name, import path or class
    custom_model_config: Mapping[str, Any] | None = field(default_factory=dict)  # keywords of its __init__
    custom_action_dist: str | type | None = None  # or a built-in one: SquashedGaussian, Beta, Dirichlet, …
    custom_preprocessor: str | type | None = None


ModelOptions = Annotated[Mapping[str, Any], Section("model", (ModelConfig,))]
MODEL_DEFAULTS: dict[str, Any] = {
    name: list(value) if isinstance(value, tuple) else value for name, value in asdict(ModelConfig()).items()
}
# How the keys start that all built-in models take.
SHARED_KEYS = ("fcnet_weights", "post_fcnet_", "no_final_linear", "layer_norm", "batch_norm", "vf_share_layers")


def model_config(given: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """`MODEL_DEFAULTS`, updated with the `given` keys.

    Raises:
        ConfigError: a key is unknown, or its value does not fit.
    """
    config = {**MODEL_DEFAULTS, **coerce("model", given or {}, ModelOptions)}
    for key in ("layer_norm", "batch_norm"):
        if config["fcnet_residual"] and config[key]:
            raise ConfigError(
                f"model.{key}={config[key]}; model.fcnet_residual=true normalizes its layers itself: leave one out",
                key=f"model.{key}",
                value=config[key],
            )
    return config


class ModelCatalog:
    """Registers and looks up models, action distributions and preprocessors.

    `register_…` gives a custom class a name; `get_…` builds the custom or built-in object for given spaces.
    """

    _models: ClassVar[dict[str, Any]] = {}
    _dists: ClassVar[dict[str, Any]] = {
        "DiagGaussian": distributions.DiagGaussian,
        "SquashedGaussian": distributions.SquashedGaussian,
        "Beta": distributions.Beta,
        "Dirichlet": distributions.Dirichlet,
        "GumbelSoftmax": distributions.GumbelSoftmax,
        "Deterministic": distributions.Deterministic,
        "SquashedDeterministic": distributions.SquashedDeterministic,
        "Autoregressive": distributions.AutoregressiveDistribution,
    }
    _preprocessors: ClassVar[dict[str, Any]] = {}

    # -- registration ------------------------------------------------------------------------------------------------
    @classmethod
    def register_custom_model(cls, name: str, model_class: type[Model]) -> None:
        """Register a model under a name for `custom_model`, in this process and in those of workers."""
        cls._models[name] = check_class(model_class, "custom_model", name)

    @classmethod
    def register_custom_action_dist(cls, name: str, dist_class: type[ActionDistribution]) -> None:
        """Register an action distribution under a name for `custom_action_dist`, here and in worker processes."""
        cls._dists[name] = check_class(dist_class, "custom_action_dist", name)

    @classmethod
    def register_custom_preprocessor(cls, name: str, preprocessor_class: type[Preprocessor]) -> None:
        """Register a preprocessor under a name for `custom_preprocessor`, here and in the processes of workers."""
        cls._preprocessors[name] = check_class(preprocessor_class, "custom_preprocessor", name)

    @classmethod
    def registered_classes(cls) -> dict[str, dict[str, Any]]:
        """All registered classes, as `register_all` takes them in another process."""
        return {"models": dict(cls._models), "dists": dict(cls._dists), "preprocessors": dict(cls._preprocessors)}

    @classmethod
    def register_all(cls, names: Mapping[str, Mapping[str, Any]]) -> None:
        """Register the classes that `registered_classes` returned in another process."""
        cls._models.update(names["models"])
        cls._dists.update(names["dists"])
        cls._preprocessors.update(names["preprocessors"])

    # -- look-up -----------------------------------------------------------------------------------------------------
    @classmethod
    def get_preprocessor(cls, obs_space: Space[Any], config: Mapping[str, Any] | None = None) -> Preprocessor:
        """Build the preprocessor of an observation space: `custom_preprocessor`, or the built-in one.

        Raises:
            UnsupportedSpaceError: no built-in one takes the space.
            ConfigError: the custom one does not exist, or breaks its contract.
        """
        config = model_config(config)
        custom = custom_class(config, "custom_preprocessor", cls._preprocessors)
        return make_preprocessor(obs_space, config) if custom is None else custom(obs_space, config)

    @classmethod
    def get_action_dist(
        cls,
        action_space: Space[Any],
        config: Mapping[str, Any] | None = None,
        policy_space: Space[Any] | None = None,
    ) -> tuple[DistFactory, int]:
        """A factory of the action distribution, called with `(inputs, model, mask)`, and the number of inputs per row.

        Args:
            action_space: the action space of one environment.
            config: the config of the model.
            policy_space: space of the policy's actions (`ActionTransform.policy_space`); `None`: the environment's.

        Raises:
            UnsupportedSpaceError: no built-in distribution takes the space, or the custom one does not.
            ConfigError: the custom one does not exist, or breaks its contract.
        """
        config = model_config(config)
        named = custom_class(config, "custom_action_dist", cls._dists)
        if named is None:
            check_supported(action_space, "action")
        return action_dist(named, action_space, action_space if policy_space is None else policy_space, config)

    @classmethod
    def get_model(
        cls, obs_space: Space[Any], action_space: Space[Any], num_outputs: int, config: Mapping[str, Any] | None = None
    ) -> Model:
        """Build the model: `custom_model`, or the built-in one for the observations.

        The built-in one is `VisionNetwork` for an image, `ComplexInputNetwork` for a Dict or Tuple that contains one,
        and `FullyConnectedNetwork` for everything else.

        With `use_lstm`, `use_gru` or `use_attention` the model computes features (a custom model as many as the last
        entry of `fcnet_hiddens`), and a recurrent model or transformer between them and the heads computes the outputs.

        With `num_outputs=0` the model has no heads and returns features; its `num_outputs` is then their number.

        Raises:
            UnsupportedSpaceError: no built-in model takes the observations.
            ConfigError: a setting does not fit, or the custom model does not exist or breaks its contract.
        """
        config = model_config(config)
        preprocessor = cls.get_preprocessor(obs_space, config) if config["custom_preprocessor"] is not None else None
        memory, custom = memory_kind(config), custom_class(config, "custom_model", cls._models)
        if config["batch_norm"] and (memory or custom):
            cause = f"model.use_{memory} pads sequences with rows" if memory else "model.custom_model has layers"
            raise ConfigError(
                f"model.batch_norm={config['batch_norm']} is for the built-in models without memory, and {cause} of "
                "its own: set it to null",
                key="model.batch_norm",
                value=config["batch_norm"],
            )
        named_dist = custom_class(config, "custom_action_dist", cls._dists)
        width = 0 if memory else num_outputs  # of the outputs of a model without memory behind it; 0: features
        free = {} if custom and not memory else _free_columns(config, action_space, num_outputs, named_dist)
        if custom:
            arguments = (obs_space, action_space, width or int(config["fcnet_hiddens"][-1]))
            model = custom_model(custom, config, arguments, preprocessor)
        else:
            model = _built_in_model(config, (obs_space, action_space, width), preprocessor, {} if memory else free)
            model.forbids_actions = False
        model = add_memory(config, model, num_outputs, free) if memory else model
        if isinstance(model, RecurrentModel):
            model.time_major = config["_time_major"]
        model.log_std_clip = float(config["log_std_clip_param"])
        if not model.model_config:  # a custom one may have kept it
            model.model_config = config
        if named_dist is not None:
            named_dist.prepare_model(model)
        return model


def _free_columns(
    config: Mapping[str, Any], action_space: Space[Any], num_outputs: int, named_dist: type[ActionDistribution] | None
) -> dict[str, Any]:
    if not config["free_log_std"]:
        return {}
    columns = log_std_columns(action_space, named_dist)
    if not columns or action_dist(named_dist, action_space, action_space, config)[1] != num_outputs:
        chosen = "" if named_dist is None else f" and the distribution {named_dist.__name__}"
        raise ConfigError(
            "model.free_log_std=true needs Gaussian actions (a float Box); the action space is "
            f"{action_space}{chosen}: set it to false"
        )
    return {"free_columns": columns, "free_init": config["log_std_init"]}


def _built_in_model(
    config: Mapping[str, Any], arguments: tuple[Any, ...], preprocessor: Preprocessor | None, free: Mapping[str, Any]
) -> Model:
    """The model for `arguments` (obs_space, action_space, num_outputs)."""

    def settings(*starts: str) -> dict[str, Any]:
        return {key: value for key, value in config.items() if key.startswith((*SHARED_KEYS, *starts))} | dict(free)

    seen = arguments[0] if preprocessor is None else preprocessor.observation_space
    given = config["conv_filters"] is not None or config["conv_residual_channels"] is not None
    images = image_paths(seen, given or preprocessor is not None)
    if undivided := undivided_images(seen):
        of_parts = f" of {', '.join(map(repr, undivided))}" if undivided != [""] else ""
        warnings.warn(
            f"the network sees the pixels{of_parts} undivided, as numbers up to 255, where learning is slow: give "
            "images as uint8, which it divides by 255, or divide them in a wrapper and set the space's high to 1",
            stacklevel=2,
        )
    if images == [""]:
        return VisionNetwork(*arguments, preprocessor=preprocessor, **settings("conv_"))
    if images:
        return ComplexInputNetwork(*arguments, **settings("conv_", "fcnet_hiddens", "fcnet_activation"))
    if given:
        warnings.warn(
            "model.conv_filters and model.conv_residual_channels are for images, and the observations hold none: "
            f"the network is that of model.fcnet_hiddens={list(config['fcnet_hiddens'])}",
            stacklevel=2,
        )
    return FullyConnectedNetwork(*arguments, preprocessor=preprocessor, **settings("fcnet_"))
