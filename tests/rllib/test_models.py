"""RLlib's models, preprocessors and action distributions: what their constructors and methods get."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Tuple
from torch import nn
from torch.testing import assert_close

from lightning_rl.errors import ConfigError
from lightning_rl.models.distributions import Categorical
from lightning_rl.rllib.agents.dqn import DQNTorchPolicy
from lightning_rl.rllib.agents.ppo import PPOTorchPolicy, PPOTrainer
from lightning_rl.rllib.models import MODEL_DEFAULTS, ActionDistribution, ModelCatalog, Preprocessor
from lightning_rl.rllib.models.action_dist import TupleActions
from lightning_rl.rllib.models.torch.fcnet import FullyConnectedNetwork
from lightning_rl.rllib.models.torch.misc import SlimFC, normc_initializer
from lightning_rl.rllib.models.torch.recurrent_net import RecurrentNetwork
from lightning_rl.rllib.models.torch.torch_action_dist import (
    TorchBeta,
    TorchCategorical,
    TorchDeterministic,
    TorchDiagGaussian,
    TorchDirichlet,
    TorchDistributionWrapper,
    TorchMultiActionDistribution,
    TorchMultiCategorical,
)
from lightning_rl.rllib.models.torch.torch_modelv2 import TorchModelV2
from lightning_rl.rllib.models.torch.visionnet import VisionNetwork
from lightning_rl.rllib.policy.rnn_sequencing import add_time_dimension
from tests.envs.classic_control import CARTPOLE
from tests.rollouts.small_worker import small_worker

VECTOR, TWO = Box(-1, 1, (4,)), Discrete(2)
NESTED = Dict(word=Discrete(3), sensors=Tuple([Box(-1, 1, (2,)), MultiDiscrete([2, 2])]), picture=Box(0, 9, (2, 2)))


class Seeing(TorchModelV2, nn.Module):
    """Keeps what it is given."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name, **options):
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        self.options = options
        self.layer, self.values = nn.Linear(obs_space.shape[0], num_outputs), nn.Linear(obs_space.shape[0], 1)

    def forward(self, input_dict, state, seq_lens):
        self.seen, self.flat = input_dict["obs"], input_dict["obs_flat"]
        return self.layer(self.flat), state

    def value_function(self):
        return self.values(self.flat).squeeze(1)


def seen_by(space: Any, obs: Any, **model: Any) -> tuple[Any, Any]:
    policy: Any = PPOTorchPolicy(space, TWO, model={"custom_model": Seeing, **model})
    policy.compute_actions(obs)
    return policy.model, policy.model.seen


class OtherNames(Seeing):
    def __init__(self, a, b, n, cfg, title, scale=1):
        super().__init__(a, b, n, cfg, title)
        self.scale = scale


class AnyArguments(Seeing):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)


class ShortNames(Seeing):
    def __init__(self, obs_space, action_space, num_outputs, model_config, n):
        super().__init__(obs_space, action_space, num_outputs, model_config, n)


# -- constructors -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("model", [OtherNames, AnyArguments, ShortNames])
def test_a_model_gets_its_five_arguments_by_position(model: Any) -> None:
    policy: Any = PPOTorchPolicy(VECTOR, TWO, model={"custom_model": model, "custom_model_config": {"scale": 3}})
    assert policy.model.name == model.__name__ and policy.model.model_config["custom_options"] == {"scale": 3}
    assert getattr(policy.model, "scale", 3) == 3 and policy.model.options == (
        {"scale": 3} if model is AnyArguments else {}
    )


# -- observations -----------------------------------------------------------------------------------------------------
def test_a_model_sees_a_discrete_observation_as_a_one_hot_vector() -> None:
    model, seen = seen_by(Discrete(3), np.array([2, 0]))
    assert seen.tolist() == [[0, 0, 1], [1, 0, 0]]
    assert model.obs_space.shape == (3,) and model.obs_space.original_space == Discrete(3)


