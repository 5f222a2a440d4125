"""Operators that run others."""

from lightning_rl.rllib.plan_operators import Dequeue, Enqueue
from lightning_rl.rllib.plans import Concurrently

__all__ = ["Concurrently", "Dequeue", "Enqueue"]
