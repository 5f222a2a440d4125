"""The programs of the documents that this project comes from, with imports, bounds of loops and bodies "…" changed.

Four documents: (1) how to write a policy class, (2) a walk through the sources of DQN's trainer, (3) models,
preprocessors and action distributions, (4) the concepts of policies, evaluators, optimizers and trainers. TensorFlow
programs stand here as their torch twins.
"""

from __future__ import annotations

import itertools
import json
import os
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, Tuple
from torch import nn

from lightning_rl import rllib
from lightning_rl.envs.toy_tasks import ParametricActionsCartPole
from lightning_rl.models import Model
from lightning_rl.models.fully_connected import FullyConnectedNetwork
from lightning_rl.policies.advantages import advantage_rows
from lightning_rl.rllib import (
    Algorithm,
    AsyncSamplesOptimizer,
    Concurrently,
    LocalReplayBuffer,
    ModelCatalog,
    ParallelRollouts,
    Policy,
    PolicyEvaluator,
    PPOTrainer,  # pyright: ignore[reportAttributeAccessIssue]
    Preprocessor,
    Replay,
    SampleBatch,
    StandardMetricsReporting,
    StoreToReplayBuffer,
    TorchModelV2,
    TrainOneStep,
    UpdateTargetNetwork,
    build_torch_policy,
    build_trainer,
    tune,
)
from lightning_rl.rllib import __main__ as command_line
from tests.training import probes

pytestmark = pytest.mark.filterwarnings("ignore:.*(retired|out of date).*")
ppo = a3c = rllib
args = SimpleNamespace(stop_iters=2)
FEW = {"train_batch_size": 64}  # added to configs, so that an iteration lasts a moment


@pytest.fixture
def ray() -> Any:
    import ray

    return ray


# -- (1) how to write a policy class ----------------------------------------------------------------------------------
class MyModelClass(TorchModelV2, nn.Module):  # nn.Module has to be there
    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        self._hidden_layers = nn.Sequential(nn.Linear(4, 16), nn.Tanh())
        self._logits = nn.Linear(16, num_outputs)  # policy output
        self._value_branch = nn.Linear(16, 1)  # value output

    def forward(self, input_dict, state, seq_lens):
        features = self._hidden_layers(input_dict["obs"])
        self._value = self._value_branch(features)
        return self._logits(features), state

    def value_function(self):
        return self._value.squeeze(1)

    def custom_loss(self, policy_loss, loss_inputs):
        self.own = self._hidden_layers[0].weight.square().mean()
        return policy_loss + self.own

    def metrics(self):
        return {"own_metrics": self.own}


def test_document_1_a_custom_model_is_registered_and_used() -> None:
    ModelCatalog.register_custom_model("MYmodel", MyModelClass)
    trainer = PPOTrainer(env="CartPole-v0", config={"model": {"custom_model": "MYmodel"}, **FEW})
    assert isinstance(trainer.policy.model, MyModelClass)
    assert trainer.train()["train/model/own_metrics"] > 0
    trainer.stop()


MODEL_DEFAULTS = {
    **{"_use_default_native_models": False, "_disable_preprocessor_api": False, "_disable_action_flattening": False},
    **{"fcnet_hiddens": [256, 256], "fcnet_activation": "tanh", "conv_filters": None, "conv_activation": "relu"},
    **{"post_fcnet_hiddens": [], "post_fcnet_activation": "relu", "free_log_std": False, "no_final_linear": False},
    **{"vf_share_layers": True, "use_lstm": False, "max_seq_len": 20, "lstm_cell_size": 256},
    **{"lstm_use_prev_action": False, "lstm_use_prev_reward": False, "_time_major": False, "use_attention": False},
    **{"attention_num_transformer_units": 1, "attention_dim": 64, "attention_num_heads": 1, "attention_head_dim": 32},
    **{"attention_memory_inference": 50, "attention_memory_training": 50, "attention_position_wise_mlp_dim": 32},
    **{"attention_init_gru_gate_bias": 2.0, "attention_use_n_prev_actions": 0, "attention_use_n_prev_rewards": 0},
    **{"framestack": True, "dim": 84, "grayscale": False, "zero_mean": True, "custom_model": None},
    **{"custom_model_config": {}, "custom_action_dist": None, "custom_preprocessor": None},
    "lstm_use_prev_action_reward": -1,  # DEPRECATED_VALUE
}


