"""The figures of an arm that verdicts, tables, baselines and comparisons share, and the verdicts in plain words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lightning_rl.callbacks.metric_names import EVAL_RETURN
from lightning_rl.config.keys import value_at
from lightning_rl.reports.arms import Arm, Target, alike, arms_of, return_metric, target_of
from lightning_rl.reports.run_records import RunRecord
from lightning_rl.reports.statistics import (
    bootstrap_interval,
    interquartile_mean,
    interval_of_iqm,
    probability_of_improvement,
)

__all__ = [
    "Interval",
    "Summary",
    "Task",
    "improvement",
    "metric_words",
    "number",
    "percent",
    "time_words",
    "verdict",
]


@dataclass(frozen=True, slots=True)
class Interval:
    """A number with the ends of its 95 % interval; `None` where there are too few runs for one."""

    middle: float
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return number(self.middle)
        return f"{number(self.middle)} [{number(self.low)}, {number(self.high)}]"


@dataclass(frozen=True, slots=True)
class Summary:
    """The figures of an arm.

    Attributes:
        arm: whose figures they are.
        metric: of the scores.
        scores: the newest value of the metric in each run that counts.
        best: its highest value in each of them.
        target: the return that counts as solved; `None` if nothing says.
        solved_at: for each run that reached the target, env steps and seconds (`None`: not recorded).
    """

    arm: Arm
    metric: str
    scores: NDArray[np.float64]
    best: NDArray[np.float64]
    target: Target | None
    solved_at: Sequence[tuple[int, float | None]]

    @classmethod
    def of(cls, arm: Arm, metric: str) -> Summary:
        """The figures of an arm by a metric."""
        target = target_of(arm, metric)
        reached = [target.reached(run) for run in arm.counted] if target else []
        return cls(
            arm, metric, arm.scores(metric), arm.best(metric), target, [each for each in reached if each is not None]
        )

    @property
    def score(self) -> Interval | None:
        """The interquartile mean of the scores; `None` without a score."""
        return iqm(self.scores)

    @property
    def solved(self) -> bool:
        """Whether the interquartile mean of the scores is at least the target."""
        return self.target is not None and self.score is not None and self.score.middle >= self.target.value

    @property
    def steps_to_target(self) -> float | None:
        """Median over the runs that count of the env steps after which they reached the target.

        A run that did not reach it counts as infinitely late; `None` if the median is.
        """
        return self._median([steps for steps, _ in self.solved_at])

    @property
    def seconds_to_target(self) -> float | None:
        """The same of the seconds."""
        known = [seconds for _, seconds in self.solved_at if seconds is not None]
        return self._median(known) if len(known) == len(self.solved_at) else None

    def _median(self, reached: Sequence[float]) -> float | None:
        late = [np.inf] * (len(self.arm.counted) - len(reached))
        middle = float(np.median([*reached, *late])) if reached else np.inf
        return middle if np.isfinite(middle) else None

    @property
    def env_steps(self) -> float:
        """Median of the env steps of the runs that count."""
        return float(np.median([run.env_steps for run in self.arm.counted])) if self.arm.counted else 0.0

    @property
    def seconds(self) -> float | None:
        """Median of their wall seconds."""
        known = [run.seconds for run in self.arm.counted if run.seconds is not None]
        return float(np.median(known)) if known else None

    @property
    def speed(self) -> float | None:
        """Env steps per second of wall time, evaluations included."""
        return self.env_steps / self.seconds if self.seconds else None


@dataclass(frozen=True, slots=True)
class Task:
    """The arms of one environment: only their returns can be compared.

    Attributes:
        env: the environment's id.
        metric: of all scores.
        summaries: of the arms, in the order of their runs.
    """

    env: str
    metric: str
    summaries: Sequence[Summary]

    @classmethod
    def all_of(cls, runs: Sequence[RunRecord]) -> list[Task]:
        """A task for each environment of the runs, in their order."""
        envs: dict[str, list[RunRecord]] = {}
        for run in runs:
            # A job that failed before it wrote its config belongs to those with the same overrides.
            known = (each.env for each in runs if each.config and alike(run, each))
            envs.setdefault(run.env if run.config else next(known, run.env), []).append(run)
        tasks = []
        for env, own in envs.items():
            arms = arms_of(own)
            metric = return_metric(arms)
            tasks.append(cls(env, metric, [Summary.of(arm, metric) for arm in arms]))
        return tasks

    @property
    def ranking(self) -> list[Summary]:
        """The arms that have scores, best first."""
        scored = [each for each in self.summaries if each.score is not None]
        return sorted(scored, key=lambda each: -interquartile_mean(each.scores))


def iqm(scores: NDArray[np.float64]) -> Interval | None:
    """Interquartile mean and interval of scores; the interval from two scores on."""
    if not len(scores):
        return None
    middle = float(interquartile_mean(scores))
    if len(scores) < 2:
        return Interval(middle)
    low, high = interval_of_iqm(scores)
    return Interval(middle, float(low), float(high))


def improvement(ours: Summary, theirs: Summary) -> Interval | None:
    """Probability that a run of one arm scores more than one of another; `None` if one of them has no score."""
    if not len(ours.scores) or not len(theirs.scores):
        return None
    middle = float(probability_of_improvement(ours.scores, theirs.scores))
    if min(len(ours.scores), len(theirs.scores)) < 2:
        return Interval(middle)
    low, high = bootstrap_interval(probability_of_improvement, ours.scores, theirs.scores)
    return Interval(middle, float(low), float(high))


# -- words -------------------------------------------------------------------------------------------------------------


def number(value: float) -> str:
    """A number with about four digits: "12,345", "498.2", "0.0123"."""
    size = abs(value)
    if size >= 1000:
        return f"{value:,.0f}"
    if size >= 100 or value == int(value):
        return f"{value:.1f}".removesuffix(".0")
    return f"{value:.2f}" if size >= 1 else f"{value:.3g}"


def percent(interval: Interval) -> str:
    """An interval of shares in percent."""
    if interval.low is None or interval.high is None:
        return f"{interval.middle:.0%}"
    return f"{interval.middle:.0%} [{interval.low:.0%}, {interval.high:.0%}]"


def time_words(seconds: float | None) -> str:
    """A duration: "0.4 s", "12 s", "3.5 min", "2.1 h"."""
    if seconds is None:
        return "unknown time"
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"


def metric_words(summary: Summary) -> str:
    """What a score is, in words."""
    if summary.metric == EVAL_RETURN:
        episodes = value_at(summary.arm.config, "evaluation.episodes")
        return f"return of the last evaluation{f' ({episodes} episodes)' if episodes else ''}"
    return "mean return of the last 100 training episodes"


def verdict(summary: Summary) -> str:
    """Whether an arm solved its task, its score, what it took, and which seeds are missing: a few short sentences."""
    if (score := summary.score) is None:
        return f"No return yet. {missing(summary.arm)}".strip()
    seeds = len(summary.scores)
    named = f"interquartile mean {score} over {seeds} seeds" if seeds > 1 else f"{score}, one seed, so no interval"
    parts = [f"{solved_words(summary)} {metric_words(summary).capitalize()}: {named}."]
    if summary.target is not None and summary.solved_at:
        reached, of = len(summary.solved_at), len(summary.arm.counted)
        who = "It" if of == 1 else f"{reached} of {of} seeds"
        steps = np.median([steps for steps, _ in summary.solved_at])
        known = [seconds for _, seconds in summary.solved_at if seconds is not None]
        times = f" and {time_words(float(np.median(known)))}" if known else ""
        median = " (median)" if reached > 1 else ""
        parts.append(
            f"{who} reached {number(summary.target.value)}, after {number(float(steps))} env steps{times}{median}."
        )
    return " ".join(filter(None, [*parts, repeated(summary.arm), missing(summary.arm)]))


def solved_words(summary: Summary) -> str:
    """The first sentence of a verdict."""
    target, score = summary.target, summary.score
    if target is None or score is None:
        return "No threshold is known."
    what = f"{target.source} ({number(target.value)})"
    if target.metric != summary.metric:  # a stop rule of its own, such as a return of training
        met = len(summary.solved_at) == len(summary.arm.counted)
        return f"{'Reached' if met else 'Did not reach'} {what} in {target.metric}."
    if not summary.arm.complete:
        return f"Not complete; {'now above' if summary.solved else 'so far below'} {what}."
    if not summary.solved:
        above = int((summary.scores >= target.value).sum())
        if above:
            return f"Solved by {above} of {len(summary.scores)} seeds only: they are above {what}."
        return f"Reached {what}, and lost it again." if summary.steps_to_target else f"Not solved: below {what}."
    if score.low is not None and score.low < target.value:
        return f"Solved, but not by a clear margin: {what} is inside the interval."
    return f"Solved: above {what}."


def repeated(arm: Arm) -> str:
    """The seeds of which several runs count, as of a run and its copy, in words; "" if there are none."""
    counts = Counter(str(run.seed) for run in arm.counted if run.seed is not None)
    named = ", ".join(f"{seed} ({count} runs)" for seed, count in counts.items() if count > 1)
    return f"Not independent, so the interval is too narrow: runs of seed {named}." if named else ""


def missing(arm: Arm) -> str:
    """The runs that are not complete, in words; "" if all are."""
    states: dict[str, list[str]] = {}
    for run in arm.runs:
        if run.state != "ok":
            states.setdefault(run.state, []).append(str(run.seed))
    if not states:
        return ""
    named = "; ".join(f"{state}: seed {', '.join(seeds)}" for state, seeds in states.items())
    note = "not in these figures" if arm.complete else "figures are of the newest values"
    return f"{named} ({note})."[0].upper() + f"{named} ({note})."[1:]
