"""The programs in docs/examples run, and reach the figures that their docstrings claim, which are read from there.

An example has `main`, whose first argument is its budget and which returns scores by name; a claim in its docstring is
written "`name` ≥ number" or "`name` ≤ number".
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.families import each
from tests.run_processes import import_file

FOLDER = Path(__file__).parents[1] / "docs" / "examples"
CLAIM = re.compile(r"`([\w -]+)` ([≥≤]) (−?[\d.]*\d)")

FILES = {file.stem: file for file in sorted(FOLDER.glob("*.py"))}
# A loss, a model, several agents, and a policy of one's own.
QUICK = ("autoencoder_loss", "custom_model_dict_obs", "self_play_rock_paper_scissors", "policy_from_scratch")


def claims(file: Path) -> list[tuple[str, str, float]]:
    """(score, ≥ or ≤, number) of every claim."""
    docstring = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return [(name, sign, float(number.replace("−", "-"))) for name, sign, number in CLAIM.findall(docstring)]


@pytest.mark.parametrize("name", each(FILES, default=QUICK))
def test_an_example_runs_and_returns_the_scores_of_its_claims(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = FILES[name]
    monkeypatch.setitem(sys.modules, file.stem, import_file(file))  # whose classes worker processes look up
    scores = sys.modules[file.stem].main(1)
    assert all(np.isfinite(score) for score in scores.values())
    assert {name for name, _, _ in claims(file)} <= set(scores)


def test_every_example_makes_a_claim_and_fits_on_two_screens() -> None:
    assert not [file.name for file in FILES.values() if not claims(file)]
    assert not [file.name for file in FILES.values() if len(file.read_text(encoding="utf-8").splitlines()) > 110]


def test_the_table_of_examples_lists_every_example_with_its_command() -> None:
    table = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert not [file.name for file in FILES.values() if f"]({file.name})" not in table]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("file", FILES.values(), ids=FILES)
def test_an_example_reaches_its_claimed_scores(file: Path, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, str(file)], cwd=tmp_path, capture_output=True, text=True, check=True)
    scores = ast.literal_eval(done.stdout.strip().splitlines()[-1])
    for name, sign, number in claims(file):
        assert scores[name] >= number if sign == "≥" else scores[name] <= number, f"{name} {sign} {number}: {scores}"


@pytest.mark.ray
def test_the_hand_written_loop_runs_with_ray(tmp_path: Path) -> None:
    command = [sys.executable, str(FOLDER / "policy_from_scratch.py"), "--ray"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip().splitlines()[-1] == "{'return': 1.0}"
