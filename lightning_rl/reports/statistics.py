"""Statistics over a few seeds, as pure functions of numpy arrays.

Agarwal et al. 2021, "Deep reinforcement learning at the edge of the statistical precipice", arXiv:2108.13264.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "bootstrap",
    "bootstrap_interval",
    "interquartile_mean",
    "interval_of_iqm",
    "performance_profile",
    "probability_of_improvement",
    "variance_explained",
]

Array = NDArray[np.float64]


def interquartile_mean(scores: Array, axis: int = -1) -> Array:
    """Mean of the middle half of the scores: a quarter of their count, rounded down, is left out at either end.

    Arxiv 2108.13264, section 4.3. Of fewer than four scores it is the mean.

    Args:
        scores: at least one along `axis`.
        axis: of the runs.
    """
    count = scores.shape[axis]
    left_out = count // 4
    middle = np.take(np.sort(scores, axis=axis), range(left_out, count - left_out), axis=axis)
    return middle.mean(axis=axis)


def performance_profile(scores: Array, thresholds: Array) -> Array:
    """Share of the runs that score more than each threshold.

    Arxiv 2108.13264, equation 2 (run-score distribution).

    Args:
        scores: `[*, N]`.
        thresholds: `[M]`.

    Returns:
        `[*, M]`, in [0, 1].
    """
    return (scores[..., :, None] > thresholds).mean(axis=-2)


def probability_of_improvement(ours: Array, theirs: Array) -> Array:
    """Probability that a run of ours scores more than one of theirs; an equal score counts one half.

    Arxiv 2108.13264, section 4.3: the Mann-Whitney U statistic divided by the number of pairs.

    Args:
        ours: `[*, N]`.
        theirs: `[*, M]`.

    Returns:
        `[*]`, in [0, 1].
    """
    ours, theirs = ours[..., :, None], theirs[..., None, :]
    return ((ours > theirs) + 0.5 * (ours == theirs)).mean(axis=(-2, -1))


def bootstrap_interval(
    statistic: Callable[..., Array], *strata: Array, level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> tuple[Array, Array]:
    """Percentile interval of a statistic by the stratified bootstrap: runs are drawn again within each stratum.

    Arxiv 2108.13264, section 4.1. The same seed gives the same interval.

    Args:
        statistic: function of the resampled strata, `[resamples, N_k, *]` each; gives `[resamples, *]`.
        strata: scores `[N_k, *]` of the runs of a task, or of an algorithm.
        level: probability of the interval, in (0, 1).
        resamples: number of resampled data sets.
        seed: of the draws.

    Returns:
        Lower and upper end, `[*]` each.
    """
    values = bootstrap(statistic, *strata, resamples=resamples, seed=seed)
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return low, high


def bootstrap(statistic: Callable[..., Array], *strata: Array, resamples: int = 2000, seed: int = 0) -> Array:
    """A statistic of each resampled data set, `[resamples, *]`; arguments as of `bootstrap_interval`."""
    generator = np.random.default_rng(seed)
    drawn = [scores[generator.integers(len(scores), size=(resamples, len(scores)))] for scores in strata]
    return statistic(*drawn)


def interval_of_iqm(*strata: Array, resamples: int = 2000) -> tuple[Array, Array]:
    """95 % interval of the interquartile mean over the runs of all strata, `[N_k, *]` each."""
    return bootstrap_interval(
        lambda *drawn: interquartile_mean(np.concatenate(drawn, axis=1), axis=1), *strata, resamples=resamples
    )


def variance_explained(scores: Sequence[float], groups: Sequence[Hashable]) -> float | None:
    """Share of the scores' variance that their groups explain, corrected for what random groups would explain.

    Kelley 1935, ε² = (SS_between − (k − 1) · MS_within) / SS_total, at least 0.

    Args:
        scores: `[N]`.
        groups: the group of each score, such as a hyperparameter's value.

    Returns:
        In [0, 1]; `None` if it cannot be known: a single group, too few runs to tell groups from chance (fewer than
        two more than there are groups), or equal scores.
    """
    members: dict[Hashable, list[float]] = {}
    for score, group in zip(scores, groups, strict=True):
        members.setdefault(group, []).append(score)
    count, kinds = len(scores), len(members)
    if kinds < 2 or count < kinds + 2:
        return None
    total = float(np.sum((np.asarray(scores) - np.mean(scores)) ** 2))
    within = sum(float(np.sum((np.asarray(group) - np.mean(group)) ** 2)) for group in members.values())
    if total == 0.0:
        return None
    return max(0.0, (total - within - (kinds - 1) * within / (count - kinds)) / total)
