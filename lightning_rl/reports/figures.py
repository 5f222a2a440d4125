"""Figures as inline SVG: curves over seeds, intervals, shares of time, bars. Colours are the page's CSS variables.

Arm k is drawn in the colour `--arm-k` (Okabe & Ito 2008, safe for colour-blind readers; light and dark variants in
`page.py`) and, from the ninth arm on, is not drawn in curves. Every number can be read in a tooltip.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lightning_rl.reports.arms import Band
from lightning_rl.reports.markup import Markup, element, join
from lightning_rl.reports.summaries import Interval, number, time_words

__all__ = ["COLOURS", "Curve", "Row", "bars", "curves_chart", "intervals_chart", "share_bars", "short_number", "ticks"]

COLOURS = 8
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
    """A row of an intervals chart: its colour, its label, the interval, and single points."""

    colour: int
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
class Axes:
    """The plot area, and where values are in it."""

    x_low: float
    x_high: float
    y_low: float
    y_high: float
    height: float = HEIGHT

    def x(self, value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (value - self.x_low) / ((self.x_high - self.x_low) or 1.0)

    def y(self, value: float) -> float:
        share = (value - self.y_low) / ((self.y_high - self.y_low) or 1.0)
        return self.height - BOTTOM - (self.height - TOP - BOTTOM) * share

    def path(self, x: NDArray[np.float64], y: NDArray[np.float64]) -> str:
        """Points of a polyline."""
        return " ".join(f"{self.x(a):.1f},{self.y(b):.1f}" for a, b in zip(x.tolist(), y.tolist(), strict=True))

    def frame(
        self, x_label: str, y_label: str, time_axis: bool = False, y_format: Callable[[float], str] = short_number
    ) -> Markup:
        """Grid, ticks and labels."""
        right, bottom = WIDTH - RIGHT, self.height - BOTTOM
        parts = []
        for tick in ticks(self.y_low, self.y_high):
            parts.append(element("line", x1=LEFT, x2=right, y1=self.y(tick), y2=self.y(tick), class_="grid"))
            parts.append(element("text", y_format(tick), x=LEFT - 6, y=self.y(tick) + 4, class_="tick end"))
        for tick in (time_ticks if time_axis else ticks)(self.x_low, self.x_high):
            x = self.x(tick)
            parts.append(element("line", x1=x, x2=x, y1=bottom, y2=bottom + 4, class_="axis"))
            text = short_time(tick) if time_axis else short_number(tick)
            anchor = " end" if x > right - 16 else ""
            parts.append(element("text", text, x=x, y=bottom + 17, class_=f"tick{anchor or ' middle'}"))
        parts.append(element("line", x1=LEFT, x2=right, y1=bottom, y2=bottom, class_="axis"))
        parts.append(element("text", x_label, x=(LEFT + right) / 2, y=self.height - 8, class_="label middle"))
        turned = f"rotate(-90 11 {(TOP + bottom) / 2:.0f})"
        parts.append(element("text", y_label, x=11, y=(TOP + bottom) / 2, class_="label middle", transform=turned))
        return join(*parts)


def svg(content: Markup, label: str, height: float = HEIGHT) -> Markup:
    """The figure's root; `label` says what it shows to readers who cannot see it."""
    return element(
        "svg", content, viewBox=f"0 0 {WIDTH:.0f} {height:.0f}", role="img", aria_label=label, class_="figure"
    )


