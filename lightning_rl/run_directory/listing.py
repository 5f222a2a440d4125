"""Lists the runs below a directory with their states."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lightning_rl.errors import ConfigError
from lightning_rl.run_directory.config_file import CONFIG_FILE, MOST_BYTES
from lightning_rl.run_directory.lock import LOCK_FILE, live_owner
from lightning_rl.run_directory.process_identity import age, is_alive, is_recent
from lightning_rl.run_directory.regular_files import read_text
from lightning_rl.run_directory.status import STATUS_FILE, read_status

__all__ = ["run_directories", "runs_below", "state_of"]

FILES = (CONFIG_FILE, STATUS_FILE, LOCK_FILE)
LINES = {
    "policy": re.compile(r"^policy:\n(?:  .*\n)*?  _target_: (.+)$", re.MULTILINE),
    "env": re.compile(r"^env:\n(?:  .*\n)*?  id: (?!.*:NoEnv)(.+)$", re.MULTILINE),
    "seed": re.compile(r"^seed: (.+)$", re.MULTILINE),
}


def runs_below(directory: Path) -> list[dict[str, Any]]:
    """One row per run, newest first.

    Keys: state, policy (class), env, seed, env_steps, return, best, age (seconds since it last wrote), directory.

    Raises:
        ConfigError: there is no such directory.
    """
    if not directory.is_dir():
        raise ConfigError(f"{directory} is not a directory: give one that holds runs, such as runs")
    return sorted((row_of(run) for run in run_directories(directory)), key=lambda row: row["age"])


def run_directories(directory: Path) -> Iterator[Path]:
    """Directories that contain a run; their subdirectories are skipped."""
    for parent, children, files in os.walk(directory):
        if any(name in files for name in FILES):
            children.clear()
            yield Path(parent)
        children[:] = sorted(name for name in children if not name.startswith("."))  # .hydra has a config.yaml as well


def row_of(run_dir: Path) -> dict[str, Any]:
    """The row of a run in `list runs`."""
    try:
        status = read_status(run_dir / STATUS_FILE)
    except ConfigError:
        status = {"state": "damaged"}
    written = [(run_dir / name).lstat().st_mtime for name in FILES if os.path.lexists(run_dir / name)]
    return {
        "state": state_of(run_dir, status),
        **summary_of_config(run_dir),
        "env_steps": status.get("env_steps"),
        "return": status.get("return"),
        "best": status.get("best_return"),
        "age": max(0.0, time.time() - max(written, default=0.0)),
        "directory": str(run_dir),
    }


def summary_of_config(run_dir: Path) -> dict[str, str | None]:
    """Policy (class), environment and seed of a run, as text; `None` where its config does not say, or there is none.

    These lines are searched for in the form in which `write_config` writes them: parsing the YAML of a thousand runs
    would take 8 s.
    """
    try:
        text = read_text(run_dir / CONFIG_FILE, most=MOST_BYTES, errors="replace")
    except (OSError, ValueError):
        text = ""
    found = {name: match[1].strip("'\"") if (match := line.search(text)) else None for name, line in LINES.items()}
    return {**found, "policy": found["policy"] and re.split("[.:]", found["policy"])[-1]}


def state_of(run_dir: Path, status: Mapping[str, Any]) -> str:
    """The state of a run.

    "starting" and "running": its process lives; "silent": its process exists, but its heartbeat stopped; "dead": the
    process ended without writing a final state; "ok", "failed" and "interrupted": the final state in status.json.
    """
    written, silent_for = status.get("state", "starting"), age(status.get("heartbeat"))
    works, running = live_owner(run_dir) is not None, written == "running" and is_alive(status, silent_for)
    if works and not running:
        return "starting"
    if running and (works or is_recent(silent_for)):  # without a lock, the pid may belong to a later process
        return "running" if is_recent(silent_for) else "silent"
    return "dead" if written in ("running", "starting") else written
