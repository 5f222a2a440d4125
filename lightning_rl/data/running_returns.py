"""Where rewards, the environment's or those of the exploration, cannot be scaled by running returns."""

from __future__ import annotations

from typing import Any

from lightning_rl.errors import ConfigError

__all__ = ["check_no_running_returns"]


def check_no_running_returns(policy: Any, because: str, instead: str) -> None:
    """Refuse what needs fragments that continue each other: a reward filter, and intrinsic rewards that are normalised.

    Args:
        policy: that learns.
        because: what fragments do here instead.
        instead: a setting with which they continue each other.

    Raises:
        ConfigError: the policy has one of them.
    """
    if policy.written_from_scratch:
        return
    if policy.reward_filter.normaliser is not None:
        raise ConfigError(
            "policy.reward_filter=return_std follows the return of each environment from one fragment to the next, and "
            f"{because}: use clip or sign, or {instead}"
        )
    for part in policy.exploration.modules():
        if getattr(part, "normaliser", None) is not None:
            raise ConfigError(
                f"{type(part).__name__} divides intrinsic rewards by the deviation of their return, which it follows "
                f"in each environment from one fragment to the next, and {because}: set exploration.normalize=false "
                f"(intrinsic rewards in their own units), or {instead}"
            )
