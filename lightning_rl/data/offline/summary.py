"""What is in a data set: counts, returns, and which part of its spaces it covers."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from lightning_rl.data.offline.data_set import DataSet
from lightning_rl.data.offline.steps import in_env_space
from lightning_rl.spaces import leaf_spaces

__all__ = ["summary"]

QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)
MOST_ENTRIES = 64  # of a leaf, whose ranges are given one by one; those of an image are not
BINS = 10  # of a histogram
HISTOGRAM_ROWS = 20_000  # at most about that many rows, equally spaced, are in the histogram of an entry


def summary(data: DataSet) -> dict[str, Any]:
    """Plain data about a data set, which is read part by part.

    Returns:
        "steps", "episodes", "complete" (episodes from their first step to their end) and "terminated"; "returns" and
        "lengths" of the complete ones: mean, quantiles 0, ¼, ½, ¾ and 1, and a histogram; "has_logp": whether the
        log-probabilities of actions are recorded; "coverage", of each leaf of the observations and the actions, in the
        environment's space: the range of its entries and their histograms, or how often each value of a Discrete
        occurs; the spaces, "about", and the "damaged" files with the reason. A histogram has BINS equal bins between
        "low" and "high", and the "shares" of the values in them.
    """
    returns: list[float] = []
    lengths: list[int] = []
    counts, has_logp, every = np.zeros(4, np.int64), False, -(-data.rows // HISTOGRAM_ROWS)
    leaves = {
        (name, *path.split(".")) if path else (name,): Coverage(leaf, every)
        for name, space in (("obs", data.spec.observation_space), ("actions", data.spec.action_space))
        for path, leaf in leaf_spaces(space)
    }
    for part in data.read():
        steps = in_env_space(data.spec.action_space, part)
        columns, begins, whole = steps.columns, steps.begins, steps.whole
        has_logp, valid, length = ("action_logp",) in columns, columns[("valid",)], steps.closing_rows - begins
        returns += np.add.reduceat(np.where(valid, columns[("rewards",)], 0.0), begins)[whole].tolist()
        lengths += length[whole].tolist()
        counts += (length.sum(), len(length), whole.sum(), columns[("terminated",)].sum())
        for path, coverage in leaves.items():
            coverage.add(columns[path] if path[0] == "obs" else columns[path][valid])
    return {
        "name": data.name,
        **dict(zip(("steps", "episodes", "complete", "terminated"), counts.tolist(), strict=True)),
        "has_logp": has_logp,
        "returns": _distribution(returns),
        "lengths": _distribution(lengths),
        "coverage": {".".join(path): coverage.described() for path, coverage in leaves.items()},
        "observation_space": str(data.spec.observation_space),
        "action_space": str(data.spec.action_space),
        "about": data.spec.about,
        "damaged": data.damaged,
    }


class Coverage:
    """The values of one leaf that occur.

    Args:
        leaf: its space.
        every: one row in this many is in the histograms.
    """

    def __init__(self, leaf: spaces.Space[Any], every: int = 1) -> None:
        self.space, self.every, self.sampled = leaf, every, list[np.ndarray]()
        self.counted = isinstance(leaf, spaces.Discrete)
        self.counts: dict[int, int] = {}
        self.range: tuple[Any, Any] | None = None

    def add(self, column: np.ndarray) -> None:
        """Take more rows `[N, *]`, at least one."""
        if self.counted:
            for value, count in zip(*np.unique(column, return_counts=True), strict=True):
                self.counts[int(value)] = self.counts.get(int(value), 0) + int(count)
            return
        flat = column.reshape(len(column), -1)
        flat = flat if flat.shape[1] <= MOST_ENTRIES else flat.reshape(-1, 1)
        self.sampled.append(flat[:: self.every])
        low, high = flat.min(0), flat.max(0)
        if self.range is not None:
            low, high = np.minimum(low, self.range[0]), np.maximum(high, self.range[1])
        self.range = low, high

    def described(self) -> dict[str, Any]:
        """`{"counts": {value: rows}}`, or `{"low": […], "high": […], "histograms": […]}`.

        A histogram goes from end to end of the space if that is bounded, so that empty bins are what no row covers.
        """
        if self.range is None:
            return {"counts": dict(sorted(self.counts.items()))}
        low, high = self.range
        found = {"low": low.tolist(), "high": high.tolist()}
        if isinstance(self.space, spaces.Box) and self.space.is_bounded() and len(low) == self.space.low.size:
            low, high = self.space.low.ravel(), self.space.high.ravel()
        entries = np.concatenate(self.sampled).T
        return {**found, "histograms": [histogram(*each) for each in zip(entries, low, high, strict=True)]}


def histogram(values: np.ndarray, low: float, high: float) -> dict[str, Any]:
    """The shares of values in equal bins from `low` to `high`; one bin if these are equal."""
    low, high = float(low), float(high)
    shares = np.histogram(values, BINS, (low, high))[0] if high > low else np.array([len(values)])
    return {"low": low, "high": high, "shares": (shares / max(1, shares.sum())).tolist()}


def _distribution(values: list[Any]) -> dict[str, Any] | None:
    if not values:
        return None
    quantiles = np.quantile(values, QUANTILES).tolist()
    shown = histogram(np.asarray(values, np.float64), quantiles[0], quantiles[-1])
    return {"mean": float(np.mean(values)), "quantiles": quantiles, "histogram": shown}
