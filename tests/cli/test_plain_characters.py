"""Commands write to a terminal or a pipe of any encoding."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lightning_rl.cli import VERBS, main
from tests.families import each

ENCODINGS = ["ascii", "cp1252", "utf-8"]


def encoded(monkeypatch: pytest.MonkeyPatch, encoding: str) -> Callable[[], str]:
    """Give stdout and stderr an encoding; the function returns what both were given, decoded."""
    raw = io.BytesIO()
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, io.TextIOWrapper(raw, encoding=encoding, write_through=True))
    return lambda: raw.getvalue().decode(encoding)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_every_verb_s_help_and_lists_are_written_in_any_encoding(
    encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = encoded(monkeypatch, encoding)
    for arguments in (["--help"], ["list"], ["describe", "policy=ppo"], ["explain", "policy=ppo", "policy.lr"]):
        assert main(arguments) == 0
    for verb in VERBS:
        try:
            assert main([verb, "--help"]) == 0
        except SystemExit as end:
            assert end.code in (0, None)
    assert written().count("usage:") >= len(VERBS) and "Traceback" not in written()


@pytest.mark.parametrize("encoding", each(ENCODINGS, default=("ascii",)))
def test_a_run_and_its_verbs_are_written_in_any_encoding(
    encoding: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    written = encoded(monkeypatch, encoding)
    run_dir = str(tmp_path / "rün→1")
    own = ["experiment=none", "evaluation.episodes=1", "logger=csv", "workers.fragment_length=32"]
    assert main(["train", "policy=ppo", "env=cartpole", "total_env_steps=600", f"run_dir='{run_dir}'", *own]) == 0
    for arguments in (
        ["evaluate", run_dir, "--episodes", "1"],
        ["report", run_dir],
        ["resume", run_dir, "total_env_steps=900"],
    ):
        assert main(arguments) == 0, arguments
    main(["check-env", "env=cartpole"])
    assert main(["train", "policy=ppö", "env=cartpole"]) == 2
    assert "Traceback" not in written()
