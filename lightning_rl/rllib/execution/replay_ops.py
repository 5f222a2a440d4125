"""Operators of replay."""

from lightning_rl.rllib.plan_operators import MixInReplay
from lightning_rl.rllib.plans import Replay, StoreToReplayBuffer

__all__ = ["MixInReplay", "Replay", "StoreToReplayBuffer"]
