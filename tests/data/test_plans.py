"""Execution plans: the generators of data/plans.py."""

from __future__ import annotations

import torch

from lightning_rl.data.plans import parallel_rollouts
from lightning_rl.policies import PPO
from lightning_rl.rollouts import WorkerSet
from tests.envs.classic_control import CARTPOLE


def test_parallel_rollouts_put_the_fragments_of_a_batch_side_by_side() -> None:
    """3 fragments of 5 steps in 2 environments: the episodes go on from one fragment to the next."""
    policy = PPO(*CARTPOLE.spaces())
    joined, single = (WorkerSet(CARTPOLE, policy, num_envs=2, fragment_length=5) for _ in range(2))
    batch = next(parallel_rollouts(joined, policy, fragments_per_batch=3))
    assert batch.rewards.shape == (5, 6) and batch.obs.shape == (6, 6, 4)
    for place in range(3):
        fragment = single.sample()
        assert torch.equal(batch.obs[:, 2 * place : 2 * place + 2], fragment.obs)
        assert torch.equal(batch.actions[:, 2 * place : 2 * place + 2], fragment.actions)
