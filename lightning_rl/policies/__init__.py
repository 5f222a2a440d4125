"""One file per algorithm; `ls` is the list."""

from __future__ import annotations

from lightning_rl.policies.a2c import A2C
from lightning_rl.policies.build_policy import build_policy
from lightning_rl.policies.pg import PG
from lightning_rl.policies.policy import Policy
from lightning_rl.policies.ppo import PPO

__all__ = ["A2C", "PG", "PPO", "Policy", "build_policy"]
