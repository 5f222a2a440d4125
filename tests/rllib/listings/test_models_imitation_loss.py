"""An imitation loss within a model, which reads its data from files in the loss."""

from __future__ import annotations

from typing import Any

import numpy as np

from lightning_rl.rllib.agents.pg import PGTrainer
from lightning_rl.rllib.models import ModelCatalog
from lightning_rl.rllib.offline.json_writer import JsonWriter
from lightning_rl.rllib.policy.sample_batch import SampleBatch
from tests.rllib.listings.imitation_model import TorchCustomLossModel


def test_the_policy_takes_the_actions_of_the_files_while_it_learns(tmp_path: Any) -> None:
    """The expert pushes the cart to the side to which the pole falls; ln 2 is the loss of equal probabilities."""
    generator = np.random.default_rng(0)
    writer = JsonWriter(tmp_path)
    for _ in range(4):
        obs = generator.normal(size=(200, 4)).astype(np.float32)
        writer.write(SampleBatch(obs=obs, actions=(obs[:, 2] > 0).astype(np.int64)))
    ModelCatalog.register_custom_model("custom_loss", TorchCustomLossModel)
    config = {
        "num_workers": 0,
        "framework": "torch",
        "lr": 3e-3,
        "rollout_fragment_length": 200,
        "model": {"custom_model": "custom_loss", "custom_model_config": {"input_files": [f"{tmp_path}/*.json"]}},
    }
    trainer: Any = PGTrainer(env="CartPole-v1", config=config)
    results = [trainer.train() for _ in range(30)]
    trainer.stop()
    losses = [each["info"]["learner"]["default_policy"]["model/imitation_loss"] for each in results]
    assert 0.5 < losses[0] < 0.9 and losses[-1] < 0.6 * losses[0]
    assert "model/policy_loss" in results[0]["info"]["learner"]["default_policy"]
