"""Where intrinsic rewards cannot be scaled by running returns: the learner follows them, not the workers."""

from __future__ import annotations

from typing import Any

from lightning_rl.errors import ConfigError

__all__ = ["check_no_running_returns"]


def check_no_running_returns(policy: Any, because: str, instead: str) -> None:
    """Refuse what needs fragments that continue each other: intrinsic rewards that are normalised.

    Args:
        policy: that learns.
        because: what fragments do here instead.
        instead: a setting with which they continue each other.

    Raises:
        ConfigError: the policy's exploration pays such rewards.
    """
    for part in policy.exploration.modules():
        if getattr(part, "normaliser", None) is not None:
            raise ConfigError(
                f"{type(part).__name__} divides intrinsic rewards by the deviation of their return, which it follows "
                f"in each environment from one fragment to the next, and {because}: set exploration.normalize=false "
                f"(intrinsic rewards in their own units), or {instead}"
            )
