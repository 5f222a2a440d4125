"""The environments of a worker."""

from lightning_rl.rllib.callbacks import BaseEnv

__all__ = ["BaseEnv"]
