"""Observations, settings and inputs of the networks under test."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from gymnasium import Space, spaces

from lightning_rl.config import compose_config
from lightning_rl.models import Model
from lightning_rl.spaces import leaf_values, pack_leaves

PRESETS = ("nature_cnn", "impala_resnet")
PLAIN = {  # activations that write into nothing
    **{"tanh": torch.tanh, "relu": F.relu, "silu": F.silu, "swish": F.silu, "elu": F.elu, "gelu": F.gelu},
    **{"leaky_relu": F.leaky_relu, "sigmoid": torch.sigmoid, "linear": torch.clone},
}
CAMERA = spaces.Box(0, 255, (12, 12, 3), dtype=np.uint8)
ROBOT = spaces.Dict(
    camera=CAMERA,
    gear=spaces.Discrete(3),
    lamps=spaces.MultiBinary(2),
    speed=spaces.Box(-9.0, 9.0, (2,)),
    switches=spaces.MultiDiscrete([2, 3]),
)
NESTINGS = {  # with images
    "dict": ROBOT,
    "tuple": spaces.Tuple([spaces.Box(-1, 1, (2,)), CAMERA]),
    "nested": spaces.Dict({"eyes": spaces.Tuple([CAMERA, CAMERA]), "body": spaces.Dict({"gear": spaces.Discrete(2)})}),
    "only images": spaces.Dict({"left": CAMERA, "right": spaces.Box(0, 1, (1, 12, 12))}),
    "names of dict methods": spaces.Dict({"values": CAMERA, "items": spaces.Box(-1, 1, (2,)), "a.b": CAMERA}),
}


def image(*shape: int) -> spaces.Box:
    """A space of pixels."""
    return spaces.Box(0, 255, shape, dtype=np.uint8)


def preset(name: str, **changes: Any) -> dict[str, Any]:
    """The settings of a file of conf/model."""
    return {**compose_config([f"model={name}"])["model"], **changes}


def sample_space(space: Space[Any], count: int) -> tuple[list[Any], Any]:
    """`count` single observations and the same ones as nested tensors `[count, *]`."""
    singles = [space.sample() for _ in range(count)]
    rows = [leaf_values(space, single) for single in singles]
    leaves = [torch.from_numpy(np.stack(column)) for column in zip(*rows, strict=True)]
    return singles, pack_leaves(space, iter(leaves))


def inputs(model: Model, count: int = 5) -> dict[str, Any]:
    """What a model reads of `count` samples of its observations, the same ones at each call."""
    model.obs_space.seed(0)
    _, obs = sample_space(model.obs_space, count)
    return {"obs": obs, "obs_flat": model.preprocessor.transform_batch(obs)}
