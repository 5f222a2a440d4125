"""Built-in models: every key of the config, the value network, gradients, copies."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch.testing import assert_close

from lightning_rl.errors import ConfigError
from lightning_rl.models import FullyConnectedNetwork, ModelCatalog, VisionNetwork
from lightning_rl.models.layers import ACTIVATIONS, MLP
from lightning_rl.models.vision import ImageEncoder
from lightning_rl.sample_batch import to_nested_batch
from tests.models.networks import NESTINGS, PLAIN, PRESETS, ROBOT, image, inputs, preset
from tests.refusals import not_refused
from tests.space_cases import SUPPORTED

OBS, ACTION, ONE = (spaces.Box(-1, 1, (size,)) for size in (3, 2, 1))


def fc(num_outputs=4, action=ACTION, **config):
    return ModelCatalog.get_model(OBS, action, num_outputs, config)


HUGE = spaces.Box(-(2**40), 2**40, (1,), dtype=np.int64)
NETWORKS = {
    **{str(space): (space, {"fcnet_hiddens": [8]}) for space in SUPPORTED},
    **{name: (space, {}) for name, space in NESTINGS.items()},
    **{
        f"{name} {post}": (image(40, 40, 1), preset(name, post_fcnet_hiddens=post))
        for name in PRESETS
        for post in ([], [9], [12, 7])
    },
}


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize(("space", "config"), NETWORKS.values(), ids=NETWORKS)
def test_every_supported_observation_reaches_outputs_and_values(space, config, share):
    """And gradients reach every parameter; copies in the middle of training and nested batches give the same.

    RLlib's VisionNetwork fails with an IndexError for post layers under shared values.
    """
    model = ModelCatalog.get_model(space, ACTION, 4, {**config, "vf_share_layers": share})
    read = inputs(model)
    outputs, state = model(read)
    assert outputs.shape == (5, 4) and model.value_function().shape == (5,) and state == []
    for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(again(read)[0], outputs)
    (outputs.sum() + model.value_function().sum()).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name
        assert parameter.grad.any() or space == HUGE, name  # where tanh is 1
    nested, _ = model({**read, "obs": to_nested_batch(read["obs"])})  # as batches have it
    assert_close(nested, outputs)


@pytest.mark.parametrize(
    ("space", "config"),
    [(OBS, {}), *((image(40, 40, 1), preset(name)) for name in PRESETS), (ROBOT, {})],
    ids=["vector", *PRESETS, "dict"],
)
def test_a_model_without_outputs_gives_its_last_layer_and_has_no_parameters_for_values(space, config):
    """RLlib's VisionNetwork leaves the last layer linear, and its ComplexInputNetwork gives another width."""
    layers = {"post_fcnet_hiddens": [12, 30], "post_fcnet_activation": "sigmoid", "vf_share_layers": False}
    model = ModelCatalog.get_model(space, ACTION, 0, {**config, **layers})
    features, _ = model(inputs(model))
    assert model.num_outputs == features.shape[1] == 30 and bool(((features > 0) & (features < 1)).all())
    features.square().sum().backward()
    assert all(p.grad is not None for p in model.parameters())
    with pytest.raises(ConfigError, match="value_function"):
        model.value_function()


@pytest.mark.parametrize(
    ("space", "config"),
    [
        (OBS, {"fcnet_hiddens": [16, 16]}),
        (image(36, 36, 1), preset("nature_cnn", post_fcnet_activation="tanh")),
        (ROBOT, {"post_fcnet_hiddens": [16, 16], "post_fcnet_activation": "tanh"}),
    ],
    ids=["vector", "image", "dict"],
)
def test_no_final_linear_makes_the_last_layer_the_output(space, config):
    model = ModelCatalog.get_model(space, ACTION, 4, {**config, "no_final_linear": True})
    outputs, _ = model(inputs(model))
    assert outputs.shape == (5, 4) and bool((outputs.abs() <= 1).all()) and model.head.linear is None
    assert model.value_function().shape == (5,)


