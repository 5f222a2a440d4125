"""The defaults of a model config, and parameters of the model in a trainer's config."""

from __future__ import annotations

from typing import Any

import pytest

from lightning_rl.rllib.agents.ppo import PPOTrainer
from lightning_rl.rllib.models import MODEL_DEFAULTS

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


def test_the_defaults_are_those_of_the_document() -> None:
    named = {"fcnet_hiddens": [256, 256], "fcnet_activation": "tanh", "max_seq_len": 20, "lstm_cell_size": 256}
    named |= {"attention_dim": 64, "attention_memory_training": 50, "dim": 84, "framestack": True, "zero_mean": True}
    assert {key: MODEL_DEFAULTS[key] for key in named} == named and len(MODEL_DEFAULTS) == 38


@pytest.mark.parametrize("change", [{}, {"use_lstm": True}, {"use_attention": True}])
def test_the_whole_config_is_taken(change: dict[str, Any]) -> None:
    config = {"model": {**MODEL_DEFAULTS, **change}, "train_batch_size": 64, "num_sgd_iter": 1}
    trainer: Any = PPOTrainer(env="CartPole-v1", config=config)
    assert trainer.policy.model_config["fcnet_hiddens"] == [256, 256] and trainer.policy.is_recurrent == bool(change)
    trainer.train()
    trainer.stop()


def test_keys_that_are_given_change_the_network_and_others_stay() -> None:
    trainer: Any = PPOTrainer(env="CartPole-v1", config=algo_config)
    shapes = [tuple(p.shape) for p in trainer.policy.model.parameters() if p.dim() == 2]
    assert shapes[:3] == [(512, 4), (512, 512), (512, 512)]
    assert trainer.policy.config["lr"] == 0.00001 == trainer.policy.learner.optimizer.lr
    assert trainer.policy.config["model"]["fcnet_activation"] == "relu"
