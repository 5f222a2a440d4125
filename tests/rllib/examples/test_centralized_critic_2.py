"""centralized_critic_2: a central critic by `observation_fn` and a callback, with PPO as it is."""

from __future__ import annotations

import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete
from torch import nn

from lightning_rl.rllib.agents.callbacks import DefaultCallbacks
from lightning_rl.rllib.agents.ppo import PPOTrainer
from lightning_rl.rllib.models import ModelCatalog
from lightning_rl.rllib.models.torch.fcnet import FullyConnectedNetwork as TorchFC
from lightning_rl.rllib.models.torch.torch_modelv2 import TorchModelV2
from lightning_rl.rllib.policy.sample_batch import SampleBatch
from tests.rllib.examples.envs import TwoStepGame
from tests.rllib.examples.training import train_until

seen: list[bool] = []


class YetAnotherTorchCentralizedCriticModel(TorchModelV2, nn.Module):
    """Acts by "own_obs" alone; the values read all of the observation."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        own = Box(low=0, high=1, shape=(6,))
        self.action_model = TorchFC(own, action_space, num_outputs, model_config, name + "_action")
        self.value_model = TorchFC(obs_space, action_space, 1, model_config, name + "_vf")
        self._model_in = None

    def forward(self, input_dict, state, seq_lens):
        self._model_in = [input_dict["obs_flat"], state, seq_lens]
        return self.action_model({"obs": input_dict["obs"]["own_obs"]}, state, seq_lens)

    def value_function(self):
        value_out, _ = self.value_model({"obs": self._model_in[0]}, self._model_in[1], self._model_in[2])
        return torch.reshape(value_out, [-1])


class FillInActions(DefaultCallbacks):
    """Fills in the opponent's actions, by their name in the observation."""

    def on_postprocess_trajectory(
        self, worker, episode, agent_id, policy_id, policies, postprocessed_batch, original_batches, **kwargs
    ):
        to_update = postprocessed_batch[SampleBatch.CUR_OBS]
        other_id = 1 if agent_id == 0 else 0
        _, opponent_batch = original_batches[other_id]
        to_update["opponent_action"][:] = opponent_batch[SampleBatch.ACTIONS]

    def on_learn_on_batch(self, policy, train_batch, result, **kwargs):
        seen.append(bool(train_batch["obs"]["opponent_action"].any()))


def central_critic_observer(agent_obs, **kw):
    """What the agents observe: the opponent's observation, and a place for its action."""
    return {
        agent: {"own_obs": agent_obs[agent], "opponent_obs": agent_obs[1 - agent], "opponent_action": 0}
        for agent in (0, 1)
    }


@pytest.mark.parametrize("stop_reward", [6.9, pytest.param(7.99, marks=pytest.mark.slow)])
def test_both_agents_risk_the_eight(stop_reward: float) -> None:
    ModelCatalog.register_custom_model("cc_model", YetAnotherTorchCentralizedCriticModel)
    action_space = Discrete(2)
    observer_space = Dict({"own_obs": Discrete(6), "opponent_obs": Discrete(6), "opponent_action": Discrete(2)})
    config = {
        "env": TwoStepGame,
        "batch_mode": "complete_episodes",
        "callbacks": FillInActions,
        "num_workers": 0,
        "lr": 1e-3,
        "seed": 1,
        "multiagent": {
            "policies": {
                "pol1": (None, observer_space, action_space, {}),
                "pol2": (None, observer_space, action_space, {}),
            },
            "policy_mapping_fn": lambda aid, **kwargs: "pol1" if aid == 0 else "pol2",
            "observation_fn": central_critic_observer,
        },
        "model": {"custom_model": "cc_model"},
        "framework": "torch",
    }
    trainer = PPOTrainer(config=config)
    train_until(trainer, stop_reward, stop_iters=100)
    trainer.stop()
    assert any(seen)  # acting sees zeros
