"""Operators of replay."""

from lightning_rl.rllib.plans import Replay, StoreToReplayBuffer

__all__ = ["Replay", "StoreToReplayBuffer"]
