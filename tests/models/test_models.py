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
from lightning_rl.models.vision import ImageEncoder, filters_for
from tests.models.space_samples import sample_space
from tests.refusals import not_refused
from tests.space_cases import SUPPORTED

OBS, ACTION = spaces.Box(-1, 1, (3,)), spaces.Box(-1, 1, (2,))
IMAGE = spaces.Box(0, 255, (84, 84, 4), dtype=np.uint8)


def fc(num_outputs=4, action=ACTION, **config):
    return ModelCatalog.get_model(OBS, action, num_outputs, config)


def rows(count=5):
    return {"obs_flat": torch.randn(count, 3, generator=torch.Generator().manual_seed(0))}


@pytest.mark.parametrize("space", SUPPORTED, ids=str)
def test_every_supported_observation_reaches_outputs_and_values(space):
    model = ModelCatalog.get_model(space, ACTION, 4, {"fcnet_hiddens": [8]})
    _, obs = sample_space(space, 3)
    outputs, state = model({"obs": obs, "obs_flat": model.preprocessor.transform_batch(obs)})
    assert outputs.shape == (3, 4) and model.value_function().shape == (3,) and state == []
    (outputs.sum() + model.value_function().sum()).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_the_default_is_two_separate_tanh_networks():
    model = fc()
    assert isinstance(model, FullyConnectedNetwork)
    assert sum(p.numel() for p in model.parameters()) == 2 * (3 * 64 + 64 + 64 * 64 + 64) + (64 * 4 + 4) + (64 + 1)
    linear = torch.nn.functional.linear
    hidden = rows()["obs_flat"]
    for layer in model.trunk.layers:
        hidden = linear(hidden, layer.weight, layer.bias).tanh()
    assert_close(model(rows())[0], linear(hidden, model.head.linear.weight, model.head.linear.bias))


def test_acting_never_runs_the_value_network():
    model = fc()
    model.value_trunk.forward = lambda x: pytest.fail("the value network ran")
    model(rows())


def test_shared_layers_carry_both_gradients_and_separate_ones_only_their_own():
    for share in (True, False):
        model = fc(vf_share_layers=share)
        model(rows())
        model.value_function().sum().backward()
        assert (model.trunk.layers[0].weight.grad is not None) == share


def test_post_layers_have_their_own_activation():
    """Layer widths 8 (tanh) then 6 (relu): the features are never negative."""
    model = fc(0, fcnet_hiddens=[8], post_fcnet_hiddens=[6], post_fcnet_activation="relu")
    features, _ = model(rows())
    assert features.shape == (5, 6) and bool((features >= 0).all()) and model.num_outputs == 6


def test_no_final_linear_makes_the_last_hidden_layer_the_output():
    model = fc(4, fcnet_hiddens=[16, 16], no_final_linear=True)
    outputs, _ = model(rows())
    assert outputs.shape == (5, 4) and bool((outputs.abs() <= 1).all()) and model.head.linear is None
    assert model.value_function().shape == (5,)


def test_free_log_std_is_one_vector_for_all_observations():
    model = fc(free_log_std=True, log_std_init=-0.5)
    outputs, _ = model(rows())
    assert torch.equal(outputs[:, 2:], torch.full((5, 2), -0.5))
    outputs.sum().backward()
    assert model.head.free.grad.tolist() == [5.0, 5.0]


def test_free_log_std_finds_its_columns_in_nested_actions():
    """Box(1), Discrete(2), Box(1): μ σ l l μ σ."""
    action = spaces.Tuple([spaces.Box(-1, 1, (1,)), spaces.Discrete(2), spaces.Box(-1, 1, (1,))])
    outputs, _ = fc(6, action, free_log_std=True, log_std_init=7.0)(rows())
    assert (outputs == 7.0).all(0).tolist() == [False, True, False, False, False, True]


def test_free_log_std_without_gaussian_actions_is_refused():
    with pytest.raises(ConfigError, match="float Box"):
        fc(2, spaces.Discrete(2), free_log_std=True)


def test_log_std_clip_reaches_the_distribution():
    assert fc(log_std_clip_param=3).log_std_clip == 3.0


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


@pytest.mark.parametrize("name", [*ACTIVATIONS, None])
def test_activations_are_pytorchs_and_have_gradients(name):
    mlp = MLP(3, [7], name or "linear")
    x = rows()["obs_flat"]
    y = mlp(x)
    y.sum().backward()
    before = torch.nn.functional.linear(x, mlp.layers[0].weight, mlp.layers[0].bias)
    plain = {"linear": lambda z: z, None: lambda z: z, "swish": torch.nn.functional.silu}
    expected = plain.get(name) or getattr(torch, str(name), None) or getattr(torch.nn.functional, str(name))
    assert_close(y, expected(before))
    assert mlp.layers[0].weight.grad.isfinite().all()


