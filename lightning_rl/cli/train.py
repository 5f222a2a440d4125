"""`lightning-rl train`: one run, or every combination of a sweep."""

from __future__ import annotations

import gc
import math
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from lightning_rl.cli.parser import EXIT_CODES, Parser, one_line, whole_number
from lightning_rl.config import check_config, compose_config, descriptions
from lightning_rl.config.compose import check_choices
from lightning_rl.config.keys import place_of
from lightning_rl.config.sweeps import check_continuation, sweep, sweep_jobs
from lightning_rl.errors import ConfigError, SaveError
from lightning_rl.run_directory.checkpoints import checkpoint_of
from lightning_rl.runs import run
from lightning_rl.runs.job_processes import Job, train_jobs, train_or_continue
from lightning_rl.runs.job_progress import JobProgress
from lightning_rl.runs.sweep_tables import failures, sweep_jobs_of, write_tables
from lightning_rl.schema.ranges import Count
from lightning_rl.schema.signatures import coerce
from lightning_rl.version import __version__

__all__ = ["report_outcome", "train", "with_seeds"]


def train(arguments: Sequence[str]) -> int:
    """Train a policy: train policy=ppo env=cartpole [key=value …]."""
    parser = Parser(
        prog="lightning-rl train", description=train.__doc__, epilog="See also: lightning-rl list, describe."
    )
    parser.add_argument("overrides", nargs="*", help="group=choice and key=value, such as policy=a2c policy.lr=1e-3")
    parser.add_argument(
        "-m", "--multirun", action="store_true", help="run every combination of the listed values, such as seed=1,2,3"
    )
    parser.add_argument(
        "--jobs",
        type=whole_number,
        default=1,
        metavar="N",
        help="with -m: train N runs in parallel, each in its own process",
    )
    parser.add_argument(
        "--cfg", action="store_true", help="print the composed config (with -m, one per job) without training"
    )
    parser.add_argument(
        "--seeds", metavar="0..9", help="train one run per seed; the same as -m seed=… (also seeds=0..9)"
    )
    options = parser.parse_intermixed_args(arguments)
    overrides = with_seeds([*options.overrides, *([f"seeds={options.seeds}"] if options.seeds is not None else [])])
    check_choices(overrides)
    if options.multirun or overrides != options.overrides:
        return show_jobs(overrides) if options.cfg else train_all(overrides, options.jobs)
    if options.jobs != 1:
        raise ConfigError("--jobs is for sweeps: add -m")
    config = compose_config(overrides)
    if options.cfg:
        print(as_yaml(config), end="")
        return 0
    print(start_line(config), flush=True)  # the imports of torch and Lightning that follow may take seconds
    with no_collection():
        check_config(config)  # imports what the run needs
    return report_outcome(run.train(config), config)


def as_yaml(config: Mapping[str, Any]) -> str:
    """A config as the text of a YAML document."""
    return yaml.safe_dump(config, sort_keys=False, allow_unicode=True)


def show_jobs(overrides: Sequence[str]) -> int:
    """Print the config of every job of a sweep, each a YAML document that begins with the job's overrides.

    It has no `run_dir`: that of a job lies below the directory of the sweep.

    Raises:
        ConfigError: an override cannot be read, or the sweeper chooses the jobs while it trains.
    """
    jobs = sweep_jobs(overrides)
    if not jobs:
        raise ConfigError("--cfg shows jobs that are known before the first is trained, and hydra/sweeper chooses them")
    for number, job in enumerate(jobs):
        config = {key: value for key, value in compose_config(job).items() if key != "run_dir"}
        print(f"---\n# {number}: {' '.join(job)}\n{as_yaml(config)}", end="")
    return 0


def with_seeds(overrides: Sequence[str]) -> list[str]:
    """The overrides with a sweep `seed=0,1,2` in the place of `seeds=0..2` or `seeds=0,1,2`.

    Raises:
        ConfigError: it is neither, or there is a `seed` in addition, or it comes twice.
    """
    given = [override for override in overrides if override.startswith("seeds=")]
    if not given:
        return list(overrides)
    written = given[0].removeprefix("seeds=")
    beside = [override for override in overrides if override.startswith("seed=")]
    ends = re.fullmatch(r"(\d+)\.\.(\d+)", written)
    seeds = range(int(ends[1]), int(ends[2]) + 1) if ends else re.findall(r"\d+", written)
    if len(given) > 1 or beside or not re.fullmatch(r"\d+(\.\.\d+|(,\d+)*)", written) or not seeds:
        expected = "expected one range, such as seeds=0..9, or one list, such as seeds=1,5,7, without seed="
        raise ConfigError(f"{' '.join([*given, *beside])}; {expected}")
    return [*(override for override in overrides if override not in given), f"seed={','.join(map(str, seeds))}"]