def test_a_model_sees_nested_observations_in_their_structure_and_flat() -> None:
    word, sensors = np.array([1]), (np.array([[0.5, -0.5]], np.float32), np.array([[0, 1]]))
    model, seen = seen_by(NESTED, {"word": word, "sensors": sensors, "picture": np.arange(4.0).reshape(1, 2, 2)})
    assert seen["word"].tolist() == [[0, 1, 0]] and seen["sensors"][0].tolist() == [[0.5, -0.5]]
    assert seen["sensors"][1].tolist() == [[1, 0, 0, 1]] and seen["picture"].tolist() == [[[0, 1], [2, 3]]]
    assert model.obs_space.shape == (13,) == tuple(model.flat.shape[1:])


def test_a_box_stays_as_it_is_but_for_the_filter() -> None:
    model, seen = seen_by(VECTOR, np.ones((1, 4), np.float32))
    assert model.obs_space is VECTOR and seen.tolist() == [[1, 1, 1, 1]]
    policy: Any = PPOTorchPolicy(VECTOR, TWO, model={"custom_model": Seeing}, observation_filter="mean_std")
    policy.learn_on_batch(small_worker(policy).sample())
    policy.compute_actions(np.full((1, 4), 0.3, np.float32))
    assert_close(policy.model.seen, policy.model.flat)
    assert not torch.allclose(policy.model.seen, torch.full((1, 4), 0.3))


class Half(Preprocessor):
    def _init_shape(self, obs_space, options):
        self.scale = options["custom_options"].get("scale", 1)
        return (2,)

    def transform(self, observation):
        return observation[2:] * self.scale


def test_a_custom_preprocessor_goes_together_with_a_custom_model_and_both_get_custom_options() -> None:
    ModelCatalog.register_custom_preprocessor("half", Half)
    model = {"custom_preprocessor": "half", "custom_model": Seeing, "custom_options": {"scale": 3}}
    trainer: Any = PPOTrainer(env="CartPole-v1", config={"model": model, "train_batch_size": 64, "num_sgd_iter": 1})
    made = trainer.policy.model
    assert made.obs_space.shape == (2,) and made.obs_space.original_space.shape == (4,)
    assert made.model_config["custom_options"] == {"scale": 3} == made.options
    trainer.policy.compute_actions(np.array([[1, 2, 3, 4]], np.float32))
    assert made.seen.tolist() == [[9, 12]]
    trainer.train()
    trainer.stop()


def test_frozen_lake_learns_with_a_custom_model() -> None:
    trainer: Any = PPOTrainer(env="FrozenLake-v1", config={"model": {"custom_model": Seeing}, "train_batch_size": 64})
    assert np.isfinite(trainer.train()["train/loss"]) and trainer.policy.model.obs_space.shape == (16,)
    trainer.stop()


@pytest.mark.parametrize("wrapped", [{"use_lstm": True, "fcnet_hiddens": [8]}, {}])
def test_models_behind_and_before_others_see_the_same(wrapped: Any) -> None:
    for cls in (PPOTorchPolicy, *([] if wrapped else [DQNTorchPolicy])):
        policy: Any = cls(Discrete(3), TWO, model={"custom_model": Seeing, **wrapped})
        policy.compute_actions(np.array([2]))
        inner = next(module for module in policy.model.modules() if isinstance(module, Seeing))
        assert inner.seen.tolist() == [[0, 0, 1]]


# -- models by their constructors -------------------------------------------------------------------------------------
def test_built_in_models_know_their_config() -> None:
    policy: Any = PPOTorchPolicy(VECTOR, TWO, model={"fcnet_hiddens": [7]})
    assert policy.model.model_config["fcnet_hiddens"] == [7] and "max_seq_len" in policy.model.model_config


