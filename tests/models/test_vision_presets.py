"""The image networks of two papers, and the settings of every vision model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor
from torch.testing import assert_close

from lightning_rl.config import compose_config
from lightning_rl.errors import ConfigError
from lightning_rl.models import ComplexInputNetwork, FullyConnectedNetwork, Model, ModelCatalog, VisionNetwork
from lightning_rl.models.layers import ACTIVATIONS, MLP
from lightning_rl.models.vision import ImageEncoder

PRESETS = ("nature_cnn", "impala_resnet")
ACTION = spaces.Discrete(6)
PLAIN = {  # activations that write into nothing
    "tanh": torch.tanh,
    "relu": F.relu,
    "silu": F.silu,
    "swish": F.silu,
    "elu": F.elu,
    "gelu": F.gelu,
    "leaky_relu": F.leaky_relu,
    "sigmoid": torch.sigmoid,
    "linear": lambda x: x,
}


def preset(name: str, **changes: Any) -> dict[str, Any]:
    return {**compose_config([f"model={name}"])["model"], **changes}


def image(*shape: int) -> spaces.Box:
    return spaces.Box(0, 255, shape, dtype=np.uint8)


def pixels(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def vision_model(name: str, space: spaces.Space[Any], num_outputs: int = 6, **changes: Any) -> Model:
    return ModelCatalog.get_model(space, ACTION, num_outputs, preset(name, **changes))


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        # 4→32 8×8, 32→64 4×4, 64→64 3×3, 3136→512: 8224 + 32832 + 36928 + 1606144; with 6 actions 1687206.
        ("nature_cnn", 8224 + 32832 + 36928 + 1606144),
        # Stacks of one convolution and four of the same width, sides 84 → 42 → 21 → 11; 11·11·32 = 3872 → 256.
        ("impala_resnet", (592 + 4 * 2320) + (4640 + 4 * 9248) + (9248 + 4 * 9248) + (3872 * 256 + 256)),
    ],
)
def test_on_atari_frames_the_presets_are_the_papers_networks(name, parameters):
    model = vision_model(name, image(84, 84, 4))
    assert isinstance(model, VisionNetwork)
    assert sum(p.numel() for p in model.encoder.parameters()) == parameters
    assert model.value_encoder is None  # one network with two heads


def test_the_default_for_atari_frames_is_the_nature_preset():
    torch.manual_seed(0)
    default = ModelCatalog.get_model(image(84, 84, 4), ACTION, 6, {"vf_share_layers": True})
    torch.manual_seed(0)
    named = vision_model("nature_cnn", image(84, 84, 4))
    assert_close(dict(named.state_dict()), dict(default.state_dict()))


def espeholt(encoder: ImageEncoder, images: Tensor, activation: Any) -> Tensor:
    """Figure 3 of the paper, written as it is drawn; `images` are floats `[N, C, H, W]`."""
    x = images
    for stack in encoder.convolutions:
        x = F.conv2d(x, stack.first.weight, stack.first.bias, padding=1)
        x = F.max_pool2d(x, kernel_size=3, stride=2, padding=1)
        convolutions = list(stack.blocks)
        for one, two in (convolutions[:2], convolutions[2:]):
            branch = F.conv2d(activation(x), one.weight, one.bias, padding=1)
            branch = F.conv2d(activation(branch), two.weight, two.bias, padding=1)
            x = branch + x
    return F.relu(F.linear(activation(x).flatten(1), encoder.post.layers[0].weight, encoder.post.layers[0].bias))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_residual_stacks_and_their_gradients_are_the_papers(name):
    torch.manual_seed(0)
    encoder = ImageEncoder((12, 10, 3), None, name, conv_residual_channels=[4, 5], initializer="default")
    images = pixels(2, 12, 10, 3)
    expected = espeholt(encoder, images.permute(0, 3, 1, 2) / 255.0, PLAIN[name])
    assert_close(encoder(images), expected)
    parameters = list(encoder.parameters())
    ours = torch.autograd.grad(encoder(images).square().sum(), parameters)
    assert_close(ours, torch.autograd.grad(expected.square().sum(), parameters))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_plain_convolutions_and_their_gradients_have_the_activation(name):
    torch.manual_seed(0)
    encoder = ImageEncoder((12, 10, 3), [[4, 3, 2], [5, [2, 3], 1]], name, initializer="default")
    images = pixels(2, 12, 10, 3)
    x = images.permute(0, 3, 1, 2) / 255.0
    for layer, stride in zip(encoder.convolutions, (2, 1), strict=True):
        x = PLAIN[name](F.conv2d(x, layer.weight, layer.bias, stride))
    assert_close(encoder(images), x.flatten(1))
    parameters = list(encoder.parameters())
    ours = torch.autograd.grad(encoder(images).square().sum(), parameters)
    assert_close(ours, torch.autograd.grad(x.square().sum(), parameters))


@pytest.mark.parametrize("size", [(1, 1), (7, 7), (9, 30), (64, 64), (210, 160)])
def test_residual_stacks_take_any_size(size):
    encoder = ImageEncoder((*size, 3), conv_residual_channels=[2, 3, 3])
    assert encoder(torch.zeros(1, *size, 3, dtype=torch.uint8)).shape == (1, 256)


def test_first_residual_features_are_neither_dead_nor_exploding():
    """Six blocks that each doubled the variance would make it 64 times as large."""
    torch.manual_seed(0)
    features = vision_model("impala_resnet", image(64, 64, 3)).encoder(pixels(16, 64, 64, 3))
    assert 0.1 < features.std().item() < 2.0


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_serves_images_inside_a_dict_too(name):
    space = spaces.Dict({"camera": image(40, 44, 3), "speed": spaces.Box(-1, 1, (2,))})
    model = vision_model(name, space)
    assert isinstance(model, ComplexInputNetwork)
    speed = torch.randn(2, 2)
    outputs, _ = model({"obs": {"camera": pixels(2, 40, 44, 3), "speed": speed}, "obs_flat": speed})
    assert outputs.shape == (2, 6) and model.value_function().shape == (2,)


@pytest.mark.parametrize("shape", [(4, 36, 36, 3), (4, 3, 36, 36), (36, 36)])
def test_a_stack_of_images_is_seen_as_one_with_all_channels_and_grey_values_as_one_channel(shape):
    space = image(*shape)
    model = ModelCatalog.get_model(space, ACTION, 6)
    assert isinstance(model, VisionNetwork)
    x = pixels(2, *shape)
    folded = {(36, 36): x[:, None], (4, 3, 36, 36): x.flatten(1, 2)}.get(shape)
    folded = x.permute(0, 1, 4, 2, 3).flatten(1, 2) if folded is None else folded
    one = ModelCatalog.get_model(image(*folded.shape[1:]), ACTION, 6)
    one.load_state_dict(model.state_dict())
    assert_close(model({"obs": x}, (), None)[0], one({"obs": folded}, (), None)[0])
    parts = spaces.Dict(camera=space, speed=spaces.Box(-1, 1, (2,)))
    assert isinstance(ModelCatalog.get_model(parts, ACTION, 6), ComplexInputNetwork)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(0, 3, (36, 36), np.uint8),  # a board
        spaces.Box(-1, 1, (36, 36)),
        spaces.Box(0, 255, (5, 5), np.uint8),
        spaces.Box(0, 255, (20, 36, 36, 3), np.uint8),  # volumes
    ],
)
def test_other_boxes_of_two_and_four_dimensions_are_no_images(space):
    assert isinstance(ModelCatalog.get_model(space, ACTION, 6), FullyConnectedNetwork)


@pytest.mark.parametrize("shape", [(36, 36), (36, 36, 3), (4, 36, 36, 3)])
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_pixels_that_are_not_uint8_are_undivided_and_one_line_says_so(shape, dtype, recwarn):
    with pytest.warns(UserWarning, match="undivided"):
        ModelCatalog.get_model(spaces.Box(0, 255, shape, dtype), ACTION, 6)
    with pytest.warns(UserWarning, match="of 'camera' undivided"):
        ModelCatalog.get_model(spaces.Dict(camera=spaces.Box(0, 255, shape, dtype)), ACTION, 6)
    recwarn.clear()
    ModelCatalog.get_model(spaces.Box(0, 1, shape, np.float32), ACTION, 6)
    assert not recwarn


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_leaves_vectors_to_the_fully_connected_model_and_says_so(name):
    with pytest.warns(UserWarning, match=r"fcnet_hiddens=\[64, 64\]"):
        model = vision_model(name, spaces.Box(-1, 1, (3,)))
    assert isinstance(model, FullyConnectedNetwork)


def test_the_error_for_an_image_without_default_filters_names_the_residual_network():
    with pytest.raises(ConfigError, match=r"210×160.*conv_filters.*impala_resnet"):
        ModelCatalog.get_model(image(210, 160, 3), ACTION, 6)
    with pytest.raises(ConfigError, match=r"kernel 8 .*7"):
        vision_model("nature_cnn", image(7, 7, 3))


def test_filters_and_residual_stacks_exclude_each_other():
    with pytest.raises(ConfigError, match="exclude"):
        vision_model("impala_resnet", image(84, 84, 4), conv_filters=[[4, 3, 1]])


@pytest.mark.parametrize("key", ["conv_filters", "conv_residual_channels"])
def test_an_empty_list_of_convolutions_is_refused(key):
    with pytest.raises(ConfigError, match=rf"model\.{key}=\[\]"):
        ModelCatalog.get_model(image(84, 84, 4), ACTION, 6, {key: []})


# -- settings of every vision model -----------------------------------------------------------------------------------
@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("post", [[], [9], [12, 7]])
@pytest.mark.parametrize("name", PRESETS)
def test_any_layers_behind_convolutions_work_with_either_value_branch(name, post, share):
    """RLlib's VisionNetwork fails with an IndexError for post layers under shared values."""
    model = vision_model(name, image(40, 40, 1), post_fcnet_hiddens=post, vf_share_layers=share)
    model({"obs": pixels(3, 40, 40, 1)})
    assert model.value_function().shape == (3,)


