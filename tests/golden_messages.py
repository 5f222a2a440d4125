"""What the package says to mistakes, on the command line and in Python: the text of golden/messages.txt.

A line `$ lightning-rl COMMAND` or `>>> CALL` of that file is a case; `python scripts/regenerate.py` writes the answers
below them. Sentences stand there alone, and a change of them is read as its diff; other tests name a type, a key or a
value. Text that other packages write is not in it, nor are lists that grow with the package.
"""

from __future__ import annotations

import contextlib
import functools
import io
import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lightning_rl.cli import main
from lightning_rl.errors import ConfigError

FILE = Path(__file__).parent / "golden" / "messages.txt"
COMMANDS = re.findall(r"^\$ lightning-rl (.*)$", FILE.read_text(encoding="utf-8"), re.MULTILINE)
CALLS = re.findall(r"^>>> (.*)$", FILE.read_text(encoding="utf-8"), re.MULTILINE)

SETTING = """
from collections.abc import Mapping, Sequence
from math import nan, inf
from typing import Annotated, Literal
import gymnasium as gym
from lightning_rl.callbacks import RLCheckpoint, StopCallback
from lightning_rl.data import ReplayDataModule, RolloutDataModule
from lightning_rl.envs.creator import EnvCreator
from lightning_rl.errors import import_object
from lightning_rl.exploration import EpsilonGreedy, SoftQ
from lightning_rl.policies import DQN, PPO, SAC
from lightning_rl.schema.ranges import Count, NonNegativeSchedule, Portion, Positive, Probability, Range
from lightning_rl.rollouts.processes.limits import Limits
from lightning_rl.schedules import Schedule, check_schedule
from lightning_rl.schema.signatures import coerce
OBS, ACTIONS, BOX = gym.spaces.Box(-1, 1, (3,)), gym.spaces.Discrete(2), gym.spaces.Box(-1, 1, (2,))
"""

MINE = """
import gymnasium as gym
import numpy as np

class Outside(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.full(2, 7, np.float32), {}

class OldStep(Outside):
    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 0.0, False, {}
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one command left behind."""

    command: str
    code: int
    out: str
    err: str
    files: list[str]


@contextlib.contextmanager
def directory_of_a_user() -> Iterator[str]:
    """Work in a directory with the module `mine` and the directory of a finished run."""
    with tempfile.TemporaryDirectory() as place, contextlib.chdir(place):
        Path("mine.py").write_text(MINE)
        checkpoints = Path("finished", "checkpoints")
        checkpoints.mkdir(parents=True)
        Path("finished", "config.yaml").touch()
        (checkpoints / "last.ckpt").touch()
        sys.path.insert(0, place)
        try:
            yield place
        finally:
            sys.path.remove(place)
            sys.modules.pop("mine", None)


@functools.cache
def outcomes() -> list[Outcome]:
    """Each of the commands, in a directory of its own."""
    return list(map(outcome_of, COMMANDS))


def outcome_of(command: str) -> Outcome:
    """Run a command as a user in a directory of their own."""
    out, err = io.StringIO(), io.StringIO()
    with directory_of_a_user() as place, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        before = set(Path().rglob("*"))
        code = main(command.split())
        files = sorted(str(file) for file in set(Path().rglob("*")) - before if "__pycache__" not in file.parts)
        shown = (stream.getvalue().replace(place, "PLACE") for stream in (out, err))
        return Outcome(command, code, *shown, files)


def answer_to(call: str) -> str:
    """A call in Python, and the text of the error that it raises."""
    try:
        eval(call, _names())
    except ConfigError as error:
        return f">>> {call}\n{_without_lists(str(error))}"
    raise AssertionError(f"{call} raises no error")


@functools.cache
def _names() -> dict[str, object]:
    names: dict[str, object] = {}
    exec(SETTING, names)
    return names


def messages() -> str:
    """The whole text of the file."""
    blocks = [f"$ lightning-rl {each.command}\n{each.err.removeprefix('error: ').strip()}" for each in outcomes()]
    return "\n\n".join([*map(_without_lists, blocks), *map(answer_to, CALLS)]) + "\n"


def _without_lists(text: str) -> str:
    """Without lists of what there is, which get longer with the package, and without the size of this machine."""
    text = re.sub(r"(Choices|Metrics|Verbs|Keys[\w. ]*|keywords of sgd): [^()\n]*?(?=\)| \(|\n|$)", r"\1: …", text)
    text = re.sub(r"(neither registered|neither one of|They are) .*?(?= nor |$)", r"\1 …", text)
    return re.sub(r"\d+ GiB", "… GiB", text)
