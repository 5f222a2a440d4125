"""Arms: runs that differ in the seed only; their scores, curves over seeds, and what differs between them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lightning_rl.callbacks.metric_names import RETURNS, TRAIN_RETURN
from lightning_rl.config.keys import value_at
from lightning_rl.reports.run_records import RunRecord, Series
from lightning_rl.reports.statistics import (
    LEAST_FOR_INTERVAL,
    LEVEL,
    interquartile_mean,
    interval_of_iqm,
    p_value_of_groups,
    variance_explained,
)
from lightning_rl.run_directory.config_file import leaves, relocate

__all__ = [
    "ABSENT",
    "Arm",
    "Axis",
    "Band",
    "Importance",
    "Target",
    "alike",
    "arms_of",
    "band",
    "differences",
    "differing",
    "importance",
    "return_metric",
    "target_of",
    "values_of",
]

ABSENT = "—"
Axis = Literal["env_steps", "seconds"]
POINTS = 121  # of a curve over seeds
MOST_NUMBERS = 20_000_000  # in the resampled curves at one time
INCIDENTAL = ("run_dir", "logger.", "seed", "overrides", "trainer.enable_progress_bar", "report_every_env_steps")
TWICE = ("policy.model.", "policy.exploration.")  # a policy's copies of the sections of the same name
IN_LABELS = 3  # keys


@dataclass(frozen=True, slots=True)
class Arm:
    """Runs with the same config except for the seed.

    Attributes:
        label: what distinguishes the arm from the others, in a few words.
        runs: all of them.
    """

    label: str
    runs: Sequence[RunRecord]

    @property
    def counted(self) -> list[RunRecord]:
        """The runs with returns that statistics are about: the complete ones.

        If no run is complete, those that are running or were interrupted; else all.
        """
        ok = [run for run in self.runs if run.state == "ok"]
        unfinished = [run for run in self.runs if run.running or run.state == "interrupted"]
        return [run for run in ok or unfinished or self.runs if run.has_return]

    @property
    def config(self) -> Mapping[str, Any]:
        """The config of its first run that has one."""
        return next((run.config for run in self.runs if run.config), {})

    @property
    def complete(self) -> bool:
        """Whether its statistics are about complete runs."""
        return any(run.state == "ok" for run in self.runs)

    def newest(self, metric: str) -> list[tuple[RunRecord, float]]:
        """The runs that count, and have a metric whose newest value is finite, with that value."""
        found = ((run, run.curves[metric].last) for run in self.counted if metric in run.curves)
        return [(run, value) for run, value in found if math.isfinite(value)]

    def scores(self, metric: str) -> NDArray[np.float64]:
        """The newest value of a metric in each run that counts and has it, if it is finite."""
        return np.array([value for _, value in self.newest(metric)])

    def failures(self, metric: str) -> int:
        """How many runs failed, or ended with a value of a metric that is not finite."""
        ended = (run.curves[metric].last for run in self.runs if run.state == "ok" and metric in run.curves)
        failed = sum(run.failed for run in self.runs)
        return failed + sum(not math.isfinite(value) for value in ended)

    def best(self, metric: str) -> NDArray[np.float64]:
        """The highest value of a metric in each run that counts and has it."""
        found = (run.curve(metric) for run in self.counted)
        return np.array([series.values.max() for series in found if series is not None])


# -- runs to arms ------------------------------------------------------------------------------------------------------


def arms_of(runs: Sequence[RunRecord]) -> list[Arm]:
    """Group runs of one environment into arms, in the order of the runs; labels name what differs."""
    groups: dict[str, list[RunRecord]] = {}
    without: list[RunRecord] = []
    for run in runs:
        if run.config:
            groups.setdefault(json.dumps(values_of(run.config), sort_keys=True, default=str), []).append(run)
        else:
            without.append(run)
    for run in without:  # it failed before it wrote its config: the arm with the same overrides is its own
        same = (key for key, group in groups.items() if any(alike(run, each) for each in group))
        groups.setdefault(next(same, json.dumps({"overrides": unseeded(run.overrides)})), []).append(run)
    arms = [Arm("", group) for group in groups.values()]
    return [replace(arm, label=label) for arm, label in zip(arms, labels(arms), strict=True)]


def unseeded(overrides: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in overrides.items() if key != "seed"}


def alike(one: RunRecord, other: RunRecord) -> bool:
    """Whether two jobs of a sweep differ in the seed at most."""
    return bool(one.overrides) and unseeded(one.overrides) == unseeded(other.overrides)


def values_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted key → value of a config, without seeds, places of files, and what is in it twice."""
    if not config:
        return {}
    seed = config.get("seed")
    found = dict(leaves(relocate(config, Path("RUN_DIR")) if "run_dir" in config else config))
    return {
        key: value
        for key, value in found.items()
        if not key.startswith(INCIDENTAL)
        and not (key.rpartition(".")[2] == "seed" and value == seed)
        and not (key.startswith(TWICE) and found.get(key.partition(".")[2], ABSENT) == value)
    }


