"""A worker with a few environments and short fragments."""

from __future__ import annotations

from typing import Any

from lightning_rl.envs import EnvCreator
from lightning_rl.policies import Policy
from lightning_rl.rollouts import RolloutWorker
from tests.envs.classic_control import CARTPOLE


def small_worker(policy: Policy, env: EnvCreator = CARTPOLE, **keywords: Any) -> RolloutWorker:
    """A worker whose fragments have 16 steps of 4 environments."""
    return RolloutWorker(env, policy, num_envs=4, fragment_length=16, seed=3, **keywords)
