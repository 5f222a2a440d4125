"""Where rewards cannot be scaled by running returns."""

from __future__ import annotations

from typing import Any

from lightning_rl.errors import ConfigError

__all__ = ["check_no_running_returns"]


def check_no_running_returns(policy: Any, because: str) -> None:
    """Refuse a reward filter that needs fragments which continue each other.

    Args:
        policy: that learns.
        because: what fragments do here instead, and what works.

    Raises:
        ConfigError: the policy has such a filter.
    """
    if not policy.written_from_scratch and policy.reward_filter.normaliser is not None:
        raise ConfigError(
            "policy.reward_filter=return_std follows the return of each environment from one fragment to the next, and "
            f"{because}"
        )
