"""RLlib's callbacks."""

from lightning_rl.rllib.agents.callbacks import DefaultCallbacks

__all__ = ["DefaultCallbacks"]