@pytest.mark.parametrize("change", [{}, {"use_lstm": True}, {"use_attention": True}])
def test_document_1_the_whole_model_config_is_taken(change: dict[str, Any]) -> None:
    trainer = PPOTrainer(env="CartPole-v0", config={"model": {**MODEL_DEFAULTS, **change}, **FEW, "num_sgd_iter": 1})
    assert trainer.config["model"]["fcnet_hiddens"] == [256, 256]
    assert trainer.policy.is_recurrent == bool(change)
    trainer.train()
    trainer.stop()


def test_document_1_a_config_passes_parameters_to_the_model() -> None:
    algo_config = {
        # All model-related settings go into this sub-dict.
        "model": {
            # By default, the MODEL_DEFAULTS dict above will be used.
            # Change individual keys in that dict by overriding them, e.g.
            "fcnet_hiddens": [512, 512, 512],
            "fcnet_activation": "relu",
        },
        # ... other Trainer config keys, e.g. "lr" ...
        "lr": 0.00001,
    }
    trainer = PPOTrainer(env="CartPole-v0", config=algo_config)
    shapes = [tuple(p.shape) for p in trainer.policy.model.parameters() if p.dim() == 2]
    assert shapes[:3] == [(512, 4), (512, 512), (512, 512)] and trainer.policy.learner.optimiser.lr == 0.00001


default_config = lambda: {"lr": 1e-3, "gamma": 0.98, "lambda": 0.9, "vf_coeff": 0.5, "grad_clip": 0.5}  # noqa: E731


def actor_critic_loss(policy, model, dist_class, train_batch):
    logits, _ = model.from_batch(train_batch)
    values = model.value_function()
    dist = dist_class(logits, model)
    policy.entropy = dist.entropy().mean()
    policy.pi_err = -(train_batch["advantages"] * dist.logp(train_batch["actions"])).mean()
    policy.value_err = (values - train_batch["value_targets"]).square().mean()
    return policy.pi_err + policy.config["vf_coeff"] * policy.value_err


def loss_and_entropy_stats(policy, train_batch):
    return {"policy_entropy": policy.entropy.item(), "vf_loss": policy.value_err.item()}


def add_advantages(policy, sample_batch, other_agent_batches=None, episode=None):
    return advantage_rows(policy, sample_batch, policy.config["lambda"])


def model_value_predictions(policy, input_dict, state_batches, model, action_dist):
    return {"acting_values": model.value_function()}


def apply_grad_clipping(policy, optimizer, loss):
    parameters = optimizer.param_groups[0]["params"]
    return {"grad_gnorm": nn.utils.clip_grad_norm_(parameters, policy.config["grad_clip"])}


def torch_optimizer(policy):
    return torch.optim.Adam(policy.model.parameters(), lr=policy.config["lr"])


class ValueNetworkMixin:
    def _value(self, obs):
        return self.values(obs)  # type: ignore[attr-defined]


MyTorchPolicy = build_torch_policy(
    name="MyTorchPolicy",
    get_default_config=default_config,
    loss_fn=actor_critic_loss,
    stats_fn=loss_and_entropy_stats,
    postprocess_fn=add_advantages,
    extra_action_out_fn=model_value_predictions,
    extra_grad_process_fn=apply_grad_clipping,
    optimizer_fn=torch_optimizer,
    mixins=[ValueNetworkMixin],
)


class MyAlgorithm(Algorithm):
    def get_default_policy_class(self, config):
        return MyTorchPolicy


@pytest.mark.ray
def test_document_1_an_algorithm_of_a_policy_of_functions_is_run_by_tune() -> None:
    num_gpus = int(os.environ.get("RLLIB_NUM_GPUS", "0"))  # Use GPUs iff `RLLIB_NUM_GPUS` env var set to > 0.
    config = {"env": "CartPole-v0", "num_gpus": num_gpus, "num_workers": 2, "framework": "torch"}
    result = tune.run(MyAlgorithm, stop={"training_iteration": args.stop_iters}, config=config)
    assert result["training_iteration"] == 2 and 0 < result["train/policy_entropy"] < 0.7
    assert result["train/grad_gnorm"] > 0


