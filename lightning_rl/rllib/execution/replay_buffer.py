"""RLlib's replay buffer of several policies."""

from lightning_rl.rllib.local_replay_buffer import LocalReplayBuffer
from lightning_rl.rllib.local_replay_buffer import LocalReplayBuffer as ReplayActor

__all__ = ["LocalReplayBuffer", "ReplayActor"]