def test_networks_are_made_by_rllib_s_constructors_and_called_with_observations_alone() -> None:
    net = FullyConnectedNetwork(VECTOR, TWO, 5, {**MODEL_DEFAULTS, "fcnet_hiddens": [7]}, "embed")
    outputs, state = net({"obs": torch.ones(3, 4)})
    assert outputs.shape == (3, 5) and state == [] and net.value_function().shape == (3,) and net.name == "embed"
    assert [p.shape[0] for p in net.parameters() if p.dim() == 2][:2] == [7, 5]
    assert FullyConnectedNetwork(VECTOR, TWO, None, MODEL_DEFAULTS, "f")({"obs": torch.ones(3, 4)})[0].shape == (3, 256)
    filters = [[4, [4, 4], 2], [8, [2, 2], 1]]
    seeing = VisionNetwork(Box(0, 255, (16, 16, 3), np.uint8), TWO, 2, {"conv_filters": filters}, "vision")
    assert seeing({"obs": torch.zeros(2, 16, 16, 3, dtype=torch.uint8)})[0].shape == (2, 2)


class Recurrent(RecurrentNetwork, nn.Module):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        nn.Module.__init__(self)
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.rnn = nn.LSTM(obs_space.shape[0], 8, batch_first=True)
        self.logits, self.values = nn.Linear(8, num_outputs), nn.Linear(8, 1)

    def get_initial_state(self):
        return [self.logits.weight.new(1, 8).zero_().squeeze(0) for _ in range(2)]

    def forward_rnn(self, inputs, state, seq_lens):
        hidden, (h, c) = self.rnn(inputs, [part.unsqueeze(0) for part in state])
        self.hidden = hidden
        return self.logits(hidden), [h.squeeze(0), c.squeeze(0)]

    def value_function(self):
        return self.values(self.hidden).reshape(-1)


def test_a_recurrent_network_defines_forward_rnn_alone() -> None:
    policy: Any = PPOTorchPolicy(*CARTPOLE.spaces(), model={"custom_model": Recurrent, "max_seq_len": 5})
    fragment = small_worker(policy).sample()
    assert fragment.state_in["1"].shape == (17, 4, 8)
    assert np.isfinite(policy.learn_on_batch(fragment)["loss"])


