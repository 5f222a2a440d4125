"""saving_experiences: a simulator of one's own writes episodes in RLlib's files, from which a trainer learns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lightning_rl.rllib.agents.dqn import DQNTrainer
from lightning_rl.rllib.agents.marwil import BCTrainer
from lightning_rl.rllib.offline.json_reader import JsonReader
from tests.rllib.examples.experiences import save_experiences


def best_return(trainer: Any, iterations: int) -> float:
    for _ in range(iterations):
        trainer.train()
    found = trainer.evaluate()["evaluation"]["episode_reward_mean"]
    trainer.stop()
    return found


@pytest.mark.slow
def test_behavior_cloning_and_dqn_learn_from_the_files(tmp_path: Path) -> None:
    """The rule without random actions balances far longer than the recorded episodes."""
    save_experiences(tmp_path, 200)
    recorded = np.mean([batch.count for batch in JsonReader(tmp_path).read_all_files()])
    config = {"input": str(tmp_path), "evaluation_num_episodes": 20, "model": {"fcnet_hiddens": [64, 64]}, "seed": 0}
    config["evaluation_config"] = {"explore": False}
    cloned = best_return(BCTrainer(env="CartPole-v1", config={**config, "train_batch_size": 1000, "lr": 3e-3}), 100)
    assert recorded < 200 and cloned > 300
    learned = best_return(
        DQNTrainer(
            env="CartPole-v1",
            config={**config, "train_batch_size": 64, "timesteps_per_iteration": 64_000, "lr": 1e-3},
        ),
        3,
    )
    assert learned > 200


def test_the_files_hold_what_was_added(tmp_path: Path) -> None:
    save_experiences(tmp_path, 2)
    first, second = JsonReader(tmp_path).read_all_files()
    assert first["eps_id"].tolist() == [0] * first.count and first["t"].tolist() == [*range(first.count)]
    assert np.array_equal(first["prev_actions"][1:], first["actions"][:-1])
    assert second["new_obs"].shape == (second.count, 4) and "infos" not in second
