"""Earlier observations, actions and rewards that a model reads at an episode's first step, before there are any."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import Space
from gymnasium.vector.utils import create_empty_array

from lightning_rl.sample_batch import map_leaves, to_nested_batch
from lightning_rl.spaces import is_continuous, leaf_spaces, pack_leaves

PREVIOUS = ("prev_obs", "prev_actions", "prev_rewards")
"""Columns of earlier steps."""

__all__ = ["PREVIOUS", "initial_previous_actions", "initial_previous_step", "previous_columns"]


def previous_columns(model: Any) -> list[str]:
    """Those of `PREVIOUS` that a model reads."""
    return [name for name in PREVIOUS if getattr(model, name)]


def initial_previous_step(
    model: Any, observation_space: Space[Any], space: Space[Any], batch_size: int, device: torch.device
) -> dict[str, Any]:
    """Those of `PREVIOUS` that a model reads, at an episode's start.

    Args:
        model: its attributes of these names are the numbers of steps.
        observation_space: the space of the environment's observations.
        space: the space of the policy's actions.
        batch_size: number of rows.
        device: the device of the tensors.
    """
    actions, rewards = model.prev_actions, model.prev_rewards
    before: dict[str, Any] = {}
    if model.prev_obs:
        nothing = create_empty_array(observation_space, batch_size, fn=np.zeros)
        before["prev_obs"] = to_nested_batch(
            map_leaves(lambda leaf: torch.from_numpy(leaf[:, None].repeat(model.prev_obs, 1)).to(device), nothing)
        )
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