def start_line(config: Mapping[str, Any]) -> str:
    """One line that describes the run before it starts.

    Raises:
        ConfigError: `total_env_steps` is not a number of steps.
    """
    total = coerce("total_env_steps", config["total_env_steps"], Count)
    policy = re.split(r"[.:]", config["policy"]["_target_"])[-1]
    place = place_of(config) or "no data"
    return f"lightning_rl {__version__}: {policy} on {place}, {total:,} env steps → {config['run_dir']}"


@contextmanager
def no_collection() -> Iterator[None]:
    """Context without garbage collection: torch and Lightning create lasting objects; collecting them costs 0.5 s."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def report_outcome(status: Mapping[str, Any], config: Mapping[str, Any]) -> int:
    """Print where the run is and which commands apply to it; returns the exit code."""
    run_dir, typed = config["run_dir"], shlex.quote(config["run_dir"])
    commands = [f"lightning-rl evaluate {typed}"] if checkpoint_of(Path(run_dir)).exists() else []
    commands += [f"tensorboard --logdir {typed}"] if "tensorboard" in config["logger"] else []
    print(f"{status['state']}: {run_dir}" + (f"  ({', '.join(commands)})" if commands else ""))
    print(descriptions.outcome(status, typed))
    return EXIT_CODES[status["state"]]


def train_all(overrides: Sequence[str], at_once: int = 1) -> int:
    """Train every combination of a sweep in its own run directory, and print a table; 1 if a job failed.

    Args:
        overrides: some of them with several values.
        at_once: number of jobs that are trained at a time; 1: one after another, in this process.
    """
    if at_once < 1:
        raise ConfigError(f"--jobs {at_once}; expected at least 1")
    found = sweep_jobs(overrides)
    configs = [compose_config(job) for job in found]
    for config in configs:
        check_config(config)
    check_continuation(overrides, configs)
    directory = sweep(overrides, train_one) if at_once == 1 else train_at_once(overrides, found, at_once)
    jobs = sweep_jobs_of(directory)
    table = descriptions.table(write_tables(directory, jobs))
    files = ["sweep.csv", "sweep.md", *([page.name] if (page := report_on(directory)) else [])]
    print("\n".join(["", table, *failures(jobs), f"{directory}  ({', '.join(files)})"]))
    return EXIT_CODES["ok"] if jobs and all(job["state"] == "ok" for job in jobs) else EXIT_CODES["failed"]


def train_at_once(overrides: Sequence[str], found: Sequence[Sequence[str]], at_once: int) -> Path:
    """Train the jobs of a sweep in several processes; returns the sweep's directory."""
    if not found or any(override.startswith("hydra/launcher=") for override in overrides):
        raise ConfigError(
            "--jobs cannot be combined with hydra/sweeper or hydra/launcher; see also `lightning-rl tune`"
        )
    configs: list[dict[str, Any]] = []
    directory = sweep(overrides, lambda config: configs.append(config) or math.nan)
    swept = [override for override in found[0] if any(override not in job for job in found)]
    keys = [override.partition("=")[0] for override in swept]
    labels = [
        " ".join(each.lstrip("+").replace("\\", "") for each in job if each.partition("=")[0] in keys) for job in found
    ]
    jobs = [Job(number, *job) for number, job in enumerate(zip(labels, ([config] for config in configs), strict=True))]
    try:
        train_jobs(jobs, at_once, JobProgress(len(jobs)))
    except KeyboardInterrupt as interrupt:
        raise KeyboardInterrupt(f"{interrupt}; the same command with run_dir={directory} continues") from interrupt
    return directory


def report_on(directory: Path) -> Path | None:
    """Write the report of a sweep; `None` if it cannot be written, as when no job had a return. The sweep has ended."""
    from lightning_rl.reports.page import write_page  # numpy
    from lightning_rl.reports.run_records import read_runs
    from lightning_rl.reports.summaries import Task

    try:
        return write_page([directory], Task.all_of(read_runs([directory])))
    except (ConfigError, SaveError) as error:
        print(f"no report: {one_line(error)}", file=sys.stderr)
        return None


def train_one(config: dict[str, Any]) -> float:
    """Train one job of a sweep and return its best evaluation; a failure goes to its train.log, other jobs continue."""
    print(f"\njob in {config['run_dir']}", flush=True)
    try:
        status = train_or_continue(config)
    except Exception as error:
        print(f"job in {config['run_dir']} failed: {one_line(error)}", file=sys.stderr)
        return math.nan
    if status["state"] == "interrupted":
        raise KeyboardInterrupt(f"{config['run_dir']} has its checkpoint, and no other job is started")
    return status["best_return"] if status["best_return"] is not None else math.nan
