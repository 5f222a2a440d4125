"""Previous actions and rewards that a model reads at an episode's first step, before there are any."""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import Space

from lightning_rl.models.model import Model
from lightning_rl.sample_batch import to_nested_batch
from lightning_rl.spaces import is_continuous, leaf_spaces, pack_leaves

__all__ = ["initial_previous_actions", "initial_previous_step", "previous_columns"]


def previous_columns(model: Any) -> list[str]:
    """Those of "prev_actions" and "prev_rewards" that a model reads."""
    return [name for name in ("prev_actions", "prev_rewards") if getattr(model, name)]


def initial_previous_step(model: Model, space: Space[Any], batch_size: int, device: torch.device) -> dict[str, Any]:
    """The "prev_actions" and "prev_rewards" at an episode's start, for a model that reads them.

    Args:
        model: its `prev_actions` and `prev_rewards` are the numbers of steps.
        space: the space of the policy's actions.
        batch_size: number of rows.
        device: the device of the tensors.
    """
    actions, rewards = model.prev_actions, model.prev_rewards
    before: dict[str, Any] = {}
    if actions:
        leading = (batch_size, actions) if actions > 1 else (batch_size,)
        before["prev_actions"] = initial_previous_actions(space, leading, device)
    if rewards:
        before["prev_rewards"] = torch.zeros((batch_size, rewards)[: min(rewards, 2)], device=device)
    return before


def initial_previous_actions(space: Space[Any], leading: tuple[int, ...], device: torch.device) -> Any:
    """Placeholder for actions before an episode's first step, `[*leading, *]`: −1 for discrete leaves, else 0."""
    leaves = []
    for _, leaf in leaf_spaces(space):
        nothing, dtype = (0, torch.float32) if is_continuous(leaf) else (-1, torch.int64)
        leaves.append(torch.full((*leading, *(leaf.shape or ())), nothing, dtype=dtype, device=device))
    return to_nested_batch(pack_leaves(space, iter(leaves)))
