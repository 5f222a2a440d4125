"""RLlib's path of view requirements."""

from lightning_rl.rllib.view_requirements import ViewRequirement

__all__ = ["ViewRequirement"]
