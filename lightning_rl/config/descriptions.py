"""Texts that the commands `list` and `describe` print, and those at the end of a sweep or an evaluation."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from lightning_rl.callbacks.metric_names import METRICS
from lightning_rl.config.compose import compose_config
from lightning_rl.config.directories import option_keys
from lightning_rl.config.groups import GROUPS, group_options, option_text
from lightning_rl.config.hydra_errors import ALL_GROUPS, no_choice
from lightning_rl.config.keys import dotted_keys, value_at
from lightning_rl.errors import ConfigError, did_you_mean, import_object, no_such_key, printable
from lightning_rl.schema.signatures import Keyword, keywords_of, spell_type

__all__ = [
    "choices",
    "describe",
    "evaluation",
    "key_text",
    "listing",
    "outcome",
    "recording",
    "run_table",
    "table",
]

# The class whose constructor takes a group's keys, if the group's config has no `_target_`.
TAKEN_BY = {
    "env": "lightning_rl.envs.creator:EnvCreator",
    "checkpoint": "lightning_rl.callbacks.checkpoint:RLCheckpoint",
    "data": "lightning_rl.data.source:SyncSource",
    "trainer": "lightning.pytorch:Trainer",
}

SHOWN_POLICIES = 8  # with their returns, at the end of a run or an evaluation
REPLAY = {"exploration": ("data=replay",)}  # the random phase of strategies ends at data.learning_starts
# Groups whose options are taken by their own classes, with the option whose class a key is described of first.
OF_CLASSES = {"policy": "ppo", "data": "replay", "exploration": "none"}

# Google style: "Args:", then entries "name: text" or "one, two: text" whose further lines are indented deeper.
ARGUMENTS = re.compile(r"^Args:\n(.*?)(?=^\S|\Z)", re.DOTALL | re.MULTILINE)
ENTRY = re.compile(r"^    ([\w, ]+)(?: \([^\n]*\))?: (.*?)(?=^    \S|\Z)", re.DOTALL | re.MULTILINE)
OF_A_BASE = re.compile(r"arguments of `\w+`[:,]")  # that class documents them


# -- list --------------------------------------------------------------------------------------------------------------


def choices(group: str) -> dict[str, str]:
    """The options of a config group, each with a line of description."""
    return {name: headline(group, name) for name in group_options(group)}


def headline(group: str, name: str) -> str:
    """An environment's id, or the first comment in the option's file."""
    text = option_text(group, name)
    found = re.search(r"^id: *(\S+)", text, re.MULTILINE) if group == "env" else None
    if found and found[1] != "???":
        return found[1]
    comments = [line.lstrip("# ") for line in text.splitlines() if line.startswith("#") and "@package" not in line]
    return comments[0] if comments else ""


def listing(kind: str, names: Mapping[str, str]) -> str:
    """A heading and one line per name."""
    width = max(map(len, names), default=0)
    return "\n".join([kind, *(f"  {name:{width}}  {line}".rstrip() for name, line in names.items())])


# -- describe ----------------------------------------------------------------------------------------------------------


def describe(what: str) -> str:
    """Describe a choice ("policy=ppo"), a group ("workers"), a key ("policy.lr") or a metric ("train/loss").

    Raises:
        ConfigError: there is no such choice, group, key or metric.
    """
    if what in METRICS:
        return f"{what}: {METRICS[what]}"
    if "=" in what or what in GROUPS:
        group, _, name = what.partition("=")
        return describe_group(group, name)
    if what == "train":
        return option_text("", "train")
    config = config_with(what)
    section, _, key = what.rpartition(".")
    target = target_of(section, config)
    line = keyword_lines(target).get(key, "") if target is not None else ""
    if line:
        return line + values_by_option(section, key)
    return commented_line(section, key) or f"{what} = {value_at(config, what)!r}"


def values_by_option(group: str, key: str) -> str:
    """A line with what the options of a group set a key to, if they differ: "by default: 3 (apex, replay), 1 (…)"."""
    options: dict[str, list[str]] = {}
    for name in group_options(group) if group in OF_CLASSES else []:
        keys = option_keys(group, name)
        if key in keys:
            value = yaml.safe_dump(keys[key], default_flow_style=True, width=1_000, sort_keys=False)
            options.setdefault(value.removesuffix("...\n").strip(), []).append(name)
    each = ", ".join(f"{value} ({', '.join(names)})" for value, names in options.items())
    return f"\n      by default: {each}" if len(options) > 1 else ""


def key_text(key: str, config: Mapping[str, Any]) -> str:
    """Type, default and documentation of a key in the constructor that takes it, or else its line in a config file."""
    section, _, name = key.rpartition(".")
    target = target_of(section, config) if section in config else None
    line = keyword_lines(target).get(name, "") if target is not None else ""
    if target is None or not line:
        return commented_line(section, name)
    return f"{target.__module__}.{target.__qualname__}:\n{line}"


def config_with(key: str) -> Mapping[str, Any]:
    """A config that has a key: the default one, or the first one with another choice in the key's group.

    Raises:
        ConfigError: no config has it.
    """
    group = key.partition(".")[0]
    known: dict[str, None] = {}
    others = sorted(group_options(group), key=lambda name: name != OF_CLASSES[group]) if group in OF_CLASSES else []
    for choice in ([], *([f"{group}={name}", *REPLAY.get(group, ())] for name in others if name != "custom")):
        config = compose_config([*choice, "experiment=none"])
        known |= dict.fromkeys(dotted_keys(config))
        if key in known:
            return config
    if "/" in key:
        known |= dict.fromkeys(METRICS)
        raise ConfigError(f"no metric {key!r}.{did_you_mean(key, known)} `lightning-rl list metrics` names all")
    raise ConfigError(no_such_key(key, known, ALL_GROUPS), key=key)


def describe_group(group: str, name: str) -> str:
    """Describe a choice: its class with its keywords, and its file."""
    options, is_class = group_options(group), group == "policy" and ":" in name
    if not options or (name and name not in options and not is_class):
        raise ConfigError(no_choice(group, name, options))
    if not name:
        keys = f"\n\n# {group}/default.yaml\n{option_text(group, 'default')}" if "default" in options else ""
        return listing(f"choices of {group}", choices(group)) + keys
    text = "" if is_class else option_text(group, name).strip()
    if group in ("experiment", "logger") or (group, name) == ("exploration", "custom"):
        return text
    needs_id = group == "env" and "id: ???" in text
    named = ["env.id=ID"] if needs_id else REPLAY.get(group, ())
    config = compose_config([f"{group}={name}", *named])
    target = target_of(group, config)
    if target is None:
        return text
    about = (inspect.getdoc(target) or "").split("\n\nArgs:")[0]
    own = {} if is_class else {key: value for key, value in option_keys(group, name).items() if "${" not in str(value)}
    shown = keyword_lines(target, own)
    keywords = "\n".join(line for key, line in shown.items() if key in config[group])
    described = f"{target.__module__}.{target.__qualname__}\n{about}\n\n{keywords}"
    return described if is_class else f"{described}\n\n# {group}/{name}.yaml\n{text}"


def target_of(section: str, config: Mapping[str, Any]) -> Any:
    """The class that takes the keys of a section, or `None`."""
    if section == "exploration":
        from lightning_rl.exploration import strategy_class

        return strategy_class(config["exploration"]["type"])
    values = config[section] if section in TAKEN_BY or section == "policy" else {}
    path = values.get("_target_") or TAKEN_BY.get(section)
    return import_object(path) if path else None


def keyword_lines(target: Any, values: Mapping[str, Any] | None = None) -> dict[str, str]:
    """For each keyword of a class, its name, type, default (or its value in `values`) and documentation."""
    docs, values = argument_docs(target), values or {}
    lines = {}
    for name, keyword in keywords_of(target).items():
        shows_default = keyword.default is not inspect.Parameter.empty and not repr(keyword.default).startswith("<")
        default = f" = {values.get(name, default_of(keyword))!r}" if shows_default else ""
        kind = f" ({words})" if (words := spell_type(keyword.annotation)) else ""
        lines[name] = f"  {name}{default}{kind}" + (f"\n      {docs[name]}" if name in docs else "")
    return lines


def default_of(keyword: Keyword) -> Any:
    """A keyword's default as in a config: a mapping as a `dict`."""
    return dict(keyword.default) if isinstance(keyword.default, Mapping) else keyword.default