@pytest.mark.parametrize("name", PRESETS)
def test_the_last_layer_behind_convolutions_has_its_activation(name):
    """RLlib's VisionNetwork leaves it linear."""
    model = vision_model(name, image(40, 40, 1), 0, post_fcnet_hiddens=[12, 30], post_fcnet_activation="sigmoid")
    features, _ = model({"obs": pixels(3, 40, 40, 1)})
    assert model.num_outputs == 30 and bool(((features > 0) & (features < 1)).all())


def test_no_final_linear_makes_the_last_layer_behind_convolutions_the_output():
    model = vision_model("nature_cnn", image(36, 36, 1), no_final_linear=True, post_fcnet_activation="tanh")
    outputs, _ = model({"obs": pixels(3, 36, 36, 1)})
    assert outputs.shape == (3, 6) and bool((outputs.abs() <= 1).all()) and model.head.linear is None
    with pytest.raises(ConfigError, match=r"set model\.post_fcnet_hiddens"):
        vision_model("nature_cnn", image(36, 36, 1), no_final_linear=True, post_fcnet_hiddens=[])


def test_a_feature_extractor_has_no_parameters_for_values():
    model = vision_model("impala_resnet", image(16, 16, 1), 0, vf_share_layers=False)
    features, _ = model({"obs": pixels(2, 16, 16, 1)})
    features.square().sum().backward()
    assert all(p.grad is not None for p in model.parameters())
    with pytest.raises(ConfigError, match="value_function"):
        model.value_function()


