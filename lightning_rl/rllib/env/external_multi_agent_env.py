"""Environments of several agents that call the policies."""

from lightning_rl.rllib.external_env import ExternalMultiAgentEnv

__all__ = ["ExternalMultiAgentEnv"]
