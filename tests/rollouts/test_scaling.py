"""The cost of worker bookkeeping does not depend on the number of workers; calls are counted, not timed."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("worker_scaling", ROOT / "scripts" / "worker_scaling.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_fragment_of_1000_workers_costs_as_many_calls_as_one_of_10(script: ModuleType) -> None:
    """Function calls for 2,000 fragments; the goal is × 1.3."""
    few, many = script.calls(10), script.calls(1000)
    assert 20 < few / 2000 < 100  # it does count something
    assert many < 1.1 * few


def test_the_table_of_docs_scaling_is_that_of_the_model(script: ModuleType) -> None:
    """The table of docs/scaling.md, from the constants that the page names."""
    page = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
    named = re.search(r"--small-ms ([\d.]+) --large-ms ([\d.]+) --ms-per-mb ([\d.]+)", " ".join(page.split()))
    assert named is not None
    for row in script.rows(*map(float, named.groups())):
        assert row in page, row
