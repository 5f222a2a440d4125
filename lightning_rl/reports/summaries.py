"""The figures of an arm that verdicts, tables, baselines and comparisons share, and the verdicts in plain words."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from lightning_rl.callbacks.metric_names import ESTIMATORS, EVAL_RETURN
from lightning_rl.config.keys import value_at
from lightning_rl.reports.arms import ABSENT, Arm, Target, alike, arms_of, return_metric, target_of
from lightning_rl.reports.run_records import RunRecord
from lightning_rl.reports.statistics import (
    LEAST_FOR_INTERVAL,
    LEVEL,
    interquartile_mean,
    interval_of_iqm,
    lowest_p_value,
    p_value_of_greater,
    probability_of_improvement,
)

__all__ = [
    "Difference",
    "Interval",
    "Summary",
    "Task",
    "difference",
    "metric_words",
    "number",
    "optional",
    "outcome",
    "time_words",
    "too_few_words",
    "verdict",
]


T = TypeVar("T")


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
        metric: the metric of the scores.
        scores: the newest value of the metric in each run that counts.
        best: its highest value in each of them.
        failures: how many runs failed, or ended with a score that is not finite.
        target: the return that counts as solved; `None` if nothing says.
        solved_at: for each run that reached the target, env steps and seconds (`None`: not recorded).
    """

    arm: Arm
    metric: str
    scores: NDArray[np.float64]
    best: NDArray[np.float64]
    failures: int
    target: Target | None
    solved_at: Sequence[tuple[int, float | None]]

    @classmethod
    def of(cls, arm: Arm, metric: str) -> Summary:
        """The figures of an arm by a metric."""
        target = target_of(arm, metric)
        reached = [target.reached(run) for run in arm.counted] if target else []
        solved_at = [each for each in reached if each is not None]
        return cls(arm, metric, arm.scores(metric), arm.best(metric), arm.failures(metric), target, solved_at)

    @property
    def score(self) -> Interval | None:
        """The interquartile mean of the scores; `None` without a score."""
        return iqm(self.scores)

    @property
    def solved(self) -> bool:
        """Whether the interquartile mean of the scores is at least the target."""
        return self.target is not None and self.score is not None and self.score.middle >= self.target.value

    @property
    def clearly_solved(self) -> bool:
        """Whether its whole interval, or every score of too few for an interval, is at least the target."""
        if self.target is None or self.score is None:
            return False
        return bool((self.scores.min() if self.score.low is None else self.score.low) >= self.target.value)

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
        metric: the metric of all scores.
        summaries: the summaries of the arms, in the order of their runs.
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
        scored = [each for each in self.summaries if len(each.scores)]
        return sorted(scored, key=lambda each: -interquartile_mean(each.scores))


def iqm(scores: NDArray[np.float64]) -> Interval | None:
    """Interquartile mean of scores, and its interval if there are enough of them."""
    if not len(scores):
        return None
    middle = float(interquartile_mean(scores))
    if len(scores) < LEAST_FOR_INTERVAL:
        return Interval(middle)
    low, high = interval_of_iqm(scores)
    return Interval(middle, float(low), float(high))


# -- which is better ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Difference:
    """Whether the seeds of two arms show which is better.

    Attributes:
        chance: probability that a run of ours scores more than one of theirs.
        p_value: two-sided, of the exact Mann-Whitney U test; `None` without a test.
        better: the side that the test shows to be better; `None` if it shows neither, or there is none.
        words: the verdict, without a full stop.
    """

    chance: float
    p_value: float | None
    better: Literal["ours", "theirs"] | None
    words: str

    def chance_words(self, names: tuple[str, str]) -> str:
        """The probability in words."""
        test = "" if self.p_value is None else f" (p = {self.p_value:.2g}, Mann-Whitney U test)"
        return f"a run of {names[0]} scores more than one of {names[1]} with probability {self.chance:.0%}{test}"


def difference(ours: Summary, theirs: Summary, names: tuple[str, str], arms: int = 2) -> Difference | None:
    """Whether the seeds show which of two arms is better: the one rule for all verdicts on arms.

    Runs that failed cannot make an arm better: they count as the lowest scores of the arm that would be.

    Args:
        ours, theirs: the scores of one environment, by one metric.
        names: what the two are called in the text.
        arms: how many there are to choose the two from; `LEVEL` is for all their pairs together.

    Returns:
        `None` if one of them has no score.
    """
    if not len(ours.scores) or not len(theirs.scores):
        return None
    chance, level = float(probability_of_improvement(ours.scores, theirs.scores)), LEVEL / math.comb(arms, 2)
    counts = (len(ours.scores), len(theirs.scores))
    reasons = [
        *(f"no run of {name} is complete" for name, side in named(names, ours, theirs) if not side.arm.complete),
        *(f"runs of one seed are in {name} twice" for name, side in named(names, ours, theirs) if repeats(side.arm)),
        *([too_few_words(counts, names, arms)] if lowest_p_value(*counts) > level else []),
    ]
    if reasons:
        return Difference(chance, None, None, reasons[0])
    higher, lower = (2 * p_value_of_greater(with_failures(a), b.scores) for a, b in ((ours, theirs), (theirs, ours)))
    better = "ours" if higher <= level else "theirs" if lower <= level else None
    if better is None:
        words = f"{counts[0]} against {counts[1]} seeds do not show which is better"
    else:
        words = f"{names[better == 'theirs']} is better"
    failed = [f"{side.failures} of {name}" for name, side in named(names, ours, theirs) if side.failures]
    note = f"; failed runs ({', '.join(failed)}) count as the lowest of their side" if failed else ""
    return Difference(chance, min(1.0, higher, lower), better, words + note)


