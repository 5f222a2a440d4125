"""Processes of tests: copies of the test's own, and commands whose processes are marked so that they can be found."""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import psutil
import torch

__all__ = ["Fork", "Run", "import_file"]

MARK = "LIGHTNING_RL_TEST_RUN"
ROOT = Path(__file__).parents[1]


def import_file(file: Path) -> Any:
    """A program of docs/ or scripts/ as a module, which is not in `sys.modules`."""
    spec: Any = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Fork(multiprocessing.get_context("fork").Process):
    """`with Fork(function, log) as process: …`: the function in a copy of this process; ended at the end.

    For tests of signals, limits and streams: it has imported everything already, which takes an interpreter seconds.
    What the function returns is its exit code; its output goes to `log`.
    """

    def __init__(self, function: Callable[[], Any], log: Path) -> None:
        super().__init__()
        self.function, self.log = function, log
        log.touch()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()
        self.join()

    def run(self) -> None:
        """In the copy."""
        torch.set_num_threads(1)  # OpenMP's threads do not survive a fork
        output = self.log.open("w", encoding="utf-8", buffering=1)
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
        sys.stdout = sys.stderr = output
        sys.exit(self.function())

    def wait(self, seconds: float = 100.0) -> int | None:
        """Its exit code, or -N of the signal N that ended it; None if it has not ended after `seconds`."""
        self.join(seconds)
        return self.exitcode

    def until(self, condition: Callable[[], Any], seconds: float = 100.0) -> Any:
        """As that of a `Run`."""
        return until(condition, seconds, self.is_alive, lambda: self.text)

    @property
    def text(self) -> str:
        """What it wrote to stdout and stderr."""
        return self.log.read_text(encoding="utf-8", errors="replace")


class Run:
    """`with Run("train", "policy=ppo", cwd=tmp_path) as run: …`; whatever it left behind is ended at the end."""

    def __init__(self, *arguments: str, cwd: Path, **environment: str) -> None:
        self.mark = uuid.uuid4().hex
        self.command = [sys.executable, "-m", "lightning_rl", *arguments]
        self.cwd, self.log = cwd, cwd / f"log_{self.mark}.txt"
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        own = {MARK: self.mark, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
        self.environment = {**os.environ, **own, **environment}

    def __enter__(self) -> Self:
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                self.command, cwd=self.cwd, env=self.environment, stdout=log, stderr=subprocess.STDOUT
            )
        return self

    def __exit__(self, *error: object) -> None:
        for process in self.all():
            process.kill()
        self.process.wait()

    def all(self) -> list[psutil.Process]:
        """Every process of the run that lives, this one's child among them."""
        return [process for process in psutil.process_iter() if self._is_own(process)]

    def ranks(self) -> list[psutil.Process]:
        """Those of all ranks but the first."""
        return [process for process in self.all() if "lightning_rl.runs.rank_process" in _of(process, "cmdline", [])]

    def wait(self, seconds: float = 100.0) -> int:
        """Its exit code; all of its output is in `text`."""
        return self.process.wait(seconds)

    @property
    def text(self) -> str:
        """What it wrote to stdout and stderr."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def until(self, condition: Callable[[], Any], seconds: float = 100.0) -> Any:
        """What `condition` gives once it is true; fails with the output if the run ends before, or time runs out."""
        return until(condition, seconds, lambda: self.process.poll() is None, lambda: self.text)

    def until_gone(self, seconds: float) -> float:
        """Seconds until no process of the run was left.

        Raises:
            AssertionError: there are some after that time.
        """
        started = time.monotonic()
        while left := self.all():
            assert time.monotonic() - started < seconds, [_of(process, "cmdline", []) for process in left]
            time.sleep(0.1)
        return time.monotonic() - started

    def _is_own(self, process: psutil.Process) -> bool:
        return (
            process.pid != os.getpid()
            and _of(process, "environ", {}).get(MARK) == self.mark
            and _of(process, "status", "") != psutil.STATUS_ZOMBIE
        )


def _of(process: psutil.Process, name: str, otherwise: Any) -> Any:
    try:
        return getattr(process, name)()
    except psutil.Error:  # it has just ended, or belongs to another user
        return otherwise


def until(condition: Callable[[], Any], seconds: float, is_alive: Callable[[], bool], text: Callable[[], str]) -> Any:
    """What `condition` gives once it is true.

    Raises:
        AssertionError: the process has ended, or time has run out; with its output.
    """
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert is_alive() and time.monotonic() < deadline, text()
        time.sleep(0.05)
    return found
