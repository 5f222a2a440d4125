"""Recorded steps of whole episodes, in the one form that all readers and writers of data sets share.

Steps follow one another; after the last step of an episode comes a *closing row*, `valid=False`, which holds only the
observation after it. So the next observation of every step is in the next row, as in a replay ring.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces

from lightning_rl.errors import ConfigError
from lightning_rl.replay.columns import Path
from lightning_rl.sample_batch import Fragment, SampleBatch
from lightning_rl.spaces.actions import ActionTransform
from lightning_rl.spaces.structure import leaf_spaces, leaf_values, pack_leaves
from lightning_rl.spaces.support import choices_of, is_continuous

__all__ = ["DataSpec", "Steps", "actions_for", "close_episodes", "episodes_for", "in_env_space", "join", "steps_since"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DataSpec:
    """What a data set holds.

    Args:
        observation_space, action_space: the spaces of the environment that the data are from.
        about: where the data come from, as text and numbers: environment, seed, policy, versions.
        inferred: whether the spaces are inferred from the numbers that occur, so that those of an environment may
            differ.
    """

    observation_space: Space[Any]
    action_space: Space[Any]
    about: Mapping[str, Any] | None = None
    inferred: bool = False


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps of whole episodes, each followed by a closing row.

    Args:
        columns: path → array `[R, *]`: "obs", "actions", "rewards", "terminated", "truncated", "valid", and perhaps
            "t", "action_logp", "action_mask". An episode that was still running when recording stopped has neither
            `terminated` nor `truncated` in its last step.
        acted_with: keywords `normalize` and `clip` of the `ActionTransform` whose policy space the actions are in;
            `None`: they are the environment's own.
    """

    columns: Mapping[Path, np.ndarray]
    acted_with: Mapping[str, bool] | None = None

    def __len__(self) -> int:
        return len(self.columns[("valid",)])

    def __getitem__(self, rows: slice | np.ndarray) -> Steps:
        return Steps({path: column[rows] for path, column in self.columns.items()}, self.acted_with)

    @property
    def nbytes(self) -> int:
        """Bytes of all columns."""
        return sum(column.nbytes for column in self.columns.values())

    @property
    def closing_rows(self) -> np.ndarray:
        """Positions of the closing rows, int64 `[E]`."""
        return np.flatnonzero(~self.columns[("valid",)])

    @property
    def begins(self) -> np.ndarray:
        """Positions of the episodes' first rows, int64 `[E]`."""
        return np.insert(self.closing_rows + 1, 0, 0)[:-1]

    @property
    def whole(self) -> np.ndarray:
        """Which episodes are recorded from their first step to their end, bool `[E]`."""
        begins, last = self.begins, np.maximum(self.closing_rows - 1, self.begins)
        whole = (self.columns[("terminated",)] | self.columns[("truncated",)])[last]
        return whole & (self.columns[("t",)][begins] == 0) if ("t",) in self.columns else whole

    def share(self, first: int, part: int, parts: int) -> Steps:
        """The episodes whose number, counted from `first`, leaves the remainder `part` when divided by `parts`."""
        episode = np.searchsorted(self.closing_rows, np.arange(len(self))) + first
        return self[episode % parts == part]

    def hold_out(self, first: int, share: float) -> tuple[Steps, Steps]:
        """The other episodes, and this share of them, spread evenly by their number, counted from `first`."""
        episode = np.searchsorted(self.closing_rows, np.arange(len(self))) + first
        held = np.floor((episode + 1) * share) > np.floor(episode * share)
        return self[~held], self[held]

    def fragment(self) -> Fragment:
        """The steps as a rollout fragment `[R, 1, …]` of one environment, as `RolloutWorker.sample` gives them.

        "t" counts from each episode's first row here, even if its beginning was not recorded.
        """
        fragment = Fragment()
        for path, column in {**self.columns, ("t",): steps_since(self.begins, len(self))}.items():
            # The row after the last closing row is read by nothing.
            column = np.concatenate((column, column[-1:])) if path[0] == "obs" else column
            _put(fragment, path, _tensor(column)[:, None])
        return fragment

    def check(self, spec: DataSpec, place: str) -> Steps:
        """These steps, which fit the spaces and hold finite numbers.

        Raises:
            ConfigError: names the file, the column and the first row that does not.
        """
        for name, space in (("obs", spec.observation_space), ("actions", spec.action_space)):
            counts_from_0 = name == "actions" and self.acted_with is not None
            for path, leaf in leaf_spaces(space):
                column = self._column(_path(name, path), place)
                held = column if name == "obs" else column[self._column(("valid",), place)]  # closing rows have 0
                _check_column(held, _path(name, path), leaf, counts_from_0, place)
        for name in ("rewards", "terminated", "truncated", "valid"):
            self._column((name,), place)
        for path, column in self.columns.items():
            if column.dtype.kind == "f" and not np.isfinite(column).all():
                finite = np.isfinite(column).all(tuple(range(1, column.ndim)))
                raise ConfigError(
                    f"{place}: column {'.'.join(path)!r} is not finite in {int((~finite).sum())} rows, such as row "
                    f"{int(np.argmin(finite))}; expected finite numbers: drop those episodes"
                )
        valid, ends = self.columns[("valid",)], self.columns[("terminated",)] | self.columns[("truncated",)]
        if len(valid) and (valid[-1] or (ends[:-1] & valid[1:]).any()):
            raise ConfigError(f"{place}: an episode has no row with the observation after its last step")
        return self

    def of_spaces(self, observation_space: Space[Any], action_space: Space[Any], place: str) -> Steps:
        """These steps with the dtypes of an environment's spaces, after a check that they are in them.

        A number becomes a vector of one, and a flat vector takes the shape of the space.

        Raises:
            ConfigError: a value is not one of the dtype, such as 0.5 of an image's bytes; or as `check`.
        """
        columns = dict(self.columns)
        for name, space in (("obs", observation_space), ("actions", action_space)):
            for path, leaf in leaf_spaces(space):
                column, shape = self._column(_path(name, path), place), leaf.shape or ()
                if column.ndim <= 2 and math.prod(column.shape[1:]) == math.prod(shape):
                    column = column.reshape(len(column), *shape)
                with np.errstate(invalid="ignore"):
                    columns[_path(name, path)] = converted = column.astype(leaf.dtype)
                if not is_continuous(leaf) and column.dtype != converted.dtype:
                    expected = f"; the space {leaf} holds {leaf.dtype}"
                    _refuse(converted != column, column, ".".join(_path(name, path)), expected, place)
        return Steps(columns, self.acted_with).check(DataSpec(observation_space, action_space), place)

    def _column(self, path: Path, place: str) -> np.ndarray:
        if path not in self.columns:
            present = ", ".join(".".join(each) for each in self.columns)
            raise ConfigError(f"{place} has no column {'.'.join(path)!r}; it has {present}")
        return self.columns[path]


