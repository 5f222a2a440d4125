"""A module's parameters as one vector, to compare and to measure."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def parameter_vector(module: nn.Module) -> Tensor:
    """All parameters."""
    return torch.cat([parameter.detach().flatten() for parameter in module.parameters()])


def trainable_vector(module: nn.Module) -> Tensor:
    """The parameters that require a gradient."""
    return torch.cat([p.detach().flatten() for p in module.parameters() if p.requires_grad])
