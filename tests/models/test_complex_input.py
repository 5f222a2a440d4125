"""Dict and Tuple observations with images: each part has its own encoder, and all parts are used."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch.testing import assert_close

from lightning_rl.envs import EnvCreator
from lightning_rl.errors import UnsupportedSpaceError
from lightning_rl.models import ComplexInputNetwork, FullyConnectedNetwork, Model, ModelCatalog
from lightning_rl.models.filters import MeanStdFilter, make_observation_filter
from lightning_rl.models.layers import MLP
from lightning_rl.models.preprocessors import NestedPreprocessor, Preprocessor
from lightning_rl.models.vision import ImageEncoder
from lightning_rl.policies import PPO
from lightning_rl.rollouts import RolloutWorker
from tests.models.networks import CAMERA, NESTINGS, ROBOT, inputs

ACTION = spaces.Box(-1, 1, (2,))


def complex_input_model(space: spaces.Space[Any] = ROBOT, num_outputs: int = 4, **config: Any) -> Model:
    return ModelCatalog.get_model(space, ACTION, num_outputs, config)


def test_each_part_has_the_encoder_of_its_kind():
    """One-hot widths: gear 3, lamps 2 (bits as they are), switches 2 + 3.

    Without layers behind, features stand side by side. Given filters are for the camera, not for a small matrix.
    """
    space = spaces.Dict({**ROBOT.spaces, "table": spaces.Box(-1, 1, (2, 3, 4))})
    model = complex_input_model(space, 0, fcnet_hiddens=[8, 6], post_fcnet_hiddens=[], conv_filters=[[8, 8, 4]])
    assert isinstance(model, ComplexInputNetwork)
    parts = dict(zip(space.spaces, model.encoder.parts, strict=True))
    widths = {name: part.layers[0].in_features for name, part in parts.items() if isinstance(part, MLP)}
    assert isinstance(parts["camera"], ImageEncoder)
    assert widths == {"gear": 3, "lamps": 2, "speed": 2, "switches": 5, "table": 24}
    assert [part.size for part in parts.values()] == [parts["camera"].size, 6, 6, 6, 6, 6]
    assert model.num_outputs == sum(part.size for part in parts.values())
    assert complex_input_model(num_outputs=0).num_outputs == 256  # by default there is a layer behind them


def test_small_pictures_are_numbers_unless_convolutions_are_given():
    """A MiniGrid view has 7 × 7 cells."""
    space = spaces.Dict({"image": spaces.Box(0, 10, (7, 7, 3), dtype=np.uint8), "direction": spaces.Discrete(4)})
    assert isinstance(complex_input_model(space), FullyConnectedNetwork)
    for config in ({"conv_filters": [[8, 3, 1]]}, {"conv_residual_channels": [8]}):
        model = complex_input_model(space, **config)
        assert isinstance(model, ComplexInputNetwork)
        assert model(inputs(model))[0].shape == (5, 4)


# -- the observation filter -------------------------------------------------------------------------------------------
def test_the_filter_normalizes_vectors_and_never_meets_a_pixel():
    """speed is 3 ± 1 in row order: normalized to −1 and 1; one image row is 12 · 12 · 3 numbers, none of them here."""
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


def test_the_filter_error_for_models_that_read_pixels_explains_the_remedy():
    with pytest.raises(UnsupportedSpaceError, match="skipped="):
        PPO(ROBOT, ACTION, model={"custom_model": ReadsAll}, observation_filter="mean_std")
    policy = PPO(ROBOT, ACTION, model={"custom_model": ReadsNumbers}, observation_filter="mean_std")
    assert policy.preprocessor.size == 3 + 2 + 2 + 5
    with pytest.raises(UnsupportedSpaceError, match="images"):
        PPO(NESTINGS["only images"], ACTION, observation_filter="mean_std")


def test_features_that_a_preprocessor_makes_of_an_image_are_filtered():
    class Brightness(Preprocessor):
        def _init_shape(self, obs_space, options):
            return (1,)

        def transform_batch(self, obs):
            return obs.float().mean((1, 2, 3)).unsqueeze(1)

    assert isinstance(make_observation_filter("mean_std", CAMERA, Brightness(CAMERA)), MeanStdFilter)


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


def watched_cartpole() -> gym.Env[Any, Any]:
    """CartPole with a picture."""
    space = spaces.Dict(camera=spaces.Box(0, 255, (8, 8, 1), dtype=np.uint8), speed=spaces.Box(-9, 9, (2,)))
    picture = np.full((8, 8, 1), 9, np.uint8)
    env = gym.make("CartPole-v1")
    return gym.wrappers.TransformObservation(env, lambda obs: {"camera": picture, "speed": obs[1::2]}, space)


def test_the_recorded_camera_is_made_of_bytes():
    env = EnvCreator(watched_cartpole)
    policy = PPO(*env.spaces(), observation_filter="mean_std", minibatches=2)
    fragment = RolloutWorker(env, policy, num_envs=2, fragment_length=4, vectorization="sync", seed=1).sample()
    assert fragment.obs["camera"].dtype == torch.uint8 and fragment.obs["camera"].shape == (5, 2, 8, 8, 1)
    policy.learn_on_batch(fragment)
    assert len(policy.observation_filter.shift) == 2  # the speeds
