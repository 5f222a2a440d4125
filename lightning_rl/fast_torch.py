"""Faster ways through torch and Lightning by their private parts, with the public ways as the alternative.

A small network's step is bound by the number of Python and torch calls, not by arithmetic. Both ways compute the same
numbers (`tests/test_fast_torch.py`). The private parts are used only with versions of torch and Lightning that were
tested, and never if the environment variable `LIGHTNING_RL_PLAIN_STEPS` is 1.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["ENABLED", "FastAttributes", "in_eval_mode", "is_tested", "lean_linear", "set_mode"]

TESTED = {"torch": ((2, 6), (2, 13)), "lightning": ((2, 6), (2, 6))}  # from, to: major and minor version


def is_tested(package: str, version: str) -> bool:
    """Whether the private parts were tested with this version of a package, such as "2.13.0+cpu"."""
    major, minor = version.split(".")[:2]
    lowest, highest = TESTED[package]
    return lowest <= (int(major), int(minor)) <= highest


ENABLED = (
    is_tested("torch", torch.__version__)
    and is_tested("lightning", version("lightning"))
    and os.environ.get("LIGHTNING_RL_PLAIN_STEPS", "0") in ("", "0")
)


class FastAttributes(nn.Module):
    """A module whose submodules also are ordinary attributes.

    `nn.Module` finds submodules in `__getattr__`, after everything else has failed: 0.7 µs each time, a tenth of the
    cost of acting in one environment. Replacing a submodule by assignment works as usual; writing to the dictionary
    `_modules` directly (as dynamic quantization does) is not noticed: assign such modules again.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if ENABLED and name in self.__dict__.get("_modules", ()):  # also if `None` replaces a module
            self.__dict__[name] = value

    def add_module(self, name: str, module: nn.Module | None) -> None:
        """As `nn.Module`."""
        super().add_module(name, module)
        if ENABLED:
            self.__dict__[name] = module

    def __delattr__(self, name: str) -> None:
        if name in self._modules:
            self.__dict__.pop(name, None)
        super().__delattr__(name)


def lean_linear(layer: nn.Module, x: Tensor) -> Tensor:
    """`layer(x)` for an `nn.Linear` without the cost of the call, which at 8 rows equals that of the arithmetic."""
    if not ENABLED:
        return layer(x)
    own = layer._parameters
    try:
        return F.linear(x, own["weight"], own["bias"])  # type: ignore[arg-type]
    except KeyError:  # the weight is a function of other parameters (spectral norm, FSDP)
        return layer(x)


def set_mode(modules: Iterable[nn.Module], training: bool) -> None:
    """Set the `training` flag of each of these modules; `nn.Module.__setattr__` costs ten times as much."""
    for module in modules:
        if ENABLED:
            module.__dict__["training"] = training
        else:
            module.training = training


@contextmanager
def in_eval_mode(module: nn.Module) -> Iterator[None]:
    """Context in eval mode: batch norm uses its running statistics unchanged; dropout and noise are off."""
    training = module.training
    if training:
        module.eval()
    try:
        yield
    finally:
        if training:
            module.train()
