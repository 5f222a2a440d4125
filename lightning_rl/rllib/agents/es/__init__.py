"""Evolution strategies."""

from lightning_rl.rllib.by_name import default_config, policy_class, trainer_class

__all__ = ["DEFAULT_CONFIG", "ESTorchPolicy", "ESTrainer"]

ESTrainer = trainer_class("ES")
ESTorchPolicy = policy_class("ES")
DEFAULT_CONFIG = default_config("ES")
