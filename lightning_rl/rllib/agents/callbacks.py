"""RLlib's callbacks."""

from lightning_rl.rllib.callbacks import DefaultCallbacks, MultiCallbacks

__all__ = ["DefaultCallbacks", "MultiCallbacks"]
