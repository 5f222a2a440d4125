"""Brings action masks, in whatever form an environment gives them, into one form: bools side by side.

A mask has a bool for each alternative of every choice of an action, in the space's own order: n for a Discrete space,
the sum of `nvec` for a MultiDiscrete one, two (0 and 1) for each bit of a MultiBinary one, those of all parts for a
Dict or Tuple. An environment gives it in that form, or as Gymnasium's `Space.sample(mask)` takes it, as arrays, lists
or tuples. Without a mask everything is allowed.

This file does not import torch, so that the processes of an asynchronous vector environment start quickly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from lightning_rl.errors import EnvApiError, short_repr

__all__ = ["ActionMasks", "choice_sizes", "flat_mask", "mask_row", "sample_allowed"]


def choice_sizes(space: Space[Any]) -> list[int]:
    """The number of alternatives of every choice that an action consists of; floats are not choices."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
        return [size for part in parts for size in choice_sizes(part)]
    if isinstance(space, spaces.Discrete):
        return [int(space.n)]
    if isinstance(space, spaces.MultiDiscrete):
        return space.nvec.ravel().tolist()
    if isinstance(space, spaces.MultiBinary):
        return [2] * int(np.prod(space.shape))
    if isinstance(space, spaces.Box) and space.dtype.kind != "f":
        return [int(high) - int(low) + 1 for low, high in zip(space.low.ravel(), space.high.ravel(), strict=True)]
    return []


class ActionMasks:
    """The masks of one action space.

    Args:
        space: the space of the actions, as the environment has it.
        name: the name of the environment, for messages.

    Attributes:
        width: number of bools of a mask; 0 if no action of the space can be masked.
    """

    def __init__(self, space: Space[Any], name: str) -> None:
        self.space, self.name = space, name
        sizes = choice_sizes(space)
        self.width = sum(sizes)
        self._starts = np.cumsum([0, *sizes[:-1]])

    def find(self, obs: Any, info: Any) -> np.ndarray | None:
        """The mask of one environment or agent, bool `[width]`; `None`: everything is allowed.

        The mask in the info counts, else "action_mask" of a Dict observation.

        Raises:
            EnvApiError: it does not fit the action space.
        """
        mask = info.get("action_mask") if isinstance(info, Mapping) else None
        if mask is None and isinstance(obs, Mapping):
            mask = obs.get("action_mask")
        return None if mask is None else self.flat(mask)

    def flat(self, mask: Any) -> np.ndarray:
        """A mask in any form, as bools `[width]`.

        Raises:
            EnvApiError: it does not fit the action space.
        """
        if type(mask) is np.ndarray and mask.shape == (self.width,) and mask.dtype != object:
            return mask.astype(bool)  # the usual case
        try:
            return flat_mask(self.space, mask)
        except ValueError as error:
            raise EnvApiError(f"environment {self.name!r}: {error}") from error

    def find_all(self, obs: Any, info: Mapping[str, Any], num_envs: int, *, always: bool = False) -> np.ndarray | None:
        """The masks of a vector environment, bool `[B, width]`; `None`: no info holds one.

        An environment whose own info holds none has the one in its observation, or may do anything.

        Args:
            obs: `[B, *]`.
            info: a vector environment's joined infos: a mask per environment, and "_action_mask", which of them count.
            num_envs: `B`.
            always: give masks although no info holds one.

        Raises:
            EnvApiError: a mask does not fit the action space.
        """
        masks: Any = info.get("action_mask")
        given: Any = info.get("_action_mask")
        if masks is None and not always:
            return None
        usual = type(masks) is np.ndarray and masks.shape == (num_envs, self.width) and masks.dtype != object
        if masks is not None and usual and (given is None or given.all()):
            return masks.astype(bool)  # the usual case
        inside = self.find_inside(obs, num_envs)
        found = np.ones((num_envs, self.width), bool) if inside is None else inside
        for row in range(num_envs) if masks is not None else ():
            if (given is None or given[row]) and (mask := mask_row(masks, row)) is not None:
                found[row] = self.flat(mask)
        return found

    def find_inside(self, obs: Any, num_envs: int) -> np.ndarray | None:
        """The masks in the Dict observations `[B, *]` of a vector environment, bool `[B, width]`; `None` without any.

        Raises:
            EnvApiError: they do not fit the action space.
        """
        # Arrays first: the test for an abstract class costs more than all the rest.
        if type(obs) is np.ndarray or not isinstance(obs, Mapping) or (masks := obs.get("action_mask")) is None:
            return None
        if type(masks) is np.ndarray and masks.size == num_envs * self.width:
            return masks.reshape(num_envs, self.width).astype(bool)
        return np.stack([self.flat(mask_row(masks, row)) for row in range(num_envs)])

    def forbid_all(self, masks: np.ndarray) -> np.ndarray:
        """Which of the masks `[N, width]` leave a choice without any alternative, bool `[N]`."""
        if len(self._starts) == 1:
            return np.logical_not(masks.any(axis=1))
        return np.logical_not(np.logical_or.reduceat(masks, self._starts, axis=1).all(axis=1))

    def refuse(self, mask: np.ndarray, where: str) -> EnvApiError:
        """The error for a mask that leaves a choice without any alternative.

        Args:
            mask: bool `[width]`.
            where: which environment or agent gave it.
        """
        return EnvApiError(
            f"environment {self.name!r}: action_mask={mask.astype(int).tolist()} of {where} forbids every action of "
            f"{self.space} in a running episode; expected at least one allowed alternative in each choice: allow a "
            "pass, or end the episode"
        )


