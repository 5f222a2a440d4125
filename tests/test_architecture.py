"""The arrows of the house: imports go down the floors, never in a circle; heavy packages stay in their rooms."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "lightning_rl"
FILES = sorted(PACKAGE.rglob("*.py"))

FLOORS = {
    "checkpoint_files": 1,
    "distributed": 1,
    "envs": 1,
    "errors": 1,
    "replay": 2,
    "losses": 1,
    "models": 1,
    "ranges": 1,
    "exploration": 1,
    "run_directory": 1,
    "sample_batch": 1,
    "schedules": 1,
    "seeding": 1,
    "signatures": 1,
    "spaces": 1,
    "trust": 1,
    "version": 1,
    "policies": 2,
    "rollouts": 2,
    "data": 3,
    "callbacks": 3,
    "config": 4,
    "rllib": 4,
    "runs": 4,
    "algorithm": 4,
    "cli": 4,
}
HOMES = {
    "ray": {f"rollouts/ray/{name}.py" for name in ("actors", "placement", "session", "train", "transport")},
    "hydra": {f"config/{name}.py" for name in ("compose", "groups", "hydra_errors", "sweeps")},
    "omegaconf": {f"config/{name}.py" for name in ("compose", "hydra_errors", "sweeps")},
}


def room(module: str) -> str:
    """ "models" of "lightning_rl.models.catalog"."""
    return module.split(".")[1] if "." in module else ""


def imports(file: Path, lazy: bool = True) -> Iterator[str]:
    """Modules that a file imports; those inside functions only with `lazy`, those for type checkers never."""
    tree = ast.parse(file.read_text())
    skipped = {
        id(child)
        for node in ast.walk(tree)
        if (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test))
        or (not lazy and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
        for child in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (
                f"{node.module}.{alias.name}" if node.module == "lightning_rl" else node.module for alias in node.names
            )


def module_of(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_imports_go_down_the_floors(file: Path) -> None:
    own = room(module_of(file))
    if own in ("", "__main__"):
        return
    for imported in imports(file):
        target = room(imported)
        if not imported.startswith("lightning_rl.") or target == own or target in ("", "__version__"):
            continue
        assert FLOORS[target] < FLOORS[own] or FLOORS[target] == FLOORS[own] != 2, f"{file.name} imports {imported}"
        assert {own, target} != {"policies", "rollouts"}, f"{file.name} imports {imported}"
        assert (own, target) != ("data", "policies"), "data knows policies only by what it is given"


@pytest.mark.parametrize("package", HOMES)
def test_heavy_packages_stay_in_their_rooms(package: str) -> None:
    users = {
        str(file.relative_to(PACKAGE)) for file in FILES if any(name.split(".")[0] == package for name in imports(file))
    }
    assert users == HOMES[package]


def test_losses_import_torch_only() -> None:
    for file in (PACKAGE / "losses").glob("*.py"):
        outside = {name.split(".")[0] for name in imports(file)} - {"torch", "__future__", "collections"}
        assert outside <= {"lightning_rl"}
        assert all(name.startswith("lightning_rl.losses") for name in imports(file) if name.startswith("lightning_rl"))


def test_there_are_no_circles() -> None:
    arrows = {
        module_of(file): {name for name in imports(file, lazy=False) if name.startswith("lightning_rl")}
        for file in FILES
    }
    known = set(arrows)
    arrows = {
        module: {name if name in known else name.rpartition(".")[0] for name in names}
        for module, names in arrows.items()
    }
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " → ".join([*path[path.index(module) :], module])
        if module not in done:
            for imported in sorted(arrows.get(module, ())):
                if imported != module:
                    visit(imported, (*path, module))
            done.add(module)

    for module in sorted(arrows):
        visit(module, ())


def test_no_room_is_called_utils() -> None:
    assert not [file for file in FILES if {"utils", "common", "core", "helpers"} & set(file.with_suffix("").parts[-3:])]


def loaded_after(code: str) -> set[str]:
    report = f"{code}\nimport sys; print(' '.join(sys.modules))"
    return set(
        subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True).stdout.split()
    )


def test_importing_the_package_is_cheap() -> None:
    assert not {"torch", "lightning", "ray", "hydra", "gymnasium", "tensorboard"} & loaded_after("import lightning_rl")


def test_acting_needs_neither_ray_nor_hydra() -> None:
    assert not {"ray", "hydra", "tensorboard"} & loaded_after(
        "from lightning_rl import Policy, RolloutWorker, EnvCreator"
    )


def test_an_environment_s_process_needs_no_torch() -> None:
    assert "torch" not in loaded_after("from lightning_rl.envs.creator import EnvCreator")