def some_custom_loss_fn(policy, model, dist_class, train_batch):
    logits, _ = model(train_batch)
    return -(dist_class(logits, model).logp(train_batch["actions"]) * train_batch["advantages"]).mean()


def test_document_1_a_policy_and_a_trainer_are_updated() -> None:
    """`PPOTFPolicy` there."""
    custom_policy = rllib.PPOTorchPolicy.with_updates(name="MyCustomPPOTFPolicy", loss_fn=some_custom_loss_fn)
    custom_trainer = PPOTrainer.with_updates(default_policy=custom_policy)
    trainer = custom_trainer(env="CartPole-v0", config=FEW)
    assert isinstance(trainer.policy, rllib.PPOTorchPolicy) and "train/value_loss" not in trainer.train()
    trainer.stop()


# -- (2) a walk through the sources of DQN's trainer ------------------------------------------------------------------
SIMPLE_Q_CONFIG = {
    **{"framework": "torch", "learning_starts": 64, "buffer_size": 5000, "train_batch_size": 32, "lr": 1e-3},
    **{"rollout_fragment_length": 4, "target_network_update_freq": 100, "timesteps_per_iteration": 200},
    **{"prioritized_replay": False, "multiagent": {"replay_mode": "independent"}},
    "model": {"fcnet_hiddens": [64], "fcnet_activation": "relu"},
}
DQN_CONFIG = {**SIMPLE_Q_CONFIG, "prioritized_replay": True, "n_step": 3, "double_q": True, "dueling": False}
updates: list[int] = []  # env steps at which the target network moved


class Watched(UpdateTargetNetwork):
    def __call__(self, item):
        before = self.last
        item = super().__call__(item)
        if self.last != before:
            updates.append(self.last)
        return item


def simple_q_execution_plan(workers, config):
    local_replay_buffer = LocalReplayBuffer(
        num_shards=1,
        learning_starts=config["learning_starts"],
        buffer_size=config["buffer_size"],
        replay_batch_size=config["train_batch_size"],
        prioritized_replay_alpha=0.0,
        replay_mode=config["multiagent"]["replay_mode"],
    )
    # Generate and store
    rollouts = ParallelRollouts(workers, mode="bulk_sync")
    store_op = rollouts.for_each(StoreToReplayBuffer(local_buffer=local_replay_buffer))
    # Read and train
    replay_op = Replay(local_buffer=local_replay_buffer).for_each(TrainOneStep(workers))
    replay_op = replay_op.for_each(Watched(workers, config["target_network_update_freq"]))
    train_op = Concurrently([store_op, replay_op], mode="round_robin", output_indexes=[1])
    return StandardMetricsReporting(train_op, workers, config)


def dqn_execution_plan(workers, config):
    names = ("learning_starts", "buffer_size", "n_step", "prioritized_replay_alpha", "prioritized_replay_eps")
    local_replay_buffer = LocalReplayBuffer(
        replay_batch_size=config["train_batch_size"], **{name: config[name] for name in names}
    )
    rollouts = ParallelRollouts(workers, mode="bulk_sync")
    store_op = rollouts.for_each(StoreToReplayBuffer(local_buffer=local_replay_buffer))

    def update_prio(item):
        samples, info = item
        assert samples["weights"].max() == 1 and local_replay_buffer.stats()["num_added"] >= config["learning_starts"]
        priorities = {name: (samples["batch_indexes"], of["td_error"]) for name, of in info.items()}
        local_replay_buffer.update_priorities(priorities)
        return info

    replay_op = Replay(local_buffer=local_replay_buffer).for_each(TrainOneStep(workers)).for_each(update_prio)
    replay_op = replay_op.for_each(UpdateTargetNetwork(workers, config["target_network_update_freq"]))
    weights = config["round_robin"]
    train_op = Concurrently([store_op, replay_op], mode="round_robin", output_indexes=[1], round_robin_weights=weights)
    return StandardMetricsReporting(train_op, workers, config)