def test_layer_norm_stands_before_the_activation():
    """(1, 2, 6) has mean 3 and deviation √(14/3)."""
    mlp = MLP(1, [3], "relu", layer_norm=True)
    with torch.no_grad():
        mlp.layers[0].weight.copy_(torch.tensor([[1.0], [2.0], [6.0]]))
    expected = (torch.tensor([[1.0, 2.0, 6.0]]) - 3) / (14 / 3) ** 0.5
    assert_close(mlp(torch.ones(1, 1)), expected.clamp(min=0), atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    "space",
    [spaces.Box(-1, 1, (3,)), image(36, 36, 1), spaces.Dict({"a": image(36, 36, 1), "b": spaces.Box(-1, 1, (3,))})],
    ids=["vector", "image", "dict"],
)
def test_layer_norm_reaches_every_fully_connected_layer(space):
    model = ModelCatalog.get_model(space, ACTION, 6, {"layer_norm": True, "post_fcnet_hiddens": [8]})
    mlps = [module for module in model.modules() if isinstance(module, MLP) and len(module.layers) > 0]
    assert mlps and all(mlp.norms is not None and len(mlp.norms) == len(mlp.layers) for mlp in mlps)


@pytest.mark.parametrize("name", PRESETS)
def test_vision_presets_learn_from_pixels_which_half_is_bright(name):
    torch.manual_seed(0)
    encoder = vision_model(name, image(36, 36, 1), 2)
    right = torch.arange(32) % 2
    images = pixels(32, 36, 36, 1) // 2
    for row, half in enumerate(right.tolist()):
        images[row, :, 18 * half :][:, :18] += 100
    optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-3)
    for _ in range(10):
        loss = F.cross_entropy(encoder({"obs": images})[0], right)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert encoder({"obs": images})[0].argmax(1).tolist() == right.tolist()