def sample_allowed(space: Space[Any], allowed: np.ndarray, rng: np.random.Generator) -> Any:
    """A random action of a space; its discrete parts are uniform over the allowed alternatives.

    Args:
        space: the space of the actions.
        allowed: bool `[width]`; a choice without any alternative may take all.
        rng: the generator for discrete parts; the space itself draws the others.
    """
    if isinstance(space, spaces.Dict | spaces.Tuple):
        named = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        parts, start = {}, 0
        for name, part in named:
            width = sum(choice_sizes(part))
            parts[name] = sample_allowed(part, allowed[start : start + width], rng)
            start += width
        return parts if isinstance(space, spaces.Dict) else tuple(parts.values())
    sizes = choice_sizes(space)
    if not sizes:
        return space.sample()
    chosen = []
    for bools in np.split(allowed, np.cumsum(sizes)[:-1]):
        alternatives = np.flatnonzero(bools if bools.any() else ~bools)
        chosen.append(alternatives[rng.integers(len(alternatives))])
    if isinstance(space, spaces.Discrete):
        return space.start + chosen[0]
    leaf: Any = space
    first = leaf.low if isinstance(leaf, spaces.Box) else getattr(leaf, "start", 0)
    return (first + np.reshape(chosen, leaf.shape)).astype(leaf.dtype)


def flat_mask(space: Space[Any], mask: Any) -> np.ndarray:
    """A mask in any form, as bools `[width]`.

    Raises:
        ValueError: it does not fit the space.
    """
    try:
        return _flatten(space, mask)
    except ValueError as error:
        raise ValueError(
            f"action_mask={short_repr(mask)} does not fit the action space {space}: {error}; expected "
            f"{sum(choice_sizes(space))} bools side by side, one for each alternative, or the form of "
            "action_space.sample(mask)"
        ) from error


def _flatten(space: Space[Any], mask: Any) -> np.ndarray:
    """A mask in any form as bools; `None` allows everything.

    Raises:
        ValueError: it does not fit; says what it has.
    """
    width = sum(choice_sizes(space))
    if mask is None:
        return np.ones(width, bool)
    if isinstance(space, spaces.Dict) and isinstance(mask, Mapping):
        if unknown := sorted(map(str, mask.keys() - space.spaces.keys())):
            raise ValueError(f"it has the parts {unknown}, which the space does not have")
        return np.concatenate([_flatten(part, mask.get(name)) for name, part in space.spaces.items()])
    by_part = isinstance(mask, tuple | list) and any(part is None or _has_parts(part) for part in mask)
    if isinstance(space, spaces.Tuple) and by_part and len(mask) == len(space.spaces):
        return np.concatenate([_flatten(part, own) for part, own in zip(space.spaces, mask, strict=True)])
    values = np.concatenate([np.empty(0, np.int8), *_numbers(mask)])
    if isinstance(space, spaces.MultiBinary) and 2 * len(values) == width:  # 0 and 1 fix a bit, 2 leaves it free
        return np.stack((values != 1, values != 0), axis=1).ravel()
    if len(values) != width:
        raise ValueError(f"it has {len(values)} entries")
    return values.astype(bool)


def _numbers(mask: Any) -> Iterator[np.ndarray]:
    """The arrays that a nested mask consists of, flattened."""
    if isinstance(mask, Mapping):
        mask = list(mask.values())
    nested = isinstance(mask, tuple | list) or (isinstance(mask, np.ndarray) and mask.dtype == object)
    if nested and any(map(_has_parts, mask)):
        for part in mask:
            yield from _numbers(part)
    else:
        yield np.ravel(mask)


def _has_parts(value: Any) -> bool:
    return isinstance(value, Mapping | list | tuple) or getattr(value, "ndim", 0) > 0


def mask_row(masks: Any, row: int) -> Any:
    """One environment's part of the masks that a vector environment has joined; `None` if it gave none."""
    if isinstance(masks, Mapping):
        flags: dict[Any, Any] = {name: masks.get(f"_{name}") for name in masks}
        names = [name for name in masks if not (str(name).startswith("_") and str(name)[1:] in masks)]
        return {name: mask_row(masks[name], row) if flags[name] is None or flags[name][row] else None for name in names}
    if isinstance(masks, tuple):
        return tuple(mask_row(part, row) for part in masks)
    return masks[row]
