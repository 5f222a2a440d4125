"""RLlib's policy with a model."""

from lightning_rl.rllib.mixins import EntropyCoeffSchedule, LearningRateSchedule
from lightning_rl.rllib.torch_policy import TorchPolicy

__all__ = ["EntropyCoeffSchedule", "LearningRateSchedule", "TorchPolicy"]
