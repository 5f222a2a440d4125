"""Writes the reference of the documentation's site: a page per room of the package, and one per group of the config.

    python scripts/reference_pages.py DIRECTORY     # docs/conf.py does this at each build, into docs/reference/

The room pages leave it to sphinx.ext.autodoc to read the docstrings. The config pages have the values of `conf/`, and
the texts that `lightning-rl describe` prints.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from lightning_rl.config.compose import compose_config
from lightning_rl.config.descriptions import REPLAY, argument_docs, choices, target_of
from lightning_rl.config.directories import option_keys
from lightning_rl.config.groups import GROUPS, group_options, option_text

ROOMS = {
    "runs.algorithm": "Training from Python",
    "policies": "Policies",
    "sample_batch": "Batches of experience",
    "models": "Models",
    "models.distributions": "Action distributions",
    "exploration": "Exploration",
    "losses": "Equations",
    "schedules": "Schedules",
    "envs": "Environments",
    "envs.multi_agent": "Environments with several agents",
    "rollouts": "Rollout workers",
    "data": "DataModules and execution plans",
    "data.offline": "Offline data",
    "replay": "Replay buffers",
    "callbacks": "Callbacks and loggers",
    "spaces": "Spaces",
    "rllib": "RLlib's names",
    "": "Top-level names",
}
FILES = ("experiment", "logger")  # groups of which the whole files are shown
CODE = re.compile(r"(`[^`]*`)")


# -- API ---------------------------------------------------------------------------------------------------------------


def room_pages() -> Iterator[tuple[str, str]]:
    """Name and text of each page about a room; what two rooms export is on the first one's page."""
    documented: dict[int, str] = {}
    for room, title in ROOMS.items():
        path = f"lightning_rl.{room}" if room else "lightning_rl"
        module = importlib.import_module(path)
        named = {name: getattr(module, name) for name in module.__all__}
        new = {name: value for name, value in named.items() if id(value) not in documented}
        documented |= {id(value): f"{path}.{name}" for name, value in new.items()}
        intro = f"# {title}\n\n`{path}`: {escaped(headline(module))}\n"
        elsewhere = "\n".join(f"- {{py:obj}}`~{documented[id(value)]}`" for name, value in named.items() if not room)
        classes = [value for value in new.values() if inspect.isclass(value)]
        derived = {
            name: sum(any(value is base for base in cls.__mro__) for cls in classes) for name, value in new.items()
        }
        in_order = sorted(new, key=lambda name: -derived[name])  # bases, classes, functions
        directives = "\n".join(directive(f"{path}.{name}", named[name]) for name in in_order)
        yield f"api_{room.replace('.', '_') or 'top'}", f"{intro}\n{elsewhere}\n\n```{{eval-rst}}\n{directives}\n```\n"


def headline(documented: Any) -> str:
    return (inspect.getdoc(documented) or "").split("\n\n")[0].replace("\n", " ")


def directive(path: str, value: Any) -> str:
    """The directive by which autodoc documents an object."""
    if inspect.isclass(value):
        return f".. autoclass:: {path}\n   :members:\n   :show-inheritance:\n"
    if callable(value):
        return f".. autofunction:: {path}\n"
    return f".. py:data:: {path}\n   :type: {type(value).__name__}\n"


# -- config ------------------------------------------------------------------------------------------------------------


def group_pages() -> Iterator[tuple[str, str]]:
    """Name and text of each page about a group of the config, and of the one about the keys in no group."""
    train = yaml.safe_load(option_text("", "train"))
    default = {name: choice for entry in train["defaults"] if isinstance(entry, dict) for name, choice in entry.items()}
    yield "config_train", f"# Run\n\nKeys in no group: `python train.py seed=1`.\n\n{key_table(run_rows(train))}"
    for group in GROUPS:
        title = f"# {group.capitalize()}\n\n"
        usage = (
            f"`{group}=NAME` chooses one; `{group}.KEY=VALUE` changes a key. The default is `{default.get(group)}`.\n\n"
        )
        if group in FILES:
            usage = f"`{group}=NAME` chooses one.\n\n"
        yield (
            f"config_{group}",
            title + usage + choice_table(group) + "".join(option_sections(group, default.get(group))),
        )


def run_rows(train: Mapping[str, Any]) -> Iterator[tuple[str, Any, str]]:
    """Key, default and meaning of what `train.yaml` itself sets."""
    for key, value in train.items():
        if isinstance(value, dict) and value and key != "hydra":
            yield from ((f"{key}.{name}", inner, comment("", "train", name)) for name, inner in value.items())
        elif key not in ("defaults", "hydra"):
            yield key, value, comment("", "train", key)


