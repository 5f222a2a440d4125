"""Rooms and floors, measured from imports; heavy packages stay in their rooms.

A room is the first path component below `lightning_rl/`; the files beside the rooms are one, "root". A room's floor is
1 above the highest that it imports, inside functions and for type checkers too.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "lightning_rl"
FILES = sorted(set(PACKAGE.rglob("*.py")) - set((PACKAGE / "template").rglob("*.py")))  # files of a user's project

APART = {
    "",
    "__init__",
    "__main__",
    "deploy",
    "version",
}  # public names, and files that import nothing
FOLDERS = {file.parent.name for file in PACKAGE.glob("*/__init__.py")}
MOST_FLOORS, MOST_ROOMS = 10, 24
# Arrows that point down and are forbidden all the same.
STRANGERS = {("policies", "rollouts"), ("rollouts", "policies"), ("data", "policies"), ("learning", "replay")}
HOMES = {
    "ray": {
        *(f"rollouts/ray/{name}.py" for name in ("actors", "placement", "session", "train", "transport")),
        "runs/tune.py",  # the door to Ray Tune
        "rllib/trainable.py",  # Ray Tune takes subclasses of its Trainable only
    },
    "hydra": {
        f"config/{name}.py" for name in ("compose", "groups", "hydra_errors", "origins", "search_spaces", "sweeps")
    },
    "optuna": {"runs/search.py"},
    "omegaconf": {f"config/{name}.py" for name in ("compose", "groups", "hydra_errors", "origins", "sweeps")},
}


def module_of(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(file) for file in FILES}


def room(module: str) -> str:
    """ "models" of "lightning_rl.models.catalog"; "root" of a file beside the rooms, "" of one that stands apart."""
    name = module.split(".")[1] if "." in module else ""
    return name if name in FOLDERS else "" if name in APART else "root"


@cache
def imports(file: Path) -> list[str]:
    """Modules that a file imports; see `imported_by`."""
    return list(imported_by(file))


def imported_by(file: Path) -> Iterator[str]:
    """Modules that a file imports: at the top, inside functions, for type checkers, and by `import_module("name")`."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            yield from (name.value for name in node.args[:1] if isinstance(name, ast.Constant))
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in MODULES else node.module


@cache
def arrows() -> dict[str, set[str]]:
    """Room → the rooms that its files import."""
    found: dict[str, set[str]] = {}
    for file in FILES:
        if own := room(module_of(file)):
            targets = {room(name) for name in imports(file) if name.startswith("lightning_rl.")}
            found.setdefault(own, set()).update(targets - {own, ""})
    return found


@cache
def floor(name: str) -> int:
    """1 above the highest room that this one imports."""
    return 1 + max((floor(target) for target in arrows()[name]), default=0)


def test_the_house_has_few_rooms_on_few_floors() -> None:
    assert not circles(arrows())
    assert len(arrows()) <= MOST_ROOMS
    assert max(map(floor, arrows())) <= MOST_FLOORS


def test_rooms_that_know_nothing_of_each_other() -> None:
    assert not [(own, target) for own, targets in arrows().items() for target in targets if (own, target) in STRANGERS]
    assert not [own for own, targets in arrows().items() if "rllib" in targets]


def test_heavy_packages_stay_in_their_rooms() -> None:
    users: dict[str, set[str]] = {package: set() for package in HOMES}
    for file in FILES:
        for package in {name.split(".")[0] for name in imports(file)} & set(HOMES):
            users[package].add(str(file.relative_to(PACKAGE)))
    assert users == HOMES


def test_losses_import_torch_only() -> None:
    for file in (PACKAGE / "losses").glob("*.py"):
        outside = {name.split(".")[0] for name in imports(file)} - {"torch", "__future__", "collections"}
        assert outside <= {"lightning_rl"}
        assert all(name.startswith("lightning_rl.losses") for name in imports(file) if name.startswith("lightning_rl"))


def circles(arrows: dict[str, set[str]]) -> list[list[str]]:
    """Paths that come back to where they began, one for each way in."""
    done: set[str] = set()
    found: list[list[str]] = []

    def visit(place: str, path: list[str]) -> None:
        if place in path:
            found.append([*path[path.index(place) :], place])
        elif place not in done:
            for target in sorted(arrows.get(place, ())):
                visit(target, [*path, place])
            done.add(place)

    for place in sorted(arrows):
        visit(place, [])
    return found


def test_files_import_each_other_in_no_circle() -> None:
    """Counted are imports inside functions and for type checkers, too."""
    ours = [file for file in FILES if room(module_of(file))]
    files = {module_of(file): {name for name in imports(file) if name in MODULES} for file in ours}
    assert not circles({module: targets - {module, "lightning_rl"} for module, targets in files.items()})


def test_no_test_imports_a_test_module() -> None:
    """What several test modules share is in modules named for what they hold."""
    statement = re.compile(r"^\s*(?:from|import) [^(\n]*(?:\([^)]*\))?", re.MULTILINE)
    found = {file.name: statement.findall(file.read_text()) for file in (ROOT / "tests").rglob("*.py")}
    assert not [(name, line) for name, lines in found.items() for line in lines if re.search(r"[\s.]test_", line)]


def test_no_room_is_called_utils() -> None:
    """RLlib's paths apart."""
    ours = [file for file in FILES if PACKAGE / "rllib" not in file.parents]
    assert not [file for file in ours if {"utils", "common", "core", "helpers"} & set(file.with_suffix("").parts[-3:])]


def loaded_after(code: str) -> set[str]:
    report = f"{code}\nimport sys; print(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


HEAVY = {"torch", "lightning", "ray", "hydra", "gymnasium", "tensorboard", "matplotlib"}


@pytest.mark.parametrize(
    ("statement", "allowed"),
    [
        ("import lightning_rl", set()),
        ("from lightning_rl.reports import baseline, comparison, page", {"gymnasium"}),
        ("from lightning_rl.envs.creator import EnvCreator", HEAVY - {"torch"}),
    ],
    ids=["the package", "a report", "an environment's process"],
)
def test_importing_is_cheap(statement: str, allowed: set[str]) -> None:
    assert (HEAVY - allowed) & loaded_after(statement) == set()


@pytest.mark.process
def test_acting_needs_neither_ray_nor_hydra() -> None:
    loaded = loaded_after("from lightning_rl import Policy, RolloutWorker, EnvCreator")
    assert not {"ray", "hydra", "tensorboard"} & loaded
