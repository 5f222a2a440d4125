"""Stores the configuration in every checkpoint, so that a file identifies its run, and signs it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from lightning_rl.envs.registry import find_registered_env
from lightning_rl.run_directory.checkpoint_files import not_saved, registered_name, to_plain
from lightning_rl.run_directory.signature import sign_checkpoint

__all__ = ["ConfigInCheckpoint"]


class ConfigInCheckpoint(Callback):
    """Writes the configuration into every checkpoint, under "config".

    What a file cannot hold (a lambda, an object, a name given to `register_env`) is warned of at the first save, and
    refused when the file is restored (`FileTrust.check_complete`).

    Args:
        config: the config of the run.
        own: whether to sign the file as one of this user: not if its config is from a file that the user has not
            signed, which would have to be trusted no more.
    """

    def __init__(self, config: Mapping[str, Any], own: bool = True) -> None:
        self.config, self.own = config, own
        self._warned = False

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Store plain data; Lightning asks the policy for its own entries later, and the signature covers them."""
        checkpoint["config"] = plain = to_plain(self.config)
        policy: Any = pl_module
        if policy.agents and not_saved(plain.get("policy_mapping")):  # a lambda: the policy of each agent instead
            plain["policy_mapping"] = to_plain(policy.mapping.portable, "policy_mapping")
        lost = not_saved(plain)
        for key, section in (("env", plain.get("env")), ("evaluation.env", (plain.get("evaluation") or {}).get("env"))):
            if section is not None and find_registered_env(name := section["id"]) is not None:
                section["id"] = registered_name(name)
                lost[f"{key}.id"] = f"{name!r}, a name of register_env"
        if lost and not self._warned and trainer.is_global_zero:
            self._warned = True
            warnings.warn(
                f"checkpoints cannot hold {', '.join(f'{key} ({what})' for key, what in lost.items())}: they cannot be "
                "restored unless it is given again, by Algorithm.restore(path, config=… or env=…) or, for a registered "
                "name, by register_env",
                stacklevel=2,
            )
        if self.own:
            sign_checkpoint(checkpoint, policy.spec())
