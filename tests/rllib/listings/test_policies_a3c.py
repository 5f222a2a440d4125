"""A policy that exists already."""

from __future__ import annotations

import numpy as np

from lightning_rl.rllib.agents.a3c import A3CTrainer
from lightning_rl.rllib.agents.a3c.a3c_torch_policy import A3CTorchPolicy


def test_a3c_s_policy_is_what_its_trainer_trains() -> None:
    trainer = A3CTrainer(env="CartPole-v1", config={"rollout_fragment_length": 20})
    assert type(trainer.policy) is A3CTorchPolicy
    assert np.isfinite(trainer.train()["train/loss"])
    trainer.stop()
