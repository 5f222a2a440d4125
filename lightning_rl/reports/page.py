"""The page: one HTML file without scripts and requests, light and dark, on screens from 360 pixels and on paper."""

from __future__ import annotations

import base64
import csv
import io
import math
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from lightning_rl.callbacks.metric_names import EVAL_RETURN, TRAIN_RETURN
from lightning_rl.errors import SaveError
from lightning_rl.reports.arms import (
    ABSENT,
    Band,
    band,
    differences,
    importance,
    points,
    text_of,
)
from lightning_rl.reports.figures import COLOURS, Curve, Row, bars, curves_chart, intervals_chart, share_bars
from lightning_rl.reports.health import Finding, Level, Reading, findings
from lightning_rl.reports.markup import Markup, element, join
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
    time_words,
    verdict,
)
from lightning_rl.reports.time_split import PARTS, TimeSplit, advice_on, time_split
from lightning_rl.run_directory.atomic import write_atomically
from lightning_rl.run_directory.process_identity import now
from lightning_rl.run_directory.regular_files import is_regular
from lightning_rl.version import __version__

__all__ = ["REPORT_FILE", "page", "write_page"]

REPORT_FILE = "report.html"
# Browsers refuse whatever is not in the file.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; media-src data:"
ICON = "data:,"  # none; otherwise browsers ask a server for one
MOST_POINTS = 40_000  # of all runs' lines in a chart: a line of a run has about 12 bytes per point
MOST_DATA_ROWS = 8_000  # of the CSV that is embedded, about 60 bytes each
COLUMNS = ("env", "arm", "run", "seed", "env_steps", "seconds", "train_return", "eval_return")
MOST_ROWS_OPEN = 12  # of a table of config keys that is not folded
PICTURES = {".png": "image/png", ".gif": "image/gif", ".jpg": "image/jpeg", ".webp": "image/webp", ".mp4": "video/mp4"}
MOST_PICTURE_BYTES = 700_000  # of all of them
ICONS: Mapping[Level, tuple[str, str]] = {"ok": ("●", "good"), "watch": ("▲", "fair"), "trouble": ("■", "bad")}


def report_title(tasks: Sequence[Task]) -> str:
    """What the report is about: "PPO and A2C on CartPole-v1"."""
    policies = dict.fromkeys(summary.arm.runs[0].policy for task in tasks for summary in task.summaries)
    envs = dict.fromkeys(task.env for task in tasks)
    return f"{listed(list(policies))} on {listed(list(envs))}"