def test_errors_for_wrong_keys_and_names_suggest_the_nearest_name():
    cases = [
        ({"fcnet_hidden": [3]}, r"'model.fcnet_hidden'.*'model.fcnet_hiddens'"),
        ({"fcnet_activation": "tahn"}, r"fcnet_activation='tahn'.*'tanh'"),
        ({"fcnet_weights_initializer": "orthogonl"}, "'orthogonal'"),
    ]
    assert not_refused(lambda config: fc(**config), cases) == []


def test_value_function_before_any_forward_is_refused():
    with pytest.raises(RuntimeError, match="last forward"):
        fc().value_function()


@pytest.mark.parametrize("share", [True, False])
def test_models_can_be_copied_and_pickled_in_the_middle_of_training(share):
    model = fc(vf_share_layers=share)
    outputs, _ = model(rows())
    for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(again(rows())[0], outputs)


# -- images -----------------------------------------------------------------------------------------------------------
def test_the_default_for_atari_is_the_nature_network():
    """84 → 20 → 9 → 7: 64·7·7 = 3136 into 512."""
    model = ModelCatalog.get_model(IMAGE, spaces.Discrete(6), 6, {"vf_share_layers": True})
    assert isinstance(model, VisionNetwork)
    assert [layer.out_channels for layer in model.encoder.convolutions] == [32, 64, 64]
    assert model.encoder.post.layers[0].weight.shape == (512, 3136)
    outputs, _ = model({"obs": torch.zeros(2, 84, 84, 4, dtype=torch.uint8)})
    assert outputs.shape == (2, 6) and model.value_function().shape == (2,)


@pytest.mark.parametrize("side", [8, 10, 16, 35, 36, 42, 64, 84, 96, 128])
def test_filters_are_found_for_every_usual_size(side):
    encoder = ImageEncoder((side, side, 3), post_fcnet_hiddens=[4])
    assert encoder(torch.zeros(1, side, side, 3, dtype=torch.uint8)).shape == (1, 4)


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


def test_no_image_network_has_a_layer_wider_than_its_input():
    for side in range(8, 129):
        (layer,) = ImageEncoder((side, side, 1), initializer="default").post.layers
        assert layer.out_features <= layer.in_features, side


@pytest.mark.parametrize("size", [(210, 160), (256, 256), (5, 84)])
def test_sizes_without_filters_are_refused_with_the_way_out(size):
    with pytest.raises(ConfigError, match=f"{size[0]}×{size[1]}.*conv_filters"):
        filters_for(*size)


def test_filters_that_eat_the_image_are_refused():
    with pytest.raises(ConfigError, match=r"kernel 8 .*4"):
        ImageEncoder((10, 10, 3), [[4, 4, 2], [8, 8, 1]])


def test_given_filters_make_a_vision_network_of_any_three_dimensional_box():
    space = spaces.Box(0, 1, (5, 5, 2))
    assert isinstance(ModelCatalog.get_model(space, ACTION, 4, {"conv_filters": [[8, 3, 1]]}), VisionNetwork)
    assert isinstance(ModelCatalog.get_model(space, ACTION, 4), FullyConnectedNetwork)


def test_channels_first_and_last_see_the_same_picture():
    torch.manual_seed(0)
    last = ImageEncoder((36, 36, 3))
    first = ImageEncoder((3, 36, 36))
    first.load_state_dict(last.state_dict())
    image = torch.randint(0, 256, (2, 36, 36, 3), dtype=torch.uint8)
    assert_close(last(image), first(image.permute(0, 3, 1, 2)))


def test_uint8_is_scaled_to_one_and_floats_are_taken_as_they_are():
    encoder = ImageEncoder((36, 36, 3))
    image = torch.randint(0, 256, (2, 36, 36, 3), dtype=torch.uint8)
    assert_close(encoder(image), encoder(image.float() / 255))


@pytest.mark.parametrize("share", [True, False])
def test_post_layers_behind_convolutions_work_with_either_value_branch(share):
    """In RLlib this crashed with shared layers, and the last post layer had no activation."""
    config = {"conv_filters": [[4, 8, 4]], "post_fcnet_hiddens": [32, 16], "vf_share_layers": share}
    model = ModelCatalog.get_model(IMAGE, ACTION, 4, config)
    model({"obs": torch.randint(0, 256, (2, 84, 84, 4), dtype=torch.uint8)})
    assert model.value_function().shape == (2,)
    assert bool((model.encoder(torch.randint(0, 256, (2, 84, 84, 4), dtype=torch.uint8)) >= 0).all())


def test_vision_models_do_not_read_the_flat_vector():
    class OnlyObs(dict):
        def __missing__(self, key):
            pytest.fail(f"read {key}")

    ModelCatalog.get_model(IMAGE, ACTION, 4)(OnlyObs(obs=torch.zeros(1, 84, 84, 4, dtype=torch.uint8)))


def test_parametrised_weights_are_honoured():
    """Spectral norm replaces the weight by a function of it: the lean path must not read the old one."""
    mlp = MLP(3, [4], "linear")
    torch.nn.utils.parametrizations.spectral_norm(mlp.layers[0])
    mlp.eval()
    x = rows()["obs_flat"]
    assert_close(mlp(x), mlp.layers[0](x))
