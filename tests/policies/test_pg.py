"""REINFORCE: what its loss does with the baseline."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch.testing import assert_close

from lightning_rl import RolloutWorker, SampleBatch
from lightning_rl.envs import EnvCreator
from lightning_rl.losses import batch_baseline
from lightning_rl.policies import PG
from tests.envs.classic_control import PENDULUM


def pg_and_rows(**keywords: Any) -> tuple[PG, SampleBatch]:
    """800 rows: an episode of each of four environments."""
    policy = PG(*PENDULUM.spaces(), seed=0, **keywords)
    worker = RolloutWorker(PENDULUM, policy, num_envs=4, fragment_length=200, batch_mode="complete_episodes")
    return policy, policy.postprocess_trajectory(worker.sample())


@pytest.mark.parametrize("standardize", [True, False])
@pytest.mark.parametrize("baseline", ["batch", "none"])
def test_the_loss_weighs_log_probabilities_by_what_the_baseline_leaves(baseline: str, standardize: bool) -> None:
    policy, rows = pg_and_rows(baseline=baseline, standardize_returns=standardize)
    left = rows.advantages
    if baseline == "batch":
        left = left - batch_baseline(left, rows.t, policy.input_dict(rows.obs)["obs_flat"])
    unexplained = float(left.var() / rows.advantages.var())
    if standardize:
        left = (left - left.mean()) / left.std(correction=0)

    loss, metrics = policy.loss(rows)
    assert rows.count == 800 and abs(float(loss.detach())) > 1e-4
    assert_close(loss, -(policy.distribution_of(rows).logp(rows.actions) * left).mean(), rtol=1e-3, atol=1e-4)
    if baseline == "batch":
        assert float(metrics["explained_variance"]) == pytest.approx(1.0 - unexplained, abs=1e-3)
        assert 0.0 < unexplained < 0.5
    else:
        assert "explained_variance" not in metrics


def test_episodes_that_all_fail_move_nothing() -> None:
    """Eight episodes of Acrobot in which the goal is not reached: without the baseline they move the policy."""
    acrobot = EnvCreator("Acrobot-v1", max_episode_steps=60)
    for baseline, moves in (("batch", False), ("none", True)):
        options: dict[str, Any] = {"baseline": baseline}
        policy = PG(*acrobot.spaces(), seed=0, **options)
        worker = RolloutWorker(acrobot, policy, num_envs=8, fragment_length=60, batch_mode="complete_episodes")
        rows = policy.postprocess_trajectory(worker.sample())
        assert rows.count == 480 and not rows.terminated.any()
        gradients = torch.autograd.grad(policy.loss(rows)[0], list(policy.parameters()), allow_unused=True)
        assert any(bool(each.any()) for each in gradients if each is not None) is moves


def test_rows_without_steps_are_compared_by_their_observations() -> None:
    policy, rows = pg_and_rows()
    del rows["t"]
    assert float(policy.loss(rows)[1]["explained_variance"]) > 0.05


def test_images_are_compared_by_the_step_alone() -> None:
    """Their hundreds of numbers are no features."""
    policy = PG(spaces.Box(0, 255, (12, 12, 3), np.uint8), spaces.Discrete(2), seed=0)
    rows = SampleBatch(
        obs=torch.randint(0, 255, (100, 12, 12, 3), dtype=torch.uint8),
        actions=torch.randint(0, 2, (100,)),
        rewards=torch.zeros(100),
        advantages=torch.arange(100) * -3.0,
        t=torch.arange(100),
    )
    assert float(policy.loss(rows)[1]["explained_variance"]) == pytest.approx(1.0, abs=1e-4)


def test_nested_observations_are_compared_by_all_their_parts() -> None:
    space = spaces.Dict({"kind": spaces.Discrete(3), "place": spaces.Box(-1.0, 1.0, (2,))})
    policy = PG(space, spaces.Discrete(2), seed=0)
    kinds, places = torch.arange(300) % 3, torch.rand(300, 2)
    rows = SampleBatch(
        obs=SampleBatch(kind=kinds, place=places),
        actions=torch.randint(0, 2, (300,)),
        rewards=torch.zeros(300),
        advantages=torch.tensor([5.0, -7.0, 100.0])[kinds] - 20 * places[:, 1],
        t=torch.zeros(300, dtype=torch.int32),
    )
    assert float(policy.loss(rows)[1]["explained_variance"]) == pytest.approx(1.0, abs=1e-4)
