"""Checks that all ranks have the same configuration, because gradients of different runs must not be averaged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import lightning
import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from lightning_rl.distributed import all_gather_objects
from lightning_rl.errors import ConfigError
from lightning_rl.run_directory.config_file import leaves
from lightning_rl.version import __version__

__all__ = ["RankConfigCheck", "differences"]

ORDERED = ("policies", "policy_mapping")  # sections in which another order of the same keys is another configuration
VERSIONS = {"lightning_rl": __version__, "lightning": lightning.__version__, "torch": str(torch.__version__)}
SHOWN = 5  # differing keys in the message


class RankConfigCheck(Callback):
    """Compares the configuration, and the packages' versions, over all ranks before training.

    Args:
        config: the config of this rank, plain containers.

    Raises:
        ConfigError: on every rank, so that none waits for another; names the keys that differ and their values.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config = config

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Compare when the ranks are connected, before any of them trains."""
        if trainer.world_size == 1:
            return
        own = {
            **{key: repr(value) for key, value in leaves(self.config)},
            **{f"order of {key}": order for key in ORDERED if (order := order_of(self.config.get(key)))},
            **{f"version of {package}": version for package, version in VERSIONS.items()},
        }
        if found := differences(all_gather_objects(own)):
            raise ConfigError(
                f"the ranks were started with different configurations: {found}; start all of them with the same one "
                "(run_dir=… names the same directory for all)"
            )


def differences(configs: Sequence[Mapping[str, str]]) -> str:
    """Describe the keys whose values differ between ranks, with the values by rank; "" if none does."""
    keys = dict.fromkeys(key for config in configs for key in config)
    differing = [key for key in keys if len({config.get(key) for config in configs}) > 1]
    shown = [f"{key} is {', '.join(by_rank(configs, key))}" for key in differing[:SHOWN]]
    more = len(differing) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more else "")


def by_rank(configs: Sequence[Mapping[str, str]], key: str) -> list[str]:
    """Each distinct value of a key, with the ranks that have it."""
    ranks: dict[str, list[str]] = {}
    for rank, config in enumerate(configs):
        ranks.setdefault(config.get(key, "missing"), []).append(str(rank))
    return [f"{value} (rank {' '.join(those)})" for value, those in ranks.items()]


def order_of(section: Any) -> str:
    """The keys of a section in their order; "" if it is not a mapping."""
    return ", ".join(map(str, section)) if isinstance(section, Mapping) else ""
