"""The learner of IMPALA's plan."""

from lightning_rl.rllib.plan_operators import LearnerThread

__all__ = ["LearnerThread"]
