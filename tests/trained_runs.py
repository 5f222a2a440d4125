"""Short trained runs, each made once for all test processes of a session, for tests of what happens to a run later.

They are read-only; a test that writes into a run takes a copy.
"""

from __future__ import annotations

import contextlib
import io
import shutil
from pathlib import Path

import pytest
from filelock import FileLock  # torch depends on it

from lightning_rl.cli import main

__all__ = ["RUNS", "TrainedRuns", "shared_directory", "train"]

RUNS: dict[str, tuple[str, ...]] = {
    "ppo": ("policy=ppo", "env=cartpole"),
    "several agents": ("policy=ppo", "env=rock_paper_scissors"),
}


def train(run_dir: Path, *overrides: str) -> Path:
    """Train for a moment; the run's directory."""
    arguments = ["total_env_steps=400", "workers.fragment_length=32", "evaluation=none", *overrides]
    with contextlib.redirect_stdout(io.StringIO()):
        assert main(["train", f"run_dir={run_dir}", "trainer.enable_progress_bar=false", *arguments]) == 0
    return run_dir


def shared_directory(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A directory that all processes of this session share."""
    base = tmp_path_factory.getbasetemp()
    shared = (base if worker_id == "master" else base.parent) / "shared"
    shared.mkdir(exist_ok=True)
    return shared


class TrainedRuns:
    """`trained_runs("ppo")` → the directory of the run; `trained_runs.copy("ppo", tmp_path / "run")` to write into."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def __call__(self, name: str) -> Path:
        """The run's directory; the first process that asks trains it."""
        run_dir = self.directory / name.replace(" ", "_")
        with FileLock(f"{run_dir}.lock"):
            if not (run_dir / "status.json").is_file():
                train(run_dir, *RUNS[name])
        return run_dir

    def copy(self, name: str, to: Path) -> Path:
        """A copy of the run."""
        return Path(shutil.copytree(self(name), to))
