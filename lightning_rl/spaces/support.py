"""Which spaces the package supports as observations and actions, and alternatives for the others."""

from __future__ import annotations

from typing import Any, TypeGuard

import numpy as np
from gymnasium import Space, spaces

from lightning_rl.errors import UnsupportedSpaceError
from lightning_rl.spaces.structure import children, leaf_spaces, plain_key

__all__ = ["SUPPORTED", "check_supported", "choices_of", "is_bounded_box", "is_continuous"]

MAX_CHOICES = 65_536  # a categorical over more values is considered a modeling mistake
SUPPORTED = "Box, Discrete, MultiDiscrete, MultiBinary, and Dict and Tuple of these"
INSTEAD = {
    "Text": "encode the text in a wrapper, as token ids in a MultiDiscrete or as an embedding in a Box",
    "MissionSpace": (
        "leave MiniGrid's text out with env.wrappers=[minigrid.wrappers.ImgObsWrapper], or encode it with "
        "env.wrappers=[minigrid.wrappers.FlatObsWrapper]"
    ),
    "Graph": "give node features and adjacency as a Dict of fixed-size Boxes",
    "Sequence": "pad to a maximal length: a Dict of a Box and a Discrete length",
    "OneOf": "use a Dict of a Discrete choice and all alternatives",
}


def check_supported(space: Space[Any], role: str) -> None:
    """Raise an error for a space that no built-in preprocessor or action distribution supports.

    Args:
        space: the space of one environment.
        role: "observation" or "action".

    Raises:
        UnsupportedSpaceError: names the part, the reason, and alternatives.
    """
    _check_keys(space, role)
    leaves = list(leaf_spaces(space))
    if not leaves:
        raise UnsupportedSpaceError(f"{role} space {space} is empty: give it at least one part")
    for path, leaf in leaves:
        problem = _problem(leaf, role)
        if problem:
            where = f"{role} space, part {path!r}" if path else f"{role} space"
            raise UnsupportedSpaceError(f"{where}: {leaf} {problem}")


def _check_keys(space: Space[Any], role: str) -> None:
    """Refuse keys of a Dict that neither a checkpoint nor the names of an exported policy could hold."""
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        return
    for name, child in children(space):
        if plain_key(name) is None:
            raise UnsupportedSpaceError(
                f"{role} space: key {name!r} of a Dict is a {type(name).__name__}; expected text or an integer: rename "
                "it in the space and in what the environment returns, as in a wrapper (env.wrappers)"
            )
        _check_keys(child, role)


def _problem(leaf: Space[Any], role: str) -> str:
    if not isinstance(leaf, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        kind = type(leaf).__name__
        return (
            f"is not supported; supported are {SUPPORTED}: {INSTEAD.get(kind, 'convert it in an environment wrapper')}"
        )
    if 0 in (leaf.shape or ()):
        return "has no entries: leave it out"
    if role == "observation" or isinstance(leaf, spaces.MultiBinary) or is_continuous(leaf):
        return ""
    if isinstance(leaf, spaces.Box) and not leaf.is_bounded():
        return "is an integer Box without bounds; a categorical distribution needs finite low and high: set them"
    choices = int(np.max(choices_of(leaf)))
    if choices > MAX_CHOICES:
        return (
            f"has {choices} values in one component; at most {MAX_CHOICES} work: use a float Box, or several components"
        )
    return ""


def is_continuous(space: Space[Any]) -> TypeGuard[spaces.Box]:
    """Whether a space is a float Box."""
    return isinstance(space, spaces.Box) and space.dtype.kind == "f"


def is_bounded_box(space: Space[Any]) -> bool:
    """Whether a space is a float Box with finite bounds, so that actions can be squashed."""
    return is_continuous(space) and space.is_bounded()


def choices_of(leaf: Space[Any]) -> np.ndarray:
    """Number of values of every component of a discrete leaf, flattened, int64."""
    if isinstance(leaf, spaces.Discrete):
        return np.array([leaf.n], dtype=np.int64)
    if isinstance(leaf, spaces.MultiBinary):
        return np.full(int(np.prod(leaf.shape)), 2, dtype=np.int64)
    if isinstance(leaf, spaces.MultiDiscrete):
        return leaf.nvec.astype(np.int64).ravel()
    assert isinstance(leaf, spaces.Box)
    widths = [int(high) - int(low) + 1 for low, high in zip(leaf.low.ravel(), leaf.high.ravel(), strict=True)]
    return np.array([min(width, 2**62) for width in widths], dtype=np.int64)
