"""The server of a policy."""

from lightning_rl.rllib.policy_server import PolicyServerInput

__all__ = ["PolicyServerInput"]
