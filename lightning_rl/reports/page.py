"""The page: what `report.html.j2` shows, one HTML file without scripts and requests, gathered as plain data."""

from __future__ import annotations

import base64
import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from lightning_rl.callbacks.metric_names import ESTIMATORS, EVAL_RETURN, TRAIN_RETURN
from lightning_rl.reports import figures
from lightning_rl.reports.arms import ABSENT, Axis, Band, band, differences, importance, points, text_of
from lightning_rl.reports.figures import Chart, Curve, Row, curves_chart, intervals_chart, thin
from lightning_rl.reports.health import Level, findings
from lightning_rl.reports.run_records import RunRecord
from lightning_rl.reports.statistics import LEAST_FOR_INTERVAL, LEVEL, performance_profile, share_interval
from lightning_rl.reports.summaries import (
    Difference,
    Interval,
    Summary,
    Task,
    difference,
    metric_words,
    number,
    optional,
    outcome,
    time_words,
    verdict,
)
from lightning_rl.reports.time_split import PARTS, TimeSplit, advice_on, time_split
from lightning_rl.run_directory.atomic import save_text
from lightning_rl.run_directory.process_identity import now
from lightning_rl.run_directory.regular_files import is_regular
from lightning_rl.version import __version__

__all__ = ["REPORT_FILE", "page", "template", "write_page"]

REPORT_FILE = "report.html"
MOST_POINTS = 40_000  # of all runs' lines in a chart: a line of a run has about 12 bytes per point
MOST_DATA_ROWS = 8_000  # of the CSV that is embedded, about 60 bytes each
COLUMNS = ("env", "arm", "run", "seed", "env_steps", "seconds")
CURVES = {TRAIN_RETURN: "train_return", EVAL_RETURN: "eval_return", **{f"eval/{name}": name for name in ESTIMATORS}}
MOST_ROWS_OPEN = 12  # of a table of config keys that is not folded
PICTURES = {".png": "image/png", ".gif": "image/gif", ".jpg": "image/jpeg", ".webp": "image/webp", ".mp4": "video/mp4"}
MOST_PICTURE_BYTES = 700_000  # of all of them
ICONS: Mapping[Level, tuple[str, str]] = {"ok": ("●", "good"), "watch": ("▲", "fair"), "trouble": ("■", "bad")}


def write_page(directories: Sequence[Path], tasks: Sequence[Task], out: Path | None = None) -> Path:
    """Write the report.

    Args:
        directories: that it is about.
        tasks: the tasks of all runs in them.
        out: the file; `None`: report.html in the directory, or in the working directory if there are several.

    Returns:
        The file's path.

    Raises:
        SaveError: the file could not be written.
    """
    file = out or (directories[0] / REPORT_FILE if len(directories) == 1 else Path(REPORT_FILE))
    save_text(file, page(tasks, ", ".join(map(str, directories))))
    return file


def page(tasks: Sequence[Task], source: str) -> str:
    """The report as HTML.

    Args:
        tasks: the tasks of all runs.
        source: the directories that it is about, for the first lines.
    """
    runs = [run for task in tasks for summary in task.summaries for run in summary.arm.runs]
    states = [run.state for run in runs]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    number_of_runs = f"{len(runs)} run{'s' if len(runs) > 1 else ''} ({counts})"
    return template("report.html.j2").render(
        heading=report_title(tasks),
        about=" · ".join([number_of_runs, source, moment(now()), f"lightning_rl {__version__}"]),
        several=len(tasks) > 1,
        tasks=[task_data(task) for task in tasks],
        arms=[(arm_data(task, summary), summary.arm.runs) for task in tasks for summary in task.summaries],
        **provenance(runs),
        data=curves_data(tasks),
    )