class PackedSequences(TorchModelV2, nn.Module):
    """Reads `seq_lens` in its own `forward`."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        self.rnn = nn.GRU(obs_space.shape[0], 8, batch_first=True)
        self.logits, self.values, self.lengths = nn.Linear(8, num_outputs), nn.Linear(8, 1), []

    def get_initial_state(self):
        return [torch.zeros(8)]

    def forward(self, input_dict, state, seq_lens):
        self.lengths.append(seq_lens.tolist())
        inputs = add_time_dimension(input_dict["obs_flat"].float(), seq_lens=seq_lens)
        packed = nn.utils.rnn.pack_padded_sequence(inputs, seq_lens.long(), batch_first=True, enforce_sorted=False)
        hidden, last = self.rnn(packed, state[0].unsqueeze(0))
        padded, _ = nn.utils.rnn.pad_packed_sequence(hidden, batch_first=True, total_length=inputs.shape[1])
        self.hidden = padded.flatten(0, 1)
        return self.logits(self.hidden), [last.squeeze(0)]

    def value_function(self):
        return self.values(self.hidden).squeeze(1)


class ModuleFirst(nn.Module, TorchModelV2):
    __init__, get_initial_state = PackedSequences.__init__, PackedSequences.get_initial_state
    forward, value_function = PackedSequences.forward, PackedSequences.value_function


@pytest.mark.parametrize("network", [PackedSequences, ModuleFirst])
def test_sequences_of_a_model_that_acts_have_one_step(network: Any) -> None:
    policy: Any = PPOTorchPolicy(*CARTPOLE.spaces(), model={"custom_model": network, "max_seq_len": 5})
    fragment = small_worker(policy).sample()
    assert policy.model.lengths[-1] == [1, 1, 1, 1]  # 4 environments
    policy.learn_on_batch(fragment)
    assert max(policy.model.lengths[-1]) == 5


def test_layers_are_initialized_as_asked() -> None:
    layer = SlimFC(3, 5, initializer=normc_initializer(0.5), activation_fn="tanh", bias_init=2.0)
    assert_close(layer[0].weight.norm(dim=1), torch.full((5,), 0.5))
    assert layer[0].bias.tolist() == [2.0] * 5 and layer(torch.ones(1, 3)).abs().max() <= 1


def test_the_catalog_takes_rllib_s_arguments() -> None:
    dist_class, size = ModelCatalog.get_action_dist(TWO, MODEL_DEFAULTS, framework="torch")
    model = ModelCatalog.get_model_v2(VECTOR, TWO, size, MODEL_DEFAULTS, "torch", name="mine")
    assert dist_class is Categorical and model({"obs_flat": torch.ones(1, 4)})[0].shape == (1, 2)
    assert_close(model({"obs": torch.ones(1, 4)})[0], model({"obs_flat": torch.ones(1, 4)})[0])
    assert ModelCatalog.get_preprocessor_for_space(Discrete(3)).shape == (3,) and len(MODEL_DEFAULTS) == 38


def test_the_catalog_takes_environments_default_models_and_shapes_of_actions() -> None:
    env = gym.make("CartPole-v1")
    assert ModelCatalog.get_preprocessor(env, {"dim": 84}).shape == (4,)
    arguments = (VECTOR, TWO, 2, {**MODEL_DEFAULTS, "custom_model": None})
    made: Any = ModelCatalog.get_model_v2(*arguments, default_model=Seeing, scale=3)
    assert type(made) is Seeing and made.options == {"scale": 3} and made.name == "default_model"
    custom = {**MODEL_DEFAULTS, "custom_model": OtherNames}
    assert type(ModelCatalog.get_model_v2(VECTOR, TWO, 2, custom, default_model=Seeing)) is OtherNames
    shapes = [ModelCatalog.get_action_shape(space) for space in (TWO, VECTOR, Tuple([TWO, VECTOR]))]
    assert shapes == [(torch.int64, (None,)), (torch.float32, (None, 4)), (torch.float32, (None, 5))]


def test_a_network_without_outputs_has_values_of_its_features() -> None:
    net = FullyConnectedNetwork(VECTOR, TWO, None, {**MODEL_DEFAULTS, "fcnet_hiddens": [7]}, "f")
    features, _ = net({"obs": torch.ones(3, 4)})
    assert features.shape == (3, 7) and net.value_function().shape == (3,) and net.value_function().requires_grad


def test_a_preprocessor_writes_into_arrays_and_checks_observations() -> None:
    half, array = Half(VECTOR, {"custom_model_config": {}}), np.zeros(4)
    half.write(np.array([0.1, 0.2, 0.3, 0.4], np.float32), array, 1)
    assert_close(array, np.array([0, 0.3, 0.4, 0]), rtol=1e-6, atol=1e-6)
    with pytest.raises(ValueError, match="outside"):
        half.check_shape(np.zeros(3, np.float32))


def test_the_catalog_s_dist_type_chooses_the_distribution() -> None:
    box, two = Box(-1, 1, (3,)), torch.ones(2, 3)
    for given in ("deterministic", TorchDeterministic):
        dist_class, size = ModelCatalog.get_action_dist(box, MODEL_DEFAULTS, given, framework="torch")
        assert size == 3 and torch.equal(dist_class(two, None).sample(), two)
    assert ModelCatalog.get_action_dist(box, MODEL_DEFAULTS)[1] == 6
    assert ModelCatalog.get_action_dist(TWO, MODEL_DEFAULTS, dist_type="deterministic")[0] is Categorical
    with pytest.raises(ConfigError, match="dist_type='gumbel'"):
        ModelCatalog.get_action_dist(box, MODEL_DEFAULTS, dist_type="gumbel")


# -- distributions ----------------------------------------------------------------------------------------------------
class OwnCategorical(TorchDistributionWrapper):
    """RLlib's form, whose `sample` takes no argument."""

    def __init__(self, inputs, model):
        super().__init__(inputs, model)
        self.dist = torch.distributions.Categorical(logits=inputs)

    def sample(self):
        return self.dist.sample()

    def deterministic_sample(self):
        return self.inputs.argmax(1)

    def logp(self, actions):
        return self.dist.log_prob(actions)

    def entropy(self):
        return self.dist.entropy()

    def kl(self, other):
        return torch.distributions.kl_divergence(self.dist, other.dist)