def _check_column(column: np.ndarray, path: Path, leaf: Space[Any], counts_from_0: bool, place: str) -> None:
    name = ".".join(path)
    if column.shape[1:] != (leaf.shape or ()):
        raise ConfigError(
            f"{place}: rows of {name!r} have shape {list(column.shape[1:])}; the space {leaf} has "
            f"{list(leaf.shape or ())}"
        )
    if is_continuous(leaf) or (isinstance(leaf, spaces.Box) and path[0] == "obs"):
        return
    low: Any = leaf.low if isinstance(leaf, spaces.Box) else getattr(leaf, "start", 0)
    low = np.asarray(0 if counts_from_0 else low)
    high = low + choices_of(leaf).reshape(leaf.shape or ()) - 1
    allowed = f"; the space {leaf} allows {low.tolist()} to {high.tolist()}"
    _refuse((column < low) | (column > high), column, name, allowed, place)


def _refuse(wrong: np.ndarray, column: np.ndarray, name: str, expected: str, place: str) -> None:
    """Raise an error that names the first wrong value, if any; a table's rows are in another order here."""
    if wrong.any():
        raise ConfigError(f"{place}: {name} has {column[wrong][0]}{expected}: convert the data")


def _put(fragment: SampleBatch, path: Path, value: Any) -> None:
    node = fragment
    for name in path[:-1]:
        if name not in node:
            node[name] = SampleBatch()
        node = node[name]
    node[path[-1]] = value


def steps_since(begins: np.ndarray, count: int) -> np.ndarray:
    """How far each of `count` rows is from the beginning of its episode, int32 `[count]`; `begins` starts with 0."""
    return (np.arange(count) - np.repeat(begins, np.diff(begins, append=count))).astype(np.int32)


def close_episodes(
    columns: Mapping[Path, np.ndarray], last_rows: np.ndarray, final_obs: Mapping[Path, np.ndarray] | None
) -> Steps:
    """Steps with closing rows, from columns with a row per step only.

    Args:
        columns: path → `[N, *]`, with "terminated" and "truncated".
        last_rows: positions of the episodes' last steps, int64 `[E]`, rising.
        final_obs: path → `[E, *]`, the observation after each of them; `None`: not recorded. Then a step that did not
            terminate is dropped, because its observation has to close the episode, and the step before it is truncated
            in its place; a terminated one is closed by its own observation, which no target reads.
    """
    count = len(columns[("rewards",)])
    terminated = columns[("terminated",)]
    appended = np.ones(len(last_rows), bool) if final_obs is not None else terminated[last_rows]
    source = np.insert(np.arange(count), last_rows[appended] + 1, last_rows[appended])
    closing = np.insert(np.zeros(count, bool), last_rows[appended] + 1, True)
    dropped = np.searchsorted(source, last_rows[~appended])
    closing[dropped] = True
    closed = {path: column[source] for path, column in columns.items()}
    dropped = dropped[(dropped > 0) & ~closing[dropped - 1]]
    closed[("truncated",)][dropped - 1] = closed[("truncated",)][dropped]
    if final_obs is not None:
        for path, values in final_obs.items():
            closed[path][closing] = values
    closed[("valid",)] = ~closing
    for path, column in closed.items():
        if path[0] not in ("obs", "valid", "t", "action_mask"):
            column[closing] = 0
    return Steps(closed)


