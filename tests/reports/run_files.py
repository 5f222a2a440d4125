"""Run directories as a run writes them, with curves of one's choice, for tests of reports."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from lightning_rl.run_directory.provenance import PROVENANCE_FILE
from lightning_rl.run_directory.status import write_status

STEPS = 1000  # env steps between two rows
ROWS = 20

DISTRIBUTIONS: Mapping[str, Callable[[np.random.Generator, Any], np.ndarray]] = {
    "normal": lambda generator, size: generator.normal(size=size),
    "skewed": lambda generator, size: generator.lognormal(size=size),
    "bounded": lambda generator, size: np.minimum(500.0, generator.normal(480.0, 40.0, size)),
    "one in five fails": lambda generator, size: np.where(
        generator.random(size) < 0.2, generator.normal(100.0, 20.0, size), generator.normal(480.0, 10.0, size)
    ),
}
"""Scores of runs over seeds, as they are seen."""


def rising(last: float, rows: int = ROWS) -> list[float]:
    """Returns that rise evenly to `last`."""
    return [last * (row + 1) / rows for row in range(rows)]


def write_run(
    directory: Path,
    *,
    seed: int = 0,
    returns: Sequence[float] | None = None,
    evaluations: Mapping[int, float] | None = None,
    state: str = "ok",
    policy: Mapping[str, Any] | None = None,
    env: str = "CartPole-v1",
    stop: Mapping[str, Any] | None = None,
    metrics: Mapping[str, Sequence[Any]] | None = None,
    error: str | None = None,
    seconds_per_row: float = 2.0,
    overrides: Sequence[str] = (),
) -> Path:
    """A run whose row k is at (k + 1) · STEPS env steps.

    Args:
        directory: of the run.
        seed: of the run.
        returns: of training, a value for each row; `None`: a run without curves.
        evaluations: row → return of the evaluation there; `None`: one in the last row, equal to its training return.
        state: in status.json.
        policy: keys of the policy beside `_target_` and `seed`.
        env: id.
        stop: keys of the section beside its defaults.
        metrics: further metrics, a value for each row.
        error: in status.json.
        seconds_per_row: wall time.
        overrides: of a sweep's job.
    """
    directory.mkdir(parents=True)
    config = {
        "seed": seed,
        "total_env_steps": ROWS * STEPS,
        "run_dir": str(directory),
        "stop": {"metric": "rollout/ep_rew_mean", "return": None, "seconds": None, "min_episodes": 100, **(stop or {})},
        "env": {"id": env, "kwargs": {}},
        "policy": {"_target_": "lightning_rl.policies.PPO", "seed": seed, "lr": 0.001, "gamma": 0.99, **(policy or {})},
        "workers": {"num_workers": 0},
        "data": {},
        "evaluation": {"episodes": 10, "parallel": False},
        "checkpoint": {"mode": "max"},
        "logger": {"csv": {"path": f"{directory}/metrics.csv"}},
    }
    (directory / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    write_status(directory / "status.json", state, env_steps=len(returns or ()) * STEPS, error=error)
    if overrides:
        (directory / ".hydra").mkdir()
        (directory / ".hydra" / "overrides.yaml").write_text(yaml.safe_dump(list(overrides)))
    if returns is None:
        return directory
    if evaluations is None:
        evaluations = {len(returns) - 1: returns[-1]}
    columns: dict[str, Sequence[Any]] = {
        "env_steps": [STEPS * (row + 1) for row in range(len(returns))],
        "rollout/ep_rew_mean": returns,
        "rollout/episodes": [200 * (row + 1) for row in range(len(returns))],
        "time/iterations": [4 * (row + 1) for row in range(len(returns))],
        "time/collect_s": [0.25 * seconds_per_row / 4] * len(returns),
        "time/learn_s": [0.5 * seconds_per_row / 4] * len(returns),
        "time/total_s": [seconds_per_row * (row + 1) for row in range(len(returns))],
        "eval/ep_rew_mean": [evaluations.get(row, "") for row in range(len(returns))],
        "time/eval_s": [0.5 if row in evaluations else "" for row in range(len(returns))],
        **(metrics or {}),
    }
    with (directory / "metrics.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return directory


def write_runs(directory: Path, *lasts: float, **keywords: Any) -> Path:
    """A run for each of these last returns, of seeds 0, 1, …; the directory."""
    for seed, last in enumerate(lasts):
        write_run(directory / str(len([*directory.glob("*")])), seed=seed, returns=rising(last), **keywords)
    return directory


def write_session(run_dir: Path, **entries: Any) -> None:
    """A provenance.json with one session."""
    session = {
        "at": "2026-01-02T03:04:05+00:00",
        "command": "lightning-rl train policy=ppo",
        "directory": "/home/user",
        "git": {"commit": "c0ffee", "changed": True},
        "versions": {"torch": "2.9.0", "numpy": "2.4.0"},
        "machine": {"host": "box", "cpus": 8},
    }
    (run_dir / PROVENANCE_FILE).write_text(json.dumps([{**session, **entries}]))
