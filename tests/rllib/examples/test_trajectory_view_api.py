"""trajectory_view_api: a model that stacks frames, actions and rewards by its view requirements."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from lightning_rl.rllib.agents.ppo import PPOTrainer
from lightning_rl.rllib.models import ModelCatalog
from lightning_rl.rllib.models.torch.misc import SlimFC
from lightning_rl.rllib.models.torch.torch_modelv2 import TorchModelV2
from lightning_rl.rllib.policy.view_requirement import ViewRequirement
from tests.rllib.examples.envs import StatelessCartPole
from tests.rllib.examples.training import train_until


class TorchFrameStackingCartPoleModel(TorchModelV2, nn.Module):
    """Reads the last `num_frames` observations, and as many actions and rewards before the newest of them."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name, num_frames=3):
        nn.Module.__init__(self)
        super().__init__(obs_space, action_space, None, model_config, name)
        self.num_frames, self.num_outputs = num_frames, num_outputs
        in_size = num_frames * (obs_space.shape[0] + action_space.n + 1)
        self.layer1 = SlimFC(in_size=in_size, out_size=256, activation_fn="relu")
        self.layer2 = SlimFC(in_size=256, out_size=256, activation_fn="relu")
        self.out = SlimFC(in_size=256, out_size=num_outputs, activation_fn="linear")
        self.values = SlimFC(in_size=256, out_size=1, activation_fn="linear")
        self._last_value = None
        self.view_requirements["prev_n_obs"] = ViewRequirement(
            data_col="obs", shift=f"-{num_frames - 1}:0", space=obs_space
        )
        self.view_requirements["prev_n_rewards"] = ViewRequirement(data_col="rewards", shift=f"-{num_frames}:-1")
        self.view_requirements["prev_n_actions"] = ViewRequirement(
            data_col="actions", shift=f"-{num_frames}:-1", space=action_space
        )

    def forward(self, input_dict, states, seq_lens):
        obs = input_dict["prev_n_obs"].reshape(-1, self.obs_space.shape[0] * self.num_frames)
        rewards = input_dict["prev_n_rewards"].reshape(-1, self.num_frames)
        actions = functional.one_hot(input_dict["prev_n_actions"].long(), self.action_space.n).float()
        inputs = torch.cat([obs, actions.reshape(-1, self.num_frames * actions.shape[-1]), rewards], dim=-1)
        features = self.layer2(self.layer1(inputs))
        self._last_value = self.values(features)
        return self.out(features), []

    def value_function(self):
        return torch.squeeze(self._last_value, -1)


@pytest.mark.slow
@pytest.mark.timeout(900)  # 70,000 steps, of which each forward reads 16
def test_frames_stacked_by_view_requirements_make_up_for_hidden_velocities() -> None:
    ModelCatalog.register_custom_model("frame_stack_model", TorchFrameStackingCartPoleModel)
    config = {
        "defaults": "rllib",
        "env": StatelessCartPole,
        "model": {"custom_model": "frame_stack_model", "custom_model_config": {"num_frames": 16}},
        "num_sgd_iter": 5,
        "vf_loss_coeff": 0.0001,
        "framework": "torch",
        "num_workers": 0,
        "seed": 0,
    }
    trainer = PPOTrainer(config=config)
    train_until(trainer, stop_reward=150.0, stop_iters=50)
    trainer.stop()
