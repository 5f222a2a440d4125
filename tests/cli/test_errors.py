"""Bad input on the command line: one line with value, expectation and next step, exit code 2, and no files."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lightning_rl import Algorithm, Policy, cli
from lightning_rl.config.groups import group_options
from lightning_rl.errors import CheckpointError
from lightning_rl.runs.evaluation import evaluate
from scripts import regenerate
from tests.cli.conftest import Command
from tests.golden_messages import COMMANDS, Outcome, outcome_of, outcomes

STOPPING = "lightning.pytorch.callbacks:EarlyStopping"
# Mistakes that another package words, and that the golden file leaves out → what the line must name.
WORDED_ELSEWHERE = {
    "train env.kwargs.size=3": ("'CartPole-v1'", "size"),
    "train env.wrappers=[zipfile:ZipFile]": ("env.wrappers", "ZipFile"),
    "train callbacks=[lightning.pytorch.callbacks.EarlyStopping]": ("EarlyStopping", "monitor"),
    f"train callbacks=[{{callback:{STOPPING},monitor:eval/ep_rew_mean,mode:up}}]": ("callbacks[0]=", "mode"),
    "train trainer.accelerator=tpu": ("trainer.accelerator=tpu", "torch_xla"),
    "train trainer.devices=0": ("trainer.devices=0",),
    "train policy.optimizer_kwargs.eps=-1": ("policy.optimizer_kwargs.eps=-1",),
    "train policy.lr=${nothing}": ("policy.lr=${nothing}", "'nothing'"),
    "train policy.lr=${policy.lr}": ("policy.lr=${policy.lr}",),
    "train policy.lr=ünï": ("'policy.lr=ünï'",),
    "train seed=[1": ("'seed=[1'", "key=value"),
    "train policy_mapping={'*':p}": ("policy_mapping=", "{adversary_*: hunter, *: prey}"),
    "list polices": ("'polices'", "policies"),
    "evaluate": ("checkpoint",),
}
PLANNED = r"(lightning_rl [\d.]+: .*\n)?"  # what the command was to do


def is_one_line(outcome: Outcome) -> bool:
    """Whether a command did nothing but print one line, with the exit code for a mistake of the user's."""
    line = outcome.err.startswith("error: ") and outcome.err.count("\n") == 1
    return line and outcome.code == 2 and outcome.files == [] and re.fullmatch(PLANNED, outcome.out) is not None


def test_a_mistake_is_answered_in_one_line_before_anything_is_written():
    """Every eighth command; the next test runs all."""
    assert [each for each in map(outcome_of, COMMANDS[::8]) if not is_one_line(each)] == []


@pytest.mark.every
def test_all_mistakes_are_answered_in_the_lines_of_the_golden_file():
    assert [each for each in outcomes() if not is_one_line(each)] == []
    found = regenerate.differences([regenerate.MESSAGES])
    assert not found, f"run python scripts/regenerate.py, and commit what it changes:\n{found}"


def test_a_mistake_that_another_package_words_is_answered_with_what_is_wrong():
    for command, names in WORDED_ELSEWHERE.items():
        outcome = outcome_of(command)
        assert is_one_line(outcome) and [name for name in names if name not in outcome.err] == [], outcome


def test_the_answer_to_an_unknown_choice_names_all_that_there_are():
    for group in ("policy", "env", "exploration"):
        line = outcome_of(f"train {group}=nosuch").err
        assert [name for name in group_options(group) if name not in line] == []


LONG, NESTED = "a" * 5000, "[" * 3000


# The verbs that take a path or overrides; check-env takes them for the name of an environment, and reports on that.
OF_PATHS = [name for name in cli.VERBS if name not in ("completion", "doctor", "benchmark", "check-env")]


def test_endless_paths_and_brackets_are_one_short_line_of_every_verb():
    """Longer than the system takes for a name, and deeper than a parser can follow."""
    for verb in OF_PATHS:
        for arguments in (LONG, f"{LONG}.ckpt x", f"policy.lr={NESTED}", f"policy=ppo seed={NESTED} seed"):
            assert is_one_line(outcome_of(f"{verb} {arguments}")), (verb, arguments[:20])


def test_the_python_api_refuses_endless_paths():
    for call in (Policy.load, Algorithm.restore, evaluate):
        with pytest.raises(CheckpointError, match="too long"):
            call(Path(LONG))


def test_a_file_that_is_no_checkpoint_is_refused(command: Command, tmp_path: Path):
    (tmp_path / "broken.ckpt").write_bytes(b"PK\x03\x04 cut off")
    assert "broken.ckpt" in command("evaluate", "broken.ckpt", "--env", "CartPole-v1").refusal


def test_an_environment_variable_turns_tracebacks_on(command: Command, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LIGHTNING_RL_TRACEBACK", "1")
    with pytest.raises(ValueError, match="pppo"):
        command("train", "policy=pppo")


def test_an_environments_own_error_is_named(command: Command, tmp_path: Path):
    (tmp_path / "broken_import.py").write_text("import missing_package\n")
    outcome = command("train", "env.id=broken_import:OutOfBounds", "run_dir=out")
    assert outcome.code == 2 and "missing_package" in outcome.err.splitlines()[-1]


def test_a_file_that_cannot_be_written_is_one_line(command: Command, monkeypatch: pytest.MonkeyPatch):
    """Whatever file it is: the system's message names it."""

    def fill_disk(arguments: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device", "here/file")

    monkeypatch.setitem(cli.VERBS, "doctor", fill_disk)  # type: ignore[arg-type]
    outcome = command("doctor")
    assert (outcome.code, outcome.err) == (1, "error: OSError: [Errno 28] No space left on device: 'here/file'\n")


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"], ["list"]])
def test_a_reader_that_closes_the_pipe_at_once_ends_a_command_quietly(arguments: list[str]):
    """As `lightning-rl … | true`: what is printed lies in a buffer until the command ends."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as pipe:
        program = [sys.executable, "-m", "lightning_rl", *arguments]
        ended = subprocess.run(program, stdout=pipe, stderr=subprocess.PIPE, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")
