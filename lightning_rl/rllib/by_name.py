"""RLlib's trainers, policies and default configs by their names: one of each for every policy of `conf/policy`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from lightning_rl.config.groups import group_options
from lightning_rl.errors import ConfigError, did_you_mean
from lightning_rl.rllib.algorithm_config import AlgorithmConfig
from lightning_rl.rllib.default_configs import batch_sizes
from lightning_rl.rllib.keys import classic_keys
from lightning_rl.rllib.policy_configs import defaults_of, torch_policy
from lightning_rl.rllib.torch_policy import TorchPolicy
from lightning_rl.rllib.trainers import Trainer

__all__ = ["config_class", "default_config", "policy_class", "trainer_class"]


def option_of(name: str) -> str:
    """The option of `conf/policy` that RLlib spells so: simple_q of "SimpleQ".

    Raises:
        ConfigError: there is none.
    """
    known = {option.replace("_", ""): option for option in group_options("policy")}
    if (spelled := name.lower()) not in known:
        near = did_you_mean(spelled, known.values())
        raise ConfigError(f"{name}: no policy {spelled!r}.{near} There are: {', '.join(known.values())}")
    return known[spelled]


@cache
def trainer_class(name: str) -> type[Trainer]:
    """`PPOTrainer` of "PPO".

    Raises:
        ConfigError: there is no such policy.
    """
    trainer = Trainer.with_updates(f"{name}Trainer", default_policy=option_of(name))
    trainer.__module__ = "lightning_rl.rllib"
    return trainer


@cache
def config_class(name: str) -> type[AlgorithmConfig]:
    """`PPOConfig` of "PPO".

    Raises:
        ConfigError: there is no such policy.
    """
    namespace = {
        "__module__": "lightning_rl.rllib",
        "__doc__": f"The config of {name}.",
        "algo_class": trainer_class(name),
    }
    return type(f"{name}Config", (AlgorithmConfig,), namespace)


def policy_class(name: str) -> type[TorchPolicy]:
    """`PPOTorchPolicy` of "PPO".

    Raises:
        ConfigError: there is no such policy.
    """
    return torch_policy(option_of(name))


class DefaultConfig(dict[str, Any]):
    """Keys of a trainer's default config, and values of others that can be read, but do not count unless they are set.

    Args:
        config: the keys.
        read: the others, which follow from them, such as "train_batch_size".
    """

    def __init__(self, config: Mapping[str, Any], read: Mapping[str, Any]) -> None:
        super().__init__(config)
        self.read = read

    def __missing__(self, key: str) -> Any:
        return self.read[key]

    def copy(self) -> DefaultConfig:
        """The same keys in a new dict."""
        return DefaultConfig(self, self.read)


def default_config(name: str) -> DefaultConfig:
    """RLlib's keys with the values that `PPOTrainer` of "PPO" has without a config.

    Raises:
        ConfigError: there is no such policy.
    """
    composed = defaults_of(option_of(name))
    config = classic_keys(composed)
    if composed["workers"]["logical_workers"] is not None:
        del config["num_workers"]  # a number that is given is that of the logical workers as well
    return DefaultConfig(config, {"framework": "torch", **batch_sizes(composed)})
