"""ModelCatalog: custom classes by class, registered name and import path; one clear error for a broken contract."""

from __future__ import annotations

from dataclasses import fields

import pytest
import torch
from gymnasium import spaces
from torch import nn

from lightning_rl.errors import ConfigError
from lightning_rl.models import MODEL_DEFAULTS, Model, ModelCatalog, Preprocessor, VisionNetwork
from lightning_rl.models.distributions import Categorical
from lightning_rl.models.memory import MemoryConfig
from tests.refusals import not_refused

OBS, ACTION = spaces.Box(-1, 1, (3,)), spaces.Discrete(2)
HERE = "tests.models.test_catalog"


class Linear(Model):
    """A custom model; `width` comes from custom_model_config."""

    def __init__(self, obs_space, action_space, num_outputs, *, width=4, preprocessor=None):
        super().__init__(obs_space, action_space, num_outputs, preprocessor=preprocessor)
        self.hidden, self.out = nn.Linear(self.preprocessor.size, width), nn.Linear(width, num_outputs)

    def forward(self, input_dict, state=(), seq_lens=None):
        return self.out(self.hidden(input_dict["obs_flat"])), list(state)


class LooksBack(Linear):
    """Reads the two actions and the reward before, without asking whether there are any."""

    prev_actions, prev_rewards = 2, 1

    def forward(self, input_dict, state=(), seq_lens=None):
        before = input_dict["prev_actions"].float().sum(1) + input_dict["prev_rewards"]
        outputs, state = super().forward(input_dict, state, seq_lens)
        return outputs + before.unsqueeze(1), state


class Doubled(Preprocessor):
    def _init_shape(self, obs_space, options):
        return (6,)

    def transform_batch(self, obs):
        return torch.cat([obs, obs], 1)


class Cold(Categorical):
    """A custom distribution: half the temperature."""

    def _arrange(self, values):
        return values if values.dtype == torch.bool else values * 2


@pytest.fixture
def registries(monkeypatch):
    for name in ("_models", "_dists", "_preprocessors"):
        monkeypatch.setattr(ModelCatalog, name, dict(getattr(ModelCatalog, name)))


@pytest.mark.parametrize("named", [Linear, f"{HERE}:Linear", f"{HERE}.Linear", "mine"])
def test_a_model_by_class_path_or_registered_name_gets_its_keywords(registries, named):
    ModelCatalog.register_custom_model("mine", Linear)
    model = ModelCatalog.get_model(OBS, ACTION, 2, {"custom_model": named, "custom_model_config": {"width": 9}})
    assert type(model).__name__ == "Linear" and model.hidden.out_features == 9


def test_action_distributions_and_preprocessors_plug_in_the_same_way(registries):
    ModelCatalog.register_custom_action_dist("cold", Cold)
    ModelCatalog.register_custom_preprocessor("doubled", Doubled)
    factory, size = ModelCatalog.get_action_dist(ACTION, {"custom_action_dist": "cold"})
    assert factory(torch.tensor([[0.0, 1.0]])).logits.tolist() == [[0.0, 2.0]] and size == 2
    assert ModelCatalog.get_preprocessor(OBS, {"custom_preprocessor": f"{HERE}:Doubled"}).size == 6
    for config in ({}, {"custom_model": Linear}):
        model = ModelCatalog.get_model(OBS, ACTION, 2, {"custom_preprocessor": "doubled", **config})
        assert model.preprocessor.size == 6
        assert model({"obs_flat": torch.zeros(4, 6)})[0].shape == (4, 2)


def test_a_preprocessor_that_makes_images_gets_a_vision_network():
    class Drawn(Preprocessor):
        def _init_shape(self, obs_space, options):
            return (10, 10, 1)

        def transform_batch(self, obs):
            return obs[:, :1].expand(-1, 100)

    model = ModelCatalog.get_model(OBS, ACTION, 2, {"custom_preprocessor": Drawn})
    assert isinstance(model, VisionNetwork)
    assert model({"obs_flat": torch.zeros(3, 100)})[0].shape == (3, 2)


class NoForward(Model):
    pass


class OneValue(Linear):
    def forward(self, input_dict, state=(), seq_lens=None):
        return super().forward(input_dict)[0]


class Wide(Linear):
    def forward(self, input_dict, state=(), seq_lens=None):
        return super().forward(input_dict)[0].repeat(1, 2), []


class ColumnOfValues(Linear):
    def value_function(self):
        return torch.zeros(2, 1)


class DropsPreprocessor(Linear):
    def __init__(self, obs_space, action_space, num_outputs, preprocessor=None):
        super().__init__(obs_space, action_space, num_outputs)


