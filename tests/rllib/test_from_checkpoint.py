"""`Trainer.from_checkpoint` makes a trainer of a file alone: its class, its config and what it learned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from lightning_rl import rllib
from lightning_rl.errors import CheckpointError, ConfigError
from lightning_rl.rllib import config_in_file
from lightning_rl.rllib.agents.pg import PGTrainer
from lightning_rl.rllib.callbacks import DefaultCallbacks
from tests.rllib.examples.envs import MultiAgentCartPole, SimpleCorridor

SMALL: dict[str, Any] = {"num_envs_per_worker": 2, "rollout_fragment_length": 16, "model": {"fcnet_hiddens": [8]}}
pytestmark = pytest.mark.filterwarnings("ignore:.*it is adapted.*", "ignore:checkpoints cannot hold.*")


def test_a_trainer_is_made_again_from_its_checkpoint(tmp_path: Path) -> None:
    """Class, config and environment come from the file; training continues at the second result."""
    config = {**SMALL, "env_config": {"corridor_length": 5}, "lr": 1e-3, "callbacks": DefaultCallbacks}
    made: Any = PGTrainer(env=SimpleCorridor, config=config)
    made.train()
    path, weights = made.save(str(tmp_path)), made.get_weights()["default_policy"]
    made.stop()
    for cls, place in ((rllib.Trainer, path), (PGTrainer, str(tmp_path))):
        again: Any = cls.from_checkpoint(place)
        assert type(again) is PGTrainer and again.raw_user_config == made.raw_user_config
        assert type(again.callbacks) is DefaultCallbacks and again.env_creator(None).env.end_pos == 5
        assert all(np.array_equal(again.get_weights()["default_policy"][name], weights[name]) for name in weights)
        assert again.train()["training_iteration"] == 2
        again.stop()


def test_a_trainer_is_made_again_with_some_of_its_policies(tmp_path: Path) -> None:
    """A lambda as mapping is saved as the policy of each agent; agents are numbers for it and for its successor."""
    observed, acted = gym.make("CartPole-v1").observation_space, gym.make("CartPole-v1").action_space
    policies = {"p0": rllib.PolicySpec(None, observed, acted, {"lr": 1e-4}), "p1": (None, observed, None, {})}
    section = {"policies": policies, "policy_mapping_fn": lambda agent_id, *_, **keywords: f"p{agent_id}"}
    config = {**SMALL, "env_config": {"num_agents": 2}, "multiagent": section}
    made: Any = PGTrainer(env=MultiAgentCartPole, config=config)
    path, weights = made.save(str(tmp_path)), made.get_weights()
    made.stop()
    whole: Any = PGTrainer.from_checkpoint(path)
    assert [*whole.policy.policies] == ["p0", "p1"] and whole.get_policy("p0").config["lr"] == 1e-4
    whole.stop()
    half: Any = PGTrainer.from_checkpoint(
        path, policy_ids={"p1"}, policy_mapping_fn=lambda agent_id, *_, **keywords: f"p{max(agent_id, 1)}"
    )
    assert [*half.policy.policies] == ["p1"] == half.workers.local_worker().policies_to_train
    assert all(np.array_equal(half.get_weights()["p1"][name], value) for name, value in weights["p1"].items())
    assert half.train()["info"]["learner"].keys() == {"p1"}
    half.stop()
    fixed: Any = PGTrainer.from_checkpoint(path, policies_to_train=lambda policy_id, batch: policy_id == "p0")
    assert fixed.policy.policies_to_train == ["p0"]
    fixed.stop()
    with pytest.raises(ConfigError, match="'p2'"):
        PGTrainer.from_checkpoint(path, policy_ids=["p2"])


def test_a_file_of_another_user_makes_no_trainer_of_code_that_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: Any = PGTrainer(env=SimpleCorridor, config={**SMALL, "env_config": {"corridor_length": 5}})
    path = made.save(str(tmp_path))
    made.stop()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "another_user"))
    monkeypatch.setattr(config_in_file, "named_here", set())
    with pytest.raises(CheckpointError, match="not trusted: tests"):
        PGTrainer.from_checkpoint(path)
    again = PGTrainer.from_checkpoint(path, trust="tests")
    assert type(again) is PGTrainer
    again.stop()


def test_a_trainer_whose_file_lacks_code_is_not_made_again(tmp_path: Path) -> None:
    made: Any = PGTrainer(env=lambda config: gym.make("CartPole-v1"), config=SMALL)
    path = made.save(str(tmp_path))
    made.stop()
    with pytest.raises(CheckpointError, match="env"):
        PGTrainer.from_checkpoint(path)
