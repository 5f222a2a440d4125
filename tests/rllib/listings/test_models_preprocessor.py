"""A custom preprocessor is registered, and a trainer's config names it."""

from __future__ import annotations

from typing import Any

import pytest

import lightning_rl.rllib.agents.ppo as ppo
from lightning_rl.rllib.models import ModelCatalog
from lightning_rl.rllib.models.preprocessors import Preprocessor

pytestmark = pytest.mark.filterwarnings("ignore:.*(retired|out of date).*")


class MyPreprocessorClass(Preprocessor):
    def _init_shape(self, obs_space, options):
        new_shape = (options["custom_options"]["kept"],)
        return new_shape  # can vary depending on inputs

    def transform(self, observation):
        return observation[: self.shape[0]]  # return the preprocessed observation


def test_the_network_sees_what_the_preprocessor_returns() -> None:
    ModelCatalog.register_custom_preprocessor("my_prep", MyPreprocessorClass)
    trainer: Any = ppo.PPOTrainer(
        env="CartPole-v0",
        config={
            "model": {
                "custom_preprocessor": "my_prep",
                "custom_options": {"kept": 3},  # extra options to pass to your preprocessor
            },
            "train_batch_size": 64,
        },
    )
    assert next(iter(trainer.policy.model.parameters())).shape[1] == 3
    trainer.train()
    trainer.stop()
