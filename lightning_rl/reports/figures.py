"""Figures that `figures.svg.j2` draws: curves over seeds and intervals, with the scales and ticks of their axes.

Arm k has color k; from the ninth arm on, arms are not drawn in curves. Every number can be read in a tooltip.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lightning_rl.reports.arms import Band
from lightning_rl.reports.summaries import Interval, number, time_words

__all__ = ["COLORS", "Chart", "Curve", "Row", "curves_chart", "intervals_chart", "short_number", "ticks"]

Chart = dict[str, Any]

COLORS = 8
INSET = 2.0  # of figures without a y-axis
FAR = 0.6  # of the range of the values: a threshold that is further away is not drawn
WIDTH, HEIGHT = 480.0, 290.0
LEFT, RIGHT, TOP, BOTTOM = 60.0, 14.0, 12.0, 44.0
MOST_POINTS = 200  # of a line
TOOLTIPS = 24  # along a curve


@dataclass(frozen=True, slots=True)
class Curve:
    """A line of one run: x and y `[N]`, the tooltip, and how it ended: "" (complete), "failed" or "running"."""

    x: NDArray[np.float64]
    y: NDArray[np.float64]
    title: str
    end: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of an intervals chart: its color, its label, the interval, and single points."""

    color: int
    label: str
    interval: Interval
    dots: Sequence[tuple[float, str]] = ()


# -- axes --------------------------------------------------------------------------------------------------------------


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers within a range, at most `most`: multiples of 1, 2, 2.5 or 5 times a power of ten."""
    if not high > low:
        return [low]
    rough = (high - low) / max(1, most - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(size * power for size in (1, 2, 2.5, 5, 10) if size * power >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(place * step, 12) for place in range(first, last + 1)]


def short_number(value: float) -> str:
    """A number for an axis: "20k", "1.5M", "0.25", "−100"."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{unit}".replace("-", "−")
    return f"{value:.4g}".replace("-", "−")


def short_time(seconds: float) -> str:
    """A duration for an axis."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s" if seconds else "0"


def time_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round durations: multiples of seconds, minutes, hours or days."""
    unit = next((size for size in (86400.0, 3600.0, 60.0) if high >= 2 * size), 1.0)
    return [tick * unit for tick in ticks(low / unit, high / unit, most)]


