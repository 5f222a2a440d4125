"""DQN and what is made of it."""

from lightning_rl.rllib.by_name import policy_class
from lightning_rl.rllib.q_losses import build_q_losses

__all__ = ["SimpleQTorchPolicy", "build_q_losses"]

SimpleQTorchPolicy = policy_class("SimpleQ")
