"""RLlib's functions of tensors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lightning_rl.losses import value
from lightning_rl.sample_batch import map_leaves

__all__ = [
    "FLOAT_MAX",
    "FLOAT_MIN",
    "apply_grad_clipping",
    "convert_to_non_torch_type",
    "convert_to_torch_tensor",
    "explained_variance",
    "global_norm",
    "huber_loss",
    "l2_loss",
    "one_hot",
    "reduce_mean_ignore_inf",
    "sequence_mask",
]

FLOAT_MIN, FLOAT_MAX = -3.4e38, 3.4e38


def apply_grad_clipping(policy: Any, optimizer: torch.optim.Optimizer, loss: Any) -> dict[str, Any]:
    """Clip the gradients to the norm `policy.config["grad_clip"]`; "grad_gnorm" is the norm before."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    limit = policy.config.get("grad_clip")
    return {} if limit is None else {"grad_gnorm": nn.utils.clip_grad_norm_(parameters, limit)}


def convert_to_torch_tensor(stats: Any, device: Any = None) -> Any:
    """Nested arrays as tensors on the device."""
    return map_leaves(lambda leaf: torch.as_tensor(leaf, device=device), stats)


def convert_to_non_torch_type(stats: Any) -> Any:
    """Nested tensors as arrays, those of one entry as numbers."""

    def convert(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        return leaf.item() if leaf.dim() == 0 else leaf.numpy(force=True)

    return map_leaves(convert, stats)


def explained_variance(y: Tensor, pred: Tensor) -> Tensor:
    """1 − Var(y − pred) / Var(y) of targets and predictions `[N]`, a scalar."""
    return value.explained_variance(pred, y)


def global_norm(tensors: Iterable[Tensor]) -> Tensor:
    """The Euclidean norm of all entries of the tensors, a scalar."""
    return nn.utils.get_total_norm(tensors)


def huber_loss(x: Tensor, delta: float = 1.0) -> Tensor:
    """½ x² up to |x| = δ and δ (|x| − ½ δ) beyond, of the same shape."""
    return value.huber(x, delta)


def l2_loss(x: Tensor) -> Tensor:
    """½ Σ x², a scalar."""
    return 0.5 * x.square().sum()


def one_hot(x: Any, space: Any) -> Tensor:
    """Actions or observations of a Discrete space `[N]` as float32 `[N, n]`."""
    return nn.functional.one_hot(torch.as_tensor(np.asarray(x)).long() - int(space.start), int(space.n)).float()


def reduce_mean_ignore_inf(x: Tensor, axis: int | None = None) -> Tensor:
    """The mean over the entries that are not infinite or as low as `FLOAT_MIN`."""
    kept = x > FLOAT_MIN
    total, count = torch.where(kept, x, 0.0), kept.float()
    return total.sum() / count.sum() if axis is None else total.sum(axis) / count.sum(axis)


def sequence_mask(lengths: Tensor, maxlen: int | None = None, time_major: bool = False) -> Tensor:
    """Bool `[S, L]` (or `[L, S]`), which of the L steps lie within each sequence."""
    mask = torch.arange(int(lengths.max()) if maxlen is None else maxlen) < lengths.unsqueeze(1)
    return mask.t() if time_major else mask
