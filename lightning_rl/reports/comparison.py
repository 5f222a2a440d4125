"""Compares two runs, or two sets of runs over seeds: returns, speed, config, code, and where equal runs part."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lightning_rl.errors import ConfigError, printable
from lightning_rl.reports.arms import ABSENT, Arm, arms_of, differences, differing, return_metric, text_of
from lightning_rl.reports.run_records import RunRecord, read_runs
from lightning_rl.reports.summaries import (
    Difference,
    Interval,
    Summary,
    difference,
    metric_words,
    number,
    optional,
    time_words,
)
from lightning_rl.run_directory.config_file import leaves

__all__ = ["compare", "comparison_text"]

RECORDED = ("versions", "machine", "git")  # keys of a session
UNREPEATABLE = ("time/", "sys/")  # metrics that differ between two runs of the same program


def compare(ours: Path, theirs: Path) -> dict[str, Any]:
    """Compare the runs in two directories, as plain data.

    Raises:
        ConfigError: a directory has no runs with returns, or runs of more than one config.
    """
    arms = [arm_in(ours), arm_in(theirs)]
    metric = return_metric(arms)
    first, second = (Summary.of(arm, metric) for arm in arms)
    same_env = arms[0].runs[0].env == arms[1].runs[0].env
    found = difference(first, second, ("A", "B")) if same_env else None
    return {
        "metric": metric,
        "score": metric_words(first),
        "a": figures(ours, first),
        "b": figures(theirs, second),
        "probability_of_improvement": None if found is None else found.chance,
        "p_value": None if found is None else found.p_value,
        "better": None if found is None or found.better is None else {"ours": "a", "theirs": "b"}[found.better],
        "verdict": verdict_words(found, same_env),
        "config": differences([arm.config for arm in arms]),
        "provenance": provenance_differences(arms),
        "same_seeds": parting(arms),
    }


def arm_in(directory: Path) -> Arm:
    """The runs of a directory, which differ in the seed at most."""
    runs = read_runs([directory])
    arms = [arm for env in dict.fromkeys(run.env for run in runs) for arm in arms_of([r for r in runs if r.env == env])]
    if len(arms) > 1:
        named = ", ".join(f"{arm.label} ({arm.runs[0].directory})" for arm in arms[:4])
        raise ConfigError(
            f"{directory} holds runs of {len(arms)} configs: {named}; compare takes two runs, "
            f"or two directories of one config each; `lightning-rl report {shlex.quote(str(directory))}` compares all"
        )
    return arms[0]


def figures(directory: Path, summary: Summary) -> dict[str, Any]:
    """The figures of one side."""
    return {
        "directory": str(directory),
        "policy": summary.arm.runs[0].policy,
        "env": summary.arm.runs[0].env,
        "runs": len(summary.arm.runs),
        "counted": len(summary.scores),
        "score": None if summary.score is None else numbers(summary.score),
        "best": float(np.mean(summary.best)) if len(summary.best) else None,
        "target": None if summary.target is None else summary.target.value,
        "steps_to_target": summary.steps_to_target,
        "seconds_to_target": summary.seconds_to_target,
        "env_steps": summary.env_steps,
        "seconds": summary.seconds,
        "env_steps_per_second": summary.speed,
    }


def numbers(interval: Interval) -> list[float | None]:
    """Middle, lower and upper end."""
    return [interval.middle, interval.low, interval.high]


def provenance_differences(arms: Sequence[Arm]) -> dict[str, list[Any]]:
    """Versions, machine and commit that differ between the newest sessions of the first recorded run of each side."""
    found = [next((run.sessions[-1] for run in arm.runs if run.sessions), {}) for arm in arms]
    recorded = [{key: part for key in RECORDED if isinstance(part := session.get(key), Mapping)} for session in found]
    return differing([dict(leaves(parts)) for parts in recorded])


def parting(arms: Sequence[Arm]) -> list[dict[str, Any]]:
    """For runs of equal seeds: the first env steps at which a metric differs; `None` if all are equal.

    Times and memory are not compared.
    """
    theirs = {str(run.seed): run for run in arms[1].runs}
    pairs = [(run, theirs[str(run.seed)]) for run in arms[0].runs if run.seed is not None and str(run.seed) in theirs]
    found = []
    for one, other in pairs:
        if one.directory.resolve() != other.directory.resolve():
            steps, metric = first_difference(one, other)
            found.append({"seed": one.seed, "env_steps": steps, "metric": metric})
    return found


def first_difference(one: RunRecord, other: RunRecord) -> tuple[int | None, str | None]:
    """The first env steps at which two runs have different metrics, and one of these.

    Of evaluations, those that both runs made are compared: when one is postponed depends on the wall time.
    """
    places: list[tuple[int, str]] = []
    for metric in sorted({*one.curves, *other.curves}):
        if metric.startswith(UNREPEATABLE):
            continue
        mine, yours = (
            {} if s is None else dict(zip(s.steps.tolist(), s.values.tolist(), strict=True))
            for s in (one.curves.get(metric), other.curves.get(metric))
        )
        compared = mine.keys() & yours.keys() if metric.startswith("eval/") else {*mine, *yours}
        different = (step for step in sorted(compared) if not same(mine.get(step), yours.get(step)))
        step = next(different, None)
        if step is not None:
            places.append((step, metric))
    return min(places, default=(None, None))


def same(one: float | None, other: float | None) -> bool:
    """Whether two values are equal; NaN equals NaN."""
    return one == other or (one is not None and other is not None and one != one and other != other)


# -- words -------------------------------------------------------------------------------------------------------------


def comparison_text(found: Mapping[str, Any]) -> str:
    """A comparison for the terminal."""
    a, b = found["a"], found["b"]
    target = a["target"] if a["target"] == b["target"] else None
    threshold = "its threshold" if target is None else number(target)
    rows = [
        ("", "A", "B"),
        ("", *(f"{side['policy']} on {side['env']}" for side in (a, b))),
        ("runs that count", *(f"{side['counted']} of {side['runs']}" for side in (a, b))),
        (found["score"], *(words(side["score"]) for side in (a, b))),
        ("best during the run, mean", *(optional(side["best"], number) for side in (a, b))),
    ]
    if any(side["target"] is not None for side in (a, b)):
        rows += [
            (f"env steps to {threshold}", *(optional(side["steps_to_target"], number) for side in (a, b))),
            (f"time to {threshold}", *(optional(side["seconds_to_target"], time_words) for side in (a, b))),
        ]
    rows += [
        ("env steps", *(number(side["env_steps"]) for side in (a, b))),
        ("env steps/s", *(optional(side["env_steps_per_second"], number) for side in (a, b))),
        ("wall time", *(optional(side["seconds"], time_words) for side in (a, b))),
    ]
    lines = [f"A: {a['directory']}", f"B: {b['directory']}", "", *aligned(rows), "", found["verdict"]]
    if not found["config"]:  # else there is nothing to explain
        lines += [seed_words(each) for each in found["same_seeds"]]
    for name, title in (("config", "config"), ("provenance", "versions and machines")):
        pairs = [(f"  {key}", *(text_of(value) for value in values)) for key, values in found[name].items()]
        count = f"{len(pairs)} difference{'s' if len(pairs) > 1 else ''}" if pairs else "no difference"
        lines += ["", f"{title}: {count}", *aligned(pairs)]
    return "\n".join(map(printable, lines))


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns of text."""
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(3)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def words(interval: Sequence[float | None] | None) -> str:
    return ABSENT if interval is None or interval[0] is None else str(Interval(interval[0], *interval[1:]))


def verdict_words(found: Difference | None, same_env: bool) -> str:
    """Which side is better, in one line."""
    if not same_env:
        return "The environments differ, so the returns cannot be compared."
    if found is None:
        return "One side has no return yet."
    words = found.chance_words(("A", "B"))
    return f"{words[0].upper()}{words[1:]}: {found.words}."


def seed_words(parted: Mapping[str, Any]) -> str:
    """Where two runs of the same seed part."""
    if parted["env_steps"] is None:
        return f"Seed {parted['seed']}: all metrics are equal, times and memory apart."
    return f"Seed {parted['seed']}: the runs differ from env step {parted['env_steps']:,} on ({parted['metric']})."
