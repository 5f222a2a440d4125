"""`use_lstm` for the policy-gradient algorithms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lightning_rl.rllib.agents import a3c, impala, pg, ppo


@pytest.mark.parametrize("trainer_class", [a3c.A3CTrainer, ppo.PPOTrainer, pg.PGTrainer, impala.ImpalaTrainer])
def test_the_output_is_processed_by_an_lstm(trainer_class: Any) -> None:
    config = {"model": {"use_lstm": True, "lstm_cell_size": 16, "max_seq_len": 10}, "rollout_fragment_length": 20}
    trainer = trainer_class(env="CartPole-v1", config=config)
    assert np.isfinite(trainer.train()["train/loss"])
    policy = trainer.policy
    state = policy.get_initial_state()
    action, after, _ = policy.compute_single_action(np.zeros(4, np.float32), state)
    trainer.stop()
    assert [part.shape for part in state] == [part.shape for part in after] == [(16,), (16,)]
    assert action in (0, 1) and (after[0] != state[0]).any()
