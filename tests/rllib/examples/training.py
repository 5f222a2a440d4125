"""The loop that stands in for `tune.run(…, stop=…)` and `check_learning_achieved` in RLlib's examples."""

from __future__ import annotations

from typing import Any


def train_until(trainer: Any, stop_reward: float, stop_iters: int) -> dict[str, Any]:
    """Train until `episode_reward_mean` is `stop_reward`; the last result. The trainer is not stopped.

    Raises:
        AssertionError: the reward is not reached in `stop_iters` iterations; has the mean of each.
    """
    rewards = []
    for _ in range(stop_iters):
        result = trainer.train()
        rewards.append(result["episode_reward_mean"])
        if rewards[-1] >= stop_reward:
            return result
    trainer.stop()
    raise AssertionError(f"no {stop_reward} in {stop_iters} iterations: {rewards}")
