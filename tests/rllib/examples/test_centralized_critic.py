"""centralized_critic: PPO with a critic that sees the other agent's observation and action."""

from __future__ import annotations

import pytest
import torch
from gymnasium.spaces import Discrete
from torch import nn

from lightning_rl.rllib.agents.ppo.ppo import PPOTrainer
from lightning_rl.rllib.agents.ppo.ppo_torch_policy import PPOTorchPolicy
from lightning_rl.rllib.evaluation.postprocessing import Postprocessing, compute_advantages
from lightning_rl.rllib.models import ModelCatalog
from lightning_rl.rllib.models.torch.fcnet import FullyConnectedNetwork as TorchFC
from lightning_rl.rllib.models.torch.misc import SlimFC
from lightning_rl.rllib.models.torch.torch_modelv2 import TorchModelV2
from lightning_rl.rllib.policy.sample_batch import SampleBatch
from lightning_rl.rllib.utils.annotations import override
from lightning_rl.rllib.utils.torch_ops import convert_to_torch_tensor
from tests.rllib.examples.envs import TwoStepGame
from tests.rllib.examples.training import train_until

OPPONENT_OBS = "opponent_obs"
OPPONENT_ACTION = "opponent_action"


class TorchCentralizedCriticModel(TorchModelV2, nn.Module):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        self.model = TorchFC(obs_space, action_space, num_outputs, model_config, name)
        self.central_vf = nn.Sequential(SlimFC(6 + 6 + 2, 16, activation_fn=nn.Tanh), SlimFC(16, 1))

    @override(TorchModelV2)
    def forward(self, input_dict, state, seq_lens):
        model_out, _ = self.model(input_dict, state, seq_lens)
        return model_out, []

    def central_value_function(self, obs, opponent_obs, opponent_actions):
        parts = [
            torch.nn.functional.one_hot(part.long(), size).float()
            for part, size in ((obs, 6), (opponent_obs, 6), (opponent_actions, 2))
        ]
        return torch.reshape(self.central_vf(torch.cat(parts, 1)), [-1])

    @override(TorchModelV2)
    def value_function(self):
        return self.model.value_function()  # not used


class CentralizedValueMixin:
    """Add method to evaluate the central value function from the model."""

    def __init__(self):
        self.compute_central_vf = self.model.central_value_function


def centralized_critic_postprocessing(policy, sample_batch, other_agent_batches=None, episode=None):
    """The opponent's columns, and advantages by the central values."""
    assert other_agent_batches is not None
    [(_, opponent_batch)] = list(other_agent_batches.values())
    sample_batch[OPPONENT_OBS] = opponent_batch[SampleBatch.CUR_OBS]
    sample_batch[OPPONENT_ACTION] = opponent_batch[SampleBatch.ACTIONS]
    sample_batch[SampleBatch.VF_PREDS] = (
        policy.model.central_value_function(
            convert_to_torch_tensor(sample_batch[SampleBatch.CUR_OBS], policy.device),
            convert_to_torch_tensor(sample_batch[OPPONENT_OBS], policy.device),
            convert_to_torch_tensor(sample_batch[OPPONENT_ACTION], policy.device),
        )
        .detach()
        .numpy()
    )
    completed = sample_batch["dones"][-1]
    last_r = 0.0 if completed else sample_batch[SampleBatch.VF_PREDS][-1]
    return compute_advantages(
        sample_batch, last_r, policy.config["gamma"], policy.config["lambda"], use_gae=policy.config["use_gae"]
    )


def loss_with_central_critic(policy, model, dist_class, train_batch):
    """PPO's loss with the central value function in the place of the model's."""
    CentralizedValueMixin.__init__(policy)
    logits, _ = model.from_batch(train_batch)
    action_dist = dist_class(logits, model)
    central_value_out = policy.compute_central_vf(
        train_batch[SampleBatch.CUR_OBS], train_batch[OPPONENT_OBS], train_batch[OPPONENT_ACTION]
    )
    advantages = train_batch[Postprocessing.ADVANTAGES]
    advantages = (advantages - advantages.mean()) / advantages.std().clamp(min=1e-4)
    ratio = torch.exp(action_dist.logp(train_batch[SampleBatch.ACTIONS]) - train_batch[SampleBatch.ACTION_LOGP])
    clip = policy.config["clip_param"]
    surrogate = torch.min(advantages * ratio, advantages * torch.clamp(ratio, 1 - clip, 1 + clip))
    vf_loss = (central_value_out - train_batch[Postprocessing.VALUE_TARGETS]) ** 2
    return torch.mean(-surrogate + policy.config["vf_loss_coeff"] * vf_loss)


CCPPOTorchPolicy = PPOTorchPolicy.with_updates(
    name="CCPPOTorchPolicy",
    postprocess_fn=centralized_critic_postprocessing,
    loss_fn=loss_with_central_critic,
    mixins=[CentralizedValueMixin],
)


def get_policy_class(config):
    return CCPPOTorchPolicy


CCTrainer = PPOTrainer.with_updates(
    name="CCPPOTrainer", default_policy=CCPPOTorchPolicy, get_policy_class=get_policy_class
)


@pytest.mark.parametrize("stop_reward", [6.9, pytest.param(7.99, marks=pytest.mark.slow)])
def test_both_agents_risk_the_eight(stop_reward: float) -> None:
    """The safe choice gets 7; 7.99 needs both to trust each other."""
    ModelCatalog.register_custom_model("cc_model", TorchCentralizedCriticModel)
    config = {
        "env": TwoStepGame,
        "batch_mode": "complete_episodes",
        "num_workers": 0,
        "lr": 3e-3,
        "seed": 1,
        "use_gae": True,
        "entropy_coeff": 0.0,
        "multiagent": {
            "policies": {
                "pol1": (None, Discrete(6), TwoStepGame.action_space, {"framework": "torch"}),
                "pol2": (None, Discrete(6), TwoStepGame.action_space, {"framework": "torch"}),
            },
            "policy_mapping_fn": lambda x: "pol1" if x == 0 else "pol2",
        },
        "model": {"custom_model": "cc_model"},
        "framework": "torch",
    }
    trainer = CCTrainer(config=config)
    train_until(trainer, stop_reward, stop_iters=100)
    trainer.stop()
