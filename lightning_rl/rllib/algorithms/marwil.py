"""MARWIL and behavior cloning, by the names of Ray 2.0."""

from lightning_rl import rllib
from lightning_rl.rllib.by_name import policy_class, trainer_class

__all__ = ["BC", "MARWIL", "BCConfig", "MARWILConfig", "MARWILTorchPolicy"]

BC = trainer_class("BC")
MARWIL = trainer_class("MARWIL")
MARWILTorchPolicy = policy_class("MARWIL")
BCConfig = rllib.BCConfig
MARWILConfig = rllib.MARWILConfig