def join(parts: Sequence[Steps]) -> Steps:
    """The steps of several parts, one after the other, with the columns that all of them have."""
    if len(parts) == 1:
        return parts[0]
    shared = [path for path in parts[0].columns if all(path in part.columns for part in parts)]
    columns = {path: np.concatenate([part.columns[path] for part in parts]) for path in shared}
    return Steps(columns, parts[0].acted_with)


def actions_for(transform: ActionTransform, steps: Steps) -> Steps:
    """The steps with actions in the space of a policy with this transform, within its bounds.

    Actions that a policy with another transform took are converted by way of the environment's, and so is their
    density `action_logp`. Actions that an environment received and that are outside of its space are a warning.
    """
    columns = dict(steps.columns)
    if steps.acted_with != transform.options:
        space = transform.action_space
        columns = _with_actions(space, in_env_space(space, steps), transform.from_env, transform.log_scale)
    for path, leaf in leaf_spaces(transform.policy_space):
        if isinstance(leaf, spaces.Box):
            name = _path("actions", path)
            column, valid = columns[name], columns[("valid",)]
            columns[name] = inside = column.clip(leaf.low, leaf.high)
            if steps.acted_with is not None:
                continue
            outside = valid & ~np.isclose(column, inside, 1e-3, 1e-3).all(tuple(range(1, column.ndim)))
            if outside.any():
                share, value = 100 * outside.sum() / valid.sum(), steps.columns[name][outside.argmax()]
                log.warning(
                    "%.3g%% of the actions are clipped to %s, such as %s: check their units, or set "
                    "data.actions_normalized=true if they are in [-1, 1]",
                    *(share, transform.action_space, value),
                )
    return Steps(columns, transform.options)


def in_env_space(space: Space[Any], steps: Steps) -> Steps:
    """The steps with actions, and their density, as the environment with this action space received them."""
    if steps.acted_with is None:
        return steps
    acted = ActionTransform(space, **steps.acted_with)
    return Steps(_with_actions(space, steps, acted.to_env, -acted.log_scale))


def _with_actions(
    space: Space[Any], steps: Steps, convert: Callable[[Any], Any], log_scale: float
) -> dict[Path, np.ndarray]:
    """The columns with converted actions; `log_scale` is the logarithm of the factor of their density."""
    paths, columns = [_path("actions", path) for path, _ in leaf_spaces(space)], dict(steps.columns)
    converted = leaf_values(space, convert(pack_leaves(space, iter([_tensor(columns[path]) for path in paths]))))
    columns |= {path: np.asarray(value) for path, value in zip(paths, converted, strict=True)}
    if log_scale and ("action_logp",) in columns:
        logp = columns[("action_logp",)] + np.float32(log_scale)
        columns[("action_logp",)] = np.where(columns[("valid",)], logp, np.float32(0.0))
    return columns


def episodes_for(policy: Any, parts: Iterable[Steps], place: str, *, actions_normalized: bool = False) -> SampleBatch:
    """Recorded whole episodes as a fragment `[R, 1, …]` with actions and densities in the space of a policy.

    Actions of a policy with the same transform stay as they were sampled: clipped ones have other densities.

    Args:
        policy: has the spaces and the `action_transform`.
        parts: the parts of the data set.
        place: its name, for messages.
        actions_normalized: whether the actions of a file are in the policy's space.

    Raises:
        ConfigError: see `Steps.check`.
    """
    transform, found = policy.action_transform, []
    for part in parts:
        steps = part.of_spaces(policy.observation_space, policy.action_space, place)
        steps = steps[np.repeat(steps.whole, np.diff(steps.closing_rows, prepend=-1))]
        if actions_normalized and steps.acted_with is None:
            steps = replace(steps, acted_with=transform.options)
        found.append(steps if steps.acted_with == transform.options else actions_for(transform, steps))
    return join(found).fragment()


def _tensor(column: np.ndarray) -> torch.Tensor:
    """A column as a tensor; one from a file's bytes is copied, as it cannot be written to."""
    return torch.from_numpy(np.require(column, requirements=["C", "W"]))


def _path(name: str, leaf: str) -> Path:
    """The path of a leaf of a column, from its path in the space."""
    return (name, *leaf.split(".")) if leaf else (name,)
