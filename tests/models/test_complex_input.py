"""Dict and Tuple observations with images: each part has its own encoder, and all parts are used."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch.testing import assert_close

from lightning_rl.envs import EnvCreator
from lightning_rl.errors import ConfigError, UnsupportedSpaceError
from lightning_rl.models import ComplexInputNetwork, FullyConnectedNetwork, Model, ModelCatalog
from lightning_rl.models.filters import MeanStdFilter, make_observation_filter
from lightning_rl.models.layers import MLP
from lightning_rl.models.preprocessors import NestedPreprocessor, Preprocessor
from lightning_rl.models.vision import ImageEncoder
from lightning_rl.policies import PPO
from lightning_rl.rollouts import RolloutWorker
from lightning_rl.sample_batch import to_nested_batch
from tests.models.space_samples import sample_space

ACTION = spaces.Box(-1, 1, (2,))
CAMERA = spaces.Box(0, 255, (12, 12, 3), dtype=np.uint8)
ROBOT = spaces.Dict(
    {
        "camera": CAMERA,
        "gear": spaces.Discrete(3),
        "lamps": spaces.MultiBinary(2),
        "speed": spaces.Box(-9.0, 9.0, (2,)),
        "switches": spaces.MultiDiscrete([2, 3]),
    }
)
NESTINGS = {
    "dict": ROBOT,
    "tuple": spaces.Tuple([spaces.Box(-1, 1, (2,)), CAMERA]),
    "nested": spaces.Dict({"eyes": spaces.Tuple([CAMERA, CAMERA]), "body": spaces.Dict({"gear": spaces.Discrete(2)})}),
    "only images": spaces.Dict({"left": CAMERA, "right": spaces.Box(0, 1, (1, 12, 12))}),
    "names of dict methods": spaces.Dict({"values": CAMERA, "items": spaces.Box(-1, 1, (2,)), "a.b": CAMERA}),
}


def complex_input_model(space: spaces.Space[Any] = ROBOT, num_outputs: int = 4, **config: Any) -> Model:
    return ModelCatalog.get_model(space, ACTION, num_outputs, config)


def inputs(model: Model, count: int = 5) -> dict[str, Any]:
    model.obs_space.seed(0)
    _, obs = sample_space(model.obs_space, count)
    return {"obs": obs, "obs_flat": model.preprocessor.transform_batch(obs)}


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("space", NESTINGS.values(), ids=NESTINGS)
def test_any_nesting_with_an_image_reaches_outputs_and_values(space, share):
    model = complex_input_model(space, vf_share_layers=share)
    assert isinstance(model, ComplexInputNetwork)
    read = inputs(model)
    outputs, state = model(read)
    assert outputs.shape == (5, 4) and model.value_function().shape == (5,) and state == []
    again, _ = model({**read, "obs": to_nested_batch(read["obs"])})  # as batches have it
    assert_close(again, outputs)


def test_without_an_image_the_flat_vector_goes_through_one_network():
    assert isinstance(
        complex_input_model(spaces.Dict({"a": spaces.Box(-1, 1, (2,)), "b": spaces.Discrete(3)})), FullyConnectedNetwork
    )


def test_each_part_has_the_encoder_of_its_kind():
    """One-hot widths: gear 3, lamps 2 (bits as they are), switches 2 + 3."""
    parts = dict(zip(ROBOT.spaces, complex_input_model(fcnet_hiddens=[8, 6]).encoder.parts, strict=True))
    assert isinstance(parts["camera"], ImageEncoder)
    widths = {name: part.layers[0].in_features for name, part in parts.items() if isinstance(part, MLP)}
    assert widths == {"gear": 3, "lamps": 2, "speed": 2, "switches": 5}
    assert all(part.size == 6 for name, part in parts.items() if name != "camera")


@pytest.mark.parametrize("share", [True, False])
def test_outputs_and_values_send_gradients_to_every_encoder(share):
    model = complex_input_model(vf_share_layers=share)
    outputs, _ = model(inputs(model))
    (outputs.sum() + model.value_function().sum()).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name


def test_without_layers_behind_the_parts_their_features_stand_side_by_side():
    """12 × 12 pixels have a layer of 128 behind their convolutions."""
    assert complex_input_model(num_outputs=0, post_fcnet_hiddens=[], fcnet_hiddens=[6]).num_outputs == 128 + 4 * 6


@pytest.mark.parametrize("post", [None, [7], [9, 5]])
def test_num_outputs_is_the_width_of_the_features(post):
    """RLlib's network gives the width of the concatenation even with layers behind it."""
    model = complex_input_model(num_outputs=0, post_fcnet_hiddens=post, fcnet_hiddens=[6])
    outputs, _ = model(inputs(model))
    assert model.num_outputs == outputs.shape[1] == (post[-1] if post else 256)
    with pytest.raises(ConfigError, match="value_function"):
        model.value_function()


def test_layers_behind_the_parts_have_their_own_activation():
    model = complex_input_model(
        num_outputs=0, post_fcnet_hiddens=[50], fcnet_activation="tanh", post_fcnet_activation="relu"
    )
    features, _ = model(inputs(model))
    assert bool((features >= 0).all()) and bool((features > 1).any())


