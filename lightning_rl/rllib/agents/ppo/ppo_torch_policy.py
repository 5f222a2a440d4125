"""PPO, APPO and DD-PPO."""

from lightning_rl.rllib.by_name import policy_class
from lightning_rl.rllib.mixins import KLCoeffMixin, ValueNetworkMixin
from lightning_rl.rllib.on_policy_losses import kl_and_loss_stats, ppo_surrogate_loss, vf_preds_fetches

__all__ = [
    "KLCoeffMixin",
    "PPOTorchPolicy",
    "ValueNetworkMixin",
    "kl_and_loss_stats",
    "ppo_surrogate_loss",
    "vf_preds_fetches",
]

PPOTorchPolicy = policy_class("PPO")
