"""What a model reads, and the few ways in which nested observations and actions are walked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from lightning_rl.sample_batch import SampleBatch

__all__ = ["InputDict", "first", "leading_shape", "mapped", "row_count", "transition_rows"]


class InputDict(dict[str, Any]):
    """The model's inputs; "obs_flat" `[N, size]` is made when first asked for (image models never ask).

    Args:
        flat: preprocesses and filters "obs".
        columns: "obs", "prev_actions", "prev_rewards", "is_training".
    """

    def __init__(self, flat: Callable[[Any], Tensor], **columns: Any) -> None:
        super().__init__(columns)
        self._flat = flat

    def __missing__(self, key: str) -> Any:
        if key != "obs_flat":
            raise KeyError(f"no {key!r} in the model's inputs: obs, obs_flat, prev_actions, prev_rewards, is_training")
        self[key] = self._flat(self["obs"])
        return self[key]


def mapped(fn: Callable[[Any], Any], value: Any) -> Any:
    """`fn` of every array of a nested observation or action, in the same structure."""
    if isinstance(value, SampleBatch):
        return value.map(fn)
    if isinstance(value, Mapping):
        return {name: mapped(fn, child) for name, child in value.items()}
    if isinstance(value, tuple):
        return tuple(mapped(fn, child) for child in value)
    return fn(value)


def leading_shape(value: Any) -> tuple[int, int]:
    """The first two sizes of a nested observation's arrays, `[T, B, *]`."""
    shape = _first_leaf(value).shape
    return shape[0], shape[1]


def row_count(value: Any) -> int:
    """The first size of a nested observation's arrays, `[N, *]`."""
    return len(_first_leaf(value))


def _first_leaf(value: Any) -> Any:
    while isinstance(value, Mapping | tuple | SampleBatch):
        value = value[0] if isinstance(value, tuple) else value[next(iter(value))]
    return value


def first(value: Any) -> Any:
    """The first row of a nested batch of actions."""
    if isinstance(value, Mapping):
        return {name: first(child) for name, child in value.items()}
    if isinstance(value, tuple):
        return tuple(first(child) for child in value)
    return value[0]


def transition_rows(fragment: SampleBatch) -> SampleBatch:
    """The experience of a fragment as rows `[N, …]` with `next_obs`, in order of environment and then of time.

    `t` is 0 where an episode starts; `next_obs` of an episode's last row is its final observation.
    """
    steps = len(fragment.valid)
    rows = fragment.without("valid").map(lambda column: column[:steps])
    rows["next_obs"] = mapped(lambda column: column[1:], fragment.obs)
    rows = rows.map(lambda column: column.transpose(0, 1).flatten(0, 1))
    return rows[fragment.valid.T.flatten().nonzero().squeeze(1)]
