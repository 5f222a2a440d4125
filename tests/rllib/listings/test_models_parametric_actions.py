"""Actions of which a set that changes is available: embeddings and a mask in the observation."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from gymnasium.spaces import Box
from torch import nn

from lightning_rl.envs.toy_tasks import ParametricActionsCartPole
from lightning_rl.rllib.agents.ppo import PPOTrainer
from lightning_rl.rllib.models import ModelCatalog
from lightning_rl.rllib.models.torch.fcnet import FullyConnectedNetwork
from lightning_rl.rllib.models.torch.torch_modelv2 import TorchModelV2


class ParametricActionsModel(TorchModelV2, nn.Module):
    def __init__(
        self, obs_space, action_space, num_outputs, model_config, name, true_obs_shape=(4,), action_embed_size=2
    ):
        nn.Module.__init__(self)
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.action_embed_model = FullyConnectedNetwork(
            Box(-1, 1, shape=true_obs_shape), action_space, action_embed_size, model_config, name + "_action_embed"
        )

    def forward(self, input_dict, state, seq_lens):
        # Extract the available actions tensor from the observation.
        avail_actions = input_dict["obs"]["avail_actions"]
        action_mask = input_dict["obs"]["action_mask"]

        # Compute the predicted action embedding
        action_embed, _ = self.action_embed_model({"obs": input_dict["obs"]["cart"]})

        # Expand the model output to [BATCH, 1, EMBED_SIZE]. Note that the
        # avail actions tensor is of shape [BATCH, MAX_ACTIONS, EMBED_SIZE].
        intent_vector = torch.unsqueeze(action_embed, 1)

        # Batch dot product => shape of logits is [BATCH, MAX_ACTIONS].
        action_logits = torch.sum(avail_actions * intent_vector, dim=2)

        # Mask out invalid actions (use the least float for stability)
        inf_mask = torch.clamp(torch.log(action_mask), min=torch.finfo(torch.float32).min)
        return action_logits + inf_mask, state

    def value_function(self):
        return self.action_embed_model.value_function()


@pytest.mark.every
def test_it_learns_and_never_takes_an_action_that_is_not_available() -> None:
    ModelCatalog.register_custom_model("pa_model", ParametricActionsModel)
    env, model = {"slots": 5, "varying": True}, {"custom_model": "pa_model", "vf_share_layers": True}
    sizes = {"train_batch_size": 320, "num_envs_per_worker": 8, "sgd_minibatch_size": 80, "lr": 1e-2, "seed": 1}
    trainer: Any = PPOTrainer(env=ParametricActionsCartPole, config={"env_config": env, "model": model, **sizes})
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