def thin(x: NDArray[np.float64], y: NDArray[np.float64], most: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
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
) -> Markup:
    """Curves of arms: each run thin, the interquartile mean thick, its interval as an area.

    Args:
        arms: label, runs and band of each arm; arm k has colour k.
        label: of the figure, for readers who cannot see it.
        x_label: below the x-axis.
        y_label: beside the y-axis.
        threshold: drawn as a dashed line.
        time_axis: x is in seconds.
        shares: y is a share, from 0 % to 100 %.
        most_points: of a run's line.
    """
    xs: list[float] = [0.0]
    ys: list[float] = []
    for _, curves, middle in arms:
        lines = [(curve.x, curve.y) for curve in curves]
        lines += (
            [(middle.x, line) for line in (middle.middle, middle.low, middle.high) if line is not None]
            if middle
            else []
        )
        for x, y in lines:
            xs += [float(x.min()), float(x.max())]
            ys += [float(y.min()), float(y.max())]
    if threshold is not None and far_from(threshold, ys):
        threshold = None
    ys += [] if threshold is None else [threshold]
    x_low, x_high = (min(xs[1:]), max(xs[1:])) if shares else (min(xs), max(xs))
    axes = Axes(x_low, x_high, *((0.0, 1.0) if shares else extent(ys)))
    layers: list[list[Markup]] = [[], [], [], []]  # areas below lines below means below tooltips
    for colour, (name, curves, middle) in enumerate(arms):
        css = f"arm-{colour % COLOURS}"
        layers[1] += [run_line(axes, curve, css, most_points) for curve in curves]
        if middle is None:
            continue
        if middle.low is not None and middle.high is not None:
            edge = f"{axes.path(middle.x, middle.high)} {axes.path(middle.x[::-1], middle.low[::-1])}"
            layers[0].append(element("polygon", points=edge, class_=f"band {css}"))
        layers[2].append(element("polyline", points=axes.path(middle.x, middle.middle), class_=f"mean {css}"))
        layers[3] += tooltips(axes, middle, f"{name}: ", x_label, time_axis, shares)
    line = text = None
    if threshold is not None:
        y = axes.y(threshold)
        line = element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, class_="threshold")
        text = element("text", f"threshold {number(threshold)}", x=LEFT + 5, y=y - 4, class_="tick limit")
    frame = axes.frame(x_label, y_label, time_axis, (lambda share: f"{share:.0%}") if shares else short_number)
    return svg(join(frame, line, *(part for layer in layers for part in layer), text), label)


def run_line(axes: Axes, curve: Curve, css: str, most_points: int) -> Markup:
    """The thin line of a run; a cross ends it if it failed, a ring if it is running."""
    x, y = thin(curve.x, curve.y, most_points)
    line = element(
        "polyline", element("title", curve.title), points=axes.path(x, y), class_=f"run {css} {curve.end}".rstrip()
    )
    at_x, at_y = axes.x(float(x[-1])), axes.y(float(y[-1]))
    if curve.end == "failed":
        d = f"M{at_x - 4:.1f} {at_y - 4:.1f}l8 8m0 -8l-8 8"
        return join(line, element("path", element("title", curve.title), d=d, class_=f"cross {css}"))
    if curve.end == "running":
        ring = element("circle", element("title", curve.title), cx=at_x, cy=at_y, r=3.5, class_=f"ring {css}")
        return join(line, ring)
    return line


def tooltips(axes: Axes, middle: Band, name: str, x_label: str, time_axis: bool, shares: bool) -> list[Markup]:
    """Invisible circles along a curve whose titles are its numbers."""
    show = (lambda value: f"{value:.0%}") if shares else number
    found = []
    for place in np.unique(np.linspace(0, len(middle.x) - 1, TOOLTIPS).round().astype(int)):
        x, y = float(middle.x[place]), float(middle.middle[place])
        text = show(y)
        if middle.low is not None and middle.high is not None:
            text += f" [{show(float(middle.low[place]))}, {show(float(middle.high[place]))}]"
        where = time_words(x) if time_axis else f"{number(x)} {x_label}" if not shares else f"above {number(x)}"
        title = element("title", f"{name}{text} at {where}" if not shares else f"{name}{text} of the runs {where}")
        found.append(element("circle", title, cx=axes.x(x), cy=axes.y(y), r=7, class_="hover"))
    return found


