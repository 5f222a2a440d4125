"""Starts all ranks but the first as processes, watches them, and reports their errors in the first rank.

Why not torch's elastic agent (`torch.distributed.launcher.api.elastic_launch`, tried in torch 2.13 with two gloo ranks
on a CPU): it ends all ranks within 0.2 s of a failure, as this launcher does (0.3 s), but

- every rank is a child of the agent. The process that has the user's policy and Trainer (a notebook, `Algorithm`, the
  command line; 360 MB) could not be rank 0: it would only wait, and the trained policy would be in another process;
- if the agent is killed, its ranks continue: both still ran 30 s later. Here they end within 3 s, with the reason in
  status.json;
- processes that a killed rank had started (environments) continue. Here they are killed with its process group;
- an error of one rank is printed as about 60 lines: the other ranks' broken connections first, the cause last. Here it
  is one line, and for errors that the user can fix the exception has the rank's own class;
- the agent handles SIGINT and SIGTERM itself and ends the ranks, so the checkpoint that Ctrl-C leaves would need code
  against the agent.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from lightning_rl.errors import USER_ERRORS, RankError
from lightning_rl.run_directory.status import update_status
from lightning_rl.runs.rank_watch import RankWatch, describe_exit
from lightning_rl.runs.rendezvous import Store

__all__ = ["RankProcesses"]

RANK_PROGRAM = "lightning_rl.runs.rank_process"
GRACE_SECONDS = 120.0  # for a rank to end after the first one has: Ray sessions may take long on a busy machine
ECHO_SECONDS = 3.0  # time to notice that another rank's death caused a broken connection
LEAVE_SECONDS = 5.0  # for a rank to close its environments when the run has failed


class RankProcesses:
    """The processes of all ranks but the first.

    Args:
        ranks: number of ranks, including the first.
        run_dir: the directory of the run, for messages.
    """

    def __init__(self, ranks: int, run_dir: Path) -> None:
        self.ranks, self.run_dir = ranks, run_dir
        self.processes: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, config: Mapping[str, Any], ckpt_path: Path | None, store: Store) -> None:
        """Start the processes, and wait until all have built their policy, data and Trainer."""
        text = yaml.safe_dump(dict(config), sort_keys=False).encode()  # the order of policies and of patterns counts
        for rank in range(1, self.ranks):
            # Its own process group: Ctrl-C in a terminal reaches only the first rank, which stops
            # the others; and processes that a rank has started can be killed with it.
            started = subprocess.Popen(
                [sys.executable, "-m", RANK_PROGRAM, *([] if ckpt_path is None else [str(ckpt_path)])],
                env={**os.environ, "LOCAL_RANK": str(rank)},
                stdin=subprocess.PIPE,
                process_group=0,
            )
            self.processes[rank] = started
            assert started.stdin is not None
            with suppress(BrokenPipeError), started.stdin as pipe:  # a process that died is detected below
                pipe.write(text)
        # Wait here, because the collective operations that follow cannot be interrupted when a rank dies.
        while not store.check([f"ready/{rank}" for rank in self.processes]):
            if failure := self.find_failure(store):
                raise RankError(failure)
            time.sleep(0.05)

    def find_failure(self, store: Store) -> str | None:
        """Describe the rank that has failed or died; `None` if none has."""
        codes = {rank: process.poll() for rank, process in self.processes.items()}
        failed = {rank: code for rank, code in codes.items() if code}
        if not failed:
            return None
        report = self.reported_failure(store)
        if report is not None and failed.get(report["rank"], 0) > 0:
            return f"rank {report['rank']} failed: {report['error']}: {report['message']}"
        rank = min(failed, key=lambda rank: (failed[rank], rank))  # killed ranks first: they are the cause
        return f"{describe_exit(rank, self.processes[rank].pid, failed[rank])}, so the run ends{self.advice()}"

    def reported_failure(self, store: Store) -> dict[str, Any] | None:
        """The report of the first rank that failed by itself, or `None`."""
        return json.loads(store.get("failure")) if store.check(["failure"]) else None

    def advice(self) -> str:
        """How to resume the run, if it has a checkpoint."""
        last = self.run_dir / "checkpoints" / "last.ckpt"
        return f": continue it with `lightning-rl resume {shlex.quote(str(self.run_dir))}`" if last.exists() else ""

    def raise_original(self, error: Exception, store: Store, watch: RankWatch) -> None:
        """If `error` is only a consequence of another rank's failure, raise that failure.

        Raises:
            RankError: or another rank's error, if the user can fix its cause.
        """
        if isinstance(error, USER_ERRORS):
            return
        if (failure := watch.wait_for_failure(ECHO_SECONDS)) is None:
            return
        report = self.reported_failure(store)
        if report is None or "failed: " not in failure:
            raise RankError(failure) from error
        error_class = next((each for each in USER_ERRORS if each.__name__ == report["error"]), None)
        original = (
            RankError(failure) if error_class is None else error_class(f"rank {report['rank']}: {report['message']}")
        )
        original.add_note(report["traceback"])
        raise original from error

    def wait(self) -> None:
        """Wait until all processes have ended.

        Raises:
            RankError: a rank failed after the others had finished, or does not end.
        """
        for rank, process in self.processes.items():
            try:
                code = process.wait(GRACE_SECONDS)
            except subprocess.TimeoutExpired as error:
                raise RankError(
                    f"rank {rank} (process {process.pid}) has not ended {GRACE_SECONDS:g} s later"
                ) from error
            if code:
                raise RankError(f"{describe_exit(rank, process.pid, code)} when the run was over")

    def report_and_end(self, failure: str) -> None:
        """Report a failure and end the other ranks; called right before this process is killed."""
        update_status(self.run_dir, state="failed", error=failure)
        self.end()

    def end(self) -> None:
        """Kill the remaining processes with their child processes, after some seconds."""
        deadline = time.monotonic() + LEAVE_SECONDS
        for process in self.processes.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
        for process in self.processes.values():
            with suppress(ProcessLookupError):  # the group has no process left
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
