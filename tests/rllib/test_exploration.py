"""Exploration strategies in RLlib's form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from lightning_rl.rllib.agents.dqn import DQNTrainer
from lightning_rl.rllib.agents.ppo import PPOTrainer
from lightning_rl.rllib.utils.exploration.exploration import Exploration


class Biased(Exploration):
    """The first action with a probability, else the greedy one."""

    def __init__(self, action_space: Any, *, framework: str, share: float = 0.5, **keywords: Any) -> None:
        assert framework == "torch"
        super().__init__(action_space, framework=framework, **keywords)
        self.share, self.seen = share, []

    def get_exploration_action(self, *, action_distribution: Any, timestep: Any, explore: bool = True) -> Any:
        greedy = action_distribution.deterministic_sample()
        if not explore:
            return greedy, None
        self.seen.append(int(timestep))
        first = torch.rand(len(greedy)) < self.share
        return torch.where(first, torch.zeros_like(greedy), greedy), None


@pytest.mark.parametrize("trainer_class", [PPOTrainer, DQNTrainer])
def test_a_strategy_in_rllib_s_form_chooses_the_actions(trainer_class: Any) -> None:
    config = {
        "exploration_config": {"type": Biased, "share": 1.0},
        "num_workers": 0,
        "train_batch_size": 64,
        "rollout_fragment_length": 32,
    }
    trainer = trainer_class(config=config, env="CartPole-v1")
    policy = trainer.get_policy()
    batch = trainer.workers.local_worker().sample()
    strategy = policy.exploration
    assert strategy.share == 1.0 and strategy.model is policy.model and strategy.seen
    assert not np.asarray(batch["actions"]).any()
    assert trainer.train()["episode_len_mean"] < 12  # always to the left
    trainer.stop()