def named(names: tuple[str, str], *sides: Summary) -> list[tuple[str, Summary]]:
    return list(zip(names, sides, strict=True))


def with_failures(summary: Summary) -> NDArray[np.float64]:
    """The scores, and −∞ for each run that failed."""
    return np.concatenate([summary.scores, np.full(summary.failures, -np.inf)])


def too_few_words(counts: tuple[int, int], names: tuple[str, str], arms: int = 2) -> str:
    """Why that many seeds of two sides show nothing, and how many more would."""
    needed = list(counts)
    while lowest_p_value(*needed) > LEVEL / math.comb(arms, 2):
        needed[needed[1] < needed[0]] += 1
    more = [f"{n - count} more of {name}" for n, count, name in zip(needed, counts, names, strict=True) if n > count]
    among = f" among {arms} arms" if arms > 2 else ""
    seeds = f"{counts[0]} against {counts[1]} seed{'s' if max(counts) > 1 else ''}"
    return f"{seeds} cannot show a difference at {LEVEL:.0%}{among}: run {' and '.join(more)}"


# -- words -------------------------------------------------------------------------------------------------------------


def number(value: float) -> str:
    """A number with about four digits: "12,345", "498.2", "0.0123"."""
    size = abs(value)
    if size >= 1000:
        return f"{value:,.0f}"
    if size >= 100 or value == int(value):
        return f"{value:.1f}".removesuffix(".0")
    return f"{value:.2f}" if size >= 1 else f"{value:.3g}"


def time_words(seconds: float) -> str:
    """A duration: "0.4 s", "12 s", "3.5 min", "2.1 h"."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"


def optional(value: T | None, words: Callable[[T], str]) -> str:
    """A value in words; `ABSENT` for `None`."""
    return ABSENT if value is None else words(value)


def metric_words(summary: Summary) -> str:
    """What a score is, in words."""
    if summary.metric == EVAL_RETURN:
        episodes = value_at(summary.arm.config, "evaluation.episodes")
        return f"return of the last evaluation{f' ({episodes} episodes)' if episodes else ''}"
    estimator = ESTIMATORS.get(summary.metric.removeprefix("eval/"))
    return f"return by {estimator}" if estimator else "mean return of the last 100 training episodes"


def verdict(summary: Summary) -> str:
    """Whether an arm solved its task, its score, what it took, and which seeds are missing: a few short sentences."""
    sentence = outcome(summary).sentence
    if (score := summary.score) is None:
        return f"{sentence} {missing(summary.arm)}".strip()
    parts = [f"{sentence} {metric_words(summary).capitalize()}: {score_words(summary, score)}."]
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


def score_words(summary: Summary, score: Interval) -> str:
    """A score with the number of seeds behind it."""
    seeds = len(summary.scores)
    if seeds == 1:
        return f"{score}, one seed, so no interval"
    few = "" if seeds >= LEAST_FOR_INTERVAL else f", too few for an interval ({LEAST_FOR_INTERVAL} have one)"
    return f"interquartile mean {score} over {seeds} seeds{few}"


class Outcome(NamedTuple):
    """Whether an arm solved its task: in two words, as good, fair, bad or plain, and in a sentence."""

    badge: str
    kind: Literal["good", "fair", "bad", "plain"]
    sentence: str


def outcome(summary: Summary) -> Outcome:
    """Whether an arm solved its task."""
    target, score, seeds = summary.target, summary.score, len(summary.scores)
    if score is None:
        return Outcome("no return", "plain", "No return yet.")
    if target is None:
        return Outcome(f"return {number(score.middle)}", "plain", "No threshold is known.")
    what = f"{target.source} ({number(target.value)})"
    if target.metric != summary.metric:  # a stop rule of its own, such as a return of training
        met, of = len(summary.solved_at), len(summary.arm.counted)
        sentence = f"{'Reached' if met == of else 'Did not reach'} {what} in {target.metric}."
        if not summary.arm.complete:
            return Outcome("not complete", "plain", sentence)
        return Outcome("reached" if met == of else f"reached by {met}", "good" if met == of else "fair", sentence)
    if not summary.arm.complete:
        now = "now above" if summary.solved else "so far below"
        return Outcome("not complete", "plain", f"Not complete; {now} {what}.")
    if summary.clearly_solved:
        return Outcome("✓ solved", "good", f"Solved: above {what}.")
    if summary.solved:
        inside = "is inside the interval" if score.low is not None else "is above the lowest seed"
        return Outcome("✓ solved, just", "fair", f"Solved, but not by a clear margin: {what} {inside}.")
    if above := int((summary.scores >= target.value).sum()):
        sentence = f"Solved by {above} of {seeds} seeds only: they are above {what}."
        return Outcome(f"solved {above} of {seeds}", "fair", sentence)
    lost = f"Reached {what}, and lost it again." if summary.steps_to_target else f"Not solved: below {what}."
    return Outcome("✗ not solved", "bad", lost)


def repeated(arm: Arm) -> str:
    """The seeds of which several runs count, in words; "" if there are none."""
    named = ", ".join(f"{seed} ({count} runs)" for seed, count in repeats(arm).items())
    return f"Not independent: runs of seed {named}." if named else ""


def repeats(arm: Arm) -> dict[str, int]:
    """Seed → number of runs that count, of the seeds with several, as of a run and its copy."""
    counts = Counter(str(run.seed) for run in arm.counted if run.seed is not None)
    return {seed: count for seed, count in counts.items() if count > 1}


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