@pytest.mark.parametrize("first", [TorchCategorical, OwnCategorical])
def test_multi_action_distributions_are_made_of_those_of_the_leaves(first: Any) -> None:
    """Sums over a choice of 2, two choices of 2 and 3 with `partial`, and a Gaussian of 2 numbers."""
    space = Tuple([TWO, MultiDiscrete([2, 3]), Box(-9, 9, (2,))])
    children = [first, partial(TorchMultiCategorical, input_lens=[2, 3]), TorchDiagGaussian]
    inputs, other = torch.randn(2, 4, 11, generator=torch.Generator().manual_seed(0))
    form = {"child_distributions": children, "input_lens": [2, 5, 4], "action_space": space}
    whole, second = (
        TorchMultiActionDistribution(inputs, None, **form),
        TorchMultiActionDistribution(other, None, **form),
    )
    parts = [child(piece, None) for child, piece in zip(children, inputs.split([2, 5, 4], 1), strict=True)]
    theirs = [child(piece, None) for child, piece in zip(children, other.split([2, 5, 4], 1), strict=True)]
    choice, choices, numbers = whole.sample()
    assert choice.shape == (4,) and choices.shape == (4, 2) and numbers.shape == (4, 2)
    logp = sum(part.logp(own) for part, own in zip(parts, (choice, choices, numbers), strict=True))
    assert_close(whole.logp((choice, choices, numbers)), logp)
    assert_close(whole.sampled_action_logp(), logp)
    assert_close(whole.logp(torch.cat([choice[:, None].float(), choices.float(), numbers], 1)), logp)
    assert_close(whole.entropy(), sum(part.entropy() for part in parts))
    assert_close(whole.kl(second), sum(part.kl(own) for part, own in zip(parts, theirs, strict=True)))
    assert torch.equal(whole.deterministic_sample()[0], inputs[:, :2].argmax(1))
    assert_close(parts[1].multi_entropy().sum(1), parts[1].entropy())
    assert_close(parts[1].multi_kl(theirs[1]).sum(1), parts[1].kl(theirs[1]))
    nested = Dict({"a": TWO, "b": Box(-9, 9, (2,))})
    by_name = {"child_distributions": {"a": first, "b": TorchDiagGaussian}, "input_lens": {"a": 2, "b": 4}}
    named = TorchMultiActionDistribution(inputs[:, :6], None, action_space=nested, **by_name)
    assert named.sample()["b"].shape == (4, 2) and [*named.sample()] == ["a", "b"]


class Three(ActionDistribution):
    """Only the three methods, over three choices."""

    @staticmethod
    def required_model_output_shape(action_space, model_config):
        return 3

    def __init__(self, inputs, model):
        super().__init__(inputs, model)
        self.choice = torch.distributions.Categorical(logits=inputs)

    def sample(self):
        return self.choice.sample()

    def logp(self, actions):
        return self.choice.log_prob(actions)


def test_what_a_distribution_does_not_define_is_estimated_from_samples() -> None:
    logits = torch.log(torch.tensor([[0.2, 0.7, 0.1], [0.5, 0.1, 0.4]]))
    dist, own = Three(logits, None), torch.distributions.Categorical(logits=logits)
    before = torch.get_rng_state()
    assert dist.deterministic_sample().tolist() == [1, 0] == dist.last_sample.tolist()
    assert_close(dist.entropy(), own.entropy(), atol=0.25, rtol=0)
    other = Three(torch.zeros(2, 3, requires_grad=True), None)
    expected = torch.distributions.kl_divergence(own, other.choice)
    assert_close(dist.kl(other), expected, atol=0.25, rtol=0)
    assert dist.kl(other).requires_grad and torch.equal(before, torch.get_rng_state())