@dataclass(frozen=True, slots=True)
class Scale:
    """Where values are along an axis: `low` at the pixel `start`, `high` at `end`."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """The pixel of a value."""
        return self.start + (self.end - self.start) * (value - self.low) / ((self.high - self.low) or 1.0)


def path(x: Scale, y: Scale, xs: NDArray[np.float64], ys: NDArray[np.float64]) -> str:
    """Points of a polyline."""
    return " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in zip(xs.tolist(), ys.tolist(), strict=True))


def thin(x: NDArray[Any], y: NDArray[Any], most: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """At most `most` points of a curve, the first and the last among them."""
    if len(x) <= most:
        return x, y
    kept = np.unique(np.linspace(0, len(x) - 1, most).round().astype(int))
    return x[kept], y[kept]


def far_from(threshold: float, values: Sequence[float]) -> bool:
    """Whether a threshold would press the values into a small part of the figure."""
    low, high = min(values), max(values)
    return max(threshold - high, low - threshold) > FAR * (high - low or abs(high) or 1.0)


def extent(values: Sequence[float], padding: float = 0.05) -> tuple[float, float]:
    """A range that holds the values, with some room."""
    low, high = min(values), max(values)
    room = padding * (high - low) or 0.5 * abs(high) or 1.0
    return low - room, high + room


# -- figures -----------------------------------------------------------------------------------------------------------


def curves_chart(
    arms: Sequence[tuple[str, Sequence[Curve], Band | None]],
    *,
    label: str,
    x_label: str,
    y_label: str,
    threshold: float | None = None,
    time_axis: bool = False,
    shares: bool = False,
    most_points: int = MOST_POINTS,
) -> Chart:
    """Curves of arms: each run thin, the interquartile mean thick, its interval as an area.

    Args:
        arms: label, runs and band of each arm; arm k has color k.
        label: the label of the figure, for readers who cannot see it.
        x_label: below the x-axis.
        y_label: the label of the y-axis.
        threshold: drawn as a dashed line.
        time_axis: x is in seconds.
        shares: y is a share, from 0 % to 100 %.
        most_points: the largest number of points of a run's line.
    """
    xs, ys = [] if shares else [0.0], []
    for _, curves, middle in arms:
        lines = [(curve.x, curve.y) for curve in curves]
        if middle is not None:
            lines += [(middle.x, edge) for edge in (middle.middle, middle.low, middle.high) if edge is not None]
        xs += [float(end) for x, _ in lines for end in (x.min(), x.max())]
        ys += [float(end) for _, y in lines for end in (y.min(), y.max())]
    if threshold is not None and far_from(threshold, ys):
        threshold = None
    ys += [] if threshold is None else [threshold]
    x = Scale(min(xs), max(xs), LEFT, WIDTH - RIGHT)
    y = Scale(*((0.0, 1.0) if shares else extent(ys)), HEIGHT - BOTTOM, TOP)
    x_ticks, x_text = (time_ticks, short_time) if time_axis else (ticks, short_number)
    y_text = "{:.0%}".format if shares else short_number

    def tooltip(name: str, at: float, numbers: Sequence[float]) -> str:
        middle, *ends = map("{:.0%}".format if shares else number, numbers)
        text = f"{name}: {middle}{f' [{ends[0]}, {ends[1]}]' if ends else ''}"
        if shares:
            return f"{text} of the runs above {number(at)}"
        return f"{text} at {time_words(at) if time_axis else f'{number(at)} {x_label}'}"

    drawn = []
    for color, (name, curves, middle) in enumerate(arms):
        tooltips = []
        if middle is not None:
            lines = [line for line in (middle.middle, middle.low, middle.high) if line is not None]
            for place in np.unique(np.linspace(0, len(middle.x) - 1, TOOLTIPS).round().astype(int)):
                at, numbers = float(middle.x[place]), [float(line[place]) for line in lines]
                tooltips.append((at, numbers[0], tooltip(name, at, numbers)))
        drawn.append({"color": color % COLORS, "curves": curves, "band": middle, "tooltips": tooltips})
    return {
        "label": label,
        "x_label": x_label,
        "y_label": y_label,
        "x": x,
        "y": y,
        "x_ticks": [(tick, x_text(tick)) for tick in x_ticks(x.low, x.high)],
        "y_ticks": [(tick, y_text(tick)) for tick in ticks(y.low, y.high)],
        "threshold": threshold,
        "arms": drawn,
        "most_points": most_points,
    }


def intervals_chart(
    rows: Sequence[Row],
    *,
    label: str,
    x_label: str,
    threshold: float | None = None,
    within: tuple[float, float] | None = None,
    show: Callable[[Interval], str] = str,
) -> Chart:
    """A row for each interval: its label and numbers, a bar from end to end, the middle, and dots of single runs.

    Args:
        rows: the rows from top to bottom.
        label: the label of the figure, for readers who cannot see it.
        x_label: below the x-axis.
        threshold: drawn as a dashed line.
        within: ends of the x-axis; `None`: those of the values.
        show: an interval in words.
    """
    values = [value for row in rows for value in (row.interval.middle, row.interval.low, row.interval.high)]
    known = [value for value in values if value is not None] + [dot for row in rows for dot, _ in row.dots]
    if threshold is not None and far_from(threshold, known):
        threshold = None
    known += [] if threshold is None else [threshold]
    x = Scale(*(within or extent(known)), INSET + 4, WIDTH - INSET - 4)
    chart = {"label": label, "x_label": x_label, "x": x, "threshold": threshold, "rows": rows, "show": show}
    return {**chart, "ticks": [(tick, short_number(tick)) for tick in ticks(x.low, x.high)]}
