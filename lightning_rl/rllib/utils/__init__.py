"""RLlib's small functions."""

from __future__ import annotations

from typing import Any

from lightning_rl.rllib.utils.annotations import DeveloperAPI, PublicAPI, override
from lightning_rl.rllib.utils.deprecation import deprecation_warning
from lightning_rl.rllib.utils.framework import try_import_tf, try_import_tfp, try_import_torch
from lightning_rl.rllib.utils.mixins import add_mixins, deep_update, merge_dicts
from lightning_rl.rllib.utils.numpy import (
    LARGE_INTEGER,
    MAX_LOG_NN_OUTPUT,
    MIN_LOG_NN_OUTPUT,
    SMALL_NUMBER,
    fc,
    one_hot,
    relu,
    sigmoid,
    softmax,
)
from lightning_rl.rllib.utils.schedules import (
    ConstantSchedule,
    ExponentialSchedule,
    LinearSchedule,
    PiecewiseSchedule,
    PolynomialSchedule,
)
from lightning_rl.rllib.utils.test_utils import check, framework_iterator

__all__ = [
    "LARGE_INTEGER",
    "MAX_LOG_NN_OUTPUT",
    "MIN_LOG_NN_OUTPUT",
    "SMALL_NUMBER",
    "ConstantSchedule",
    "DeveloperAPI",
    "ExponentialSchedule",
    "LinearSchedule",
    "PiecewiseSchedule",
    "PolynomialSchedule",
    "PublicAPI",
    "add_mixins",
    "check",
    "deep_update",
    "deprecation_warning",
    "fc",
    "force_list",
    "framework_iterator",
    "merge_dicts",
    "one_hot",
    "override",
    "relu",
    "sigmoid",
    "softmax",
    "try_import_tf",
    "try_import_tfp",
    "try_import_torch",
]


def force_list(elements: Any = None, to_tuple: bool = False) -> Any:
    """A list (or tuple) of what may be `None`, one thing, or several in a list, tuple or set."""
    several = [] if elements is None else elements if isinstance(elements, list | tuple | set) else [elements]
    return tuple(several) if to_tuple else list(several)