def listed(words: Sequence[str]) -> str:
    """Words with commas and "and"."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def write_page(directories: Sequence[Path], tasks: Sequence[Task], out: Path | None = None) -> Path:
    """Write the report.

    Args:
        directories: that it is about.
        tasks: of all runs in them.
        out: the file; `None`: report.html in the directory, or in the working directory if there are several.

    Returns:
        The file's path.

    Raises:
        SaveError: the file could not be written.
    """
    file = out or (directories[0] / REPORT_FILE if len(directories) == 1 else Path(REPORT_FILE))
    try:
        write_atomically(file, page(tasks, ", ".join(map(str, directories))).encode())
    except OSError as error:
        raise SaveError(f"{file} could not be written: {error.strerror or error}") from error
    return file


def page(tasks: Sequence[Task], source: str) -> str:
    """The report as HTML.

    Args:
        tasks: of all runs.
        source: the directories that it is about, for the first lines.
    """
    title = report_title(tasks)
    runs = [run for task in tasks for summary in task.summaries for run in summary.arm.runs]
    states = {state: sum(run.state == state for run in runs) for state in dict.fromkeys(run.state for run in runs)}
    counts = ", ".join(f"{count} {state}" for state, count in states.items())
    number_of_runs = f"{len(runs)} run{'s' if len(runs) > 1 else ''} ({counts})"
    about = " · ".join([number_of_runs, source, moment(now()), f"lightning_rl {__version__}"])
    body = element(
        "main",
        element("h1", title),
        element("div", about, class_="soft"),
        *(task_verdict(task, len(tasks) > 1) for task in tasks),
        *(task_sections(task, len(tasks) > 1) for task in tasks),
        section("Runs", runs_table(tasks)),
        section("Where it comes from", provenance(runs)),
        section("Data", data_link(tasks)),
    )
    style = files("lightning_rl.reports").joinpath("page.css").read_text(encoding="utf-8")
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", f"{title}: report"),
        element("link", rel="icon", href=ICON),
        element("style", Markup(style)),
    )
    return f"<!doctype html>\n{element('html', head, element('body', body), lang='en')}\n"


def section(title: str, *content: str | None) -> Markup:
    """A heading with what belongs to it."""
    return element("section", element("h2", title), *content)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[int] = (), css: str = "") -> Markup:
    """A table that scrolls sideways on narrow screens; the columns `numeric` are aligned at the right."""

    def line(cells: Sequence[str], kind: str) -> Markup:
        styles = ("number" if index in numeric else None for index in range(len(cells)))
        return element("tr", *(element(kind, cell, class_=style) for cell, style in zip(cells, styles, strict=True)))

    body = element("tbody", *(line(row, "td") for row in rows))
    return element(
        "div", element("table", element("thead", line(head, "th")), body, class_=css or None), class_="scroll"
    )


# -- verdict -----------------------------------------------------------------------------------------------------------


def drawn(task: Task) -> list[Summary]:
    """The arms that have a colour: all, or those with the highest scores."""
    return list(task.summaries) if len(task.summaries) <= COLOURS else task.ranking[:COLOURS]


def key(label: str, colour: int | None, *, square: bool = False) -> Markup:
    """A label with the colour of its arm."""
    css = "key" if colour is None else f"key arm-{colour}"
    mark = None if colour is None else element("i", class_="square" if square else None)
    return element("span", mark, element("span", label), class_=css)


def arm_key(task: Task, summary: Summary) -> Markup:
    """An arm's label with its colour."""
    shown = drawn(task)
    return key(summary.arm.label, shown.index(summary) if summary in shown and len(task.summaries) > 1 else None)


def badge(summary: Summary) -> Markup:
    """Solved or not, in two words."""
    score, target = summary.score, summary.target
    if score is None:
        return element("span", "no return", class_="badge plain")
    if target is None:
        return element("span", f"return {number(score.middle)}", class_="badge plain")
    if not summary.arm.complete:
        return element("span", "not complete", class_="badge plain")
    if target.metric != summary.metric:
        met = len(summary.solved_at)
        good = met == len(summary.arm.counted)
        return element("span", "reached" if good else f"reached by {met}", class_=f"badge {'good' if good else 'fair'}")
    above = int((summary.scores >= target.value).sum())
    if summary.solved:
        clear = summary.clearly_solved
        return element("span", "✓ solved" if clear else "✓ solved, just", class_=f"badge {'good' if clear else 'fair'}")
    if above:
        return element("span", f"solved {above} of {len(summary.scores)}", class_="badge fair")
    return element("span", "✗ not solved", class_="badge bad")


def task_verdict(task: Task, several: bool) -> Markup:
    """The verdict on each arm of an environment, below a headline if there are several arms."""
    items = []
    for summary in task.ranking + [each for each in task.summaries if each.score is None]:
        name = element("b", f"{summary.arm.label}. ") if len(task.summaries) > 1 else None
        items.append(element("li", badge(summary), element("span", name, verdict(summary))))
    headline = best_words(task)
    least = min((len(summary.scores) for summary in task.ranking), default=0)
    note = None
    if 1 < least < LEAST_FOR_INTERVAL:
        note = f"An interval of {least} seeds would miss too often, so there is none; five to ten seeds tell more."
    return element(
        "div",
        element("h3", task.env) if several else None,
        element("p", headline, class_="headline") if headline else None,
        element("ul", *items),
        element("p", note, class_="note") if note else None,
        class_="verdict",
    )


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