def test_the_default_is_two_separate_tanh_networks_of_which_acting_runs_one():
    model, linear = fc(), torch.nn.functional.linear
    assert isinstance(model, FullyConnectedNetwork)
    assert sum(p.numel() for p in model.parameters()) == 2 * (3 * 64 + 64 + 64 * 64 + 64) + (64 * 4 + 4) + (64 + 1)
    model.value_trunk.forward = lambda x: pytest.fail("the value network ran")
    read = inputs(model)
    hidden = read["obs_flat"]
    for layer in model.trunk.layers:
        hidden = linear(hidden, layer.weight, layer.bias).tanh()
    assert_close(model(read)[0], linear(hidden, model.head.linear.weight, model.head.linear.bias))


@pytest.mark.parametrize("share", [True, False])
def test_shared_layers_carry_both_gradients_and_separate_ones_only_their_own(share):
    model = fc(vf_share_layers=share)
    with pytest.raises(RuntimeError, match="last forward"):
        model.value_function()
    model(inputs(model))
    model.value_function().sum().backward()
    assert (model.trunk.layers[0].weight.grad is not None) == share


@pytest.mark.parametrize(
    ("space", "action", "dist", "columns"),
    [
        (OBS, ACTION, None, [2, 3]),
        (ROBOT, ACTION, None, [2, 3]),
        (OBS, spaces.Tuple([ONE, spaces.Discrete(2), ONE]), None, [1, 5]),  # μ σ l l μ σ
        (OBS, spaces.Tuple([spaces.Discrete(3), ACTION]), "SquashedGaussian", [5, 6]),
    ],
)
def test_free_log_std_is_one_vector_for_all_observations(space, action, dist, columns):
    config = {"custom_action_dist": dist, "free_log_std": True, "log_std_init": 7.0}
    _, size = ModelCatalog.get_action_dist(action, config)
    model = ModelCatalog.get_model(space, action, size, config)
    outputs, _ = model(inputs(model))
    assert (outputs == 7.0).all(0).nonzero().flatten().tolist() == columns
    outputs.sum().backward()
    assert model.head.free.grad.tolist() == [5.0] * len(columns)


@pytest.mark.parametrize("initializer", ["orthogonal", "normc", "default"])
def test_first_weights(initializer):
    """Orthogonal: W Wᵀ = 2 I (gain √2). Normc: rows of norm 1. Heads 0.01."""
    model = fc(fcnet_weights_initializer=initializer)
    weight, head = model.trunk.layers[1].weight, model.head.linear.weight
    if initializer == "orthogonal":
        assert_close(weight @ weight.T, 2 * torch.eye(64), atol=1e-4, rtol=0)
        assert_close(head.norm(dim=1), torch.full((4,), 0.01))
        assert_close(model.value_head.linear.weight.norm(), torch.tensor(1.0))
    elif initializer == "normc":
        assert_close(weight.norm(dim=1), torch.ones(64))
        assert_close(head.norm(dim=1), torch.full((4,), 0.01))
    else:
        assert weight.abs().max() <= 1 / 8


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_are_pytorchs_and_have_gradients(name):
    mlp, x = MLP(3, [7], name), torch.randn(5, 3)
    y = mlp(x)
    y.sum().backward()
    assert_close(y, PLAIN[name](torch.nn.functional.linear(x, mlp.layers[0].weight, mlp.layers[0].bias)))
    assert mlp.layers[0].weight.grad.isfinite().all()


