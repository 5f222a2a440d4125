"""The statistics against slow independent loops, rliable's definitions, and values worked by hand."""

from __future__ import annotations

import itertools
import math
import statistics as plain

import numpy as np
import pytest

from lightning_rl.reports.statistics import (
    bootstrap_interval,
    interquartile_mean,
    interval_of_iqm,
    performance_profile,
    probability_of_improvement,
    variance_explained,
)

RANDOM = np.random.default_rng(7)


@pytest.mark.parametrize("count", range(1, 13))
def test_the_interquartile_mean_leaves_out_a_quarter_of_the_runs_at_either_end(count: int):
    scores = RANDOM.normal(size=count)
    ordered = sorted(float(score) for score in scores)
    out = math.floor(0.25 * count)
    kept = [score for place, score in enumerate(ordered) if out <= place < count - out]
    assert interquartile_mean(scores) == pytest.approx(sum(kept) / len(kept))


def test_the_interquartile_mean_by_hand():
    """Of 8 scores the two lowest and the two highest are left out: (3 + 4 + 5 + 6) / 4."""
    assert interquartile_mean(np.array([100.0, 3, 4, 1, 5, 6, -50, 7])) == 4.5
    assert interquartile_mean(np.array([1.0, 2.0, 9.0])) == 4.0


def test_the_interquartile_mean_goes_along_any_axis():
    scores = RANDOM.normal(size=(5, 3, 4))
    for axis in range(3):
        expected = np.apply_along_axis(interquartile_mean, axis, scores)
        np.testing.assert_allclose(interquartile_mean(scores, axis=axis), expected)


def test_a_performance_profile_counts_the_runs_above_each_threshold():
    scores, thresholds = RANDOM.integers(0, 5, 9).astype(float), np.array([-1.0, 0.0, 1.0, 2.5, 4.0])
    expected = [sum(1 for score in scores if score > threshold) / 9 for threshold in thresholds]
    np.testing.assert_allclose(performance_profile(scores, thresholds), expected)
    np.testing.assert_allclose(performance_profile(np.stack([scores, scores + 9]), thresholds)[0], expected)
    assert expected[0] == 1.0 and expected[-1] == 0.0


def test_the_probability_of_improvement_counts_pairs_and_halves_of_ties():
    ours, theirs = RANDOM.integers(0, 6, 7).astype(float), RANDOM.integers(0, 6, 5).astype(float)
    won = sum(1.0 if a > b else 0.5 if a == b else 0.0 for a, b in itertools.product(ours, theirs))
    assert probability_of_improvement(ours, theirs) == pytest.approx(won / 35)
    assert probability_of_improvement(theirs, ours) == pytest.approx(1 - won / 35)


def test_the_probability_of_improvement_is_mann_whitney_s_u_per_pair():
    stats = pytest.importorskip("scipy.stats")
    ours, theirs = RANDOM.normal(0.4, 1, 9), RANDOM.normal(size=6)
    expected = stats.mannwhitneyu(ours, theirs, alternative="greater").statistic / 54
    assert probability_of_improvement(ours, theirs) == pytest.approx(expected)


def test_the_bootstrap_of_two_scores_by_hand():
    """Two scores 0 and 1: resampled means are 0, ½, 1 with ¼, ½, ¼: the 95 % interval is all, the 40 % one a point."""
    low, high = interval_of_iqm(np.array([0.0, 1.0]))
    assert (low, high) == (0.0, 1.0)
    low, high = bootstrap_interval(lambda drawn: drawn.mean(axis=1), np.array([0.0, 1.0]), level=0.4)
    assert (low, high) == (0.5, 0.5)


def test_the_bootstrap_equals_a_slow_loop_with_python_s_own_draws():
    """Both draw at random: with 20,000 resamples their ends agree within a twentieth of the deviation."""
    import random

    tasks = [RANDOM.normal(task, 1.0, size=6) for task in range(2)]
    draw = random.Random(3)
    means = []
    for _ in range(20_000):
        drawn = sorted(score for task in tasks for score in draw.choices([float(score) for score in task], k=6))
        means.append(plain.fmean(drawn[3:9]))
    means.sort()
    low, high = interval_of_iqm(*tasks, resamples=20_000)
    assert float(low) == pytest.approx(means[500], abs=0.05)
    assert float(high) == pytest.approx(means[19_500], abs=0.05)


def test_the_bootstrap_draws_within_each_stratum():
    """A stratum of one run is in every resample: without strata, some would hold twice the 0 and no 100."""
    low, high = bootstrap_interval(
        lambda a, b: np.concatenate([a, b], axis=1).mean(axis=1), np.array([0.0]), np.array([100.0])
    )
    assert (low, high) == (50.0, 50.0)


def test_the_bootstrap_takes_curves_whole_and_repeats_itself():
    curves = RANDOM.normal(size=(5, 7))
    low, high = interval_of_iqm(curves)
    assert low.shape == high.shape == (7,) and np.all(low < high)
    np.testing.assert_array_equal(low, interval_of_iqm(curves)[0])


def test_variance_explained_by_hand():
    """Groups 1, 3 and 5, 7: mean 4, SS_total 20, SS_within 4, MS_within 2: (16 − 2) / 20."""
    assert variance_explained([1.0, 3.0, 5.0, 7.0], ["a", "a", "b", "b"]) == pytest.approx(0.7)


def test_variance_explained_says_nothing_where_it_cannot_know():
    assert variance_explained([1.0, 2.0, 3.0], ["a", "b", "b"]) is None  # one run more than there are groups
    assert variance_explained([1.0, 2.0, 3.0, 4.0], ["a"] * 4) is None
    assert variance_explained([2.0] * 4, ["a", "a", "b", "b"]) is None


def test_random_groups_explain_about_nothing():
    explained = [variance_explained(RANDOM.normal(size=12), list("abc") * 4) for _ in range(200)]
    assert np.mean([share for share in explained if share is not None]) < 0.12  # η² would be 2/11 = 0.18
