"""The client of a policy server."""

from lightning_rl.rllib.policy_client import PolicyClient

__all__ = ["PolicyClient"]
