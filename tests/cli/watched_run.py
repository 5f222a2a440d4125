"""A short run whose policy the verbs show."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

from lightning_rl.cli import main

__all__ = ["train"]


def train(run_dir: Path, *overrides: str) -> Path:
    """Train for a moment; the run's directory."""
    arguments = ["total_env_steps=400", "workers.fragment_length=32", "evaluation=none", *overrides]
    with contextlib.redirect_stdout(io.StringIO()):
        assert main(["train", f"run_dir={run_dir}", "trainer.enable_progress_bar=false", *arguments]) == 0
    return run_dir