# -- a task's sections -------------------------------------------------------------------------------------------------


def task_sections(task: Task, several: bool) -> Markup:
    """Curves, scores, comparison, time, health and config of the arms of an environment."""
    of = f": {task.env}" if several else ""
    parts = [section(f"Learning curves{of}", learning_curves(task)), section(f"Scores{of}", scores(task))]
    if len(task.ranking) > 1:
        parts.append(section(f"Which is better{of}", comparison(task)))
    if (split := time_section(task)) is not None:
        parts.append(section(f"Time{of}", split))
    if lights := findings([summary.arm.runs for summary in task.summaries]):
        parts.append(section(f"Health{of}", health_section(task, lights)))
    if len(task.summaries) > 1:
        parts.append(section(f"What differs{of}", config_section(task)))
    if pictures := episode_pictures(task):
        parts.append(section(f"Evaluation episodes{of}", pictures))
    return join(*parts)


def legend(task: Task) -> Markup | None:
    """The colours of the arms; `None` for a single arm."""
    shown = drawn(task)
    if len(task.summaries) < 2:
        return None
    more = len(task.summaries) - len(shown)
    note = element("span", f"and {more} arms with lower scores, in the tables", class_="soft") if more else None
    return element("div", *(key(each.arm.label, place) for place, each in enumerate(shown)), note, class_="legend")


def figure(title: str, picture: Markup, caption: str | None = None) -> Markup:
    """A picture with its title and a caption."""
    return element("figure", element("b", title), picture, element("figcaption", caption) if caption else None)


def learning_curves(task: Task) -> Markup:
    """Returns of training by env steps and by wall time, and of evaluations if there are enough for a curve."""
    charts = [
        curve_figure(task, TRAIN_RETURN, "env_steps", "Return of training, by env steps"),
        curve_figure(task, TRAIN_RETURN, "seconds", "Return of training, by wall time"),
        curve_figure(task, EVAL_RETURN, "env_steps", "Return of evaluations, by env steps"),
    ]
    note = (
        "Thin: a run. Thick: the interquartile mean of the complete runs; shaded: its 95 % interval by the bootstrap "
        f"over seeds, from {LEAST_FOR_INTERVAL} seeds on. A run that ended earlier than others keeps its last value. "
        "Dashed, with a cross: it failed; with a ring: it is running."
    )
    return join(legend(task), element("div", *charts, class_="grid"), element("p", note, class_="note"))


