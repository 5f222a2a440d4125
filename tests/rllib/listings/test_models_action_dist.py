"""A custom action distribution of three methods, which reads the model's config."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import lightning_rl.rllib.agents.ppo as ppo
from lightning_rl.rllib.models import ActionDistribution, ModelCatalog

pytestmark = pytest.mark.filterwarnings("ignore:.*(retired|out of date).*")


class MyActionDist(ActionDistribution):
    @staticmethod
    def required_model_output_shape(action_space, model_config):
        return 7  # controls model output feature vector size

    def __init__(self, inputs, model):
        super(MyActionDist, self).__init__(inputs, model)  # noqa: UP008
        assert model.num_outputs == 7
        self.choice = torch.distributions.Categorical(logits=inputs[:, : len(model.model_config["fcnet_hiddens"])])

    def sample(self):
        return self.choice.sample()

    def logp(self, actions):
        return self.choice.log_prob(actions)

    def entropy(self):
        return self.choice.entropy()


def test_it_trains_is_evaluated_and_acts_greedily() -> None:
    ModelCatalog.register_custom_action_dist("my_dist", MyActionDist)
    trainer: Any = ppo.PPOTrainer(
        env="CartPole-v0",
        config={
            "model": {
                "custom_action_dist": "my_dist",
            },
            "train_batch_size": 256,
            "kl_coeff": 0.2,
        },
    )
    result = trainer.train()
    assert 0 < result["train/entropy"] <= 0.6932
    assert abs(result["train/first_kl"]) < 1e-6  # the recorded log-probability is that of what was sampled
    assert trainer.evaluate()["evaluation"]["episode_len_mean"] >= 8
    actions = {int(trainer.compute_single_action(np.zeros(4, np.float32), explore=False)) for _ in range(5)}
    assert len(actions) == 1
    trainer.stop()
