"""Uniformly random actions of any space."""

from __future__ import annotations

import math
from typing import Any

import torch
from gymnasium import Space, spaces
from torch import Generator, Tensor

from lightning_rl.models.distributions import ActionDistribution, MultiActionDistribution, parts_of
from lightning_rl.spaces import leaf_spaces, pack_leaves

__all__ = ["LOG_2PI", "random_actions"]

LOG_2PI = math.log(2 * math.pi)


def random_actions(
    action_space: Space[Any], dist: ActionDistribution, generator: Generator | None
) -> tuple[Any, Tensor]:
    """Uniform actions `[N, …]` of a policy's action space, and log of their probability (density), `[N]`.

    Discrete actions respect the mask of `dist`. A Box entry with an infinite bound is sampled as in Gymnasium: from a
    normal distribution, or an exponential one if one side is bounded.
    """
    rows, device = len(dist.inputs), dist.inputs.device
    parts = parts_of(action_space)
    masks = [None] * len(parts) if dist.mask is None else dist.mask.split([part.mask for part in parts], dim=1)
    leaves, logp = [], torch.zeros(rows, device=device)
    dists = dist.children if isinstance(dist, MultiActionDistribution) else [dist]
    owns = [child.uniform_sample(generator) for child in dists] if len(dists) == len(parts) else [None] * len(parts)
    for (_, leaf), part, mask, own in zip(leaf_spaces(action_space), parts, masks, owns, strict=True):
        if own is not None:  # the distribution allows only a part of the space
            actions, leaf_logp = own
        elif part.maskable:
            # Logits of zero give the uniform distribution over the unmasked actions.
            uniform = part.factory(torch.zeros(rows, part.inputs, device=device), None, mask)
            actions, leaf_logp = uniform.sample(generator), uniform.sampled_action_logp()
        else:
            assert isinstance(leaf, spaces.Box)
            actions, leaf_logp = _random_box(leaf, rows, device, generator)
        leaves.append(actions)
        logp = logp + leaf_logp
    return pack_leaves(action_space, iter(leaves)), logp


def _random_box(box: spaces.Box, rows: int, device: torch.device, generator: Generator | None) -> tuple[Tensor, Tensor]:
    low, high = (torch.from_numpy(bound).to(device).flatten() for bound in (box.low, box.high))
    below, above = low.isfinite(), high.isfinite()
    uniform = torch.rand(rows, len(low), device=device, generator=generator)
    bounded = low + uniform * (high - low)
    tail = -torch.log1p(-uniform)  # Exp(1)
    normal = torch.randn(rows, len(low), device=device, generator=generator)
    actions = torch.where(
        below & above, bounded, torch.where(below, low + tail, torch.where(above, high - tail, normal))
    )
    density = torch.where(
        below & above, -(high - low).log(), torch.where(below | above, -tail, -0.5 * (normal.square() + LOG_2PI))
    )
    return actions.view(rows, *box.shape), density.sum(1)
