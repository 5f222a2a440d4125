"""Environments that call the policy."""

from lightning_rl.rllib.external_env import ExternalEnv

__all__ = ["ExternalEnv"]