def test_no_final_linear_makes_the_last_layer_behind_the_parts_the_output():
    model = complex_input_model(post_fcnet_hiddens=[16, 16], post_fcnet_activation="tanh", no_final_linear=True)
    outputs, _ = model(inputs(model))
    assert outputs.shape == (5, 4) and bool((outputs.abs() <= 1).all()) and model.head.linear is None
    with pytest.raises(ConfigError, match=r"set model\.post_fcnet_hiddens"):
        complex_input_model(no_final_linear=True, post_fcnet_hiddens=[])


def test_free_log_std_is_one_vector_for_all_observations():
    model = complex_input_model(free_log_std=True, log_std_init=-0.5)
    assert torch.equal(model(inputs(model))[0][:, 2:], torch.full((5, 2), -0.5))


def test_pixels_are_scaled_and_stay_bytes_until_the_network():
    model = complex_input_model()
    read = inputs(model)
    parts = model.encoder_inputs(read)
    assert parts[0].dtype == torch.uint8 and parts[0] is read["obs"]["camera"]
    floats = {**read, "obs": {**read["obs"], "camera": read["obs"]["camera"].float() / 255}}
    assert_close(model(floats)[0], model(read)[0])


def test_channels_first_and_last_see_the_same_picture():
    torch.manual_seed(0)
    first = spaces.Dict({"camera": spaces.Box(0, 255, (3, 12, 12), dtype=np.uint8), "x": ACTION})
    last = spaces.Dict({"camera": CAMERA, "x": ACTION})
    one, other = complex_input_model(first), complex_input_model(last)
    other.load_state_dict(one.state_dict())
    read = inputs(one)
    turned = {**read, "obs": {**read["obs"], "camera": read["obs"]["camera"].permute(0, 2, 3, 1)}}
    assert_close(other(turned)[0], one(read)[0])


def test_small_pictures_are_numbers_unless_convolutions_are_given():
    """A MiniGrid view has 7 × 7 cells."""
    space = spaces.Dict({"image": spaces.Box(0, 10, (7, 7, 3), dtype=np.uint8), "direction": spaces.Discrete(4)})
    assert isinstance(complex_input_model(space), FullyConnectedNetwork)
    for config in ({"conv_filters": [[8, 3, 1]]}, {"conv_residual_channels": [8]}):
        model = complex_input_model(space, **config)
        assert isinstance(model, ComplexInputNetwork)
        assert model(inputs(model))[0].shape == (5, 4)


def test_given_filters_go_to_the_camera_not_to_small_matrices():
    space = spaces.Dict({"camera": CAMERA, "grid": spaces.Box(-1, 1, (2, 3, 4))})
    model = complex_input_model(space, conv_filters=[[8, 8, 4]])
    assert isinstance(model.encoder.parts[0], ImageEncoder) and isinstance(model.encoder.parts[1], MLP)


@pytest.mark.parametrize("share", [True, False])
def test_models_can_be_copied_and_pickled_in_the_middle_of_training(share):
    model = complex_input_model(vf_share_layers=share)
    read = inputs(model)
    outputs, _ = model(read)
    for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(again(read)[0], outputs)


# -- the observation filter -------------------------------------------------------------------------------------------
def test_the_filter_normalises_vectors_and_never_meets_a_pixel():
    """speed is 3 ± 1 in row order: normalised to −1 and 1; one image row is 12 · 12 · 3 numbers, none of them here."""
    space = spaces.Dict({"camera": CAMERA, "speed": spaces.Box(-9, 9, (1,))})
    policy = PPO(space, ACTION, observation_filter="mean_std")
    obs = {"camera": torch.full((2, 12, 12, 3), 200, dtype=torch.uint8), "speed": torch.tensor([[2.0], [4.0]])}
    assert isinstance(policy.observation_filter, MeanStdFilter) and len(policy.observation_filter.shift) == 1
    policy.observation_filter.update(policy.preprocessor.transform_batch(obs))
    camera, speed = policy.model.encoder_inputs(policy.input_dict(obs))
    assert torch.equal(camera, obs["camera"])
    assert_close(speed, torch.tensor([[-1.0], [1.0]]))


class ReadsAll(Model):
    """A custom model whose "obs_flat" holds the pixels too."""

    def forward(self, input_dict, state=(), seq_lens=None):
        return torch.zeros(len(input_dict["obs_flat"]), self.num_outputs), list(state)


class ReadsNumbers(ReadsAll):
    def __init__(self, obs_space, action_space, num_outputs):
        flat = NestedPreprocessor(obs_space, skipped=["camera"])
        super().__init__(obs_space, action_space, num_outputs, preprocessor=flat)


