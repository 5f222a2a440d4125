"""The code in README and docs runs, file by file, from top to bottom."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from lightning_rl.config.groups import GROUPS, group_options
from lightning_rl.version import __version__
from tests.golden_messages import COMMANDS
from tests.shipped_policies import POLICIES

ROOT = Path(__file__).parents[1]
FILES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
TEXTS = {file: file.read_text(encoding="utf-8") for file in FILES}
ELSEWHERE = ("tutorial.md",)  # test_tutorial.py runs its commands, too, between which its code stands
ALONE = [
    ROOT / "README.md",
    *(ROOT / "docs" / f"{name}.md" for name in ("custom_algorithms", "environments", "models", "replay")),
]  # block by block
WITH_CODE = [file for file, text in TEXTS.items() if "```python" in text and file.name not in ELSEWHERE]
RUN = """
import os, runpy, sys, traceback
failed = False
for program in sys.argv[1:]:
    os.chdir(os.path.dirname(program))
    try:
        runpy.run_path(program, run_name="__main__")
    except BaseException:
        print(program, traceback.format_exc(), sep=chr(10), file=sys.stderr)
        failed = True
sys.exit(failed)
"""


@pytest.mark.parametrize(
    "files", [[ROOT / "README.md"], pytest.param(WITH_CODE, marks=pytest.mark.process)], ids=["first", "all"]
)
def test_code_blocks_run(files: list[Path], tmp_path: Path) -> None:
    """One interpreter runs all pages, each in a namespace and a directory: importing takes longest."""
    programs = []
    for number, file in enumerate(files):
        blocks = re.findall(r"```python\n(.*?)```", TEXTS[file], flags=re.DOTALL)
        (tmp_path / str(number)).mkdir()
        for index, program in enumerate(blocks if file in ALONE else ["\n".join(blocks)]):
            path = tmp_path / str(number) / f"{file.stem}_{index}.py"
            path.write_text(program, encoding="utf-8")
            programs.append(str(path))
    result = subprocess.run([sys.executable, "-c", RUN, *programs], cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_links_lead_somewhere() -> None:
    links = [(file, link) for file, text in TEXTS.items() for link in re.findall(r"\]\(([^)#]+)", text)]
    assert [each for each in links if not each[1].startswith("http") and not (each[0].parent / each[1]).exists()] == []


def test_the_choices_that_pages_name_are_there() -> None:
    """Or are a reader's own file, which a page or the template of a project has, or a mistake of the golden file."""
    project = ROOT / "lightning_rl" / "template"
    own = {f"{file.parent.name}={file.stem}" for file in project.rglob("conf/*/*.yaml*")}
    own |= {f"{group}={name}" for text in TEXTS.values() for group, name in re.findall(r"conf/(\w+)/(\w+)\.yaml", text)}
    own |= {word for command in COMMANDS for word in command.split()}
    for group in GROUPS:
        options = {f"{group}={name}" for name in group_options(group)} | own | {f"{group}=null"}
        for file, text in TEXTS.items():
            assert set(re.findall(rf"[`\s]({group}=[a-z][a-z_0-9]*)(?=[`\s])", text)) <= options, file


def test_the_walk_of_a_batch_names_files_and_functions_that_are_there() -> None:
    walk = TEXTS[ROOT / "docs" / "architecture.md"].split("## The walk of a batch")[1].split("\n## ")[0]
    named = re.findall(r"`([\w/]+\.py)` `([\w.]+)`", walk)
    assert len(named) >= 10
    for file, function in named:
        nodes: list[ast.AST] = [ast.parse((ROOT / "lightning_rl" / file).read_text(encoding="utf-8"))]
        for part in function.split("."):
            children = (child for node in nodes for child in ast.iter_child_nodes(node))
            nodes = [child for child in children if getattr(child, "name", "") == part]
        assert nodes, f"{file} has no {function}"


def test_every_algorithm_has_a_page() -> None:
    assert set(POLICIES) == {file.stem for file in (ROOT / "docs" / "algorithms").glob("*.md")}


def test_the_page_on_installation_has_every_extra() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    table = TEXTS[ROOT / "docs" / "installation.md"].split("| extra |")[1].split("\n\n")[0]
    named = [name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert sorted(named) == sorted(extras)


def test_the_citation_names_the_version_of_the_package() -> None:
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