def intervals_chart(
    rows: Sequence[Row],
    *,
    label: str,
    x_label: str,
    threshold: float | None = None,
    within: tuple[float, float] | None = None,
    show: Callable[[Interval], str] = str,
) -> Markup:
    """A row for each interval: its label and numbers, a bar from end to end, the middle, and dots of single runs.

    Args:
        rows: from top to bottom.
        label: of the figure, for readers who cannot see it.
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
    low, high = within or extent(known)
    height, bottom = TOP + 42 * len(rows) + 40, TOP + 42 * len(rows) + 4
    span = WIDTH - 2 * INSET - 8

    def at(value: float) -> float:
        return INSET + 4 + span * (value - low) / (high - low)

    parts = []
    for tick in ticks(low, high):
        parts.append(element("line", x1=at(tick), x2=at(tick), y1=TOP, y2=bottom, class_="grid"))
        anchor = "end" if at(tick) > WIDTH - 30 else "start" if at(tick) < 30 else "middle"
        parts.append(element("text", short_number(tick), x=at(tick), y=bottom + 15, class_=f"tick {anchor}"))
    if threshold is not None:
        parts.append(element("line", x1=at(threshold), x2=at(threshold), y1=TOP, y2=bottom, class_="threshold"))
    for place, row in enumerate(rows):
        y, css = TOP + 42 * place + 30, f"arm-{row.colour % COLOURS}"
        interval = row.interval
        name = row.label if len(row.label) <= 42 else f"{row.label[:41]}…"
        parts.append(element("text", name, x=INSET, y=y - 14, class_="row"))
        parts.append(element("text", show(interval), x=WIDTH - INSET, y=y - 14, class_="row end"))
        if interval.low is not None and interval.high is not None:
            left = at(interval.low)
            title = element("title", f"{row.label}: {show(interval)}")
            bar = element("rect", title, x=left, y=y - 5, width=max(1.0, at(interval.high) - left), height=10, rx=3)
            parts.append(element("g", bar, class_=f"bar {css}"))
        for dot, title in row.dots:
            parts.append(element("circle", element("title", title), cx=at(dot), cy=y, r=3, class_=f"dot {css}"))
        middle = at(interval.middle)
        parts.append(element("line", x1=middle, x2=middle, y1=y - 8, y2=y + 8, class_=f"middle-mark {css}"))
    parts.append(element("text", x_label, x=WIDTH / 2, y=height - 6, class_="label middle"))
    return svg(join(*parts), label, height)


def share_bars(rows: Sequence[tuple[str, dict[str, float]]], *, label: str, words: dict[str, str]) -> Markup:
    """A bar of seconds for each row, divided into parts.

    Args:
        rows: label, and part → seconds.
        label: of the figure, for readers who cannot see it.
        words: part → what it is, for tooltips; parts have the CSS class `part-NAME`.
    """
    height, span, parts = 46.0 * len(rows) + 4, WIDTH - 2 * INSET, []
    for place, (name, seconds) in enumerate(rows):
        y, x, total = 46.0 * place + 20, INSET, sum(seconds.values())
        parts.append(element("text", name, x=INSET, y=y - 6, class_="row"))
        parts.append(element("text", f"a run took {time_words(total)}", x=WIDTH - INSET, y=y - 6, class_="row end"))
        for part, amount in seconds.items():
            width = span * amount / total
            title = element("title", f"{words[part]}: {time_words(amount)}, {amount / total:.0%}")
            parts.append(element("rect", title, x=x, y=y, width=width, height=20, class_=f"part-{part}"))
            if width > 60:
                text = f"{part} {amount / total:.0%}"
                parts.append(element("text", text, x=x + width / 2, y=y + 14, class_=f"in-part in-{part} middle"))
            x += width
    return svg(join(*parts), label, height)


def bars(rows: Sequence[tuple[str, float]], *, label: str) -> Markup:
    """A bar for each share in [0, 1], with its label above."""
    height, span, parts = 36.0 * len(rows) + 4, WIDTH - 2 * INSET, []
    for place, (name, share) in enumerate(rows):
        y = 36.0 * place + 20
        title = element("title", f"{name}: {share:.0%}")
        parts.append(element("text", name if len(name) <= 58 else f"{name[:57]}…", x=INSET, y=y - 5, class_="row"))
        parts.append(element("text", f"{share:.0%}", x=WIDTH - INSET, y=y - 5, class_="row end"))
        parts.append(element("rect", x=INSET, y=y, width=span, height=8, rx=3, class_="empty"))
        parts.append(
            element("rect", title, x=INSET, y=y, width=max(1.0, span * share), height=8, rx=3, class_="arm-0 fill")
        )
    return svg(join(*parts), label, height)
