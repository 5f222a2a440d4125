"""Every built-in distribution with a space that it acts in, for the tests that must hold for all of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces

from lightning_rl.models.catalog import ModelCatalog
from lightning_rl.models.distributions import AutoregressiveHeads
from lightning_rl.models.distributions.base import DistFactory
from lightning_rl.spaces import ActionTransform
from tests.space_cases import ACTIONS, BOX

WHOLE = spaces.Box(0.0, 1.0, (4,))
TABLE = spaces.Box(np.array([[0, -1, 2]] * 2, np.float32), np.array([[1, 5, 2.5]] * 2, np.float32))
NESTED = spaces.Dict(
    {
        "move": BOX,
        "mode": spaces.Tuple([spaces.Discrete(3), spaces.MultiDiscrete([2, 4])]),
        "bits": spaces.MultiBinary(2),
    }
)

# (space of the environment, `custom_action_dist`, whether actions are normalized to [−1, 1])
CASES: dict[str, tuple[Space[Any], str | None, bool]] = {
    "Categorical": (spaces.Discrete(5), None, True),
    "MultiCategorical": (spaces.MultiDiscrete([3, 2, 4]), None, True),
    "int Box": (spaces.Box(-3, 4, (2,), dtype=np.int32), None, True),
    "Bernoulli": (spaces.MultiBinary(3), None, True),
    "DiagGaussian": (BOX, None, True),
    "SquashedGaussian": (BOX, "SquashedGaussian", True),
    "SquashedGaussian on bounds": (TABLE, "SquashedGaussian", False),
    "Beta": (BOX, "Beta", True),
    "Beta on bounds": (TABLE, "Beta", False),
    "Dirichlet": (WHOLE, "Dirichlet", True),
    "Dirichlet on bounds": (WHOLE, "Dirichlet", False),
    "GumbelSoftmax": (spaces.Discrete(5), "GumbelSoftmax", True),
    "nested": (NESTED, None, True),
    "nested SquashedGaussian": (NESTED, "SquashedGaussian", True),
    "nested Beta": (NESTED, "Beta", True),
    "nested GumbelSoftmax": (NESTED, "GumbelSoftmax", True),
    "nested Dirichlet": (spaces.Tuple([spaces.Discrete(3), WHOLE]), "Dirichlet", True),
    "Autoregressive": (NESTED, "Autoregressive", True),
    "Autoregressive MultiDiscrete": (spaces.MultiDiscrete([[3, 2], [4, 2]]), "Autoregressive", True),
    "Autoregressive MultiBinary": (spaces.MultiBinary(3), "Autoregressive", True),
}


SPACES = CASES | {str(space): (space, None, True) for space in ACTIONS}


def parts(case: str) -> tuple[ActionTransform, DistFactory, int, Any]:
    """Action transform, distribution factory, inputs per row, and a model for the distribution."""
    space, named, normalize = SPACES[case]
    transform = ActionTransform(space, normalize=normalize)
    factory, size = ModelCatalog.get_action_dist(space, {"custom_action_dist": named}, transform.policy_space)
    model: Any = SimpleNamespace(log_std_clip=20.0)
    if named == "Autoregressive":
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model.action_model = AutoregressiveHeads(space, size)
            for parameter in model.action_model.parameters():
                parameter.data.normal_(0.0, 0.3)
    return transform, factory, size, model


def random_distribution(
    case: str, rows: int = 6, seed: int = 0, scale: float = 1.0, mask: torch.Tensor | None = None
) -> Any:
    """The distribution with random inputs `[rows, K]`."""
    _, factory, size, model = parts(case)
    return factory(scale * torch.randn(rows, size, generator=generator(seed)), model, mask)


def repeated_distribution(case: str, rows: int, seed: int = 0) -> Any:
    """The same random distribution in every row."""
    _, factory, size, model = parts(case)
    return factory(torch.randn(1, size, generator=generator(seed)).expand(rows, size), model, None)


def generator(seed: int = 0) -> torch.Generator:
    """A seeded generator."""
    return torch.Generator().manual_seed(seed)
