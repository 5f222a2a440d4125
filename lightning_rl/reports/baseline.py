"""Baselines: the scores of runs that were good, as a small JSON file, and the test that new runs are no worse."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lightning_rl.errors import ConfigError
from lightning_rl.reports.statistics import LEVEL, lowest_p_value, p_value_of_greater
from lightning_rl.reports.summaries import Summary, Task, iqm, number, too_few_words
from lightning_rl.run_directory.atomic import save_text
from lightning_rl.run_directory.process_identity import now
from lightning_rl.version import __version__

__all__ = ["check_against", "read_baseline", "save_baseline"]

FORMAT = "lightning_rl baseline 1"
MOST_BYTES = 2**20
LEAST_SEEDS = 4  # against as many new ones they can show a difference
MARGIN = 0.02  # share of the baseline's score that new scores may be lower


def save_baseline(file: Path, tasks: Sequence[Task]) -> None:
    """Write the scores of all arms.

    Raises:
        ConfigError: an arm has too few complete runs to be compared with as many new ones.
        SaveError: the file could not be written.
    """
    arms = []
    for task in tasks:
        for summary in task.summaries:
            score = summary.score
            if not summary.arm.complete or score is None or len(summary.scores) < LEAST_SEEDS:
                raise ConfigError(
                    f"{summary.arm.label} has {len(summary.scores)} complete runs; a baseline needs at least "
                    f"{LEAST_SEEDS}, better 5: train more seeds, as in `lightning-rl train -m seed=0,1,2,3,4 …`"
                )
            arms.append(
                {
                    "env": task.env,
                    "arm": summary.arm.label,
                    "metric": task.metric,
                    "scores": summary.scores.tolist(),
                    "iqm": score.middle,
                }
            )
    content = {"format": FORMAT, "at": now(), "lightning_rl": __version__, "arms": arms}
    save_text(file, f"{json.dumps(content, indent=1)}\n")


def read_baseline(file: Path) -> list[dict[str, Any]]:
    """The arms of a baseline file.

    Raises:
        ConfigError: there is no such file, or it is not a baseline; names what is wrong with it.
    """
    try:
        if file.stat().st_size > MOST_BYTES:
            raise ValueError(f"it has more than {MOST_BYTES} bytes")
        content = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise ValueError(f"its format is not {FORMAT!r}")
        for arm in content["arms"]:
            if not all(isinstance(arm[key], str) for key in ("env", "arm", "metric")):
                raise ValueError("an arm has no name")
            scores = np.asarray(arm["scores"], float)
            if scores.ndim != 1 or not len(scores) or not np.isfinite(scores).all():
                raise ValueError(f"scores of {arm['arm']} are not numbers")
    except (OSError, KeyError, TypeError, RecursionError, ValueError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else getattr(error, "strerror", None) or error
        raise ConfigError(f"{file} is not a baseline ({reason}): write one with --save-baseline {file}") from error
    return content["arms"]


def check_against(
    baseline: Sequence[Mapping[str, Any]], tasks: Sequence[Task], margin: float = MARGIN
) -> list[tuple[bool, str]]:
    """For each arm of a baseline: whether the new runs are no worse, and a line of explanation.

    New scores are worse if the exact two-sided Mann-Whitney U test shows at 5 % that they are lower than the baseline's
    less a margin: the rule of `summaries.difference`. An arm without a complete
    run, and one with runs that failed, is worse as well. An arm of the baseline is compared with the new arm of the
    same environment and label; if there is one arm of an environment on either side, their labels may differ.

    Args:
        baseline: the result of `read_baseline`.
        tasks: the tasks of the new runs.
        margin: share of the baseline's interquartile mean, at least 0.

    Raises:
        ConfigError: an arm has too few seeds, old or new, for any scores to be a regression; says how many more.
    """
    return [check_arm(old, summary_for(old, baseline, tasks), margin) for old in baseline]


def summary_for(old: Mapping[str, Any], baseline: Sequence[Mapping[str, Any]], tasks: Sequence[Task]) -> Summary | None:
    """The new arm that is compared with one of the baseline."""
    ours = [summary for task in tasks if task.env == old["env"] for summary in task.summaries]
    if len(ours) == 1 == sum(each["env"] == old["env"] for each in baseline):
        return ours[0]
    return next((summary for summary in ours if summary.arm.label == old["arm"]), None)


def check_arm(old: Mapping[str, Any], summary: Summary | None, margin: float) -> tuple[bool, str]:
    """Whether one arm is no worse than the baseline's, and a line of explanation."""
    named = f"{old['env']}, {old['arm']}"
    if summary is None:
        return False, f"{named}: no new runs of this arm"
    scores = summary.arm.scores(old["metric"])
    failed = [run.name for run in summary.arm.runs if run.failed]
    if failed:
        return False, f"{named}: {', '.join(failed)} failed"
    if not summary.arm.complete or not len(scores):
        return False, f"{named}: no complete run with {old['metric']}"
    earlier = np.asarray(old["scores"], float)
    before, after, counts = iqm(earlier), iqm(scores), (len(earlier), len(scores))
    assert before is not None and after is not None
    if lowest_p_value(*counts) > LEVEL:
        raise ConfigError(f"{named}: {too_few_words(counts, ('the baseline', 'the new runs'))}")
    limit = margin * abs(before.middle)
    p_value = min(1.0, 2 * p_value_of_greater(earlier - limit, scores))
    line = f"{named}: {after} against {before}; lower by more than {number(limit)}: p = {p_value:.2g}"
    return p_value > LEVEL, line
