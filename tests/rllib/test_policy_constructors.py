"""Policies of a trainer whose constructors are RLlib's: (observation space, action space, config)."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import torch

from lightning_rl.errors import ConfigError
from lightning_rl.rllib.agents.dqn import DQNTorchPolicy, DQNTrainer
from lightning_rl.rllib.agents.pg import PGTorchPolicy, PGTrainer
from lightning_rl.rllib.agents.ppo import PPOTorchPolicy, PPOTrainer
from lightning_rl.rllib.agents.trainer import Trainer, with_common_config
from lightning_rl.rllib.env.multi_agent_env import make_multi_agent
from lightning_rl.rllib.evaluation import RolloutWorker
from lightning_rl.rllib.models import ModelCatalog
from lightning_rl.rllib.policy.torch_policy import TorchPolicy
from lightning_rl.rllib.policy.torch_policy_template import build_torch_policy
from tests.envs.classic_control import CARTPOLE


class OwnPPO(PPOTorchPolicy):
    def __init__(self, observation_space, action_space, config):
        super().__init__(observation_space, action_space, config)


class OwnPG(PGTorchPolicy):
    def __init__(self, obs_space, action_space, config):
        PGTorchPolicy.__init__(self, obs_space, action_space, config)
        self.calls = 0


class OwnDQN(DQNTorchPolicy):
    def __init__(self, observation_space, action_space, config):
        super().__init__(observation_space, action_space, config)


def trained(trainer: Any, policy: Any, **config: Any) -> Any:
    made = trainer.with_updates("Own", default_policy=policy)(env="CartPole-v1", config=config)
    made.train()
    made.stop()
    return made


@pytest.mark.parametrize(("trainer", "policy"), [(PPOTrainer, OwnPPO), (PGTrainer, OwnPG), (DQNTrainer, OwnDQN)])
def test_a_subclass_with_rllib_s_constructor_learns_as_its_base(trainer: Any, policy: Any) -> None:
    config = {"seed": 3, "train_batch_size": 32, "rollout_fragment_length": 32}
    own, base = (trained(trainer, each, **config) for each in (policy, policy.__mro__[1]))
    kept = [made.run_config[section] for made in (own, base) for section in ("data", "workers", "model")]
    assert kept[:3] == kept[3:] and isinstance(own.policy, policy)
    expected = base.policy.get_weights()
    for name, weights in own.policy.get_weights().items():
        assert (weights == expected[name]).all(), name


def test_keys_reach_a_subclass_with_rllib_s_constructor_also_those_that_are_counted_otherwise() -> None:
    ppo = trained(PPOTrainer, OwnPPO, train_batch_size=100, sgd_minibatch_size=25, gamma=0.5, vf_clip_param=3.0).policy
    assert (ppo.minibatches, ppo.gamma, ppo.value_loss_clip) == (4, 0.5, 3.0)
    keys = {"train_batch_size": 8, "learning_starts": 50, "timesteps_per_iteration": 60, "hiddens": [7]}
    dqn = trained(DQNTrainer, OwnDQN, target_network_update_freq=77, **keys).policy
    assert dqn.target_update_interval == 77 and 7 in {parameter.shape[0] for parameter in dqn.model.parameters()}


def test_such_a_subclass_may_be_one_of_several_policies() -> None:
    policies = {"own": (OwnPPO, None, None, {"gamma": 0.5}), "base": (None, None, None, {})}
    several = {
        "policies": policies,
        "policy_mapping_fn": lambda agent, *_, **__: "own" if agent == "agent_0" else "base",
    }
    config = {"env_config": {"num_agents": 2}, "train_batch_size": 64, "multiagent": several}
    trainer = PPOTrainer(env=make_multi_agent("CartPole-v1"), config=config)
    result = trainer.train()
    own, base = trainer.get_policy("own"), trainer.get_policy("base")
    trainer.stop()
    assert isinstance(own, OwnPPO) and (own.gamma, base.gamma) == (0.5, 0.99)
    assert set(result["info"]["learner"]) == {"own", "base"}


class GivenParts(TorchPolicy):
    """Builds its model and hands it on, with its loss and its distribution."""

    functions: ClassVar[dict[str, Any]] = {}

    def __init__(self, observation_space, action_space, config):
        dist_class, logit_dim = ModelCatalog.get_action_dist(action_space, config["model"], framework="torch")
        model = ModelCatalog.get_model_v2(
            observation_space, action_space, logit_dim, config["model"], framework="torch", name="given"
        )
        super().__init__(
            observation_space,
            action_space,
            config,
            model=model,
            loss=self.reward_weighted,
            action_distribution_class=dist_class,
            **self.functions,
        )

    def reward_weighted(self, policy, model, dist_class, train_batch):
        assert policy is self and train_batch["action_dist_inputs"].shape[1] == 2
        logits, _ = model(train_batch)
        return -(dist_class(logits, model).logp(train_batch["actions"]) * train_batch["rewards"]).mean()


def always_one(policy, model, obs_batch, state_batches=None, explore=None, timestep=None, **keywords):
    actions = torch.ones(len(obs_batch["obs"]), dtype=torch.int64)
    return actions, torch.zeros(len(actions)), []


class GivenSampler(GivenParts):
    functions: ClassVar[dict[str, Any]] = {"action_sampler_fn": always_one}

    def reward_weighted(self, policy, model, dist_class, train_batch):
        self.taken = train_batch["actions"].unique().tolist()
        return model(train_batch)[0].mean()


def test_a_constructor_may_hand_on_a_model_a_loss_and_a_distribution() -> None:
    made = trained(Trainer, GivenParts, train_batch_size=200, lr=0.01, model={"fcnet_hiddens": [8]})
    policy = made.policy
    assert "model" not in vars(policy)["_given"] and 8 in {p.shape[0] for p in policy.model.parameters()}
    before = {name: weights.copy() for name, weights in policy.get_weights().items()}
    rows = policy.postprocess_trajectory(RolloutWorker(env_creator=CARTPOLE, policy=policy).sample())
    loss = policy.loss(rows)[0].item()
    for _ in range(10):
        policy.learn_on_batch(rows)
    assert policy.loss(rows)[0].item() < loss
    assert any((policy.get_weights()[name] != before[name]).any() for name in before)


def test_a_constructor_may_hand_on_a_function_that_acts() -> None:
    policy = trained(Trainer, GivenSampler, train_batch_size=32).policy
    assert policy.taken == [1] and policy.compute_single_action(CARTPOLE.spaces()[0].sample())[0] == 1


def test_a_constructor_without_a_loss_is_refused() -> None:
    class NoLoss(TorchPolicy):
        def __init__(self, observation_space, action_space, config):
            super().__init__(observation_space, action_space, config)

    with pytest.raises(ConfigError, match="NoLoss has no loss"):
        trained(Trainer, NoLoss)


def own_loss(policy, model, dist_class, train_batch):
    logits, _ = model(train_batch)
    return -dist_class(logits, model).logp(train_batch["actions"]).mean()


WithCommonConfig: Any = build_torch_policy(
    name="WithCommonConfig",
    loss_fn=own_loss,
    get_default_config=lambda: with_common_config({"lr": 0.25, "observation_filter": "MeanStdFilter", "mine": 7}),
    get_batch_divisibility_req=lambda policy: 4,
)


def test_a_policy_of_functions_may_have_rllib_s_whole_common_config_as_its_defaults() -> None:
    alone = WithCommonConfig(*CARTPOLE.spaces())
    made = trained(Trainer, WithCommonConfig, train_batch_size=32)
    for policy in (alone, made.policy):
        assert policy.learner.optimizer.name == "adam" and policy.learner.optimizer.lr == 0.25
        assert type(policy.observation_filter).__name__ == "MeanStdFilter"
        assert policy.config["mine"] == 7 and policy.config["observation_filter"] == "MeanStdFilter"
