"""Axes with round numbers, and figures that hold what they are given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightning_rl.reports.arms import Band
from lightning_rl.reports.figures import (
    Curve,
    Row,
    curves_chart,
    intervals_chart,
    short_number,
    ticks,
)
from lightning_rl.reports.page import template
from lightning_rl.reports.summaries import Interval
from lightning_rl.reports.time_split import TimeSplit


def svg(figure: str, *values: Any) -> str:
    """A figure as the page shows it."""
    return str(getattr(template("figures.svg.j2").module, figure)(*values))


def chart_of(x: np.ndarray, values: np.ndarray, **options: Any) -> str:
    return svg(
        "curves", curves_chart([("a", [Curve(x, values, "")], None)], label="", x_label="", y_label="", **options)
    )


def test_ticks_are_round_numbers():
    assert ticks(0, 100_000) == pytest.approx([0, 20_000, 40_000, 60_000, 80_000, 100_000])
    assert ticks(-163, 7) == pytest.approx([-150, -100, -50, 0])
    assert ticks(0.0, 1.0) == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    assert ticks(5, 5) == [5]


@given(st.floats(-1e3, 1e3), st.floats(1e-6, 1e9))
def test_ticks_are_inside_the_range_evenly_spaced_and_few(place: float, width: float):
    low, high = place * width, (place + 1) * width
    found = ticks(low, high)
    assert 1 <= len(found) <= 6
    assert all(low - 1e-6 * width - 1e-9 <= tick <= high + 1e-6 * width + 1e-9 for tick in found)
    assert len({round(step / width, 4) for step in np.diff(found)}) <= 1


def test_numbers_on_axes_are_short():
    numbers = [0, 0.25, -100, 1500, 20_000, 2.5e6]
    assert [short_number(value) for value in numbers] == ["0", "0.25", "−100", "1.5k", "20k", "2.5M"]


def test_a_failed_run_ends_in_a_cross_a_running_one_in_a_ring_and_the_mean_has_tooltips():
    x = np.array([0.0, 1000.0])
    curves = [Curve(x, x, "run a: 1,000"), Curve(x, x, "run b", "failed"), Curve(x, x, "run c", "running")]
    middle = Band(x, x, x - 1, x + 1)
    labels = {"label": "l", "x_label": "env steps", "y_label": "return"}
    chart = svg("curves", curves_chart([("ours", curves, middle)], **labels, threshold=900.0))
    assert (chart.count('class="run'), chart.count('class="cross'), chart.count('class="ring')) == (3, 1, 1)
    assert (chart.count('class="band'), chart.count('class="mean')) == (1, 1)
    assert "<title>run a: 1,000</title>" in chart
    assert "<title>ours: 1,000 [999, 1,001] at 1,000 env steps</title>" in chart and "threshold 900" in chart


def test_a_threshold_far_from_all_values_does_not_press_them_together():
    x = np.array([0.0, 100.0])
    chart = chart_of(x, x, threshold=1000.0)
    assert "threshold" not in chart


def test_a_long_run_is_thinned_to_the_points_that_can_be_seen():
    x = np.arange(100_000.0)
    assert len(chart_of(x, x)) < 10_000


def test_constant_curves_and_single_points_are_drawn():
    for x in (np.array([5.0]), np.array([5.0, 6.0])):
        chart = chart_of(x, np.zeros(len(x)))
        assert "nan" not in chart and "inf" not in chart


def test_bars_and_intervals_say_their_numbers_and_escape_text():
    rows = [Row(0, "<a>", Interval(5.0, 4.0, 7.0), [(4.0, "seed 0")])]
    chart = svg("intervals", intervals_chart(rows, label='"&', x_label="score"))
    assert "&lt;a&gt;: 5 [4, 7]" in chart and "<title>seed 0</title>" in chart and 'aria-label="&#34;&amp;"' in chart
    assert "policy.lr: 83%" in svg("bars", [("policy.lr", 0.83)], "")
    split = svg("divided_bars", [("PPO", TimeSplit({"collect": 30.0, "learn": 90.0}, replays=False))], "")
    assert "<title>gradient steps: 90 s, 75%</title>" in split
    assert "learn 75%" in split and "a run took 2.0 min" in split
