"""RLlib's callbacks."""

from lightning_rl.callbacks.hooks import RLCallback as DefaultCallbacks

__all__ = ["DefaultCallbacks"]
