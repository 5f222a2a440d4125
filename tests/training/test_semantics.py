"""Time limits and values: gates that fail if a time limit is taken for a termination or a value is misplaced."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from lightning_rl.config import compose_config
from lightning_rl.envs import EnvCreator
from lightning_rl.policies import A2C, PPO, Policy
from lightning_rl.rollouts import RolloutWorker
from lightning_rl.runs import run
from lightning_rl.sample_batch import SampleBatch
from tests.training.probes import Probe, learn_by_hand

pytestmark = pytest.mark.slow


class ForgetsTimeLimits(PPO):
    """The mistake: a truncated episode is learned from as if it had terminated."""

    def postprocess_trajectory(self, batch: SampleBatch, other_agent_batches: Any = None) -> SampleBatch:
        batch = batch.copy()
        batch["terminated"] = batch.terminated | batch.truncated
        return super().postprocess_trajectory(batch)


def test_cartpole_under_a_time_limit_of_50_learns_to_balance_for_longer(tmp_path: Path) -> None:
    """RLlib's gate: an evaluation at a limit of 500 reaches 200.

    Nothing above 50 pays in training, so this asks for values that look past the limit; it does not tell the two kinds
    of ends apart
    (taken for a termination, the limit punishes drifting, which helps too). The endless reward below does.
    """
    limited = ["policy=ppo", "env=cartpole", "env.max_episode_steps=50", "evaluation.env={id: CartPole-v1}"]
    how = ["policy.gamma=0.99", "policy.gae_lambda=0.95", "policy.lr=3e-4", "total_env_steps=60_000", "logger=none"]
    config = compose_config([*limited, *how, f"run_dir={tmp_path}"])
    assert run.train(config)["best_return"] >= 200


class EndlessReward(Probe):
    """Four states in a circle, reward 1 at every step, for ever."""

    length = 10**9

    def __init__(self) -> None:
        self.observation_space = self.action_space = gym.spaces.Discrete(4)

    def observe(self) -> Any:
        return np.int64(self.t % 4)


def endless_value(algorithm: type[Policy], **keywords: Any) -> float:
    env = EnvCreator(EndlessReward, max_episode_steps=8)
    policy = algorithm(*env.spaces(), gamma=0.98, gae_lambda=0.95, lr=1e-2, seed=1, **keywords)
    learn_by_hand(policy, env, iterations=600, num_envs=4)
    return policy.values(torch.zeros(1, 1, dtype=torch.int64)).item()


@pytest.mark.parametrize(
    ("algorithm", "keywords"), [(PPO, {"passes": 4, "minibatches": 1}), (A2C, {"optimizer": "adam"})]
)
def test_an_endless_reward_is_worth_its_geometric_sum_under_a_time_limit(algorithm: Any, keywords: Any) -> None:
    """γ = .98: V = 1 / .02 = 50, though every episode is cut after 8 steps."""
    assert abs(endless_value(algorithm, **keywords) - 50.0) < 1.0


def test_taking_the_time_limit_for_an_end_would_be_seen() -> None:
    """The control arm: V of 8 steps, (1 − .98⁸) / .02 = 7.5."""
    assert endless_value(ForgetsTimeLimits, passes=4, minibatches=1) < 8.5


def test_frozen_lake_s_values_are_the_discounted_ways_to_the_goal() -> None:
    """Map HG/FF/SH/FH without slipping, γ = .9: V(3) = 1, V(2) = .9, V(4) = .81 for the states on the way."""
    lake = {"desc": ["HG", "FF", "SH", "FH"], "is_slippery": False}
    env = EnvCreator("FrozenLake-v1", lake, max_episode_steps=10)
    policy = PPO(*env.spaces(), gamma=0.9, gae_lambda=0.0, lr=3e-3, passes=10, minibatches=2, seed=1)
    learn_by_hand(policy, env, iterations=60, fragment_length=32)
    values = policy.values(torch.arange(8).unsqueeze(0))[0].tolist()
    np.testing.assert_allclose([values[state] for state in (3, 2, 4)], [1.0, 0.9, 0.81], atol=0.1)
    assert np.mean([ret for ret, _ in RolloutWorker(env, policy, num_envs=4, explore=False).run_episodes(8)]) == 1.0
