"""Resumes copies of runs, and compares what two runs learned."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lightning_rl.config import check_config, compose_config
from lightning_rl.policies import Policy
from lightning_rl.runs import run

TIMES = ("time/", "sys/rss_mb", "eval/share")  # metrics of time and memory


def checked_config(*overrides: str) -> dict[str, Any]:
    """The composed config of a run, as the command line checks it."""
    config = compose_config(list(overrides))
    check_config(config)
    return config


def learned_state(run_dir: Path) -> dict[str, Any]:
    checkpoint = torch.load(run_dir / "checkpoints" / "last.ckpt", weights_only=True)
    (optimizer,) = checkpoint["optimizer_states"]
    return {"weights": checkpoint["state_dict"], "moments": optimizer["state"], "counters": checkpoint["counters"]}


def assert_equal(first: Any, second: Any, where: str = "") -> None:
    if isinstance(first, dict):
        assert first.keys() == second.keys(), where
        for key in first:
            assert_equal(first[key], second[key], f"{where}.{key}")
    elif isinstance(first, list):
        assert_equal(dict(enumerate(first)), dict(enumerate(second)), where)
    elif isinstance(first, torch.Tensor):
        assert (first.dtype, first.shape) == (second.dtype, second.shape), where
        assert torch.equal(first, second), where
    else:
        assert first == second, where


def assert_equal_weights(first: Policy, second: Policy) -> None:
    """Raise unless the weights of both policies are bitwise equal."""
    for name, value in first.get_weights().items():
        assert np.array_equal(value, second.get_weights()[name]), name


def resume(source: Path, checkpoint: str, run_dir: Path, total: int, workers: int) -> Path:
    """Copy a run as it was when `checkpoint` was written, and let it go on to `total` env steps."""
    shutil.copytree(source, run_dir, ignore=shutil.ignore_patterns("status.json"))
    for later in (run_dir / "checkpoints").glob("*_*.ckpt"):
        if checkpoint != "last.ckpt" and later.name.split("_")[1][:9] > checkpoint.split("_")[1][:9]:
            later.unlink()
    taken = run.resumed_config(run_dir, {"total_env_steps": total})
    taken["workers"]["num_workers"] = workers
    status = run.train(taken, ckpt_path=run_dir / "checkpoints" / checkpoint)
    assert status["state"] == "ok" and status["env_steps"] >= total
    return run_dir


def first_checkpoint(run_dir: Path) -> str:
    """The first of a run's checkpoints; the last one is its end."""
    files = sorted(path.name for path in (run_dir / "checkpoints").glob("step_*.ckpt"))
    assert len(files) > 1
    return files[0]


def assert_same_run(first: Path, second: Path) -> None:
    """Two runs that ended alike: all that their last checkpoints and their curves hold."""
    assert_equal(everything(first), everything(second))
    assert rows(first) == rows(second)  # one curve, without a row twice or missing


def everything(run_dir: Path) -> dict[str, Any]:
    """What the last checkpoint holds, without times, the configuration, and how Lightning counted its way there."""
    checkpoint = torch.load(run_dir / "checkpoints" / "last.ckpt", weights_only=True)
    del checkpoint["loops"], checkpoint["config"], checkpoint["signature"]  # the signature covers the configuration
    metrics = checkpoint["callbacks"]["MetricsCallback"]
    del metrics["seconds"]
    epochs = checkpoint["callbacks"]["Epochs"]
    checkpoint["callbacks"]["Epochs"] = {name: epochs[name] for name in ("done", "postponed")}
    metrics["latest"] = {name: value for name, value in metrics["latest"].items() if not name.startswith(TIMES)}
    return checkpoint


def rows(run_dir: Path) -> list[dict[str, str]]:
    """All columns of metrics.csv but the times; empty cells are left out."""
    with (run_dir / "metrics.csv").open() as file:
        return [
            {name: value for name, value in row.items() if value and not name.startswith(TIMES)}
            for row in csv.DictReader(file)
        ]