def test_the_filter_error_for_a_custom_model_with_pixels_explains_the_remedy():
    with pytest.raises(UnsupportedSpaceError, match=r"part 'camera'.*skipped=\['camera'\]"):
        PPO(ROBOT, ACTION, model={"custom_model": ReadsAll}, observation_filter="mean_std")
    policy = PPO(ROBOT, ACTION, model={"custom_model": ReadsNumbers}, observation_filter="mean_std")
    assert policy.preprocessor.size == 3 + 2 + 2 + 5


def test_an_observation_of_images_only_is_refused_with_an_observation_filter():
    with pytest.raises(UnsupportedSpaceError, match="images"):
        PPO(NESTINGS["only images"], ACTION, observation_filter="mean_std")


def test_features_that_a_preprocessor_makes_of_an_image_are_filtered():
    class Brightness(Preprocessor):
        def _init_shape(self, obs_space, options):
            return (1,)

        def transform_batch(self, obs):
            return obs.float().mean((1, 2, 3)).unsqueeze(1)

    assert isinstance(make_observation_filter("mean_std", CAMERA, Brightness(CAMERA)), MeanStdFilter)


# -- learning ---------------------------------------------------------------------------------------------------------
class ThreeSigns(gym.Env[Any, Any]):
    """One step: each of three choices must match what one part of the observation shows; each match pays a third.

    The camera shows a bright left or right half, the speed is ± 1, the gear 0 or 1. A part that the network does not
    read leaves its choice at even odds, and the mean reward at 5/6 at most.
    """

    def __init__(self) -> None:
        self.observation_space = spaces.Dict(
            {
                "camera": spaces.Box(0, 255, (8, 8, 1), dtype=np.uint8),
                "speed": spaces.Box(-1, 1, (1,)),
                "gear": spaces.Discrete(2),
            }
        )
        self.action_space = spaces.MultiDiscrete([2, 2, 2])

    def observe(self) -> dict[str, Any]:
        self.signs = self.np_random.integers(2, size=3)
        camera = np.zeros((8, 8, 1), np.uint8)
        camera[:, 4 * self.signs[0] :][:, :4] = 255
        return {
            "camera": camera,
            "speed": np.array([2.0 * self.signs[1] - 1.0], np.float32),
            "gear": np.int64(self.signs[2]),
        }

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = float((action == self.signs).mean())
        return self.observe(), reward, True, False, {}


@pytest.mark.parametrize("share", [True, False])
def test_ppo_learns_to_use_every_part_of_the_observation(share):
    env = EnvCreator(ThreeSigns)
    config = {"fcnet_hiddens": [16], "conv_filters": [[4, 4, 4]], "post_fcnet_hiddens": [32], "vf_share_layers": share}
    policy = PPO(*env.spaces(), model=config, lr=1e-2, passes=4, minibatches=2, gamma=0.0, seed=1)
    worker = RolloutWorker(env, policy, num_envs=16, fragment_length=16, vectorization="sync", seed=1)
    for _ in range(25):
        policy.learn_on_batch(worker.sample())
    single = env.make_single()
    obs, _ = single.reset(seed=3)
    hits = []
    for _ in range(50):
        action = policy.compute_single_action(obs)
        hits.append(action == single.signs)
        obs, *_ = single.step(action)
    assert np.mean(hits, axis=0).tolist() == [1.0, 1.0, 1.0]
    worker.stop()


@pytest.mark.parametrize(("post", "least", "most"), [(None, 1.0, 1.0), ([], 0.0, 0.75)], ids=["default", "none"])
def test_by_default_actions_can_depend_on_a_picture_and_a_number_together(post, least, most):
    """One of two actions is right where the camera's bright half and the speed's sign agree, the other elsewhere.

    What each part says alone, added up, can be right in three of the four cases at best.
    """
    space = spaces.Dict({"camera": spaces.Box(0, 255, (8, 8, 1), dtype=np.uint8), "speed": spaces.Box(-1, 1, (1,))})
    torch.manual_seed(0)
    model = ModelCatalog.get_model(space, spaces.Discrete(2), 2, {"post_fcnet_hiddens": post})
    camera = torch.zeros(4, 8, 8, 1, dtype=torch.uint8)
    camera[:2, :, :4] = camera[2:, :, 4:] = 255
    speed, right = torch.tensor([[-1.0], [1.0], [-1.0], [1.0]]), torch.tensor([0, 1, 1, 0])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(60):
        outputs, _ = model({"obs": {"camera": camera, "speed": speed}, "obs_flat": speed})
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(outputs, right).backward()
        optimizer.step()
    assert least <= (outputs.argmax(1) == right).double().mean() <= most


def test_the_recorded_camera_is_made_of_bytes():
    env = EnvCreator(ThreeSigns)
    policy = PPO(*env.spaces(), observation_filter="mean_std", minibatches=2)
    worker = RolloutWorker(env, policy, num_envs=2, fragment_length=4, vectorization="sync", seed=1)
    fragment = worker.sample()
    assert fragment.obs["camera"].dtype == torch.uint8 and fragment.obs["camera"].shape == (5, 2, 8, 8, 1)
    policy.learn_on_batch(fragment)
    assert len(policy.observation_filter.shift) == 1 + 2  # speed, gear one-hot
    worker.stop()
