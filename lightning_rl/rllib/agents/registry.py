"""RLlib's classes of trainers by name."""

from __future__ import annotations

from typing import Any

from lightning_rl.rllib.by_name import default_config, trainer_class

__all__ = ["get_agent_class", "get_trainer_class"]

NAMES = {"RNNSAC": "RecurrentSAC"}


def get_trainer_class(alg: str, return_config: bool = False) -> Any:
    """The trainer class of "PPO", or with `return_config` the class and its default config.

    Raises:
        ConfigError: there is no such algorithm.
    """
    name = NAMES.get(alg, alg)
    return (trainer_class(name), default_config(name)) if return_config else trainer_class(name)


get_agent_class = get_trainer_class
