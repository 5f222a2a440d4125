"""A small process beside a run that uses Ray; it reports the reason if Ray ends that run without a message.

A process whose raylet has died is ended at once by a thread of Ray's (`_exit(1)`): no exception, no handler, no last
its own line; the same happens a minute after the death of the session's gcs_server. Processes of Ray's would stay
for two minutes more.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil  # Ray has it with it

from lightning_rl.run_directory.lock import current_run_directory, read_lock
from lightning_rl.run_directory.status import STATUS_FILE, read_status_or_empty, update_status

__all__ = ["Guard", "main", "start_guard"]

LOOK_SECONDS = 0.05
LIST_SECONDS = 2.0  # between two updates of the list of the run's processes
INFRASTRUCTURE = ("raylet", "gcs_server")
# A process that runs this module reports by itself that the first rank is gone.
OTHER_RANK = "lightning_rl.runs.rank_process"


def start_guard() -> subprocess.Popen[bytes] | None:
    """Start a guard for the run that this process trains; `None` if it trains none. `stop_ray` ends the guard."""
    run_dir = current_run_directory()
    if run_dir is None:
        return None
    return subprocess.Popen(
        [sys.executable, "-m", __name__, str(run_dir)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C at a terminal is for the run, which may need some time to end
    )


@dataclass(frozen=True, slots=True)
class StartedProcess:
    """A descendant of the run's process.

    Attributes:
        process: psutil's handle, which distinguishes it from a later process with the same pid.
        name: the name of its program.
    """

    process: psutil.Process
    name: str


class Guard:
    """Watches the process that started this one.

    Args:
        run_dir: the directory of the run that this process trains.
    """

    def __init__(self, run_dir: Path) -> None:
        self.parent, self.run_dir = os.getppid(), run_dir
        self.started: list[StartedProcess] = []
        self.died: StartedProcess | None = None  # the part of Ray's infrastructure that died while the parent lived
        self._listed_at = -LIST_SECONDS

    def watch(self) -> None:
        """Watch the processes until the parent is gone."""
        while os.getppid() == self.parent:
            if self.died is None:
                self.died = self._dead_infrastructure()
            if time.monotonic() - self._listed_at >= LIST_SECONDS:
                self._listed_at = time.monotonic()
                self._update_list()
            time.sleep(LOOK_SECONDS)

    def clear(self) -> None:
        """Kill the processes that the parent has left behind."""
        for each in self.started:
            with suppress(psutil.Error):
                for process in [*each.process.children(recursive=True), each.process]:
                    process.kill()

    def record(self) -> str | None:
        """Write into status.json that the run failed, unless the run itself wrote how it ended; returns the message."""
        status = read_status_or_empty(self.run_dir / STATUS_FILE)
        if (read_lock(self.run_dir) or {}).get("pid") != self.parent or status.get("state", "running") != "running":
            return None
        error = f"process {self.parent} ended {self._cause()}"
        update_status(self.run_dir, state="failed", error=error)
        resumable = any((self.run_dir / "checkpoints").glob("*.ckpt"))
        advice = f"`lightning-rl resume {shlex.quote(str(self.run_dir))}` continues from its last checkpoint"
        return f"{error}: {advice if resumable else 'it has no checkpoint; start it again'}"

    def _cause(self) -> str:
        if self.died is not None:
            return f"because Ray's {self.died.name} (process {self.died.process.pid}) had died"
        with_it = self._dead_infrastructure()  # at the same time: which one died first is not known
        also = "" if with_it is None else f", and with it Ray's {with_it.name} (process {with_it.process.pid})"
        return f"without a word{also}"

    def _dead_infrastructure(self) -> StartedProcess | None:
        # The raylet first: processes that end just after it end because of it.
        dead = {each.name: each for each in self.started if each.name in INFRASTRUCTURE and not is_alive(each)}
        return next((dead[name] for name in INFRASTRUCTURE if name in dead), None)

    def _update_list(self) -> None:
        with suppress(psutil.Error):  # the parent has just ended
            found = descendants(psutil.Process(self.parent))
            known = {each.process: each for each in self.started}
            self.started = [known.get(process) or StartedProcess(process, process.name()) for process in found]


def descendants(process: psutil.Process) -> list[psutil.Process]:
    """All processes that a process has started, and that these have; without this one and without other ranks."""
    found = []
    for child in process.children():
        if child.pid != os.getpid() and OTHER_RANK not in child.cmdline():
            found += [child, *child.children(recursive=True)]
    return found


def is_alive(started: StartedProcess) -> bool:
    """Whether a process exists and is not a zombie."""
    try:
        return started.process.is_running() and started.process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def main() -> None:
    """`python -m lightning_rl.rollouts.ray.guard RUN_DIR`."""
    guard = Guard(Path(sys.argv[1]))
    guard.watch()
    message = guard.record()
    guard.clear()
    if message is not None:
        print(f"error: {message}", file=sys.stderr)


if __name__ == "__main__":
    main()
