"""RLlib's operators of execution plans."""

from lightning_rl.rllib import plan_operators, plans
from lightning_rl.rllib.local_replay_buffer import LocalReplayBuffer
from lightning_rl.rllib.plan_operators import *  # noqa: F403
from lightning_rl.rllib.plans import *  # noqa: F403

__all__ = [*plan_operators.__all__, *plans.__all__, "LocalReplayBuffer"]
