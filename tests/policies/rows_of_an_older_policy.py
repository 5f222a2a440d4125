"""Rows that a policy sampled before its weights changed: their ratios π/μ differ from 1."""

from __future__ import annotations

from typing import Any

import torch

from lightning_rl.policies import A2C, APPO, IMPALA, PPO, Policy
from lightning_rl.rollouts import RolloutWorker
from lightning_rl.sample_batch import SampleBatch
from tests.envs.classic_control import PENDULUM

ON_POLICY: list[type[Policy]] = [PPO, A2C, IMPALA, APPO]


def perturb_weights(policy: Policy, scale: float = 0.3) -> None:
    """Add noise to the model's weights, so that what was sampled before is another policy's."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.add_(scale * torch.randn(parameter.shape, generator=generator))


def policy_and_older_rows(policy_class: type[Policy], **keywords: Any) -> tuple[Any, SampleBatch]:
    """A policy and the rows that it sampled before its weights changed."""
    policy = policy_class(*PENDULUM.spaces(), model={"fcnet_hiddens": [8]}, seed=1, **keywords)
    fragment = RolloutWorker(PENDULUM, policy, num_envs=2, fragment_length=16, seed=2).sample()
    batch = policy.learner.rows_of(fragment)
    perturb_weights(policy, 0.2)
    return policy, batch