def get_policy_class(config):
    if config["framework"] == "torch":
        return rllib.SimpleQTorchPolicy
    return None


def get_dqn_policy_class(config):
    if config["framework"] == "torch":
        return rllib.DQNTorchPolicy
    return None


def validate_config(config):
    """As there: weights of the two operators from the rows that each gives."""
    if config["n_step"] < 1:
        raise ValueError("n_step must be at least 1")
    config["round_robin"] = [1, 1]


SimpleQTrainer = build_trainer(
    name="SimpleQTrainer",
    default_policy=rllib.SimpleQTorchPolicy,
    get_policy_class=get_policy_class,
    execution_plan=simple_q_execution_plan,
    default_config=SIMPLE_Q_CONFIG,
)
GenericOffPolicyTrainer = SimpleQTrainer.with_updates(
    name="GenericOffPolicyTrainer",
    # No Policy preference.
    default_policy=None,
    get_policy_class=None,
    # Use DQN's config and exec. plan as base for
    # all other OffPolicy algos.
    default_config=DQN_CONFIG,
    validate_config=validate_config,
    execution_plan=dqn_execution_plan,
)
DQNTrainer = GenericOffPolicyTrainer.with_updates(
    name="DQN", default_policy=rllib.DQNTorchPolicy, get_policy_class=get_dqn_policy_class, default_config=DQN_CONFIG
)


def test_document_2_the_plan_of_simple_q_trains() -> None:
    updates.clear()
    trainer = SimpleQTrainer(env="CartPole-v0", config={"seed": 1})
    assert type(trainer.policy) is rllib.SimpleQTorchPolicy
    results = [trainer.train() for _ in range(3)]
    trainer.stop()
    assert [result["training_iteration"] for result in results] == [1, 2, 3]
    steps = [result["timesteps_total"] for result in results]
    assert all(200 <= later - before <= 204 for before, later in itertools.pairwise([0, *steps]))
    # A gradient step after every fragment of up to 4 rows, once there are 64.
    assert (steps[-1] - 64) / 4 <= results[-1]["gradient_steps"] <= (steps[-1] - 64) / 4 * 1.1 + 2
    assert all(100 <= later - before <= 104 for before, later in itertools.pairwise(updates))
    assert len(updates) in (5, 6)
    assert results[-1]["train/loss"] > 0 and results[-1]["episode_reward_mean"] > 8


def test_document_2_the_chain_of_trainers_ends_in_dqn() -> None:
    class StockTradingEnv(gym.Wrapper[Any, Any, Any, Any]):
        def __init__(self, env_config):
            super().__init__(gym.make("CartPole-v1"))

    assert issubclass(DQNTrainer, GenericOffPolicyTrainer) and issubclass(GenericOffPolicyTrainer, SimpleQTrainer)
    with pytest.raises(rllib.ConfigError, match="GenericOffPolicyTrainer"):
        GenericOffPolicyTrainer(env="CartPole-v0")
    _config = {"lr": 5e-4}
    with pytest.raises(ValueError, match="n_step"):
        DQNTrainer({**_config, "n_step": 0}, env=StockTradingEnv)
    agent = DQNTrainer(_config, env=StockTradingEnv)
    assert type(agent.policy) is rllib.DQNTorchPolicy and agent.policy.double_q
    for _epoch in range(0, 2):
        result = agent.train()
    assert result["gradient_steps"] > 50 and result["info"]["learner"]["default_policy"]["loss"] > 0
    agent.stop()


# -- (3) models, preprocessors and action distributions ---------------------------------------------------------------
class Frames(probes.Probe):
    length = 5

    def __init__(self):
        super().__init__()
        self.observation_space = Box(0, 255, (42, 42, 3), np.uint8)

    def observe(self):
        return self.observation_space.high


def test_document_3_convolutions_are_configured() -> None:
    """A side of 42 becomes 21, 11 and 1."""
    model = {"dim": 42, "conv_filters": [[16, [4, 4], 2], [32, [4, 4], 2], [512, [11, 11], 1]]}
    trainer = PPOTrainer(env=Frames, config={"model": model, "train_batch_size": 32, "num_sgd_iter": 1})
    outputs = trainer.policy.model(trainer.policy.input_dict(torch.zeros(2, 42, 42, 3, dtype=torch.uint8)), [], None)
    assert outputs[0].shape == (2, 2)
    widths = [p.shape[0] for p in trainer.policy.model.parameters() if p.dim() == 4]
    assert widths[:3] == [16, 32, 512]
    trainer.train()
    trainer.stop()


