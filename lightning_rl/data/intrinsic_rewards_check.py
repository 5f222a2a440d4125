"""Refuses normalized intrinsic rewards for DataModules whose fragments do not continue each other."""

from __future__ import annotations

from typing import Any

from lightning_rl.errors import ConfigError

__all__ = ["check_intrinsic_rewards"]


def check_intrinsic_rewards(policy: Any, because: str, instead: str) -> None:
    """Refuse an exploration that divides intrinsic rewards by the deviation of their running return.

    Args:
        policy: that learns.
        because: the end of a sentence: why fragments do not continue each other.
        instead: advice: a setting with which they do.

    Raises:
        ConfigError: the policy's exploration has such rewards.
    """
    for part in policy.exploration.modules():
        if getattr(part, "normalizer", None) is not None:
            raise ConfigError(
                f"{type(part).__name__} divides intrinsic rewards by the deviation of their return, which it follows "
                f"in each environment from one fragment to the next, and {because}: set exploration.normalize=false "
                f"(intrinsic rewards in their own units), or {instead}"
            )
