"""The environments of a worker."""

from lightning_rl.rllib.workers import BaseEnv

__all__ = ["BaseEnv"]