@pytest.mark.ray(own_session=True)
def test_document_3_a_custom_model_trains_with_ray_started() -> None:
    import ray

    ModelCatalog.register_custom_model("my_model", MyModelClass)
    ray.init()
    try:
        model = {"custom_model": "my_model", "custom_options": {}}  # extra options to pass to your model
        trainer = a3c.A2CTrainer(env="CartPole-v0", config={"use_pytorch": True, "model": model})
        assert isinstance(trainer.policy.model, MyModelClass) and trainer.train()["training_iteration"] == 1
        trainer.stop()
    finally:
        ray.shutdown()


class MyPreprocessorClass(Preprocessor):
    def _init_shape(self, obs_space, options):
        new_shape = (2,)
        return new_shape  # can vary depending on inputs

    def transform(self, observation):
        return observation[2:]  # return the preprocessed observation


def test_document_3_a_custom_preprocessor_is_registered_and_used() -> None:
    ModelCatalog.register_custom_preprocessor("my_prep", MyPreprocessorClass)
    model = {"custom_preprocessor": "my_prep", "custom_options": {}}  # extra options to pass to your preprocessor
    trainer = ppo.PPOTrainer(env="CartPole-v0", config={"model": model, **FEW})
    assert next(iter(trainer.policy.model.parameters())).shape[1] == 2
    trainer.train()
    trainer.stop()


class MyActionDist(rllib.ActionDistribution):
    @staticmethod
    def required_model_output_shape(action_space, model_config):
        return 7  # controls model output feature vector size

    def __init__(self, inputs, model):
        super(MyActionDist, self).__init__(inputs, model)  # noqa: UP008
        assert model.num_outputs == 7
        self.choice = torch.distributions.Categorical(logits=inputs[:, :2])

    def sample(self):
        return self.choice.sample()

    def logp(self, actions):
        return self.choice.log_prob(actions)

    def entropy(self):
        return self.choice.entropy()


def test_document_3_a_custom_action_distribution_is_registered_and_used() -> None:
    """It needs three methods; an error names the others."""
    ModelCatalog.register_custom_action_dist("my_dist", MyActionDist)
    trainer = ppo.PPOTrainer(env="CartPole-v0", config={"model": {"custom_action_dist": "my_dist"}, **FEW})
    result = trainer.train()
    assert 0 < result["train/entropy"] <= 0.6932
    assert abs(result["train/first_kl"]) < 1e-6  # the recorded log-probability is that of what was sampled
    with pytest.raises(rllib.ConfigError, match=r"deterministic_sample\(\).*explore=False"):
        trainer.compute_single_action(np.zeros(4, np.float32), explore=False)
    trainer.stop()


class ParametricActionsModel(Model):
    """The twin of a Keras model: an intent vector, its product with each embedding, masked."""

    def __init__(self, obs_space, action_space, num_outputs, *, true_obs_shape=(4,), action_embed_size=2):
        super().__init__(obs_space, action_space, num_outputs)
        box = Box(-1, 1, shape=true_obs_shape)
        self.action_embed_model = FullyConnectedNetwork(box, action_space, action_embed_size)

    def forward(self, input_dict, state=(), seq_lens=None):
        # Extract the available actions tensor from the observation.
        avail_actions = input_dict["obs"]["avail_actions"]
        action_mask = input_dict["obs"]["action_mask"]
        # Compute the predicted action embedding
        action_embed, _ = self.action_embed_model({"obs_flat": input_dict["obs"]["cart"]})
        # Expand the model output to [BATCH, 1, EMBED_SIZE]. Note that the
        # avail actions tensor is of shape [BATCH, MAX_ACTIONS, EMBED_SIZE].
        intent_vector = action_embed.unsqueeze(1)
        # Batch dot product => shape of logits is [BATCH, MAX_ACTIONS].
        action_logits = (avail_actions * intent_vector).sum(dim=2)
        # Mask out invalid actions (use the least float for stability)
        inf_mask = action_mask.log().clamp(min=torch.finfo(torch.float32).min)
        return action_logits + inf_mask, list(state)

    def value_function(self):
        return self.action_embed_model.value_function()