def curve_figure(task: Task, metric: str, axis: Any, title: str) -> Markup | None:
    """A chart of a metric of all arms that are drawn; `None` if it has fewer than two points."""
    shown = drawn(task)
    runs = sum(len(summary.arm.runs) for summary in shown)
    arms: list[tuple[str, list[Curve], Band | None]] = []
    longest = 0
    for summary in shown:
        curves = []
        for run in summary.arm.runs:
            series = points(run, metric, axis)
            if series is None:
                continue
            longest = max(longest, len(series.values))
            words = f"{summary.arm.label}, {run.name}, seed {run.seed}: {number(series.last)} ({run.state})"
            end = "failed" if run.state in ("failed", "dead") else "running" if run.running else ""
            curves.append(Curve(np.asarray(series.steps, float), series.values, words, end))
        arms.append((summary.arm.label, curves, band(summary.arm, metric, axis)))
    if longest < 2:
        return None
    target = next((summary.target for summary in shown if summary.target), None)
    chart = curves_chart(
        arms,
        label=f"{title}: {', '.join(label for label, *_ in arms)}",
        x_label="env steps" if axis == "env_steps" else "wall time",
        y_label="return",
        threshold=None if target is None else target.value,
        time_axis=axis == "seconds",
        most_points=max(20, min(200, MOST_POINTS // max(1, runs))),
    )
    return figure(title, chart)


def scores(task: Task) -> Markup:
    """The figures of each arm."""
    names = ["arm", "seeds", "score", "best", "env steps to threshold", "time to threshold", "env steps/s", "time"]
    rows = []
    for summary in task.summaries:
        reached = summary.steps_to_target
        rows.append(
            [
                arm_key(task, summary),
                f"{len(summary.scores)} of {len(summary.arm.runs)}",
                str(summary.score or ABSENT),
                number(float(np.mean(summary.best))) if len(summary.best) else ABSENT,
                ABSENT if reached is None else number(reached),
                ABSENT
                if reached is None or summary.seconds_to_target is None
                else time_words(summary.seconds_to_target),
                ABSENT if summary.speed is None else number(summary.speed),
                ABSENT if summary.seconds is None else time_words(summary.seconds),
            ]
        )
    kept = [index for index in range(len(names)) if index < 4 or any(row[index] != ABSENT for row in rows)]
    cells = [[row[index] for index in kept] for row in rows]
    target = next((summary.target for summary in task.summaries if summary.target), None)
    chart = None
    if len(task.ranking) > 1:
        drawn_rows = [
            Row(place, summary.arm.label, summary.score, dots(summary))
            for place, summary in enumerate(drawn(task))
            if summary.score is not None
        ]
        what = metric_words(task.ranking[0])
        limit = None if target is None else target.value
        picture = intervals_chart(drawn_rows, label="Scores with intervals", x_label=what, threshold=limit)
        chart = figure("Score of each arm", picture, "Bar: 95 % interval. Line: interquartile mean. Dots: seeds.")
    note = (
        f"Score: {metric_words(task.summaries[0])}, interquartile mean over seeds with its 95 % interval by the "
        f"bootstrap, from {LEAST_FOR_INTERVAL} seeds on. Best: the highest value during the run, mean over seeds. To "
        "the threshold: median of the runs that reached it, if at least half did."
    )
    numbers = table([names[index] for index in kept], cells, range(1, len(kept)))
    profile = profile_figure(task)
    charts = element("div", chart, profile, class_="grid") if chart or profile else None
    return join(numbers, element("p", note, class_="note"), charts)


def dots(summary: Summary) -> list[tuple[float, str]]:
    """The score of each run, with a title."""
    newest = summary.arm.newest(summary.metric)
    return [(value, f"{run.name}, seed {run.seed}: {number(value)}") for run, value in newest]


def profile_figure(task: Task) -> Markup | None:
    """Performance profiles, if there are at least two arms."""
    shown = [summary for summary in drawn(task) if len(summary.scores)]
    if len(shown) < 2:
        return None
    every = np.concatenate([summary.scores for summary in shown])
    if every.max() <= every.min():
        return None
    thresholds = np.linspace(every.min() - 0.02 * np.ptp(every), every.max(), 121)
    arms: list[tuple[str, list[Curve], Band | None]] = []
    for summary in drawn(task):
        if not len(summary.scores):
            arms.append((summary.arm.label, [], None))
            continue
        middle = performance_profile(summary.scores, thresholds)
        low, high = share_interval(middle, len(summary.scores))
        arms.append((summary.arm.label, [], Band(thresholds, middle, low, high)))
    picture = curves_chart(arms, label="Performance profiles", x_label="score τ", y_label="runs above τ", shares=True)
    return figure(
        "Performance profile",
        picture,
        "The share of an arm's runs that score more than τ, with its 95 % interval (Wilson); higher is better.",
    )


def comparison(task: Task) -> Markup:
    """The probability that a run of the best arm scores more than one of each other arm; the swept keys' importance."""
    best, shown = task.ranking[0], drawn(task)
    rows, words = [], []
    for summary in task.ranking[1:]:
        if summary in shown:
            found = against(best, summary, task)
            label = f"{best.arm.label} > {summary.arm.label}"
            rows.append(Row(shown.index(summary), label, Interval(found.chance)))
            words.append(element("li", f"{found.chance_words((best.arm.label, summary.arm.label))}: {found.words}."))
    picture = intervals_chart(
        rows,
        label="Probabilities of improvement",
        x_label="probability that a run of the first scores more",
        threshold=0.5,
        within=(0.0, 1.0),
        show=lambda interval: f"{interval.middle:.0%}",
    )
    caption = (
        f"An arm is called better only if an exact Mann-Whitney U test shows it: if no arm is better than another, one "
        f"is called so in at most {LEVEL:.0%} of such reports."
    )
    chances = join(figure("Probability of improvement", picture, caption), element("ul", *words, class_="advice"))
    return element("div", element("div", chances), importance_figure(task), class_="grid")


def importance_figure(task: Task) -> Markup:
    """The share of the variance of the scores that each key explains."""
    shares = importance([summary.arm for summary in task.summaries], task.metric)
    known = [(key_words(each.keys), each.share) for each in shares if each.share is not None]
    title = "What explains the scores"
    unknown = ", ".join(key_words(each.keys) for each in shares if each.share is None)
    note = element("p", f"Not told from chance by these runs: {unknown}.", class_="note") if unknown else None
    if not known:
        return element("figure", element("b", title), note)
    picture = bars([(name, share) for name, share in known[:8]], label=title)
    caption = (
        "The share of the scores' variance that a key's values explain alone (ε², corrected for chance), where a "
        f"permutation test at {LEVEL:.0%} shows that chance does not explain as much; the rest is "
        "seeds, noise and keys together. Keys that always change together cannot be told apart."
    )
    return element("div", figure(title, picture, caption), note)


def key_words(keys: Sequence[str]) -> str:
    """Keys that change together, the policy's class first."""
    first = "policy._target_" if "policy._target_" in keys else keys[0]
    others = len(keys) - 1
    name = "policy" if first == "policy._target_" else first
    return f"{name} (with {others} keys that change with it)" if others else name


def time_section(task: Task) -> Markup | None:
    """The time split of each arm, with the bottleneck and a line of advice; `None` if no run recorded its time."""
    found = [(each, split) for each in drawn(task) if (split := time_split(each.arm.counted)) is not None]
    if not found:
        return None
    picture = share_bars([(each.arm.label, split.seconds) for each, split in found], label="Time of a run", words=PARTS)
    used = [part for part in PARTS if any(part in split.seconds for _, split in found)]
    keys = (
        element(
            "span",
            element("i", class_="square", style=f"background:var(--part-{part})"),
            element("span", f"{part}: {PARTS[part]}"),
            class_="key",
        )
        for part in used
    )
    lines = [element("li", named_advice(task, each, split)) for each, split in found]
    return join(
        element("div", *keys, class_="legend"), element("figure", picture), element("ul", *lines, class_="advice")
    )


def named_advice(task: Task, summary: Summary, split: TimeSplit) -> Markup:
    """The advice of an arm, with its label if there are several."""
    name = element("b", f"{summary.arm.label}: ") if len(task.summaries) > 1 else None
    return join(name, advice_on(split))


def health_section(task: Task, lights: Sequence[Finding]) -> Markup:
    """A table of lights by arms, and a line of advice for each light that is not green."""
    rows = []
    for finding in lights:
        light = finding.light
        what = join(
            element("b", light.name), element("br"), element("span", f"{light.measured}: {light.limits}", class_="soft")
        )
        rows.append([what, *(reading_cell(reading) for reading in finding.readings)])
    head = ["light", *(arm_key(task, each) if len(task.summaries) > 1 else "worst run" for each in task.summaries)]
    advice = []
    for finding in lights:
        if finding.worst != "ok":
            icon, css = ICONS[finding.worst]
            words = join(
                element("span", icon, class_=css), " ", element("b", f"{finding.light.name}: "), finding.light.advice
            )
            advice.append(element("li", words))
    calm = element("p", "All lights are green.") if not advice else None
    note = element("p", "The worst run of an arm decides.", class_="note")
    return join(calm, element("ul", *advice, class_="advice"), table(head, rows, css="lights"), note)


def reading_cell(reading: Reading | None) -> Markup:
    """A light's colour, its shape for readers who see no colours, and its number."""
    if reading is None:
        return element("span", ABSENT, class_="soft")
    icon, css = ICONS[reading.level]
    runs = f" ({reading.runs} of {reading.of} runs)" if reading.level != "ok" and reading.of > 1 else ""
    return element("span", element("span", icon, class_=css), f" {reading.number}{runs}", class_="reading")


def config_section(task: Task) -> Markup:
    """The keys whose values differ between the arms."""
    rows = differences([summary.arm.config for summary in task.summaries])
    cells = [[element("code", key), *(value_cell(value) for value in values)] for key, values in rows.items()]
    shown = table(["key", *(arm_key(task, summary) for summary in task.summaries)], cells)
    if len(cells) <= MOST_ROWS_OPEN:
        return shown
    return element("details", element("summary", f"{len(cells)} keys of the config differ"), shown)


def value_cell(value: Any) -> Markup:
    """A config value, shortened."""
    text = text_of(value)
    return element("code", text if len(text) <= 80 else f"{text[:79]}…")


# -- all runs ----------------------------------------------------------------------------------------------------------


def runs_table(tasks: Sequence[Task]) -> Markup:
    """A row for each run."""
    rows = []
    for task in tasks:
        for summary in task.summaries:
            for run in summary.arm.runs:
                train, evaluation = run.curve(TRAIN_RETURN), run.curve(EVAL_RETURN)
                css = {"ok": "good", "failed": "bad", "dead": "bad"}.get(run.state, "fair")
                error = first_line(run.status.get("error"))
                rows.append(
                    [
                        run.name,
                        arm_key(task, summary),
                        str(run.seed),
                        join(element("span", run.state, class_=css), f": {error}" if error else None),
                        f"{run.env_steps:,}",
                        ABSENT if run.seconds is None else time_words(run.seconds),
                        ABSENT if train is None else number(train.last),
                        ABSENT if evaluation is None else number(evaluation.last),
                        ABSENT if evaluation is None else number(float(evaluation.values.max())),
                    ]
                )
    head = ["run", "arm", "seed", "state", "env steps", "time", "return", "last evaluation", "best evaluation"]
    return table(head, rows, (2, 4, 5, 6, 7, 8))


def first_line(text: Any) -> str:
    """The beginning of an error."""
    line = str(text or "").strip().split("\n")[0]
    return line if len(line) <= 200 else f"{line[:199]}…"


def provenance(runs: Sequence[RunRecord]) -> Markup:
    """How the runs were started, with which code, on which machine."""
    recorded = [run for run in runs if run.sessions]
    seeds = ", ".join(str(run.seed) for run in runs)
    if not recorded:
        directories = ", ".join(str(run.directory) for run in runs)
        text = "These runs have no provenance.json: their command is unknown; config.yaml holds all of their keys."
        return join(element("p", text), definitions({"directories": [directories], "seeds": [seeds]}))
    first = [run.sessions[0] for run in recorded]
    newest = [run.sessions[-1] for run in recorded]
    commands = dict.fromkeys(str(session.get("command", "")) for session in first)
    moments = sorted(moment(at) for session in first if (at := session.get("at")))
    resumed = [f"{run.name} ({len(run.sessions) - 1} ×)" for run in recorded if len(run.sessions) > 1]
    entries = {
        "seeds": [seeds],
        "started": [" … ".join(dict.fromkeys([moments[0], moments[-1]]))] if moments else [],
        "resumed": [", ".join(resumed)] if resumed else [],
        "working directory": unique(session.get("directory") for session in first),
        "code": unique(git_words(session.get("git")) for session in newest),
        "versions": unique(mapping_words(session.get("versions")) for session in newest),
        "machine": unique(mapping_words(session.get("machine")) for session in newest),
    }
    repeat = "The command to repeat them:" if len(commands) == 1 else "The commands to repeat them:"
    return join(element("p", repeat), element("pre", "\n".join(commands)), definitions(entries))


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


def definitions(entries: Mapping[str, Sequence[str]]) -> Markup:
    """Names with their values; those without a value are left out."""
    items = [
        part
        for name, values in entries.items()
        if values
        for part in (element("dt", name), element("dd", *with_breaks(values)))
    ]
    return element("dl", *items)


def with_breaks(lines: Sequence[str]) -> list[str]:
    """Lines with line breaks between them."""
    return [part for place, line in enumerate(lines) for part in ((element("br"), line) if place else (line,))]


def episode_pictures(task: Task) -> Markup | None:
    """Pictures of episodes in the run directories' videos/, as many as there is room for; `None` without any."""
    found, room = [], MOST_PICTURE_BYTES
    for summary in task.summaries:
        for run in summary.arm.runs:
            for file in sorted((run.directory / "videos").glob("*")):
                if file.suffix.lower() not in PICTURES or not is_regular(file, run.directory):
                    continue
                if (size := file.stat().st_size) > room:
                    continue
                room -= size
                caption = f"{summary.arm.label}, seed {run.seed}: {file.stem.replace('_', ' ')}"
                found.append(element("figure", picture_of(file, caption), element("figcaption", caption)))
    return element("div", *found, class_="episodes") if found else None


def picture_of(file: Path, caption: str) -> Markup:
    """A picture or video, inside the page."""
    kind = PICTURES[file.suffix.lower()]
    source = f"data:{kind};base64,{base64.b64encode(file.read_bytes()).decode()}"
    if kind.startswith("video"):
        return element("video", src=source, title=caption, controls="controls", loop="loop")
    return element("img", src=source, alt=caption)


def data_link(tasks: Sequence[Task]) -> Markup:
    """The curves as a CSV file that the page holds."""
    text = curves_csv(tasks)
    encoded = base64.b64encode(text.encode()).decode()
    link = element("a", "curves.csv", href=f"data:text/csv;base64,{encoded}", download="curves.csv")
    count = text.count("\n") - 1
    note = f" holds the returns of all runs ({count:,} rows): {', '.join(COLUMNS)}."
    return element("p", link, note)


def curves_csv(tasks: Sequence[Task]) -> str:
    """The returns of all runs: a row for each point, thinned evenly to a number of rows that a page can hold."""
    runs = [(task, summary.arm, run) for task in tasks for summary in task.summaries for run in summary.arm.runs]
    most = max(10, MOST_DATA_ROWS // max(1, len(runs)))
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for task, arm, run in runs:
        write_curves(writer, (task.env, arm.label, run.name, run.seed), run, most)
    return text.getvalue()


def write_curves(writer: Any, owner: tuple[Any, ...], run: RunRecord, most: int) -> None:
    """The rows of a run; every evaluation is among them as long as there are fewer than `most`."""
    found: dict[int, list[float | None]] = {}
    for column, metric in enumerate((TRAIN_RETURN, EVAL_RETURN)):
        series = run.curve(metric)
        if series is None:
            continue
        every = max(1, math.ceil(len(series.values) / most))
        for step, value in zip(
            series.steps[::-1][::every].tolist(), series.values[::-1][::every].tolist(), strict=True
        ):
            found.setdefault(step, [None, None])[column] = value
    steps = np.array(sorted(found), dtype=np.int64)
    seconds = run.seconds_at(steps)
    for place, step in enumerate(steps.tolist()):
        time = "" if seconds is None else f"{seconds[place]:.2f}"
        values = ("" if value is None else f"{value:.6g}" for value in found[step])
        writer.writerow([*owner, step, time, *values])
