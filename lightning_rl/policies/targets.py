"""Target networks, their updates, and networks that a loss leaves out of training or of train mode."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import nn

from lightning_rl.fast_torch import set_mode

__all__ = ["PolyakUpdate", "frozen", "resting", "target_copy"]

Network = TypeVar("Network", bound=nn.Module)


def target_copy(network: Network) -> Network:
    """A copy of a network that no optimizer steps.

    Checkpoints hold it if it is an attribute of the policy; the policy keeps attributes named `target_…` in eval mode.
    """
    return copy.deepcopy(network).requires_grad_(False)


class PolyakUpdate:
    """Updates a target network from its source: target ← τ source + (1 − τ) target; buffers are copied.

    Polyak averaging as in Lillicrap et al. 2016, arXiv:1509.02971, section 3; τ = 1 copies (Mnih et al. 2015).

    Args:
        target, source: networks with the same parameters and buffers.
    """

    def __init__(self, target: nn.Module, source: nn.Module) -> None:
        self.target, self.source = target, source
        # Listed once: walking through the modules costs more than updating a small network.
        self._targets: list[Any] = list(target.parameters())
        self._sources: list[Any] = list(source.parameters())
        self._has_buffers = any(True for _ in target.buffers())

    @torch.no_grad()
    def __call__(self, tau: float = 1.0) -> None:
        """Update with τ in (0, 1]."""
        if tau == 1.0:
            torch._foreach_copy_(self._targets, self._sources)  # pyright: ignore[reportPrivateImportUsage]
        else:
            torch._foreach_lerp_(self._targets, self._sources, tau)  # pyright: ignore[reportPrivateImportUsage]
        if self._has_buffers:
            for old, new in zip(self.target.buffers(), self.source.buffers(), strict=True):
                old.copy_(new)


@contextmanager
def frozen(*modules: nn.Module) -> Iterator[None]:
    """Context in which gradients flow through these modules to their inputs, and not to their parameters."""
    held = [parameter for module in modules for parameter in module.parameters() if parameter.requires_grad]
    for parameter in held:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in held:
            parameter.requires_grad_(True)


@contextmanager
def resting(*modules: nn.Module) -> Iterator[None]:
    """Context in which these modules are in eval mode, the others as they are."""
    switched = [part for module in modules for part in module.modules() if part.training]
    set_mode(switched, False)
    try:
        yield
    finally:
        set_mode(switched, True)
