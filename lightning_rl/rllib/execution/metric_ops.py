"""Operators that report."""

from lightning_rl.rllib.plan_operators import OncePerTimeInterval, OncePerTimestepsElapsed
from lightning_rl.rllib.plans import StandardMetricsReporting

__all__ = ["OncePerTimeInterval", "OncePerTimestepsElapsed", "StandardMetricsReporting"]
