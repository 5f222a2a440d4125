"""The tables of docs/migration: our keys are there with the defaults named, and RLlib's names are Ray's."""

from __future__ import annotations

import importlib.util
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from lightning_rl.config import compose_config
from lightning_rl.config.groups import GROUPS
from lightning_rl.config.keys import dotted_keys, value_at

PAGES = sorted((Path(__file__).parents[1] / "docs" / "migration").glob("*.md"))
KEY = re.compile(rf"`((?:{'|'.join((*GROUPS, 'stop'))})\.\w+)\b(?!\()")
COMPOSED = ("policy=ppo", "policy=a2c", "policy=dqn", "policy=sac env=pendulum", "policy=dqn data=prioritized")


@cache
def known_keys() -> set[str]:
    return {key for choice in COMPOSED for key in dotted_keys(compose_config([*choice.split(), "experiment=none"]))}


def tables(page: Path) -> list[list[list[str]]]:
    """The cells of each row of each table, the heading first."""
    found = re.findall(r"(?:^\|.*\|\n)+", page.read_text(encoding="utf-8"), re.MULTILINE)
    return [[[cell.strip() for cell in row[1:-1].split("|")] for row in table.splitlines()] for table in found]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_our_keys_are_there(page: Path) -> None:
    named = {key for table in tables(page) for row in table for cell in row for key in KEY.findall(cell)}
    assert len(named) > 15 and named <= known_keys(), named - known_keys()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_our_defaults_are_those_named(page: Path) -> None:
    """Of tables in which a column of defaults follows our keys; words stand for what is no single value."""
    config = compose_config(["policy=ppo", "env=cartpole", "experiment=none"])
    checked = 0
    for heading, _, *rows in tables(page):
        if heading.count("default") == 0 or heading[-2:-1] != ["default"]:
            continue
        at = len(heading) - 2
        for row in rows:
            (key, *others), text = KEY.findall(row[at - 1]) or [""], row[at]
            value: Any = yaml.safe_load(re.split(r"[:;(]", text.replace("`", ""))[0]) if text else ""
            if key not in dotted_keys(config) or others or text == "" or (isinstance(value, str) and " " in value):
                continue
            assert value_at(config, key) == value, (key, text)
            checked += 1
    assert checked > 8


def test_rllib_s_names_are_in_ray() -> None:
    """Of the installed Ray, whose wheel has RLlib's sources; RLlib itself need not be importable."""
    spec = importlib.util.find_spec("ray")
    assert spec is not None and spec.submodule_search_locations
    algorithms = Path(spec.submodule_search_locations[0]) / "rllib" / "algorithms"
    source = "".join((algorithms / file).read_text(encoding="utf-8") for file in ("algorithm_config.py", "ppo/ppo.py"))
    (keys,) = (table for table in tables(PAGES[1]) if table[0][0].startswith("classic;"))
    newer = [re.findall(r"`([\w.]+)`", row[0])[-1] for row in keys[2:]]
    names = {name for name in newer if not name.startswith("model.") and name not in ("horizon", "lr_schedule")}
    assert len(names) > 15 and {name for name in names if f"self.{name} = " not in source} == set()
    *_, program = re.findall(r"```py\n(.*?)```", PAGES[1].read_text(encoding="utf-8"), re.DOTALL)
    methods = re.findall(r"^    \.(\w+)\((.*)\)$", program, re.MULTILINE)
    assert len(methods) == 5
    for method, keywords in methods:
        assert f"    def {method}(" in source, method
        assert [name for name in re.findall(r"(\w+)=", keywords) if f"        {name}: " not in source] == []