LEARNING = {"train_batch_size": 320, "num_envs_per_worker": 8, "sgd_minibatch_size": 80, "lr": 1e-2, "seed": 1}


@pytest.mark.every
def test_document_3_parametric_actions_learn_and_never_break_the_mask() -> None:
    ModelCatalog.register_custom_model("parametric", ParametricActionsModel)
    env, model = {"slots": 5, "varying": True}, {"custom_model": "parametric", "vf_share_layers": True}
    trainer = PPOTrainer(env=ParametricActionsCartPole, config={"env_config": env, "model": model, **LEARNING})
    rewards = [trainer.train()["episode_reward_mean"] for _ in range(12)]
    single = ParametricActionsCartPole(**env)
    obs, _ = single.reset(seed=0)
    for _ in range(50):
        action = trainer.compute_single_action(obs, explore=True)
        assert single.legal[action]
        obs, _, ended, *_ = single.step(action)
        obs = single.reset()[0] if ended else obs
    trainer.stop()
    assert rewards[-1] > 1.5 * rewards[0], rewards


class BinaryAutoregressiveOutput(rllib.ActionDistribution):
    """Action distribution P(a1, a2) = P(a1) * P(a2 | a1)"""

    @staticmethod
    def required_model_output_shape(action_space, model_config):
        return 16  # controls model output feature vector size

    def sample(self):
        # first, sample a1
        a1 = self._a1_distribution().sample()
        # sample a2 conditioned on a1
        a2 = self._a2_distribution(a1).sample()
        # return the action tuple
        return (a1, a2)

    def logp(self, actions):
        a1, a2 = (actions["0"], actions["1"]) if isinstance(actions, SampleBatch) else actions
        return self._a1_distribution().log_prob(a1) + self._a2_distribution(a1).log_prob(a2)

    def entropy(self):
        """Of a1, and of a2 for either a1."""
        a1 = self._a1_distribution()
        both = [self._a2_distribution(torch.full_like(a1.logits[:, 0], value).long()).entropy() for value in (0, 1)]
        return a1.entropy() + (a1.probs * torch.stack(both, dim=1)).sum(dim=1)

    def _a1_distribution(self):
        a1_logits, _ = self.model.action_model(self.inputs, torch.zeros(len(self.inputs), 1))
        return torch.distributions.Categorical(logits=a1_logits)

    def _a2_distribution(self, a1):
        _, a2_logits = self.model.action_model(self.inputs, a1.float().unsqueeze(1))
        return torch.distributions.Categorical(logits=a2_logits)


class AutoregressiveActionsModel(Model):
    """Implements the `.action_model` branch required above."""

    def __init__(self, obs_space, action_space, num_outputs):
        super().__init__(obs_space, action_space, num_outputs)
        if action_space != Tuple([Discrete(2), Discrete(2)]):
            raise ValueError("This model only supports the [2, 2] action space")
        # Output of the model (normally 'logits', but for an autoregressive
        # dist this is more like a context/feature layer encoding the obs)
        self.context = nn.Sequential(nn.Linear(self.preprocessor.size, num_outputs), nn.Tanh())
        self.values = nn.Linear(num_outputs, 1)
        # P(a1 | obs)
        self.a1_logits = nn.Linear(num_outputs, 2)
        # P(a2 | a1)
        self.a2_hidden, self.a2_logits = nn.Sequential(nn.Linear(1, 16), nn.Tanh()), nn.Linear(16, 2)

    def action_model(self, ctx_input, a1_input):
        return self.a1_logits(ctx_input), self.a2_logits(self.a2_hidden(a1_input))

    def forward(self, input_dict, state=(), seq_lens=None):
        self._context = self.context(input_dict["obs_flat"])
        return self._context, []

    def value_function(self):
        return self.values(self._context).squeeze(1)