def choice_table(group: str) -> str:
    rows = "".join(f"| `{name}` | {escaped(line)} |\n" for name, line in choices(group).items())
    return f"| {group} | |\n|---|---|\n{rows}\n"


def option_sections(group: str, default: str | None) -> Iterator[str]:
    """A section per choice: its file, or its keys where they differ from those of the default one."""
    options = group_options(group)
    if group in FILES:
        for name in options:
            yield f"## {name}\n\n```yaml\n{option_text(group, name).strip()}\n```\n\n"
        return
    if group == "env":  # the others are ids of environments and their keywords
        options = ["cartpole"]
    shared = option_keys(group, "signature/Policy")
    if shared:
        rows = [(key, value, meaning) for key, value, meaning in option_rows(group, "ppo") if key in shared]
        yield f"## Keys of every policy with a model\n\n{key_table((k, shared[k], m) for k, _, m in rows)}"
    known = dict(shared)
    for name in sorted(options, key=lambda name: (name != default, name)):
        rows = [row for row in option_rows(group, name) if row[0] not in known or known[row[0]] != row[1]]
        if rows:
            yield f"## {name}\n\n{source_line(group, name)}{key_table(rows)}"
        if name == default and not shared:
            known = {key: value for key, value, _ in rows}


def source_line(group: str, name: str) -> str:
    """The class that takes an option's keys, with the first line of its docstring."""
    target = target_of(group, options_config(group, name))
    if target is None or not target.__module__.startswith("lightning_rl"):
        return ""
    return f"`{target.__module__}.{target.__qualname__}`: {escaped(headline(target))}\n\n"


@cache
def options_config(group: str, name: str) -> Mapping[str, Any]:
    needs_id = ["env.id=ID"] if group == "env" and "id: ???" in option_text(group, name) else []
    needs_type = ["exploration.type=stochastic_sampling"] if (group, name) == ("exploration", "custom") else []
    return compose_config([f"{group}={name}", "experiment=none", *needs_id, *needs_type, *REPLAY.get(group, ())])


def option_rows(group: str, name: str) -> list[tuple[str, Any, str]]:
    """Key, default and meaning of each key of a choice."""
    config = options_config(group, name)
    target = target_of(group, config)
    docs = argument_docs(target) if target is not None and target.__module__.startswith("lightning_rl") else {}
    raw = yaml.safe_load(option_text(group, name)) or {}
    values = {key: raw.get(key, value) if is_reference(raw.get(key)) else value for key, value in config[group].items()}
    shown = {key: value for key, value in values.items() if key not in ("_target_", "model", "exploration", "seed")}
    return [(key, value, docs.get(key) or comment(group, name, key)) for key, value in shown.items()]


def is_reference(value: Any) -> bool:
    """Whether a value of a YAML file is another key's, such as `${seed}`."""
    return isinstance(value, str) and "${" in value


def comment(group: str, name: str, key: str) -> str:
    """The comment beside a key in an option's file, or in the group's default file."""
    for option in (name, "default"):
        text = option_text(group, option) if option == name or option in group_options(group) else ""
        if found := re.search(rf"^ *{re.escape(key)}:[^#\n]*# (.*)$", text, re.MULTILINE):
            return found[1]
    return ""


# -- Markdown ----------------------------------------------------------------------------------------------------------


def key_table(rows: Any) -> str:
    lines = "".join(f"| `{key}` | {value_cell(value)} | {escaped(meaning)} |\n" for key, value, meaning in rows)
    return f"| key | default | meaning |\n|---|---|---|\n{lines}\n"


def value_cell(value: Any) -> str:
    """A value as it is written in YAML."""
    text = yaml.safe_dump(value, default_flow_style=True, width=10_000).removesuffix("...\n").strip()
    return f"`{text}`".replace("|", "\\|")


def escaped(text: str) -> str:
    """Plain text with code spans, as one line of Markdown in a table."""
    parts = CODE.split(" ".join(text.split()))
    plain = [part if part.startswith("`") else re.sub(r"([*<\[\]\\$])", r"\\\1", part) for part in parts]
    return "".join(plain).replace("|", "\\|")


def write_pages(directory: Path) -> list[str]:
    """Write all pages into a directory and give their names; a page that is there with the same text is left alone."""
    directory.mkdir(parents=True, exist_ok=True)
    pages = dict([*room_pages(), *group_pages()])
    for name, text in pages.items():
        file = directory / f"{name}.md"
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")
    return list(pages)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    write_pages(parser.parse_args().directory)