def test_a_broken_model_is_one_clear_error():
    cases = [
        ({"custom_model": NoForward}, "define forward"),
        ({"custom_model": nn.Linear}, r"lightning_rl\.models\.model\.Model"),
        ({"custom_model": OneValue}, "forward returned Tensor"),
        ({"custom_model": Wide}, r"shape \[2, 4\]; expected \[2, 2\]"),
        ({"custom_model": ColumnOfValues}, r"\[2, 1\]"),
        ({"custom_model": Linear, "custom_model_config": {"depth": 2}}, "'depth'"),
        ({"custom_model": DropsPreprocessor, "custom_preprocessor": Doubled}, "drops custom_preprocessor"),
        ({"custom_model": "nothing"}, "neither registered"),
        ({"custom_model": "no_such_package.nets:Net"}, "no_such_package"),
        ({"custom_model": f"{HERE}:Linaer"}, "'Linear'"),
    ]
    assert not_refused(lambda config: ModelCatalog.get_model(OBS, ACTION, 2, config), cases) == []


def test_the_error_for_a_broken_distribution_or_preprocessor_names_the_missing_method():
    from lightning_rl.models.distributions import ActionDistribution

    class Half(ActionDistribution):
        def sample(self, generator=None):
            return self.inputs

    with pytest.raises(ConfigError, match="required_model_output_shape, deterministic_sample"):
        ModelCatalog.get_action_dist(ACTION, {"custom_action_dist": Half})
    with pytest.raises(ConfigError, match="_init_shape"):
        ModelCatalog.get_preprocessor(OBS, {"custom_preprocessor": Preprocessor})


def test_trying_a_custom_model_leaves_it_in_train_mode_and_batch_norm_untouched():
    class Normed(Linear):
        def __init__(self, *arguments, **keywords):
            super().__init__(*arguments, **keywords)
            self.norm = nn.BatchNorm1d(3)

        def forward(self, input_dict, state=(), seq_lens=None):
            return super().forward({"obs_flat": self.norm(input_dict["obs_flat"])})

    model = ModelCatalog.get_model(OBS, ACTION, 2, {"custom_model": Normed})
    assert model.training and int(model.norm.num_batches_tracked) == 0


# -- every key does something -----------------------------------------------------------------------------------------
CAMERA = spaces.Box(0, 255, (36, 36, 1), dtype="uint8")
CHANGES = {  # key → (observations, action space, other keys, a value)
    "fcnet_hiddens": (OBS, ACTION, {}, [7]),
    "fcnet_activation": (OBS, ACTION, {}, "relu"),
    "fcnet_weights_initializer": (OBS, ACTION, {}, "normc"),
    "fcnet_residual": (OBS, ACTION, {}, True),
    "conv_filters": (CAMERA, ACTION, {}, [[4, 8, 4]]),
    "conv_activation": (CAMERA, ACTION, {}, "tanh"),
    "conv_residual_channels": (CAMERA, ACTION, {}, [4]),
    "post_fcnet_hiddens": (OBS, ACTION, {}, [7]),
    "post_fcnet_activation": (CAMERA, ACTION, {}, "tanh"),
    "free_log_std": (OBS, spaces.Box(-1, 1, (1,)), {}, True),
    "log_std_init": (OBS, spaces.Box(-1, 1, (1,)), {"free_log_std": True}, -1.0),
    "log_std_clip_param": (OBS, ACTION, {}, 2.0),
    "no_final_linear": (OBS, ACTION, {}, True),
    "layer_norm": (OBS, ACTION, {}, True),
    "batch_norm": (OBS, ACTION, {}, "after"),
    "vf_share_layers": (OBS, ACTION, {}, True),
    "custom_model": (OBS, ACTION, {}, Linear),
    "custom_model_config": (OBS, ACTION, {"custom_model": Linear}, {"width": 9}),
    "custom_action_dist": (OBS, ACTION, {}, Cold),
    "custom_preprocessor": (OBS, ACTION, {}, Doubled),
}


def fingerprint(space, action, config):
    """Everything that a setting could change: parameters, what they make of one observation, the distribution."""
    factory, size = ModelCatalog.get_action_dist(action, config)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = ModelCatalog.get_model(space, action, size, config)
        obs = torch.rand(2, *space.shape)
    inputs = {"obs": obs, "obs_flat": model.preprocessor.transform_batch(obs)}
    shapes = [(name, tuple(parameter.shape)) for name, parameter in model.named_parameters()]
    return shapes, model(inputs)[0].tolist(), model.log_std_clip, factory


def test_every_key_changes_the_model():
    """Those of the memory have tests of their own."""
    assert set(CHANGES) == set(MODEL_DEFAULTS) - {each.name for each in fields(MemoryConfig)}
    for key, (space, action, others, value) in CHANGES.items():
        assert fingerprint(space, action, others) == fingerprint(space, action, others)
        assert fingerprint(space, action, {**others, key: value}) != fingerprint(space, action, others), key


@pytest.mark.parametrize("other", [{"use_lstm": True}, {"use_attention": True}, {"custom_model": Linear}], ids=str)
def test_batch_norm_is_refused_where_the_built_in_models_have_none(other):
    with pytest.raises(ConfigError, match="batch_norm"):
        ModelCatalog.get_model(OBS, ACTION, 2, {"batch_norm": "after", **other})


def test_a_model_with_previous_actions_is_tried_with_their_placeholders() -> None:
    model = ModelCatalog.get_model(OBS, ACTION, 2, {"custom_model": LooksBack})
    assert (model.prev_actions, model.prev_rewards) == (2, 1)
