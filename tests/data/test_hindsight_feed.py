"""`data=hindsight`: the algorithms that learn with it, its draws, and refusals before training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch.testing import assert_close

from lightning_rl.data.datamodule import RolloutDataModule
from lightning_rl.data.hindsight_feed import HindsightFeed
from lightning_rl.envs import EnvCreator
from lightning_rl.envs.toy_tasks import BitFlipping, PointReach
from lightning_rl.policies import DQN, SAC, Policy
from lightning_rl.rollouts import RolloutWorker
from tests.data import small_runs
from tests.data.small_runs import REPLAY

SMALL = [*REPLAY[1:], "data=hindsight", "data.update_to_data_ratio=0.25", "workers.fragment_length=10"]
PAIRS = [("dqn", "bit_flipping"), ("sac", "bit_flipping"), ("sac", "point_reach")]
PAIRS += [(name, "point_reach") for name in ("td3", "ddpg", "tqc")]


@pytest.mark.parametrize(
    ("policy", "env"), [pytest.param(*pair, marks=() if pair in PAIRS[::2] else pytest.mark.every) for pair in PAIRS]
)
def test_every_algorithm_of_single_rows_learns_with_hindsight(tmp_path: Path, policy: str, env: str) -> None:
    learner, _ = small_runs.fit(tmp_path, f"policy={policy}", *SMALL, f"env={env}", "total_env_steps=60")
    checkpoint = torch.load(tmp_path / "checkpoints" / "last.ckpt", weights_only=True)
    assert learner.gradient_steps >= 5 and "replay" in checkpoint["RolloutDataModule"]


def random_policy(kind: type[Policy], env: EnvCreator, **keywords: Any) -> Policy:
    return kind(*env.spaces(), exploration={"type": "random"}, model={"fcnet_hiddens": [8]}, **keywords)


def fill(kind: type[Policy], env: EnvCreator, reward_filter: str = "none", **keywords: Any) -> Any:
    """A feed's buffer with rows of random actions, and the feed."""
    policy = random_policy(kind, env, reward_filter=reward_filter)
    feed = HindsightFeed(capacity=1000, **keywords)
    RolloutDataModule(env, None, None, feed)
    buffer = feed.make_buffer(policy)
    worker = RolloutWorker(env, policy, num_envs=2, fragment_length=100, record_logp=False)
    buffer.add(policy.learner.take_experience(worker.sample()))
    worker.stop()
    return buffer, feed


@pytest.mark.parametrize(("goals", "share"), [(0, 0), (1, 50), (4, 80)])
def test_hindsight_draws_k_other_goals_for_each_real_one(goals: int, share: int) -> None:
    """A point that never moves far: goals that were reached are near the place, real ones nearly never are."""
    buffer, _ = fill(SAC, EnvCreator(PointReach, {"radius": 0.001}), hindsight_goals=goals)
    batch = buffer.sample(100, np.random.default_rng(0))
    stored = buffer.rows(batch.batch_indexes)
    changed = (batch.obs.desired_goal != stored.obs.desired_goal).any(1)
    assert changed.sum() == share
    assert torch.equal(batch.rewards[~changed], stored.rewards[~changed])
    assert (batch.rewards[changed] == 0).any() == bool(share)


def test_rows_with_another_goal_end_as_the_environment_computes() -> None:
    buffer, _ = fill(DQN, EnvCreator(BitFlipping, {"bits": 8}), goal_strategy="final")
    batch = buffer.sample(150, np.random.default_rng(0))
    at_goal = (batch.next_obs.achieved_goal == batch.obs.desired_goal).all(1)
    assert torch.equal(batch.terminated, at_goal) and torch.equal(batch.rewards == 0, at_goal)
    assert 5 < at_goal.sum() < 60


class Rich(PointReach):
    """Pays 5 and −5."""

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return 10 * super().compute_reward(achieved_goal, desired_goal, info) + 5


def test_rewards_of_other_goals_are_clipped_like_those_of_steps() -> None:
    for name, values in (("none", {-5.0, 5.0}), ("sign", {-1.0, 1.0})):
        buffer, _ = fill(SAC, EnvCreator(Rich), reward_filter=name)
        assert set(buffer.sample(150, np.random.default_rng(0)).rewards.tolist()) == values


@pytest.mark.parametrize("n_step", [1, 3])
def test_intrinsic_rewards_stay_with_their_step_under_another_goal(n_step: int) -> None:
    """1 for each step: of three Σ 0.99ⁱ, or as many as there are up to the other goal, where the sum ends."""
    env = EnvCreator(BitFlipping, {"bits": 6})
    policy = random_policy(DQN, env)
    feed = HindsightFeed(capacity=1000, n_step=n_step)
    RolloutDataModule(env, None, None, feed)
    buffer = feed.make_buffer(policy)
    fragment = RolloutWorker(env, policy, fragment_length=200).sample()
    fragment["intrinsic_rewards"] = torch.ones_like(fragment.rewards)
    buffer.add(fragment)
    batch = buffer.sample(100, np.random.default_rng(0))
    paid = batch["intrinsic_rewards"]
    costs = -batch.rewards  # 1 for each step but the one that reaches the goal
    other = torch.arange(100) % 5 > 0  # four of five
    assert_close(paid[~other], (1 - batch.discounts[~other]) / 0.01)
    reached, paid, costs = batch.terminated[other], paid[other], costs[other]
    assert_close(paid[~reached], costs[~reached])
    assert (paid[reached] > costs[reached]).all() and (paid[reached] <= costs[reached] + 1).all()
    assert reached.any() and not reached.all()


def test_a_closed_goal_environment_is_made_again() -> None:
    buffer, feed = fill(SAC, EnvCreator(PointReach))
    feed.stop()
    assert feed._goals.env is None
    assert len(buffer.sample(50, np.random.default_rng(0)).rewards) == 50
    feed.stop()


def test_goal_functions_are_found_through_gymnasium_wrappers() -> None:
    """A registered environment comes with a time limit and an order check around it."""
    gym.register("Reach-v0", PointReach, max_episode_steps=30)
    try:
        buffer, _ = fill(SAC, EnvCreator("Reach-v0"))
        assert len(buffer.sample(50, np.random.default_rng(0)).rewards) == 50
    finally:
        del gym.registry["Reach-v0"]