def argument_docs(target: Any) -> dict[str, str]:
    """Documentation of each keyword from the "Args" of a class and of its bases; the class's own takes precedence.

    "see `Base`; …" is replaced by the text of that base.
    """
    found: dict[str, str] = {}
    for cls in inspect.getmro(target) if isinstance(target, type) else [target]:
        section = ARGUMENTS.search(inspect.cleandoc(cls.__doc__ or ""))
        for names, text in ENTRY.findall(section[1] if section else ""):
            words = " ".join(text.split())
            if OF_A_BASE.match(words):
                continue
            for name in names.split(", "):
                own = found.setdefault(name, words)
                if own.startswith(as_base := f"see `{cls.__name__}`"):
                    found[name] = words.rstrip(".") + own.removeprefix(as_base)
    return found


def commented_line(section: str, key: str) -> str:
    """The line of a group's default file that sets the key, with its comment."""
    group = section if section in GROUPS else ""
    text = option_text(group, "default" if group else "train")
    found = re.search(rf"^ *{re.escape(key)}:.*$", text, re.MULTILINE)
    return found[0].strip() if found else ""


# -- results -----------------------------------------------------------------------------------------------------------


def run_table(rows: Sequence[Mapping[str, Any]], directory: Path) -> str:
    """A table of runs, with an explanation of states that need one."""
    if not rows:
        return f"no runs below {directory}"
    shown = table([{**row, "age": duration(row["age"])} for row in rows])
    meanings = {
        "dead": "dead: its process ended without a word; `lightning-rl resume DIRECTORY` continues from its last.ckpt, "
        "or says which other checkpoints it has",
        "silent": "silent: its process is there, but has written nothing for minutes",
        "damaged": "damaged: its status.json cannot be read; delete that file, a run continues without it",
    }
    notes = [text for state, text in meanings.items() if any(row["state"] == state for row in rows)]
    return "\n".join([shown, *(["", *notes] if notes else [])])


