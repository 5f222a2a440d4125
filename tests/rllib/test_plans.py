"""Execution plans of one's own feed classic trainers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from lightning_rl import rllib
from lightning_rl.errors import ConfigError
from tests.rllib.classic import trainer

pytestmark = pytest.mark.filterwarnings("ignore:.*no counterpart.*")
SMALL = {"num_envs_per_worker": 2, "rollout_fragment_length": 16}


def test_a_generator_feeds_the_trainer() -> None:
    seen: list[int] = []

    def plan(workers: Any, policy: Any) -> Any:
        while True:
            workers.sync_weights(policy)
            seen.append(1)
            yield workers.sample()

    made = trainer(plan=plan, **SMALL)
    made.train()
    assert seen == [1]
    made.stop()


def test_classic_keys_train_at_the_configured_rate() -> None:
    """A gradient step for every 4 env steps after the first 40."""
    sizes = {"learning_starts": 40, "train_batch_size": 16, "timesteps_per_iteration": 60}
    made = trainer("DQN", rollout_fragment_length=4, **sizes)
    result = made.train()
    assert result["timesteps_total"] >= 45 and result["gradient_steps"] == (result["timesteps_total"] - 40) // 4
    made.stop()


def small_plan(workers: Any, config: Any) -> Any:
    """The least plan that stores and learns."""
    buffer = rllib.LocalReplayBuffer(learning_starts=config["learning_starts"], replay_batch_size=8)
    store = rllib.ParallelRollouts(workers).for_each(rllib.StoreToReplayBuffer(local_buffer=buffer))
    learn = rllib.Replay(local_buffer=buffer).for_each(rllib.TrainOneStep(workers))
    return rllib.StandardMetricsReporting(rllib.Concurrently([store, learn], output_indexes=[1]), workers, config)


@pytest.mark.parametrize("name", ["DQN", pytest.param("SAC", marks=pytest.mark.every)])
def test_a_trainer_with_a_plan_saves_restores_and_evaluates(tmp_path: Path, name: str) -> None:
    """Its buffer is the plan's: the restored run fills one again before it learns on."""
    keys = {"learning_starts": 20, "timesteps_per_iteration": 40, "evaluation_interval": 2, "evaluation_duration": 2}
    first = trainer(name, small_plan, **keys)
    results = [first.train() for _ in range(2)]
    assert "evaluation" not in results[0] and "eval/ep_rew_mean" in results[1]["evaluation"]
    path = first.save(tmp_path / "saved.ckpt")
    first.stop()
    second = trainer(name, small_plan, **keys, seed=3)
    second.restore(path)
    steps, learned = results[1]["env_steps"], results[1]["gradient_steps"]
    assert (second.policy.env_steps, second.policy.gradient_steps) == (steps, learned)
    result = second.train()
    second.stop()
    assert result["training_iteration"] == 3 and result["env_steps"] >= steps + 40
    assert 0 < result["gradient_steps"] - learned <= result["env_steps"] - steps - 20 + 1


def test_a_plan_with_an_on_policy_algorithm_learns_from_joined_batches() -> None:
    """Fragments keep their length."""

    def plan(workers: Any, config: Any) -> Any:
        rollouts = rllib.ParallelRollouts(workers, mode="bulk_sync")
        learn = rollouts.combine(rllib.ConcatBatches(min_batch_size=config["train_batch_size"]))
        return rllib.StandardMetricsReporting(learn.for_each(rllib.TrainOneStep(workers)), workers, config)

    made = trainer(plan=plan, train_batch_size=60, sgd_minibatch_size=30, num_sgd_iter=1, **SMALL)
    assert made.run_config["workers"]["fragment_length"] == 16 and made.policy.minibatches == 2
    result = made.train()
    assert result["env_steps"] >= 60 and math.isfinite(result["info"]["learner"]["default_policy"]["policy_loss"])
    made.stop()


def test_a_plan_cannot_move_targets_that_follow_by_themselves() -> None:
    def plan(workers: Any, config: Any) -> Any:
        return rllib.ParallelRollouts(workers).for_each(rllib.UpdateTargetNetwork(workers, 100))

    made = trainer("SAC", plan)
    with pytest.raises(ConfigError, match="SAC"):
        made.train()
    made.stop()