def template(name: str) -> Template:
    """A template of this package."""
    environment = Environment(
        loader=PackageLoader("lightning_rl", "reports"),
        autoescape=True,
        finalize=lambda value: f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else value,
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters.update(duration=time_words, number=number, percent="{:.0%}".format, text=text_of)
    environment.globals.update(
        ABSENT=ABSENT,
        EVAL_RETURN=EVAL_RETURN,
        ICONS=ICONS,
        LEAST_FOR_INTERVAL=LEAST_FOR_INTERVAL,
        LEVEL=LEVEL,
        MOST_ROWS_OPEN=MOST_ROWS_OPEN,
        PARTS=PARTS,
        TRAIN_RETURN=TRAIN_RETURN,
        advice_on=advice_on,
        figures=figures,
    )
    environment.policies["truncate.leeway"] = 0
    return environment.get_template(name)


def report_title(tasks: Sequence[Task]) -> str:
    """What the report is about: "PPO and A2C on CartPole-v1"."""
    policies = dict.fromkeys(summary.arm.runs[0].policy for task in tasks for summary in task.summaries)
    envs = dict.fromkeys(task.env for task in tasks)
    return f"{listed(list(policies))} on {listed(list(envs))}"


def listed(words: Sequence[str]) -> str:
    """Words with commas and "and"."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


# -- the arms of an environment ----------------------------------------------------------------------------------------


def task_data(task: Task) -> dict[str, Any]:
    """What the page says about the arms of an environment; sections without content are `None` or empty."""
    drawn = drawn_arms(task)
    unscored = [summary for summary in task.summaries if summary.score is None]
    curves = [
        run_curves(task, TRAIN_RETURN, "env_steps", "Return of training, by env steps"),
        run_curves(task, TRAIN_RETURN, "seconds", "Return of training, by wall time"),
        run_curves(task, EVAL_RETURN, "env_steps", "Return of evaluations, by env steps"),
        *(
            run_curves(task, f"eval/{name}", "env_steps", f"Return by {estimator}, by env steps")
            for name, estimator in ESTIMATORS.items()
        ),
    ]
    return {
        "env": task.env,
        "headline": best_words(task),
        "verdicts": [(each.arm.label, outcome(each), verdict(each)) for each in [*task.ranking, *unscored]],
        "least_seeds": min((len(summary.scores) for summary in task.ranking), default=0),
        "arms": [arm_data(task, summary) for summary in task.summaries],
        "drawn": [arm_data(task, summary) for summary in drawn],
        "curves": [chart for chart in curves if chart is not None],
        "scores": scores(task),
        "comparison": comparison(task) if len(task.ranking) > 1 else None,
        "times": times(task),
        "lights": findings([summary.arm.runs for summary in task.summaries]),
        "config": differences([summary.arm.config for summary in task.summaries]),
        "pictures": list(episode_pictures(task)),
    }


def drawn_arms(task: Task) -> list[Summary]:
    """The arms that have a color: all, or those with the highest scores."""
    return list(task.summaries) if len(task.summaries) <= figures.COLORS else task.ranking[: figures.COLORS]


def arm_data(task: Task, summary: Summary) -> dict[str, Any]:
    """An arm's label and color; `None` for an arm that is not drawn, and for a single one."""
    drawn = drawn_arms(task)
    color = drawn.index(summary) if summary in drawn and len(task.summaries) > 1 else None
    return {"label": summary.arm.label, "color": color}


def best_words(task: Task) -> str | None:
    """Which arm scores highest, and whether the seeds show that it is better; `None` for a single arm."""
    if len(task.ranking) < 2:
        return None
    best, second = task.ranking[:2]
    names = best.arm.label, second.arm.label
    found = against(best, second, task)
    if found.better == "ours":
        return f"{names[0]} is best: {found.chance_words(names)}."
    return f"{names[0]} scores highest, but {found.words}; {found.chance_words(names)}."


def against(best: Summary, other: Summary, task: Task) -> Difference:
    """Whether the seeds show that an arm is better than another one, among all arms of a task that have scores."""
    found = difference(best, other, (best.arm.label, other.arm.label), len(task.ranking))
    assert found is not None  # the arms of a ranking have scores
    return found


def run_curves(task: Task, metric: str, axis: Axis, title: str) -> Chart | None:
    """The curves of a metric of all arms that are drawn; `None` if it has fewer than two points."""
    drawn = drawn_arms(task)
    runs = sum(len(summary.arm.runs) for summary in drawn)
    arms: list[tuple[str, list[Curve], Band | None]] = []
    for summary in drawn:
        found = [(run, series) for run in summary.arm.runs if (series := points(run, metric, axis)) is not None]
        curves = []
        for run, series in found:
            words = f"{summary.arm.label}, {run.name}, seed {run.seed}: {number(series.last)} ({run.state})"
            end = "failed" if run.failed else "running" if run.running else ""
            curves.append(Curve(np.asarray(series.steps, float), series.values, words, end))
        arms.append((summary.arm.label, curves, band(summary.arm, metric, axis)))
    if max((len(curve.x) for _, curves, _ in arms for curve in curves), default=0) < 2:
        return None
    chart = curves_chart(
        arms,
        label=f"{title}: {', '.join(label for label, *_ in arms)}",
        x_label="env steps" if axis == "env_steps" else "wall time",
        y_label="return",
        threshold=threshold_of(drawn),
        time_axis=axis == "seconds",
        most_points=max(20, min(200, MOST_POINTS // max(1, runs))),
    )
    return {"title": title, **chart}


def threshold_of(summaries: Sequence[Summary]) -> float | None:
    """The return that counts as solved; `None` if no arm has one."""
    return next((summary.target.value for summary in summaries if summary.target), None)


def scores(task: Task) -> dict[str, Any]:
    """The figures of each arm, without columns that no arm has a figure for; with charts for several arms."""
    rows = [
        {
            "seeds": f"{len(summary.scores)} of {len(summary.arm.runs)}",
            "score": optional(summary.score, str),
            "best": number(float(np.mean(summary.best))) if len(summary.best) else ABSENT,
            "env steps to threshold": optional(summary.steps_to_target, number),
            "time to threshold": optional(summary.seconds_to_target, time_words),
            "env steps/s": optional(summary.speed, number),
            "time": optional(summary.seconds, time_words),
        }
        for summary in task.summaries
    ]
    always = ("seeds", "score", "best")
    chart = None
    if len(task.ranking) > 1:
        bars = [
            Row(place, summary.arm.label, score, dots(summary))
            for place, summary in enumerate(drawn_arms(task))
            if (score := summary.score) is not None
        ]
        what, threshold = metric_words(task.ranking[0]), threshold_of(task.summaries)
        chart = intervals_chart(bars, label="Scores with intervals", x_label=what, threshold=threshold)
    return {
        "words": metric_words(task.summaries[0]),
        "head": [name for name in rows[0] if name in always or any(row[name] != ABSENT for row in rows)],
        "rows": rows,
        "chart": chart,
        "profile": performance_profiles(task),
    }


def dots(summary: Summary) -> list[tuple[float, str]]:
    """The score of each run, with a title."""
    newest = summary.arm.newest(summary.metric)
    return [(value, f"{run.name}, seed {run.seed}: {number(value)}") for run, value in newest]


def performance_profiles(task: Task) -> Chart | None:
    """The share of each arm's runs above every score; `None` if fewer than two arms are drawn or all scores agree."""
    drawn = drawn_arms(task)
    scored = [summary.scores for summary in drawn if len(summary.scores)]
    if len(scored) < 2 or np.ptp(every := np.concatenate(scored)) == 0:
        return None
    thresholds = np.linspace(every.min() - 0.02 * np.ptp(every), every.max(), 121)
    arms: list[tuple[str, list[Curve], Band | None]] = []
    for summary in drawn:
        profile = None
        if len(summary.scores):
            middle = performance_profile(summary.scores, thresholds)
            profile = Band(thresholds, middle, *share_interval(middle, len(summary.scores)))
        arms.append((summary.arm.label, [], profile))
    return curves_chart(arms, label="Performance profiles", x_label="score τ", y_label="runs above τ", shares=True)


def comparison(task: Task) -> dict[str, Any]:
    """The probability that a run of the best arm scores more than one of each other arm; the swept keys' importance."""
    best, drawn = task.ranking[0], drawn_arms(task)
    rows, words = [], []
    for summary in task.ranking[1:]:
        if summary in drawn:
            found = against(best, summary, task)
            label = f"{best.arm.label} > {summary.arm.label}"
            rows.append(Row(drawn.index(summary), label, Interval(found.chance)))
            words.append(f"{found.chance_words((best.arm.label, summary.arm.label))}: {found.words}.")
    chart = intervals_chart(
        rows,
        label="Probabilities of improvement",
        x_label="probability that a run of the first scores more",
        threshold=0.5,
        within=(0.0, 1.0),
        show=lambda interval: f"{interval.middle:.0%}",
    )
    shares = importance([summary.arm for summary in task.summaries], task.metric)
    return {
        "chart": chart,
        "words": words,
        "shares": [(key_words(each.keys), each.share) for each in shares if each.share is not None][:8],
        "unknown": ", ".join(key_words(each.keys) for each in shares if each.share is None),
    }


def key_words(keys: Sequence[str]) -> str:
    """Keys that change together, the policy's class first."""
    first = "policy._target_" if "policy._target_" in keys else keys[0]
    others = len(keys) - 1
    name = "policy" if first == "policy._target_" else first
    return f"{name} (with {others} keys that change with it)" if others else name


def times(task: Task) -> list[tuple[str, TimeSplit]]:
    """The label and time split of each arm that is drawn and has recorded its time."""
    splits = ((each.arm.label, time_split(each.arm.counted)) for each in drawn_arms(task))
    return [(label, split) for label, split in splits if split is not None]


def episode_pictures(task: Task) -> Iterator[dict[str, Any]]:
    """Pictures of episodes in the run directories' videos/, as many as there is room for."""
    room = MOST_PICTURE_BYTES
    for summary in task.summaries:
        for run in summary.arm.runs:
            for file in sorted((run.directory / "videos").glob("*")):
                kind = PICTURES.get(file.suffix.lower())
                if kind is None or not is_regular(file, run.directory) or (size := file.stat().st_size) > room:
                    continue
                room -= size
                yield {
                    "source": f"data:{kind};base64,{base64.b64encode(file.read_bytes()).decode()}",
                    "is_video": kind.startswith("video"),
                    "caption": f"{summary.arm.label}, seed {run.seed}: {file.stem.replace('_', ' ')}",
                }


# -- all runs ----------------------------------------------------------------------------------------------------------


def provenance(runs: Sequence[RunRecord]) -> dict[str, Any]:
    """How the runs were started, with which code, on which machine."""
    recorded = [run for run in runs if run.sessions]
    seeds = [", ".join(str(run.seed) for run in runs)]
    if not recorded:
        directories = [", ".join(str(run.directory) for run in runs)]
        return {"commands": [], "origins": {"directories": directories, "seeds": seeds}}
    first = [run.sessions[0] for run in recorded]
    newest = [run.sessions[-1] for run in recorded]
    moments = sorted(moment(at) for session in first if (at := session.get("at")))
    resumed = [f"{run.name} ({len(run.sessions) - 1} ×)" for run in recorded if len(run.sessions) > 1]
    origins = {
        "seeds": seeds,
        "started": [" … ".join(dict.fromkeys([moments[0], moments[-1]]))] if moments else [],
        "resumed": [", ".join(resumed)] if resumed else [],
        "working directory": unique(session.get("directory") for session in first),
        "code": unique(git_words(session.get("git")) for session in newest),
        "versions": unique(mapping_words(session.get("versions")) for session in newest),
        "machine": unique(mapping_words(session.get("machine")) for session in newest),
    }
    return {"commands": list(dict.fromkeys(str(session.get("command", "")) for session in first)), "origins": origins}


def unique(values: Any) -> list[str]:
    """Different values in their order, at most a few."""
    found = list(dict.fromkeys(str(value) for value in values if value))
    return found if len(found) <= 4 else [*found[:3], f"… and {len(found) - 3} more"]


def moment(at: Any) -> str:
    """A time that `now` gave, to the minute."""
    return f"{str(at)[:16].replace('T', ' ')} UTC"


def git_words(git: Any) -> str:
    """A commit in words."""
    if not isinstance(git, Mapping):
        return ""
    return f"git commit {git.get('commit')}{', with uncommitted changes' if git.get('changed') else ''}"


def mapping_words(mapping: Any) -> str:
    """A mapping's entries in one line."""
    if not isinstance(mapping, Mapping):
        return ""
    return " · ".join(f"{name} {value}" for name, value in mapping.items() if value is not None)


def curves_data(tasks: Sequence[Task]) -> dict[str, Any]:
    """The curves as a CSV file that the page holds."""
    text = curves_csv(tasks)
    encoded = base64.b64encode(text.encode()).decode()
    rows = f"{text.count(chr(10)) - 1:,}"
    columns = text.partition("\n")[0].replace(",", ", ")
    return {"source": f"data:text/csv;base64,{encoded}", "rows": rows, "columns": columns}


def curves_csv(tasks: Sequence[Task]) -> str:
    """The returns of all runs: a row for each point, thinned evenly to a number of rows that a page can hold."""
    runs = [(task, summary.arm, run) for task in tasks for summary in task.summaries for run in summary.arm.runs]
    most = max(10, MOST_DATA_ROWS // max(1, len(runs)))
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    metrics = [metric for metric in CURVES if any(run.curve(metric) for *_, run in runs)]
    writer.writerow([*COLUMNS, *(CURVES[metric] for metric in metrics)])
    for task, arm, run in runs:
        write_curves(writer, (task.env, arm.label, run.name, run.seed), run, metrics, most)
    return text.getvalue()


def write_curves(writer: Any, owner: tuple[Any, ...], run: RunRecord, metrics: Sequence[str], most: int) -> None:
    """The rows of a run; every evaluation is among them as long as there are fewer than `most`."""
    found: dict[int, list[str]] = {}
    for column, metric in enumerate(metrics):
        if (series := run.curve(metric)) is not None:
            steps, values = thin(series.steps, series.values, most)
            for step, value in zip(steps.tolist(), values.tolist(), strict=True):
                found.setdefault(step, [""] * len(metrics))[column] = f"{value:.6g}"
    ordered = sorted(found)
    seconds = run.seconds_at(np.array(ordered))
    times = [""] * len(ordered) if seconds is None else [f"{second:.2f}" for second in seconds.tolist()]
    writer.writerows([*owner, step, time, *found[step]] for step, time in zip(ordered, times, strict=True))
