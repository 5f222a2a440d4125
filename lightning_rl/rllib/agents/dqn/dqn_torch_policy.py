"""DQN and what is made of it."""

from lightning_rl.rllib.by_name import policy_class
from lightning_rl.rllib.q_losses import PRIO_WEIGHTS, QLoss, adam_optimizer, build_q_losses

__all__ = ["PRIO_WEIGHTS", "DQNTorchPolicy", "QLoss", "adam_optimizer", "build_q_losses"]

DQNTorchPolicy = policy_class("DQN")