def duration(seconds: float) -> str:
    """A time in its largest unit: "12 s", "3 min", "5 h", "2 d"."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """A table with headings and right-aligned numbers."""
    if not rows:
        return "no jobs"
    cells = [[name.replace("_", " ") for name in rows[0]], *([cell(value) for value in row.values()] for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    numeric = [all(row[name] is None or isinstance(row[name], int | float) for row in rows) for name in rows[0]]
    padded = [
        [
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(line, widths, numeric, strict=True)
        ]
        for line in cells
    ]
    return "\n".join("  ".join(line).rstrip() for line in padded)


def cell(value: Any) -> str:
    """A value formatted for a table."""
    if value is None:
        return "-"
    return f"{value:.1f}" if isinstance(value, float) else printable(str(value))


def outcome(status: Mapping[str, Any], run_dir: str) -> str:
    """Describe the returns of the last and the best policy of a run, and the time that evaluation took.

    Args:
        status: content of status.json.
        run_dir: the directory of the run, quoted for a shell.
    """
    last, best, count = status["evaluation"], status["best_checkpoint"], status["evaluations"]
    if last is not None:
        at = status["evaluated_at"]
        what = "last policy" if at == status["env_steps"] else f"policy at {at:,} env steps"
        lines = [f"evaluated return of the {what}: {last:.1f}"]
    elif status["return"] is not None:
        window = f"{status['return']:.1f}, at best {status['best_return']:.1f}"
        lines = [f"mean return of the latest training episodes (100 at most): {window}; nothing was evaluated"]
    else:
        lines = ["no training episode has ended; nothing was evaluated"]
        if estimates := dict(status.get("estimates") or {}):
            data = estimates.pop("behavior")
            words = ", ".join(f"{value:.4g} by {name}" for name, value in estimates.items())
            lines = [f"estimated discounted return of the last policy: {words}; of the data: {data:.4g}"]
    if best is not None:
        metric = "" if best["metric"] == "eval/ep_rew_mean" else f" {best['metric']}"
        lines[0] += f"; best{metric}: {best['value']:.1f}, {best['file']} (lightning-rl evaluate {run_dir} --best)"
    of_each = {name: own.get("evaluation", own.get("return")) for name, own in (status.get("policies") or {}).items()}
    if named := first_few([f"{name} {value:.1f}" for name, value in of_each.items() if value is not None]):
        lines.append(f"of an agent of each policy: {named}")
    if count is not None and count["done"] + count["postponed"]:
        plural = "" if count["done"] == 1 else "s"
        share = f"{count['share_of_time']:.0%} of {status['seconds']:.1f} s"
        lines.append(f"{count['done']} evaluation{plural} took {share}")
        if count["postponed"]:
            lines[-1] += f"; {count['postponed']} postponed (evaluation.max_share)"
    return "\n".join(f"  {line}" for line in lines)


def evaluation(result: Mapping[str, Any]) -> str:
    """Describe an evaluation in two lines, with several agents in three."""
    interval, lengths = result["ci95"], result["lengths"]
    cut = f"; {result['cut']} longer ones were cut (--max-steps), and count as they are" if result["cut"] else ""
    if interval is None:
        return (
            f"return {result['mean']:.2f}, length {lengths[0]} steps of one episode, which says nothing of others{cut}"
        )
    return (
        f"return {result['mean']:.2f} ± {result['std']:.2f} over {result['episodes']} episodes "
        f"(95 % confidence interval of the mean: {interval[0]:.2f} … {interval[1]:.2f})\n"
        f"length {result['length_mean']:.1f} ± {result['length_std']:.1f}, {min(lengths)} … {max(lengths)} steps{cut}"
        f"{of_policies(result.get('policies', {}))}{of_sides(result.get('sides', {}))}"
    )


def estimates(result: Mapping[str, Any]) -> str:
    """Describe estimated returns: a line for each estimator, and how much the ratios leave of the data."""
    lines = [f"mean discounted return (gamma {result['gamma']:g}) with {result['confidence']:.0%} intervals"]
    lines += [
        f"{name:8} {found['value']:10.4g}  ({found['low']:.4g} … {found['high']:.4g})"
        for name, found in result["estimates"].items()
    ]
    if "effective_episodes" in result:
        few = ": too few for ratios, so that dr says no more than dm" if result["effective_episodes"] < 10 else ""
        lines.append(f"the ratios leave the worth of {result['effective_episodes']:.1f} episodes{few}")
        if result["mean_ratio"] < 0.5:
            lines.append(
                f"the mean ratio is {result['mean_ratio']:.2g}, and 1 in expectation: the data lack episodes that the "
                "policy would often play, so that is, pdis and wis miss their returns"
            )
    return "\n".join(lines)


def recording(result: Mapping[str, Any]) -> str:
    """Describe a video: its file, and the episodes in it."""
    returns, lengths = result["returns"], result["lengths"]
    mean = f", mean {sum(returns) / len(returns):.2f}" if len(returns) > 1 else ""
    cut = f"; {result['cut']} cut there (--max-steps)" if result["cut"] else ""
    return (
        f"{result['file']}\n"
        f"return {', '.join(f'{value:.6g}' for value in returns)}{mean}\n"
        f"length {', '.join(map(str, lengths))} steps{cut}"
    )


def data_set(result: Mapping[str, Any]) -> str:
    """Describe a data set: its size, returns and lengths, the part of its spaces that it covers, damaged files."""
    about = result["about"] or {}
    origin = ", ".join(f"{name} {about[name]}" for name in ("env", "policy", "seed") if about.get(name) is not None)
    lines = [f"{result['name']}{f' ({printable(origin)})' if origin else ''}"]
    lines.append(
        f"{result['steps']:,} steps in {result['episodes']:,} episodes, {result['complete']:,} of them complete, "
        f"{result['terminated']:,} terminated"
    )
    for name in ("returns", "lengths"):
        if (found := result[name]) is not None:
            low, quarter, half, most, high = (f"{value:.6g}" for value in found["quantiles"])
            lines.append(
                f"{name}: mean {found['mean']:.6g}, median {half}, middle half {quarter} to {most}, all {low} to {high}"
            )
    for name, found in result["coverage"].items():
        if "counts" in found:
            total = sum(found["counts"].values())
            shares = [f"{value}: {count / total:.1%}" for value, count in found["counts"].items()]
        else:
            shares = [f"{low:.4g} to {high:.4g}" for low, high in zip(found["low"], found["high"], strict=True)]
        lines.append(f"{printable(name)}: {first_few(shares)}")
    lines += [f"damaged: {printable(reason)}" for reason in result["damaged"].values()]
    return "\n".join(lines)


def first_few(texts: Sequence[str]) -> str:
    """The first texts, and how many more there are: a league has a hundred policies."""
    more = f", and {len(texts) - SHOWN_POLICIES} more" if len(texts) > SHOWN_POLICIES else ""
    return ", ".join(texts[:SHOWN_POLICIES]) + more


def of_sides(sides: Mapping[str, Mapping[str, int]]) -> str:
    """A line with what each side of a zero-sum game has won; "" for another game."""
    parts = [f"{agent} won {each['won']}, drew {each['drawn']}, lost {each['lost']}" for agent, each in sides.items()]
    return f"\nzero-sum game: {'; '.join(parts)}" if parts else ""


def of_policies(returns: Mapping[str, float]) -> str:
    """A line with the mean return of each policy's agents; "" for a single agent."""
    named = first_few([f"{name} {value:.2f}" for name, value in returns.items()])
    return f"\nreturn of an agent: {named}" if named else ""
