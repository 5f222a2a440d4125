"""The command line: one short function per verb. `python train.py …` is the same as `lightning-rl train …`.

Exit codes: 0 done, 1 the run failed, 2 bad config or bad input, 130 ended by Ctrl-C or SIGTERM.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import re
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import yaml

from lightning_rl.callbacks.signals import Interrupts
from lightning_rl.config import check_config, compose_config, descriptions
from lightning_rl.config.compose import check_choices, parse_overrides
from lightning_rl.config.sweeps import sweep, sweep_jobs
from lightning_rl.errors import (
    CheckpointError,
    ConfigError,
    EnvError,
    NonFiniteError,
    RankError,
    SaveError,
    UnsupportedSpaceError,
    did_you_mean,
)
from lightning_rl.run_directory.checkpoints import checkpoint_of, has_checkpoint, naming_others
from lightning_rl.run_directory.listing import runs_below
from lightning_rl.runs import evaluation, run
from lightning_rl.runs.sweep_tables import failures, sweep_jobs_of, write_tables
from lightning_rl.trust import FileTrust, packages_to_trust
from lightning_rl.version import __version__

__all__ = ["main", "run_verb"]

USER_ERRORS = (ConfigError, UnsupportedSpaceError, EnvError, CheckpointError, NonFiniteError)  # reported in one line
TRUST: dict[str, Any] = {
    "action": "append",
    "default": [],
    "metavar": "PACKAGE",
    "help": "a package of your own that the files may name (also LIGHTNING_RL_TRUST=a,b); give it again for another",
}
EXIT_CODES = {"ok": 0, "failed": 1, "interrupted": 130}
LISTS = {
    "policies": "policy",
    "envs": "env",
    "experiments": "experiment",
    "models": "model",
    "explorations": "exploration",
    "data": "data",
    "loggers": "logger",
}


class Parser(argparse.ArgumentParser):
    """Argument parser that reports an error in one line, like all other errors of the command line."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage."""
        raise ConfigError(f"{message}; see {self.prog} --help")


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of `lightning-rl`."""
    verb, *rest = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if verb in ("-h", "--help"):
        print("usage: lightning-rl VERB …  (lightning-rl VERB --help explains one)\n")
        print("\n".join(f"  {name:10} {(function.__doc__ or '').splitlines()[0]}" for name, function in VERBS.items()))
        return 0
    return run_verb(verb, rest)


def run_verb(verb: str, arguments: Sequence[str]) -> int:
    """Run one verb, and report every mistake of the user in one line on stderr.

    Returns:
        The exit code. With LIGHTNING_RL_TRACEBACK=1 (or HYDRA_FULL_ERROR=1) the exception is raised instead.
    """
    interrupts = Interrupts()
    try:
        with interrupts:
            if verb not in VERBS:
                raise ConfigError(f"no verb {verb!r}.{did_you_mean(verb, VERBS)} Verbs: {', '.join(VERBS)}")
            find_own_modules()
            return VERBS[verb](arguments)
    except KeyboardInterrupt as interrupt:
        return report_interrupt(interrupt)
    except BrokenPipeError:  # the reader of the pipe (head, less) closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_CODES["ok"]
    except Exception as error:
        if interrupts.received is not None:  # the interrupted code may raise an error of its own
            return report_interrupt(error)
        if any(os.environ.get(name, "0") not in ("", "0") for name in ("LIGHTNING_RL_TRACEBACK", "HYDRA_FULL_ERROR")):
            raise
        if not isinstance(error, (*USER_ERRORS, RankError)):
            traceback.print_exc()
        print(f"error: {one_line(error)}", file=sys.stderr)
        return 2 if isinstance(error, USER_ERRORS) and not isinstance(error, SaveError) else EXIT_CODES["failed"]


def report_interrupt(error: BaseException) -> int:
    """Report that a signal ended the command, and what was saved; returns the exit code."""
    message = str(error) if isinstance(error, KeyboardInterrupt) else ""
    print(f"interrupted: {message or 'ended at once, nothing was saved by this'}", file=sys.stderr)
    return EXIT_CODES["interrupted"]


def find_own_modules() -> None:
    """Put the working directory on the module path, so that `env.id=my_envs:MyEnv` finds my_envs.py there.

    It comes after the installed packages, so that a file there cannot replace one of them. Ray's processes and other
    ranks have the working directory on their path anyway.
    """
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())


def train(arguments: Sequence[str]) -> int:
    """Train a policy: train policy=ppo env=cartpole [key=value …]."""
    parser = Parser(
        prog="lightning-rl train", description=train.__doc__, epilog="See also: lightning-rl list, describe."
    )
    parser.add_argument("overrides", nargs="*", help="group=choice and key=value, as policy=a2c policy.lr=1e-3 seed=1")
    parser.add_argument(
        "-m", "--multirun", action="store_true", help="run every combination of seed=1,2,3 and the like"
    )
    parser.add_argument("--cfg", action="store_true", help="print the composed config and train nothing")
    options = parser.parse_intermixed_args(arguments)
    check_choices(options.overrides)
    if options.multirun:
        return train_all(options.overrides)
    config = compose_config(options.overrides)
    if options.cfg:
        print(yaml.safe_dump(config, sort_keys=False, allow_unicode=True), end="")
        return 0
    print(start_line(config), flush=True)  # the imports of torch and Lightning that follow may take seconds
    with no_collection():
        check_config(config)  # imports what the run needs
    return report_outcome(run.train(config), config)


def start_line(config: Mapping[str, Any]) -> str:
    """One line that describes the run before it starts."""
    policy = re.split(r"[.:]", config["policy"]["_target_"])[-1]
    steps = f"{config['total_env_steps']:,}" if isinstance(config["total_env_steps"], int) else "unlimited"
    return f"lightning_rl {__version__}: {policy} on {config['env']['id']}, {steps} env steps → {config['run_dir']}"


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
    run_dir = config["run_dir"]
    trusting = "".join(f" --trust {package}" for package in packages_to_trust(config))  # those of the user's own
    print(f"{status['state']}: {run_dir}  (lightning-rl evaluate {run_dir}{trusting}, tensorboard --logdir {run_dir})")
    print(descriptions.outcome(status, run_dir))
    return EXIT_CODES[status["state"]]


def train_all(overrides: Sequence[str]) -> int:
    """Train every combination of a sweep in a run directory of its own, and print a table; 1 if a job failed."""
    for job in sweep_jobs(overrides):
        check_config(compose_config(job))
    directory = sweep(overrides, train_one)
    jobs = sweep_jobs_of(directory)
    table = descriptions.table(write_tables(directory, jobs))
    print("\n".join(["", table, *failures(jobs), f"{directory}  (sweep.csv, sweep.md)"]))
    return EXIT_CODES["ok"] if jobs and all(job["state"] == "ok" for job in jobs) else EXIT_CODES["failed"]


def train_one(config: dict[str, Any]) -> float:
    """Train one job of a sweep and return its best evaluation; a failure goes to its train.log, other jobs go on."""
    print(f"\njob in {config['run_dir']}", flush=True)
    try:
        with run.record_outcome(config["run_dir"]):
            check_config(config)
        status = run.train(config)
    except Exception as error:
        print(f"job in {config['run_dir']} failed: {one_line(error)}", file=sys.stderr)
        return math.nan
    if status["state"] == "interrupted":
        raise KeyboardInterrupt(f"{config['run_dir']} has its checkpoint, and no other job is started")
    return status["best_return"] if status["best_return"] is not None else math.nan


def resume(arguments: Sequence[str]) -> int:
    """Continue a run: resume RUN_DIR [total_env_steps=…]."""
    parser = Parser(prog="lightning-rl resume", description=resume.__doc__)
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("overrides", nargs="*", help=f"of {', '.join(run.RESUMABLE)}")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--checkpoint", type=Path, help="a file of RUN_DIR/checkpoints; default last.ckpt")
    which.add_argument("--best", action="store_true", help="go on from the checkpoint with the best evaluation")
    parser.add_argument("--trust", **TRUST)
    parser.add_argument("--force", action="store_true", help="also with a file or an edited config of another run")
    options = parser.parse_intermixed_args(arguments)
    changed = parse_overrides(options.overrides)
    config = run.resumed_config(options.run_dir, changed, options.trust)
    if options.checkpoint is None and not has_checkpoint(options.run_dir):
        raise ConfigError(f"{options.run_dir} has no checkpoint to go on from: {run.AFRESH}")
    checkpoint = options.checkpoint or checkpoint_of(options.run_dir, best=options.best)
    given = FileTrust(options.run_dir / "config.yaml", options.trust)
    with given.restrict_imports(), naming_others(checkpoint, "--checkpoint FILE"):
        check_config(config)
        run.check_same_run(config, checkpoint, changed, force=options.force)
        print(f"resuming {checkpoint}", flush=True)
        for line in run.standing_still(config, env_steps_in(checkpoint)):
            print(f"note: {line}", flush=True)
        return report_outcome(run.train(config, ckpt_path=checkpoint), config)


def env_steps_in(checkpoint: Path) -> int:
    """The env steps that the policy in a checkpoint has taken."""
    from lightning_rl.checkpoint_files import counters_in  # torch

    return counters_in(checkpoint)["env_steps"]


def evaluate(arguments: Sequence[str]) -> int:
    """Play whole episodes with a checkpoint: evaluate RUN_DIR [--best] [--episodes 100] [--json]."""
    parser = Parser(prog="lightning-rl evaluate", description=evaluate.__doc__)
    parser.add_argument("checkpoint", type=Path, help="a .ckpt file, or a run directory for its last.ckpt")
    parser.add_argument("--best", action="store_true", help="of the run directory, the one with the best evaluation")
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--explore", action="store_true", help="sample actions as in training, not the best")
    parser.add_argument("--env", help="environment id or import path; default: the run's own")
    parser.add_argument("--trust", **TRUST)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    result = evaluation.evaluate(
        options.checkpoint,
        best=options.best,
        env=options.env,
        episodes=options.episodes,
        seed=options.seed,
        explore=options.explore,
        trust=options.trust,
    )
    print(json.dumps(result) if options.json else descriptions.evaluation(result))
    return 0


def list_choices(arguments: Sequence[str]) -> int:
    """List what can be chosen: list [policies|envs|experiments|models|explorations|data|loggers|metrics|runs [DIR]]."""
    parser = Parser(prog="lightning-rl list", description=list_choices.__doc__)
    parser.add_argument("kind", nargs="?", choices=[*LISTS, "metrics", "runs"])
    parser.add_argument("directory", nargs="?", type=Path, help="of runs, at any depth; default ./runs")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_intermixed_args(arguments)
    if options.kind == "runs":
        return list_runs(options.directory or Path("runs"), options.json)
    if options.directory is not None:
        raise ConfigError(f"list {options.kind} takes no directory; `list runs {options.directory}` does")
    kinds = [options.kind] if options.kind else [*LISTS, "metrics"]
    found = {kind: descriptions.metrics() if kind == "metrics" else descriptions.choices(LISTS[kind]) for kind in kinds}
    listings = [descriptions.listing(kind, names) for kind, names in found.items()]
    print(json.dumps(found) if options.json else "\n\n".join(listings))
    return 0


def list_runs(directory: Path, as_json: bool) -> int:
    """Print the runs below a directory, newest first."""
    rows = runs_below(directory)
    print(json.dumps({"runs": rows}) if as_json else descriptions.run_table(rows, directory))
    return 0


def describe(arguments: Sequence[str]) -> int:
    """Explain a choice, a key or a metric: describe policy=ppo, describe workers, describe policy.lr."""
    parser = Parser(prog="lightning-rl describe", description=describe.__doc__)
    parser.add_argument("what", nargs="?", default="train", help="group=choice, a group, a key, or a metric")
    print(descriptions.describe(parser.parse_args(arguments).what))
    return 0


def benchmark(arguments: Sequence[str]) -> int:
    """Measure this machine: benchmark [arguments of scripts/benchmark.py]."""
    script = Path(__file__).parents[1] / "scripts" / "benchmark.py"
    if not script.is_file():
        raise ConfigError(
            f"{script} is not there: the benchmark is in the source checkout, not in the installed package"
        )
    return subprocess.call([sys.executable, str(script), *arguments])


def one_line(error: BaseException) -> str:
    """An error's message without line breaks, or the name of its type if it has no message."""
    text = " ".join(line.strip() for line in str(error).splitlines() if line.strip())
    return text if isinstance(error, (*USER_ERRORS, RankError)) and text else f"{type(error).__name__}: {text}"


VERBS: Mapping[str, Callable[[Sequence[str]], int]] = {
    "train": train,
    "evaluate": evaluate,
    "resume": resume,
    "list": list_choices,
    "describe": describe,
    "benchmark": benchmark,
}

if __name__ == "__main__":
    sys.exit(main())
