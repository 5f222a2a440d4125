"""RLlib's base of trainers, and the config that they have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightning_rl.rllib.default_configs import COMMON_CONFIG
from lightning_rl.rllib.merge import merge_configs
from lightning_rl.rllib.trainers import Trainer

__all__ = ["COMMON_CONFIG", "Trainer", "with_common_config"]


def with_common_config(extra_config: Mapping[str, Any]) -> dict[str, Any]:
    """The common config with these keys over it."""
    return merge_configs(COMMON_CONFIG, extra_config)
