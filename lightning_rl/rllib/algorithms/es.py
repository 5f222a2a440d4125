"""Evolution strategies, by the names of Ray 2.0."""

from lightning_rl import rllib
from lightning_rl.rllib.by_name import policy_class, trainer_class

__all__ = ["ES", "ESConfig", "ESTorchPolicy"]

ES = trainer_class("ES")
ESTorchPolicy = policy_class("ES")
ESConfig = rllib.ESConfig
