"""The statistics against slow independent loops, rliable's definitions, and values worked by hand."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest

from lightning_rl.intervals import confidence_interval
from lightning_rl.reports.statistics import (
    LEAST_FOR_INTERVAL,
    interquartile_mean,
    interval_of_iqm,
    lowest_p_value,
    p_value_of_greater,
    p_value_of_groups,
    performance_profile,
    probability_of_improvement,
    share_interval,
    variance_explained,
)
from tests.reports.run_files import DISTRIBUTIONS

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


def test_a_p_value_by_hand():
    """Of 6 ways to choose 2 ranks of 4, one has the sum 7 or more; 2 of 3 scores have the mid-rank 2.5."""
    assert p_value_of_greater(np.array([3.0, 4.0]), np.array([1.0, 2.0])) == pytest.approx(1 / 6)
    assert p_value_of_greater(np.array([1.0, 2.0]), np.array([3.0, 4.0])) == 1.0
    assert p_value_of_greater(np.array([2.0]), np.array([2.0, 1.0])) == pytest.approx(2 / 3)
    assert p_value_of_greater(np.full(6, 500.0), np.full(5, 500.0)) == 1.0


@pytest.mark.parametrize("ties", [False, True])
def test_a_p_value_counts_all_divisions_of_the_scores(ties: bool):
    ours, theirs = RANDOM.normal(0.5, 1, 4), RANDOM.normal(size=6)
    if ties:
        ours, theirs = ours.round(), theirs.round()
    pooled = np.concatenate([ours, theirs])
    chance = probability_of_improvement(ours, theirs)
    divisions = ((pooled[list(four)], np.delete(pooled, four)) for four in itertools.combinations(range(10), 4))
    as_high = [probability_of_improvement(*division) >= chance - 1e-9 for division in divisions]
    assert p_value_of_greater(ours, theirs) == pytest.approx(np.mean(as_high))


def test_the_lowest_p_values():
    """2 of C(4, 2) = 6, C(6, 3) = 20, C(8, 4) = 70 and C(7, 2) = 21 divisions."""
    found = [lowest_p_value(*counts) for counts in ((2, 2), (3, 3), (4, 4), (2, 5), (1, 1))]
    assert found == pytest.approx([2 / 6, 2 / 20, 2 / 70, 2 / 21, 1.0])
    assert 2 * p_value_of_greater(np.arange(3) + 9.0, np.arange(3.0)) == pytest.approx(lowest_p_value(3, 3))


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_intervals_of_the_interquartile_mean_cover_it(name: str):
    """In at least 92 % of 400 samples each, of 95 that are promised; a plain percentile interval of 5: 88 to 91 %."""
    draw: Callable[..., np.ndarray] = DISTRIBUTIONS[name]
    generator = np.random.default_rng(5)
    truth = interquartile_mean(draw(generator, 1_000_000))
    for count in (LEAST_FOR_INTERVAL, 10):
        low, high = interval_of_iqm(draw(generator, (count, 400)), resamples=1000)
        assert np.mean((low <= truth) & (truth <= high)) > 0.92


def test_intervals_of_shares_cover_them():
    """The share of successes of 5 and of 10 runs, averaged over their probability."""
    generator = np.random.default_rng(6)
    for count in (5, 10):
        truth = generator.random(4000)
        low, high = share_interval(generator.binomial(count, truth) / count, count)
        assert np.mean((low <= truth) & (truth <= high)) > 0.94 and low.min() >= 0.0 and high.max() <= 1.0 + 1e-12


def test_intervals_take_curves_whole_and_repeat_themselves():
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


def test_groups_that_chance_explains_as_well_have_a_high_p_value():
    """2 of 6 divisions into pairs are as far apart as 1, 2 and 8, 9; 2 of 20 divisions of 6 runs; 2 of 70 of 8."""
    scores = [1.0, 2.0, 8.0, 9.0]
    assert p_value_of_groups(scores, list("aabb")) == pytest.approx(2 / 6, abs=0.03)
    assert p_value_of_groups([1.0, 2.0, 3.0, 7.0, 8.0, 9.0], list("aaabbb")) == pytest.approx(0.1, abs=0.02)
    assert p_value_of_groups([*scores[:2], 3.0, 4.0, 6.0, 7.0, *scores[2:]], list("aaaabbbb")) < 0.05


def test_intervals_of_a_sweep_s_table_cover_as_rarely_as_the_table_says():
    """58, 48, 67 and 89 % with 2, 3, 5 and 10 seeds where one run in five fails; 95 % of normal scores."""
    generator = np.random.default_rng(7)
    for name, expected in (("one in five fails", (0.58, 0.48, 0.67, 0.89)), ("normal", (0.95, 0.95, 0.95, 0.95))):
        truth = DISTRIBUTIONS[name](generator, 1_000_000).mean()
        for count, share in zip((2, 3, 5, 10), expected, strict=True):
            draws = DISTRIBUTIONS[name](generator, (1000, count))
            intervals = [confidence_interval(scores.tolist()) for scores in draws]
            assert np.mean([low <= truth <= high for low, high in intervals]) == pytest.approx(share, abs=0.04)
