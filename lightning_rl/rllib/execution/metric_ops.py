"""Operators that report."""

from lightning_rl.rllib.plans import StandardMetricsReporting

__all__ = ["StandardMetricsReporting"]
