"""The command line as a user has it: in an empty directory, verbs called as the shell would call them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from lightning_rl.cli import main


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one command left behind."""

    code: int
    out: str
    err: str

    @property
    def refusal(self) -> str:
        """The one line with which the command refused what it was given; empty if it did something else."""
        refused = self.code == 2 and self.err.startswith("error: ") and self.err.count("\n") == 1
        return self.err.removeprefix("error: ").removesuffix("\n") if refused else ""


Command = Callable[..., Outcome]


def not_refused(command: Command, cases: Mapping[str, str], *common: str) -> dict[str, str]:
    """Command lines that are not refused in one line with the words beside them; each with what was said.

    Args:
        command: the fixture.
        cases: command line → words.
        common: further arguments of each.
    """
    outcomes = {line: command(*shlex.split(line), *common) for line in cases}
    return {line: found.err for line, found in outcomes.items() if cases[line] not in (found.refusal or "\n")}


@pytest.fixture(autouse=True)
def empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run each test in its own directory, from which modules can be imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("LIGHTNING_RL_SEARCH_PATH", "LIGHTNING_RL_TRACEBACK", "HYDRA_FULL_ERROR"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str]) -> Command:
    """`command("train", "policy=ppo")` → exit code, stdout, stderr."""

    def run(*arguments: str) -> Outcome:
        capfd.readouterr()
        code = main(arguments)
        captured = capfd.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run
