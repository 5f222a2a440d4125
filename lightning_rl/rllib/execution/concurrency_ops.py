"""Operators that run others."""

from lightning_rl.rllib.plans import Concurrently

__all__ = ["Concurrently"]