def differences(configs: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Dotted key → its value in each config, for keys whose values are not all equal; `ABSENT` where it is not."""
    return differing([values_of(config) for config in configs])


def differing(flat: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Key → its value in each mapping, for keys whose values are not all equal; `ABSENT` where it is not."""
    keys = dict.fromkeys(key for each in flat for key in each)
    rows = {key: [each.get(key, ABSENT) for each in flat] for key in keys}
    return {key: values for key, values in rows.items() if len({text_of(value) for value in values}) > 1}


def text_of(value: Any) -> str:
    """A value as in a YAML file, on one line."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def labels(arms: Sequence[Arm]) -> list[str]:
    """What distinguishes each arm: the policy's class if classes differ, then keys that differ within a class."""
    several = len({arm.runs[0].policy for arm in arms}) > 1
    found = []
    for arm in arms:
        policy = arm.runs[0].policy
        rivals = [each for each in arms if each.runs[0].policy == policy]
        keys = swept(rivals) or list(differences([each.config for each in rivals]))
        parts = [policy] if several or len(arms) == 1 else []
        overrides, values = arm.runs[0].overrides, values_of(arm.config)
        parts += [f"{key.removeprefix('policy.')}={short_value(values, overrides, key)}" for key in keys[:IN_LABELS]]
        if len(keys) > IN_LABELS:
            parts.append(f"+{len(keys) - IN_LABELS} keys")
        found.append(" ".join(parts) or arm.runs[0].name)
    return [
        f"{label} ({arms[index].runs[0].name})" if found.count(label) > 1 else label
        for index, label in enumerate(found)
    ]


def short_value(values: Mapping[str, Any], overrides: Mapping[str, str], key: str) -> str:
    text = text_of(values[key]) if key in values else overrides.get(key, ABSENT)
    return text if len(text) <= 24 else f"{text[:23]}…"


def swept(arms: Sequence[Arm]) -> list[str]:
    """Keys that a sweep gave several values, in the order in which they were typed, without `policy`."""
    jobs = [run.overrides for arm in arms for run in arm.runs]
    if len(arms) < 2 or not all(jobs):
        return []
    keys = dict.fromkeys(key for job in jobs for key in job if key not in ("seed", "policy"))
    return [key for key in keys if len({job.get(key) for job in jobs}) > 1]


# -- scores and curves -------------------------------------------------------------------------------------------------


def return_metric(arms: Sequence[Arm]) -> str:
    """The return that scores are about: the first of `RETURNS` that all runs that count have; else that of training."""
    counted = [run for arm in arms for run in arm.counted]
    return next((metric for metric in RETURNS if all(run.curve(metric) for run in counted)), TRAIN_RETURN)


@dataclass(frozen=True, slots=True)
class Target:
    """The return that counts as solved, where it is from, and the metric that has to reach it."""

    value: float
    source: str
    metric: str

    def reached(self, run: RunRecord) -> tuple[int, float | None] | None:
        """Env steps and seconds when a run reached it first; `None` if it has not.

        The mean over training episodes counts once it is one over `stop.min_episodes` of them.
        """
        series = run.curve(self.metric)
        if series is None:
            return None
        above = series.values >= self.value
        episodes = run.curve("rollout/episodes")
        if self.metric.startswith("rollout/") and episodes is not None:
            least = value_at(run.config, "stop.min_episodes") or 100
            above &= np.interp(series.steps, episodes.steps, episodes.values) >= least
        if not above.any():
            return None
        step = int(series.steps[np.argmax(above)])
        seconds = run.seconds_at(np.array([step]))
        return step, None if seconds is None else float(seconds[0])


def target_of(arm: Arm, metric: str) -> Target | None:
    """The target of an arm: `stop.return`, or the environment's own reward_threshold; `None` if there is none.

    Args:
        arm: an arm that has a config.
        metric: that the environment's threshold is compared with.
    """
    stop = value_at(arm.config, "stop.return")
    if isinstance(stop, int | float) and math.isfinite(stop):
        return Target(float(stop), "stop.return", str(value_at(arm.config, "stop.metric") or metric))
    if value_at(arm.config, "env.agents") is not None:
        return None  # returns are sums over the agents, and the environment's threshold is for one
    from gymnasium import registry  # a look-up: an id of the form "module:Name" would import the module

    spec = registry.get(arm.runs[0].env)
    if spec is None or spec.reward_threshold is None:
        return None
    return Target(float(spec.reward_threshold), "the environment's reward threshold", metric)


@dataclass(frozen=True, slots=True)
class Band:
    """The interquartile mean of curves over seeds: x and middle `[N]`, and its 95 % interval; `None` of few seeds."""

    x: NDArray[np.float64]
    middle: NDArray[np.float64]
    low: NDArray[np.float64] | None
    high: NDArray[np.float64] | None


def points(run: RunRecord, metric: str, axis: Axis) -> Series | None:
    """A run's curve with env steps or seconds as x; the steps of the result are then seconds."""
    series = run.curve(metric)
    if series is None or axis == "env_steps":
        return series
    seconds = run.seconds_at(series.steps)
    return None if seconds is None else Series(seconds, series.values)  # type: ignore[arg-type]


def band(arm: Arm, metric: str, axis: Axis) -> Band | None:
    """The curve of an arm: the interquartile mean over its runs that count, and its interval.

    It starts where all of them have values. A complete run keeps its last value; otherwise the curve ends where the
    first run ends.
    """
    curves = [curve for run in arm.counted if (curve := points(run, metric, axis)) is not None]
    if not curves:
        return None
    first = max(float(curve.steps[0]) for curve in curves)
    ends = [float(curve.steps[-1]) for curve in curves]
    last = max(ends) if arm.complete else min(ends)
    if last < first:
        return None
    x = np.linspace(first, last, POINTS) if last > first else np.array([first])
    values = np.stack([np.interp(x, curve.steps, curve.values) for curve in curves])
    low = high = None
    if len(curves) >= LEAST_FOR_INTERVAL:
        low, high = interval_of_iqm(values, resamples=max(50, min(1000, MOST_NUMBERS // values.size)))
    return Band(x, interquartile_mean(values, axis=0), low, high)


# -- which keys matter -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Importance:
    """Share of the scores' variance that keys explain; they change together, so nothing can tell them apart.

    Attributes:
        keys: dotted.
        share: in [0, 1]; `None`: the runs do not show at 5 % that it is more than chance.
    """

    keys: Sequence[str]
    share: float | None


def importance(arms: Sequence[Arm], metric: str) -> list[Importance]:
    """The share of the variance of the scores that each key explains, most first; seeds and chance make up the rest."""
    scores: list[float] = []
    owners: list[int] = []
    for index, arm in enumerate(arms):
        found = arm.scores(metric).tolist()
        scores += found
        owners += [index] * len(found)
    together: dict[tuple[int, ...], list[str]] = {}
    for key, values in differences([arm.config for arm in arms]).items():
        texts = [text_of(value) for value in values]
        together.setdefault(tuple(texts.index(text) for text in texts), []).append(key)
    found_shares = []
    for partition, keys in together.items():
        groups = [partition[owner] for owner in owners]
        shown = p_value_of_groups(scores, groups) <= LEVEL
        found_shares.append(Importance(keys, variance_explained(scores, groups) if shown else None))
    return sorted(found_shares, key=lambda each: -1.0 if each.share is None else each.share, reverse=True)
