"""The command line: one file per verb. `python train.py …` is the same as `lightning-rl train …`.

Exit codes: 0 done, 1 the run failed, 2 bad config or bad input, 130 ended by Ctrl-C or SIGTERM.
"""

from __future__ import annotations

import errno
import io
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence

from lightning_rl.callbacks.signals import Interrupts
from lightning_rl.cli.benchmark import benchmark
from lightning_rl.cli.check_env import check_env
from lightning_rl.cli.choices import describe, list_choices
from lightning_rl.cli.compare import compare
from lightning_rl.cli.completion import print_script
from lightning_rl.cli.data import data, record
from lightning_rl.cli.doctor import doctor
from lightning_rl.cli.estimate import estimate
from lightning_rl.cli.evaluate import evaluate
from lightning_rl.cli.explain import explain
from lightning_rl.cli.export import export
from lightning_rl.cli.init import init
from lightning_rl.cli.own_warnings import as_lines
from lightning_rl.cli.parser import EXIT_CODES, one_line
from lightning_rl.cli.play import play
from lightning_rl.cli.report import report
from lightning_rl.cli.resume import resume
from lightning_rl.cli.train import train
from lightning_rl.cli.tune import tune
from lightning_rl.cli.verify import verify
from lightning_rl.cli.video import video
from lightning_rl.errors import USER_ERRORS, ConfigError, RankError, SaveError, did_you_mean

__all__ = ["VERBS", "main", "run_verb"]


def completion(arguments: Sequence[str]) -> int:
    """Print a shell completion script: source <(lightning-rl completion bash), or zsh, fish."""
    return print_script(arguments, VERBS, completion.__doc__)


VERBS: Mapping[str, Callable[[Sequence[str]], int]] = {
    "train": train,
    "tune": tune,
    "evaluate": evaluate,
    "play": play,
    "video": video,
    "record": record,
    "data": data,
    "estimate": estimate,
    "export": export,
    "resume": resume,
    "report": report,
    "compare": compare,
    "list": list_choices,
    "describe": describe,
    "verify": verify,
    "explain": explain,
    "init": init,
    "completion": completion,
    "doctor": doctor,
    "check-env": check_env,
    "benchmark": benchmark,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of `lightning-rl`."""
    verb, *rest = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    return run_verb(verb, rest)


def print_verbs(arguments: Sequence[str]) -> int:
    """Print a one-line summary of each verb."""
    print("usage: lightning-rl VERB …  (see lightning-rl VERB --help for its options)\n")
    print("\n".join(f"  {name:10} {(function.__doc__ or '').splitlines()[0]}" for name, function in VERBS.items()))
    return EXIT_CODES["ok"]


def run_verb(verb: str, arguments: Sequence[str]) -> int:
    """Run one verb, and report every mistake of the user in one line on stderr.

    Returns:
        The exit code. With LIGHTNING_RL_TRACEBACK=1 (or HYDRA_FULL_ERROR=1) the exception is raised instead.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # an ASCII terminal shows "?" for an arrow, instead of an error
            stream.reconfigure(errors="replace")
    interrupts = Interrupts()
    try:
        with interrupts, as_lines():
            function = print_verbs if verb in ("-h", "--help") else VERBS.get(verb)
            if function is None:
                raise ConfigError(f"no verb {verb!r}.{did_you_mean(verb, VERBS)} Verbs: {', '.join(VERBS)}")
            find_own_modules()
            try:
                code = function(arguments)
            except SystemExit:  # --help of a verb
                sys.stdout.flush()
                raise
            sys.stdout.flush()  # here, where a closed pipe is expected, not when Python ends
            return code
    except KeyboardInterrupt as interrupt:
        return report_interrupt(interrupt)
    except BrokenPipeError:  # the reader of the pipe (head, less) closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_CODES["ok"]
    except Exception as error:
        if interrupts.received is not None:  # the interrupted code may raise its own error
            return report_interrupt(error)
        if any(os.environ.get(name, "0") not in ("", "0") for name in ("LIGHTNING_RL_TRACEBACK", "HYDRA_FULL_ERROR")):
            raise
        if not isinstance(error, (*USER_ERRORS, RankError)) and getattr(error, "filename", None) is None:
            traceback.print_exc()
        print(f"error: {one_line(error)}", file=sys.stderr)
        of_input = isinstance(error, USER_ERRORS) or getattr(error, "errno", None) == errno.ENAMETOOLONG
        return 2 if of_input and not isinstance(error, SaveError) else EXIT_CODES["failed"]


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
