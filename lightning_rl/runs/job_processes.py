"""Trains the jobs of sweeps and searches: one in this process, or several at a time, each in its own process.

A job's process has its own torch and its own Ray session, and what kills it kills no other job. It writes to
RUN_DIR/output.log what a run prints, and sends its progress to the process that started it.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import yaml

from lightning_rl.callbacks.signals import INTERRUPTED, Interrupts
from lightning_rl.config import check_config, compose_config
from lightning_rl.config.compose import key_of
from lightning_rl.errors import ConfigError
from lightning_rl.run_directory.atomic import write_atomically
from lightning_rl.run_directory.checkpoints import has_checkpoint
from lightning_rl.run_directory.config_file import CONFIG_FILE
from lightning_rl.run_directory.lock import refuse_live_run
from lightning_rl.run_directory.regular_files import open_regular
from lightning_rl.run_directory.status import STATUS_FILE, read_status_or_empty, update_status
from lightning_rl.runs import run
from lightning_rl.runs.job_progress import JobProgress

__all__ = [
    "EVALUATED",
    "Job",
    "evaluated_config",
    "record_overrides",
    "train_jobs",
    "train_or_continue",
    "with_defaults",
]

PROGRESS_SECONDS = 0.5  # between two messages of a job
OUTPUT = "output.log"
EVALUATED = ("evaluation.every_env_steps=10%", "evaluation.max_share=null")
"""Overrides with which all trials of a search are evaluated at the same marks."""


@dataclass(frozen=True, slots=True)
class Job:
    """Runs that one process trains, one after another.

    Args:
        number: the number of the job in its sweep or search.
        label: what distinguishes it from the others, such as "policy.lr=1e-3 seed=2".
        configs: one for each run; all runs are as long as the first.
    """

    number: int
    label: str
    configs: Sequence[dict[str, Any]]

    @property
    def run_dirs(self) -> list[Path]:
        """The directories of the runs."""
        return [Path(config["run_dir"]) for config in self.configs]


Evaluated = Callable[[Job, int, int, float], bool]
"""Called with a job, the index of its run, env steps and mean return of an evaluation; `True` ends the job there."""


@dataclass(slots=True)
class Running:
    """A job's process and the pipe to it."""

    job: Job
    process: Any
    pipe: Connection


def train_jobs(
    jobs: Iterable[Job],
    at_once: int,
    progress: JobProgress,
    *,
    evaluated: Evaluated = lambda job, index, env_steps, value: False,
    ended: Callable[[Job, Sequence[Mapping[str, Any]]], None] = lambda job, statuses: None,
) -> None:
    """Train all jobs.

    Args:
        jobs: the next one is asked for when there is a free process.
        at_once: number of processes.
        progress: shows how the jobs are doing.
        evaluated: called after each evaluation; decides whether the job continues.
        ended: called with the last content of status.json of each run that a job began.

    Raises:
        KeyboardInterrupt: a signal came. Every job has then ended after its iteration, with a checkpoint; after a
            second signal they are killed.
    """
    running: list[Running] = []
    upcoming = iter(jobs)

    def finish(each: Running) -> None:
        statuses = conclude(each)
        progress.end(each.job.number, statuses)
        ended(each.job, statuses)

    with progress:
        try:
            while True:
                while len(running) < at_once and (job := next(upcoming, None)) is not None:
                    if is_done(job):
                        progress.skip(job.number, job.label)
                        continue
                    running.append(start(job))
                    progress.begin(job.number, job.label, job.configs[0]["total_env_steps"], str(job.run_dirs[0]))
                if not running:
                    return
                for each in receive(running, progress, evaluated):
                    running.remove(each)
                    finish(each)
        except BaseException as error:
            interrupt(running, isinstance(error, KeyboardInterrupt))
            for each in running:
                finish(each)
            raise
        finally:
            for each in running:
                kill_group(each)


def is_done(job: Job) -> bool:
    """Whether an earlier command has trained all runs of a job to their end."""
    return all(read_status_or_empty(run_dir / STATUS_FILE).get("state") == "ok" for run_dir in job.run_dirs)


def start(job: Job) -> Running:
    """Start the process of a job."""
    context = multiprocessing.get_context("spawn")  # a fork would inherit the threads and locks of this process
    ours, theirs = context.Pipe()
    process = context.Process(target=train_job, args=(job, theirs), name=f"job {job.number}")
    process.start()
    theirs.close()
    return Running(job, process, ours)


def receive(running: Sequence[Running], progress: JobProgress, evaluated: Evaluated) -> list[Running]:
    """Wait for messages of the jobs, and answer those that ask whether to continue; returns the ended jobs."""
    ready = wait([handle for each in running for handle in (each.pipe, each.process.sentinel)], timeout=1.0)
    progress.refresh()
    for each in running:
        if each.pipe not in ready:
            continue
        try:
            index, env_steps, value, is_evaluation = each.pipe.recv()
            progress.update(each.job.number, index, len(each.job.configs), env_steps, value, is_evaluation)
            if is_evaluation:
                each.pipe.send(evaluated(each.job, index, env_steps, value))
        except (EOFError, OSError):  # the process has ended
            each.pipe.close()
    return [each for each in running if each.pipe.closed or each.process.sentinel in ready]


def conclude(each: Running) -> list[dict[str, Any]]:
    """Wait for the end of a job's process and everything it started; returns the status of each run that it began."""
    each.process.join()
    kill_group(each)
    each.pipe.close()
    code, found = each.process.exitcode, []
    for run_dir in each.job.run_dirs:
        status = read_status_or_empty(run_dir / STATUS_FILE)
        if not status and (code in (0, INTERRUPTED) or any(before["state"] == "failed" for before in found)):
            break  # the process ended before this run
        if status.get("state") in (None, "running"):  # the process has died
            how = f"was killed by {signal.Signals(-code).name}" if code and code < 0 else f"ended with exit code {code}"
            error = f"the process of the job (pid {each.process.pid}) {how}; see {run_dir / OUTPUT}"
            update_status(run_dir, state="failed", error=error)
            status = read_status_or_empty(run_dir / STATUS_FILE)
        found.append(status)
    return found


