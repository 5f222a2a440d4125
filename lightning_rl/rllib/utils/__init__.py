"""RLlib's small functions."""

from lightning_rl.rllib.utils.annotations import DeveloperAPI, PublicAPI, override
from lightning_rl.rllib.utils.framework import try_import_torch
from lightning_rl.rllib.utils.mixins import add_mixins, merge_dicts

__all__ = ["DeveloperAPI", "PublicAPI", "add_mixins", "merge_dicts", "override", "try_import_torch"]