class Matching(probes.Probe):
    """Pays when both actions are equal: independent parts that explore get half of it."""

    length = 10

    def __init__(self):
        super().__init__()
        self.action_space = Tuple([Discrete(2), Discrete(2)])

    def reward(self, action):
        return float(action[0] == action[1])


@pytest.mark.every
def test_document_3_autoregressive_actions_learn() -> None:
    ModelCatalog.register_custom_model("autoregressive", AutoregressiveActionsModel)
    ModelCatalog.register_custom_action_dist("binary_autoreg_dist", BinaryAutoregressiveOutput)
    model = {"custom_model": "autoregressive", "custom_action_dist": "binary_autoreg_dist"}
    trainer = PPOTrainer(env=Matching, config={"model": model, **LEARNING, "gamma": 0.5})
    for _ in range(8):
        result = trainer.train()
    trainer.stop()
    assert result["episode_reward_mean"] > 7


# -- (4) policies, evaluators, optimizers, trainers -------------------------------------------------------------------
class CustomPolicy(Policy):
    """Example of a custom policy written from scratch.

    You might find it more convenient to extend TF/TorchPolicy instead
    for a real policy.
    """

    def __init__(self, observation_space, action_space, config):
        Policy.__init__(self, observation_space, action_space, config)
        # example parameter
        self.w = 1.0

    def compute_actions(self, obs_batch, state_batches, prev_action_batch=None, prev_reward_batch=None, **kwargs):
        # return action batch, RNN states, extra values to include in batch
        return [self.action_space.sample() for _ in obs_batch], [], {}

    def learn_on_batch(self, samples):
        # implement your learning code here
        return {}  # return stats

    def get_weights(self):
        return {"w": self.w}

    def set_weights(self, weights):
        self.w = weights["w"]


@pytest.mark.ray
def test_document_4_evaluation_in_parallel(ray: Any) -> None:
    # Setup policy and remote policy evaluation actors
    env = gym.make("CartPole-v0")
    policy = CustomPolicy(env.observation_space, env.action_space, {})
    remote_evaluators = [
        PolicyEvaluator.as_remote().remote(lambda c: gym.make("CartPole-v0"), CustomPolicy) for _ in range(2)
    ]

    for turn in range(2):
        # Gather a batch of samples
        T1 = SampleBatch.concat_samples(ray.get([w.sample.remote() for w in remote_evaluators]))  # noqa: N806

        # Improve the policy using the T1 batch
        policy.learn_on_batch(T1)
        assert T1.count > 200
        policy.w = float(turn)

        # Broadcast weights to the policy evaluation workers
        weights = ray.put({"default_policy": policy.get_weights()})
        for w in remote_evaluators:
            w.set_weights.remote(weights)
    found = ray.get([w.get_weights.remote() for w in remote_evaluators])
    assert found == [{"default_policy": {"w": 1.0}}] * 2


@pytest.mark.ray
def test_document_4_an_optimizer(ray: Any) -> None:
    # Same setup as before
    local_evaluator = PolicyEvaluator(lambda c: gym.make("CartPole-v0"), CustomPolicy)
    remote_evaluators = [
        PolicyEvaluator.as_remote().remote(lambda c: gym.make("CartPole-v0"), CustomPolicy) for _ in range(2)
    ]

    # this optimizer implements the IMPALA architecture
    optimizer = AsyncSamplesOptimizer(local_evaluator, remote_evaluators, train_batch_size=500)

    for _ in range(2):
        optimizer.step()
    assert optimizer.stats()["num_steps_trained"] >= 1000


def test_document_4_a_trainer() -> None:
    trainer = PPOTrainer(env="CartPole-v0", config={"train_batch_size": 1000})
    for _ in range(1):
        result = trainer.train()
        print(result)
    trainer.stop()
    assert 900 < result["timesteps_total"] <= 1000 and result["episode_reward_mean"] > 10


def test_document_4_the_same_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    """`rllib train` there; --stop is added, because there it has no end."""
    command = ["train", "--run=PPO", "--env=CartPole-v0", '--config={"train_batch_size": 400}']
    command_line.main([*command, '--stop={"training_iteration": 1}'])
    assert json.dumps("training_iteration").replace('"', "'") in capsys.readouterr().out