class Pair(ActionDistribution):
    """Two parts of a Tuple action."""

    @staticmethod
    def required_model_output_shape(action_space, model_config):
        return 4

    def parts(self):
        return Categorical(self.inputs[:, :2], None), Categorical(self.inputs[:, 2:], None)

    def sample(self):
        return TupleActions([part.sample() for part in self.parts()])

    def logp(self, actions):
        first, second = self.parts()
        return first.logp(actions[:, 0]) + second.logp(actions[:, 1])


def test_logp_gets_the_actions_of_a_tuple_space_flat() -> None:
    policy: Any = PPOTorchPolicy(
        VECTOR, Tuple([Discrete(2), Discrete(2)]), model={"custom_action_dist": Pair}, kl_coef=0.1, entropy_coef=0.0
    )
    actions, _, extra = policy.compute_actions(np.zeros((3, 4), np.float32))
    assert_close(
        policy.compute_log_likelihoods(actions, np.zeros((3, 4), np.float32)), torch.tensor(extra["action_logp"])
    )
    action = policy.compute_single_action(np.zeros(4, np.float32), explore=False)[0]
    assert policy.action_space.contains(action)


def test_a_distribution_of_three_methods_trains_and_acts_greedily() -> None:
    class Env(gym.Wrapper[Any, Any, Any, Any]):
        def __init__(self, env_config):
            super().__init__(gym.make("CartPole-v1"))

    class Two(Three):
        @staticmethod
        def required_model_output_shape(action_space, model_config):
            return 2

    config = {"model": {"custom_action_dist": Two}, "train_batch_size": 64, "num_sgd_iter": 1, "kl_coeff": 0.2}
    trainer: Any = PPOTrainer(env=Env, config=config)
    assert trainer.train()["train/entropy"] > 0 and trainer.evaluate()["evaluation"]["episode_len_mean"] > 0
    assert trainer.compute_single_action(np.zeros(4, np.float32)) in (0, 1)
    trainer.stop()


def test_a_distribution_of_several_categoricals_takes_the_numbers_of_their_values() -> None:
    """Inputs of [0, log 3 | 0, 0, 0]: the second value has 3/4, and each of the others 1/3."""
    inputs = torch.tensor([[0.0, math.log(3), 0, 0, 0]])
    dist = TorchMultiCategorical(inputs, None, input_lens=[2, 3])
    assert_close(dist.logp(torch.tensor([[1, 2]])), torch.tensor([math.log(1 / 4)]))


def test_beta_and_dirichlet_have_rllib_s_parameters() -> None:
    """softplus(log(e − 1)) = 1, so α = β = 2 there; exp(log 3) = 3."""
    beta = TorchBeta(torch.tensor([[math.log(math.e - 1.0), math.log(math.e - 1.0)]]), low=-2.0, high=4.0)
    assert_close(beta.deterministic_sample(), torch.tensor([[1.0]]))  # the mean ½ of the range
    assert_close(beta.entropy(), torch.distributions.Beta(2.0, 2.0).entropy().view(1) + math.log(6.0))
    inputs, shares = torch.tensor([[0.0, math.log(3.0)]]), torch.tensor([[0.25, 0.75]])
    dirichlet, expected = TorchDirichlet(inputs), torch.distributions.Dirichlet(torch.tensor([1.0, 3.0]))
    assert_close(dirichlet.logp(shares), expected.log_prob(shares))
    assert_close(dirichlet.deterministic_sample(), torch.tensor([1.0, 3.0]).softmax(0).unsqueeze(0))
    assert_close(dirichlet.sample().sum(1), torch.ones(1))
    policy: Any = PPOTorchPolicy(VECTOR, Box(0, 1, (3,)), model={"custom_action_dist": TorchDirichlet})
    actions, *_ = policy.compute_actions(np.zeros((2, 4), np.float32))
    assert_close(actions.sum(1), np.full(2, -1.0, np.float32))  # shares that sum to 1, stretched to −1 … 1
