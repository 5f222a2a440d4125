"""What the learner does with experience before the loss: counters, filter statistics and rewards."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from gymnasium import spaces
from torch.testing import assert_close

from lightning_rl.policies import DQN, PPO
from lightning_rl.sample_batch import SampleBatch

OBS, ACTION = spaces.Box(-9, 9, (2,)), spaces.Discrete(3)


def policy(**keywords: Any) -> DQN:
    return DQN(OBS, ACTION, model={"fcnet_hiddens": [4]}, gamma=0.5, **keywords)


def fragment() -> SampleBatch:
    """Two steps of two environments; the second step of the second environment is not valid."""
    nothing = torch.zeros(2, 2, dtype=torch.bool)
    return SampleBatch(
        obs=torch.tensor([[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0], [7.0, 8.0]], [[9.0, 9.0], [9.0, 9.0]]]),
        actions=torch.zeros(2, 2, dtype=torch.int64),
        rewards=torch.tensor([[3.0, -0.5], [-7.0, 100.0]]),
        terminated=nothing,
        truncated=nothing,
        valid=torch.tensor([[True, True], [True, False]]),
        t=torch.tensor([[0, 0], [1, 1]]),
    )


def with_return_std_2(dqn: DQN) -> DQN:
    """The policy after returns with a variance of 4: rewards are halved, and clipped to ±10."""
    dqn.reward_filter.normalizer.moments.merge(2.0, torch.zeros(1).double(), torch.tensor([8.0]).double())  # type: ignore[union-attr]
    return dqn


# -- fragments --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("reward_filter", "kept"),
    [
        ("none", [[3.0, -0.5], [-7.0, 100.0]]),
        ("sign", [[1.0, -1.0], [-1.0, 1.0]]),
        ("clip", [[1.0, -0.5], [-1.0, 1.0]]),
        ("return_std", [[3.0, -0.5], [-7.0, 100.0]]),
    ],
)
def test_take_experience_clips_rewards_and_leaves_scaling_to_learning(
    reward_filter: str, kept: list[list[float]]
) -> None:
    own, taken = policy(reward_filter=reward_filter), fragment()
    assert own.learner.take_experience(taken).rewards.tolist() == kept
    assert torch.equal(taken.rewards, fragment().rewards), "the worker's fragment stays as it was"
    assert own.reward_filter.clip_rewards(torch.tensor([3.0, -0.5])).tolist() == kept[0]
    assert own.env_steps == 3


def test_take_experience_updates_filter_statistics_with_valid_rows_only() -> None:
    """Three observations: [1, 2], [3, 4] and [5, 6]. Returns at γ = ½: 3, −½, and −7 + 3/2."""
    own = policy(observation_filter="mean_std", reward_filter="return_std")
    own.learner.take_experience(fragment())
    seen, returns = own.observation_filter.moments, own.reward_filter.normalizer.moments  # type: ignore[union-attr]
    assert seen.count == 3.0 and seen.mean.tolist() == [3.0, 4.0]
    assert returns.count == 3.0 and returns.mean.item() == pytest.approx((3.0 - 0.5 - 5.5) / 3)
    assert_close(own.observation_filter(torch.tensor([[3.0, 4.0]])), torch.zeros(1, 2))


@pytest.mark.parametrize(
    ("keywords", "acts", "watches", "columns"),
    [
        ({}, False, False, []),
        ({"reward_filter": "sign"}, False, False, []),
        ({"reward_filter": "clip"}, False, False, []),
        ({"reward_filter": "return_std"}, False, True, ["step_rewards"]),
        ({"observation_filter": "mean_std"}, True, True, []),
        ({"exploration": {"type": "rnd"}}, True, True, ["step_next_obs"]),
        ({"exploration": {"type": "curiosity"}}, True, True, ["step_next_obs"]),
    ],
    ids=str,
)
def test_the_learner_needs_what_filters_and_exploration_learn_from(
    keywords: dict[str, Any], acts: bool, watches: bool, columns: list[str]
) -> None:
    """Every fragment, and columns of the rows of a buffer."""
    learner = policy(**keywords).learner
    assert (learner.experience_changes_acting, learner.needs_every_fragment) == (acts, watches)
    assert learner.extra_replay_columns() == columns


def test_transform_rewards_adds_intrinsic_rewards_to_the_filtered_rewards() -> None:
    own = PPO(OBS, ACTION, reward_filter="sign")
    taken = fragment()
    assert own.learner.transform_rewards(taken).rewards.tolist() == [[1.0, -1.0], [-1.0, 1.0]]
    taken["intrinsic_rewards"] = torch.tensor([[0.5, 0.25], [0.0, 0.0]])
    assert own.learner.transform_rewards(taken).rewards.tolist() == [[1.5, -0.75], [-1.0, 1.0]]


# -- rows of a buffer -------------------------------------------------------------------------------------------------
def rows(**columns: Any) -> SampleBatch:
    return SampleBatch(obs=torch.zeros(2, 2), rewards=torch.tensor([4.0, 50.0]), **columns)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({}, [2.0, 10.0]),
        ({"intrinsic_rewards": torch.tensor([0.5, 1.0])}, [2.5, 11.0]),
        ({"step_rewards": torch.tensor([[4.0, 2.0], [50.0, 4.0]])}, [2.0 + 0.5 * 1.0, 10.0 + 0.5 * 2.0]),
    ],
    ids=["one step", "intrinsic rewards", "two steps"],
)
def test_scale_rewards_scales_each_step_s_reward_before_the_n_step_sum(columns: Any, expected: list[float]) -> None:
    """Each reward is halved and clipped to ±10; the second of two is discounted by γ = ½."""
    own, drawn = with_return_std_2(policy(reward_filter="return_std")), rows(**columns)
    scaled = own.reward_filter.scale_rewards(drawn)
    assert_close(scaled.rewards, torch.tensor(expected))
    assert drawn.rewards.tolist() == [4.0, 50.0] and set(drawn.columns) == {"obs", "rewards", *columns}
    assert set(scaled.columns) == {"obs", "rewards"}


def test_scale_rewards_gives_back_rows_that_need_no_change() -> None:
    drawn = rows()
    assert policy().reward_filter.scale_rewards(drawn) is drawn
    paid = policy(reward_filter="clip").reward_filter.scale_rewards(rows(intrinsic_rewards=torch.tensor([0.5, 1.0])))
    assert paid.rewards.tolist() == [4.5, 51.0], "rewards in a buffer are already clipped"
