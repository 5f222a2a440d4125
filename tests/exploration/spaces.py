"""Action spaces by what a strategy can do with them, and distributions over them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor

from lightning_rl.exploration import Exploration, make_exploration
from lightning_rl.models.catalog import ModelCatalog
from lightning_rl.models.distributions import ActionDistribution
from lightning_rl.spaces import ActionTransform, leaf_values

OBSERVATIONS = spaces.Box(-1.0, 1.0, (3,), np.float32)
DISCRETE = [
    spaces.Discrete(4, start=3),
    spaces.MultiDiscrete([3, 2, 4]),
    spaces.MultiBinary(3),
    spaces.Dict(a=spaces.Discrete(3), b=spaces.Tuple([spaces.MultiDiscrete([2, 2]), spaces.Discrete(2)])),
]
BOXES = [
    spaces.Box(-2.0, 6.0, (2,), np.float32),
    spaces.Box(0.0, 1.0, (2, 3), np.float32),
    spaces.Box(-np.inf, np.inf, (2,), np.float32),
    spaces.Dict(x=spaces.Box(-3.0, 3.0, (1,), np.float32), y=spaces.Box(0.0, 10.0, (2,), np.float32)),
]
MIXED = [spaces.Dict(move=spaces.Box(-1.0, 1.0, (2,), np.float32), grip=spaces.Discrete(3))]
TAKES: dict[str, list[Space[Any]]] = {
    "stochastic_sampling": DISCRETE + BOXES + MIXED,
    "random": DISCRETE + BOXES + MIXED,
    "epsilon_greedy": DISCRETE,
    "per_worker_epsilon_greedy": DISCRETE,
    "soft_q": DISCRETE,
    "gaussian_noise": BOXES,
    "per_worker_gaussian_noise": BOXES,
    "ornstein_uhlenbeck_noise": BOXES,
    "group_noise": DISCRETE + BOXES + MIXED,
    "parameter_noise": DISCRETE + BOXES + MIXED,
    "curiosity": DISCRETE + BOXES + MIXED,
    "rnd": DISCRETE + BOXES + MIXED,
}


def build_strategy(name: str, space: Space[Any], **keywords: Any) -> Exploration:
    """A strategy that explores from the first step on."""
    if name in ("gaussian_noise", "per_worker_gaussian_noise", "ornstein_uhlenbeck_noise", "parameter_noise"):
        keywords.setdefault("random_timesteps", 0)
    return make_exploration({"type": name, **keywords}, ActionTransform(space).policy_space, OBSERVATIONS)


def distribution(
    space: Space[Any], rows: int = 64, mask: Tensor | None = None, seed: int = 0, **model: Any
) -> ActionDistribution:
    """A random distribution over the actions of a space."""
    factory, size = ModelCatalog.get_action_dist(space, model)
    return factory(2 * torch.randn(rows, size, generator=torch.Generator().manual_seed(seed)), None, mask)


def choose_actions(
    exploration: Exploration, dist: ActionDistribution, explore: bool = True, timestep: int = 0, seed: int = 0
) -> tuple[Any, Tensor]:
    return exploration.get_exploration_action(
        dist, timestep=timestep, explore=explore, generator=torch.Generator().manual_seed(seed)
    )


def flat_actions(space: Space[Any], actions: Any) -> Tensor:
    """The numbers of all leaves, `[N, A]`."""
    return torch.cat([leaf.reshape(len(leaf), -1).double() for leaf in leaf_values(space, actions)], dim=1)
