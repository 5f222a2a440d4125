"""custom_model_loss_and_metrics: PG with an imitation loss on recorded episodes, read within the model's loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lightning_rl.rllib.agents.pg import PGTrainer
from lightning_rl.rllib.models import ModelCatalog
from tests.rllib.examples.experiences import save_experiences
from tests.rllib.listings.imitation_model import TorchCustomLossModel


def test_the_recorded_rule_is_learned_at_once(tmp_path: Path) -> None:
    """Half of the recorded actions are the rule's, the others random: their mean return is about 145."""
    save_experiences(tmp_path, 40)
    ModelCatalog.register_custom_model("custom_loss", TorchCustomLossModel)
    config = {
        "train_batch_size": 200,
        "lr": 3e-3,
        "seed": 0,
        "evaluation_num_episodes": 5,
        "evaluation_config": {"explore": False},
        "model": {"custom_model": "custom_loss", "custom_model_config": {"input_files": str(tmp_path)}},
    }
    trainer: Any = PGTrainer(env="CartPole-v1", config=config)
    for _ in range(30):
        result = trainer.train()
    learned = trainer.evaluate()["evaluation"]["episode_reward_mean"]
    trainer.stop()
    stats = result["info"]["learner"]["default_policy"]
    assert stats["model/imitation_loss"] < 0.65 and "model/policy_loss" in stats
    assert learned > 200
