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

from lightning_rl.models import ComplexInputNetwork, FullyConnectedNetwork, Model, ModelCatalog, VisionNetwork
from lightning_rl.models.layers import ACTIVATIONS, MLP
from lightning_rl.models.vision import ImageEncoder
from tests.models.networks import PLAIN, PRESETS, ROBOT, image, preset

ACTION = spaces.Discrete(6)


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


def espeholt(encoder: ImageEncoder, x: Tensor, activation: Any) -> Tensor:
    """Figure 3 of the paper, written as it is drawn; images are floats `[N, C, H, W]`."""
    for stack in encoder.convolutions:
        x = F.conv2d(x, stack.first.weight, stack.first.bias, padding=1)
        x = F.max_pool2d(x, kernel_size=3, stride=2, padding=1)
        convolutions = list(stack.blocks)
        for one, two in (convolutions[:2], convolutions[2:]):
            branch = F.conv2d(activation(x), one.weight, one.bias, padding=1)
            x = F.conv2d(activation(branch), two.weight, two.bias, padding=1) + x
    return F.relu(F.linear(activation(x).flatten(1), encoder.post.layers[0].weight, encoder.post.layers[0].bias))


def plain(encoder: ImageEncoder, x: Tensor, activation: Any) -> Tensor:
    """Convolutions of strides 2 and 1, each before an activation."""
    for layer, stride in zip(encoder.convolutions, (2, 1), strict=True):
        x = activation(F.conv2d(x, layer.weight, layer.bias, stride))
    return x.flatten(1)


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize(
    ("reference", "filters", "channels"), [(espeholt, None, [4, 5]), (plain, [[4, 3, 2], [5, [2, 3], 1]], None)]
)
def test_convolutions_and_their_gradients_are_the_papers(name, reference, filters, channels):
    torch.manual_seed(0)
    encoder = ImageEncoder((12, 10, 3), filters, name, conv_residual_channels=channels, initializer="default")
    images = pixels(2, 12, 10, 3)
    expected, parameters = reference(encoder, images.permute(0, 3, 1, 2) / 255.0, PLAIN[name]), [*encoder.parameters()]
    assert_close(encoder(images), expected)
    ours = torch.autograd.grad(encoder(images).square().sum(), parameters)
    assert_close(ours, torch.autograd.grad(expected.square().sum(), parameters))


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
def test_a_stack_of_images_is_seen_as_one_with_all_channels_and_gray_values_as_one_channel(shape):
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


# -- settings of every vision model -----------------------------------------------------------------------------------
def test_layer_norm_stands_before_the_activation():
    """(1, 2, 6) has mean 3 and deviation √(14/3)."""
    mlp = MLP(1, [3], "relu", layer_norm=True)
    with torch.no_grad():
        mlp.layers[0].weight.copy_(torch.tensor([[1.0], [2.0], [6.0]]))
    expected = (torch.tensor([[1.0, 2.0, 6.0]]) - 3) / (14 / 3) ** 0.5
    assert_close(mlp(torch.ones(1, 1)), expected.clamp(min=0), atol=1e-5, rtol=0)


@pytest.mark.parametrize("space", [spaces.Box(-1, 1, (3,)), image(36, 36, 1), ROBOT], ids=["vector", "image", "dict"])
def test_layer_norm_reaches_every_fully_connected_layer(space):
    model = ModelCatalog.get_model(space, ACTION, 6, {"layer_norm": True, "post_fcnet_hiddens": [8]})
    mlps = [module for module in model.modules() if isinstance(module, MLP) and len(module.layers) > 0]
    assert mlps and all(mlp.norms is not None and len(mlp.norms) == len(mlp.layers) for mlp in mlps)


@pytest.mark.parametrize("space", [spaces.Box(-1, 1, (3,)), image(36, 36, 1), ROBOT], ids=["vector", "image", "dict"])
def test_batch_norm_reaches_every_fully_connected_layer_and_its_input(space):
    model = ModelCatalog.get_model(space, ACTION, 6, {"batch_norm": "before", "post_fcnet_hiddens": [8]})
    mlps = [module for module in model.modules() if isinstance(module, MLP) and len(module.layers) > 0]
    assert mlps and all(mlp.batch_norms is not None and len(mlp.batch_norms) == len(mlp.layers) + 1 for mlp in mlps)