def interrupt(running: Sequence[Running], politely: bool) -> None:
    """End all jobs; politely: after their iteration, with a checkpoint, unless the user loses patience."""
    for each in running:
        each.pipe.close()  # one that waits for an answer continues
        with suppress(ProcessLookupError, AttributeError):
            each.process.terminate() if politely else each.process.kill()
    if politely and running:
        print(
            f"\nstopping {len(running)} jobs after their iterations, each with a checkpoint; Ctrl-C again kills them",
            file=sys.stderr,
            flush=True,
        )
    try:
        for each in running:
            each.process.join()
    except KeyboardInterrupt:
        for each in running:
            each.process.kill()


def kill_group(each: Running) -> None:
    """Kill what is left of a job: its process, and the processes that it started."""
    with suppress(ProcessLookupError, PermissionError, TypeError):
        os.killpg(each.process.pid, signal.SIGKILL)
    if each.process.is_alive():
        each.process.kill()
        each.process.join()


# -- in the process of a job -------------------------------------------------------------------------------------------


def train_job(job: Job, pipe: Connection) -> None:
    """Train the runs of a job; the exit code is 0, 1 after an error, or 130 after an interrupt."""
    os.setpgid(0, 0)  # Ctrl-C in a terminal reaches only the process that started the jobs, which stops them
    os.environ.setdefault("OMP_NUM_THREADS", str(job.configs[0]["torch_threads"]))
    with Interrupts():
        try:
            for index, config in enumerate(job.configs):
                print_to(Path(config["run_dir"]) / OUTPUT)
                status = train_or_continue(config, Reporter(pipe, index))
                if status["state"] == "interrupted":
                    raise SystemExit(INTERRUPTED)
        except KeyboardInterrupt as interrupt:
            raise SystemExit(INTERRUPTED) from interrupt
        except Exception as error:
            traceback.print_exc()
            raise SystemExit(1) from error


def print_to(file: Path) -> None:
    """Let everything that this process prints, native code included, go to the end of a file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with open_regular(file, append=True) as log:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
            os.dup2(log.fileno(), stream.fileno())


class Reporter:
    """Sends the progress of a run through a pipe; after an evaluation it waits for the answer whether to continue.

    If the process at the other end is gone, the run ends as after a signal.
    """

    def __init__(self, pipe: Connection, index: int) -> None:
        self.pipe, self.index, self.sent_at = pipe, index, -math.inf

    def __call__(self, env_steps: int, metrics: Mapping[str, float], evaluated: bool) -> bool:
        """Whether the run is to end now."""
        if not evaluated and time.monotonic() - self.sent_at < PROGRESS_SECONDS:
            return False
        self.sent_at = time.monotonic()
        value = metrics.get("eval/ep_rew_mean" if evaluated else "rollout/ep_rew_mean")
        try:
            self.pipe.send((self.index, env_steps, value, evaluated and value is not None))
            return self.pipe.recv() if evaluated and value is not None else False
        except (EOFError, OSError):
            return True


def train_or_continue(config: dict[str, Any], watch: Any = None) -> dict[str, Any]:
    """Train a run; if its directory holds it already, only what is left of it: nothing, if it is done.

    A run without a checkpoint begins again; its train.log is kept.

    Returns:
        The content of status.json.

    Raises:
        ConfigError: another process trains there, or the config cannot work.
        Exception: the error that ended the run.
    """
    run_dir = Path(config["run_dir"])
    status = read_status_or_empty(run_dir / STATUS_FILE)
    if status.get("state") == "ok":
        return status
    with run.record_outcome(run_dir):
        check_config(config)
    if not (run_dir / CONFIG_FILE).exists():
        return run.train(config, watch=watch)
    refuse_live_run(run_dir)
    if not has_checkpoint(run_dir):
        (run_dir / CONFIG_FILE).unlink()
        return run.train(config, watch=watch)
    from lightning_rl.run_directory.checkpoint_files import newest_checkpoint

    newest = newest_checkpoint(run_dir / "checkpoints")
    if newest is None:
        raise ConfigError(f"{run_dir}: none of its checkpoints can be read: {run.AFRESH}")
    return run.train(config, newest[0], watch)


# -- configs of trials -------------------------------------------------------------------------------------------------


def with_defaults(overrides: Sequence[str], defaults: Sequence[str]) -> list[str]:
    """The overrides, behind those of `defaults` whose key and group they leave open."""
    given = {key_of(override) for override in overrides}
    return [*(each for each in defaults if not {key_of(each), key_of(each).partition(".")[0]} & given), *overrides]


def evaluated_config(overrides: Sequence[str]) -> dict[str, Any]:
    """The checked config of a trial, which is compared with others by its evaluations.

    Raises:
        ConfigError: a key or value cannot work, or there are no evaluations.
    """
    config = compose_config(overrides)
    check_config(config)
    if not (config["evaluation"]["every_env_steps"] and config["evaluation"]["episodes"]):
        raise ConfigError("a search compares evaluations: evaluation.every_env_steps and episodes must not be 0")
    return config


def record_overrides(overrides: Sequence[str], run_dir: Path) -> None:
    """Write the overrides of a run to its directory as Hydra does, where reports about several runs read them."""
    write_atomically(run_dir / ".hydra" / "overrides.yaml", yaml.safe_dump(list(overrides)).encode(), durable=False)
