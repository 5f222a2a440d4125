"""RLlib's classes of algorithms by name."""

from lightning_rl.rllib.agents.registry import get_trainer_class as get_algorithm_class

__all__ = ["get_algorithm_class"]
