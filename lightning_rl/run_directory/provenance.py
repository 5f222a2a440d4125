"""Writes and reads provenance.json: how each session of a run was started, with which code, on which machine."""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from lightning_rl.run_directory.atomic import save_text
from lightning_rl.run_directory.process_identity import now
from lightning_rl.run_directory.regular_files import read_text
from lightning_rl.version import __version__

__all__ = [
    "PROVENANCE_FILE",
    "command_line",
    "installed_version",
    "read_provenance",
    "record_session",
    "versions",
]

PROVENANCE_FILE = "provenance.json"
MOST_BYTES = 2**20
PACKAGES = ("torch", "lightning", "gymnasium", "numpy", "ray", "hydra-core")
GIT = ("git", "-c", "core.fsmonitor=false", "--no-optional-locks")  # asks, and writes nothing
GIT_SECONDS = 2.0


def record_session(run_dir: Path, device: str | None = None) -> None:
    """Add this process to the provenance.json of a run, at its start and whenever it is resumed.

    Args:
        run_dir: the directory of the run.
        device: on which it learns; `None` if this process does not know.

    Raises:
        SaveError: the file could not be written.
    """
    save_text(run_dir / PROVENANCE_FILE, json.dumps([*read_provenance(run_dir), session(device)], indent=1))


def session(device: str | None) -> dict[str, Any]:
    """What identifies the code and the machine of this process: plain data."""
    return {
        "at": now(),
        "command": command_line(sys.argv),
        "directory": os.getcwd(),
        "git": git_state(),
        "versions": versions(),
        "machine": {
            "host": platform.node(),
            "system": platform.platform(),
            "processor": processor_name(),
            "cpus": os.cpu_count(),
            "device": device,
        },
    }


def command_line(arguments: list[str]) -> str:
    """The shell's command of a Python program, without the directory that the console script is in."""
    program, *rest = arguments or [""]
    if program.endswith(("/lightning-rl", "lightning_rl/__main__.py")):
        return shlex.join(["lightning-rl", *rest])
    return shlex.join(["python", program, *rest])


def versions() -> dict[str, str]:
    """Versions of this package, of Python, and of the installed packages that decide about results."""
    found = {package: installed for package in PACKAGES if (installed := installed_version(package)) is not None}
    return {"lightning_rl": __version__, "python": platform.python_version(), **found}


def installed_version(package: str) -> str | None:
    """The version of an installed package; `None` if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def git_state() -> dict[str, Any] | None:
    """Commit of the working directory, and whether tracked files differ from it; `None` outside of a repository."""
    try:
        commit = git("rev-parse", "HEAD")
        return {"commit": commit, "changed": bool(git("status", "--porcelain", "--untracked-files=no"))}
    except (OSError, subprocess.SubprocessError):
        return None


def git(*arguments: str) -> str:
    """The output of a git command in the working directory."""
    command = [*GIT, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=GIT_SECONDS).stdout.strip()


def processor_name() -> str:
    """The processor's model."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def read_provenance(run_dir: Path) -> list[dict[str, Any]]:
    """The sessions of a run, oldest first; empty if none were recorded, or if the file is damaged."""
    file = run_dir / PROVENANCE_FILE
    try:
        sessions = json.loads(read_text(file, most=MOST_BYTES))
    except (OSError, RecursionError, ValueError):
        return []
    return [each for each in sessions if isinstance(each, dict)] if isinstance(sessions, list) else []