def test_wrong_settings_are_refused_with_the_way_out():
    cases = [
        (OBS, {"fcnet_hidden": [3]}, r"'model.fcnet_hidden'.*'model.fcnet_hiddens'"),
        (OBS, {"fcnet_activation": "tahn"}, r"fcnet_activation='tahn'.*'tanh'"),
        (OBS, {"fcnet_weights_initializer": "orthogonl"}, "'orthogonal'"),
        (image(210, 160, 3), {}, r"210×160.*conv_filters.*impala_resnet"),
        (image(256, 256, 3), {}, r"256×256.*conv_filters"),
        (image(7, 7, 3), preset("nature_cnn"), r"kernel 8 .*7"),
        (image(10, 10, 3), {"conv_filters": [[4, 4, 2], [8, 8, 1]]}, r"kernel 8 .*4"),
        (image(84, 84, 4), preset("impala_resnet", conv_filters=[[4, 3, 1]]), "exclude"),
        *((image(84, 84, 4), {key: []}, rf"model\.{key}=\[\]") for key in ("conv_filters", "conv_residual_channels")),
        (image(36, 36, 1), preset("nature_cnn", no_final_linear=True, post_fcnet_hiddens=[]), "post_fcnet_hiddens"),
        (ROBOT, {"no_final_linear": True, "post_fcnet_hiddens": []}, r"set model\.post_fcnet_hiddens"),
        (OBS, {"use_lstm": True, "use_attention": True}, r"use_lstm.*use_attention"),
        *((OBS, {key: 0}, rf"{key}=0") for key in ("max_seq_len", "lstm_cell_size", "attention_dim")),
    ]
    assert not_refused(lambda space, config: ModelCatalog.get_model(space, ACTION, 4, config), cases) == []
    with pytest.raises(ConfigError, match="float Box"):
        fc(2, spaces.Discrete(2), free_log_std=True)


# -- images -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("shape", "flat", "behind"),
    [
        ((8, 8, 3), 16 * 6 * 6, 128),
        ((10, 10, 4), 16 * 8 * 8, 128),  # MinAtar's 16 filters and 128 units
        ((3, 12, 12), 32 * 3 * 3, 128),  # 12 → 5 → 3
        ((24, 24, 3), 32 * 4 * 4, 256),  # 24 → 11 → 4
        ((42, 42, 1), 64 * 3 * 3, 256),  # 42 → 9 → 3
        ((64, 64, 3), 64 * 4 * 4, 512),  # 64 → 15 → 6 → 4
        ((30, 60, 3), 32 * 6 * 13, 256),  # the smaller side says which: 30 → 14 → 6, 60 → 29 → 13
    ],
)
def test_an_image_gets_a_network_of_its_size(shape, flat, behind):
    """No layer is wider than what it reads, as 512 units on the 64 numbers that large kernels leave of 16 pixels."""
    post = ImageEncoder(shape).post.layers
    assert [layer.weight.shape for layer in post] == [(behind, flat)] and behind <= flat


def test_every_usual_size_has_a_network_without_a_layer_wider_than_its_input():
    for side in range(8, 129):
        encoder = ImageEncoder((side, side, 1), initializer="default")
        (layer,) = encoder.post.layers
        assert layer.out_features <= layer.in_features, side
        assert encoder(torch.zeros(1, side, side, 1, dtype=torch.uint8)).shape == (1, layer.out_features), side


def test_given_filters_make_a_vision_network_of_any_three_dimensional_box():
    space = spaces.Box(0, 1, (5, 5, 2))
    assert isinstance(ModelCatalog.get_model(space, ACTION, 4, {"conv_filters": [[8, 3, 1]]}), VisionNetwork)
    assert isinstance(ModelCatalog.get_model(space, ACTION, 4), FullyConnectedNetwork)


def test_channels_first_and_last_see_the_same_picture_of_bytes_scaled_to_one():
    torch.manual_seed(0)
    first, last = ImageEncoder((3, 36, 36)), ImageEncoder((36, 36, 3))
    first.load_state_dict(last.state_dict())
    picture = torch.randint(0, 256, (2, 36, 36, 3), dtype=torch.uint8)
    assert_close(last(picture), first(picture.permute(0, 3, 1, 2)))
    assert_close(last(picture), last(picture.float() / 255))


def test_vision_models_do_not_read_the_flat_vector():
    class OnlyObs(dict):
        def __missing__(self, key):
            pytest.fail(f"read {key}")

    model = ModelCatalog.get_model(image(84, 84, 4), ACTION, 4)
    model(OnlyObs(obs=torch.zeros(1, 84, 84, 4, dtype=torch.uint8)))


def test_parametrized_weights_are_honored():
    """Spectral norm replaces the weight by a function of it: the lean path must not read the old one."""
    mlp = MLP(3, [4], "linear")
    torch.nn.utils.parametrizations.spectral_norm(mlp.layers[0])
    mlp.eval()
    x = torch.randn(5, 3)
    assert_close(mlp(x), mlp.layers[0](x))
