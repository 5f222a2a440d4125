"""Search spaces: which values of which keys a search of hyperparameters tries, in Hydra's words for sweeps.

conf/search/POLICY.yaml is the space of a policy: `policy.lr: tag(log, interval(1e-4, 1e-2))`. Such a value on the
command line adds a key, or replaces one of the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from hydra.core.override_parser.types import ChoiceSweep, IntervalSweep, RangeSweep

from lightning_rl.config.compose import (
    complete_config,
    compose_config,
    composed,
    key_of,
    parse,
    protected_groups,
)
from lightning_rl.config.groups import group_options, hydra_ready, option_text
from lightning_rl.config.origins import changed_keys
from lightning_rl.errors import ConfigError, did_you_mean

__all__ = ["Dimension", "experiment_text", "search_space"]

LOG, FALLS = "log", "falls"
OF_A_RUN = ("run_dir", "seed", "logger", "evaluation")  # what an experiment does not say
FORMS = "choice(a, b), interval(low, high), int(interval(low, high)), range(start, stop), or tag(log, interval(…))"


@dataclass(frozen=True, slots=True)
class Dimension:
    """The values of one key that a search tries.

    Args:
        key: dotted key of the config.
        choices: texts of the values, as on a command line; empty for a range.
        low, high: ends of a range, both included; `int`s if its values are integers.
        log: values are spread evenly over the logarithm.
        falls: a value is the first one of a schedule that falls linearly to 0 with the run.
    """

    key: str
    choices: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    falls: bool = False

    def override(self, value: Any) -> str:
        """The override that sets the key to a value."""
        return f"{self.key}=[[0, {value!r}], [100%, 0.0]]" if self.falls else f"{self.key}={value}"


def search_space(overrides: Sequence[str], file: Path | None = None) -> tuple[list[Dimension], list[str]]:
    """The dimensions of a search, and the overrides that are the same in all trials.

    Args:
        overrides: the overrides of the command line; those with several values are dimensions.
        file: a space of the user's own; `None`: conf/search/POLICY.yaml of the policy.

    Raises:
        ConfigError: there is no space for the policy, or a value in it cannot be read.
    """
    if file is None:
        text, name = shipped_space(overrides)
    elif file.is_file():
        text, name = file.read_text(encoding="utf-8", errors="replace"), str(file)
    else:
        raise ConfigError(f"--space {file}: no such file; expected YAML with lines such as policy.lr: {FORMS}")
    found = {dimension.key: dimension for dimension in map(dimension_of, lines_of(text, name))}
    fixed = []
    for override in overrides:
        (parsed,) = parse([override])
        if parsed.is_sweep_override():
            found[key_of(override)] = dimension_of(override)
        else:
            found.pop(key_of(override), None)  # a given value is not searched
            fixed.append(override)
    if not found:
        raise ConfigError(f"nothing is left of {name}: give a key several values, as policy.gamma=choice(0.9,0.99)")
    check_ends(list(found.values()), fixed)
    return list(found.values()), fixed


def shipped_space(overrides: Sequence[str]) -> tuple[str, str]:
    """The text of the space of the policy that these overrides choose, and its name.

    Raises:
        ConfigError: there is none.
    """
    chosen = [override.split("=", 1)[1] for override in overrides if override.startswith("policy=")]
    policy = chosen[-1] if chosen else "ppo"
    text = option_text("search", policy)
    if not text:
        known = group_options("search")
        raise ConfigError(
            f"policy={policy} has no search space.{did_you_mean(policy, known)} There are: {', '.join(known)}; for a "
            f"policy of your own give --space FILE.yaml, or write ./conf/search/{policy}.yaml"
        )
    return text, f"search/{policy}.yaml"


def lines_of(text: str, name: str) -> list[str]:
    """The overrides in a file of a search space.

    Raises:
        ConfigError: it is not a mapping of keys to texts.
    """
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise ConfigError(f"{name}: expected YAML with lines such as policy.lr: {FORMS}")
    return [f"{key}={value}" for key, value in found.items()]


def dimension_of(override: str) -> Dimension:
    """The dimension that an override with several values describes.

    Raises:
        ConfigError: it has one value, or a form that cannot be searched.
    """
    (parsed,) = parse([override])
    sweep: Any = parsed._value
    tags = set(getattr(sweep, "tags", ()))
    if unknown := tags - {LOG, FALLS}:
        raise ConfigError(f"{override}: no tag {sorted(unknown)[0]!r}; there are {LOG} and {FALLS}")
    marks = {"log": LOG in tags, "falls": FALLS in tags}
    key = key_of(override)
    if isinstance(sweep, ChoiceSweep) and not tags:
        return Dimension(key, tuple(spell(value) for value in sweep.list))
    if isinstance(sweep, IntervalSweep) and sweep.start is not None and sweep.end is not None:
        low, high = sweep.start, sweep.end
        if not low < high or (LOG in tags and low <= 0):
            raise ConfigError(f"{override}: expected {'0 < ' if LOG in tags else ''}low < high")
        return Dimension(key, (), low, high, **marks)
    if isinstance(sweep, RangeSweep) and not tags:
        return Dimension(key, tuple(str(value) for value in sweep.range()))
    raise ConfigError(f"{override}: cannot be searched; expected {FORMS}")


def spell(value: Any) -> str:
    """A value as it is written in an override."""
    if isinstance(value, list):
        return f"[{','.join(map(spell, value))}]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{spell(child)}" for key, child in value.items()) + "}"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)


def check_ends(dimensions: Sequence[Dimension], fixed: Sequence[str]) -> None:
    """Compose a config with the first and one with the last value of each dimension, so that no trial fails for a typo.

    Raises:
        ConfigError: a key does not exist.
    """
    for last in (False, True):
        ends = [
            each.override(each.choices[-1 if last else 0] if each.choices else each.high if last else each.low)
            for each in dimensions
        ]
        compose_config([*fixed, *ends])


def experiment_text(overrides: Sequence[str], head: Sequence[str]) -> str:
    """The YAML of an experiment with these overrides: choices of groups, then keys; `head` becomes comments.

    The experiment that the overrides compose with, such as the tuned values of policy and environment, comes first;
    if typed choices leave keys of it out, the others are copied.
    """
    completed = complete_config(overrides)
    with hydra_ready():
        hydra = composed(completed).hydra
    chosen = hydra.runtime.choices
    given = {parsed.key_or_group: parsed.value() for parsed in parse(completed)}
    choices = {"policy": chosen["policy"], "env": chosen["env"], **{key: chosen[key] for key in given if key in chosen}}
    choices.pop("experiment", None)
    tuned = [chosen["experiment"]] if chosen.get("experiment") in {*group_options("experiment")} - {"none"} else []
    if protected_groups(hydra):
        tuned, given = [], {key: value for key, (value, *_) in changed_keys(overrides).items()}
    keys: dict[str, Any] = {}
    for key, value in given.items():
        if key not in chosen and key not in OF_A_RUN and key.partition(".")[0] not in OF_A_RUN:
            *sections, name = key.split(".")
            place = keys
            for section in sections:
                place = place.setdefault(section, {})
            place[name] = value
    defaults = [*tuned, *({f"override /{group}": choice} for group, choice in choices.items()), "_self_"]
    body = yaml.safe_dump({"defaults": defaults, **keys}, sort_keys=False, allow_unicode=True)
    return "\n".join(["# @package _global_", *(f"# {line}" for line in head), body])
