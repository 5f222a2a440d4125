"""The command line as a user has it: in an empty directory, verbs called as the shell would call them."""

from __future__ import annotations

from collections.abc import Callable
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


Command = Callable[..., Outcome]


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
