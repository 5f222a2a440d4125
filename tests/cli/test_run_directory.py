"""Run directories through the command line: locks, damaged files, full disks, and the list of runs."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import signal
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from lightning_rl.cli import main
from lightning_rl.run_directory import status as status_module
from lightning_rl.run_directory.lock import RunLock, live_owner
from lightning_rl.run_directory.status import write_status
from lightning_rl.runs import run
from tests.cli.conftest import Command, not_refused
from tests.edited_runs import config_of, contents, edit_config, edit_status, status_of
from tests.run_processes import Fork
from tests.trained_runs import TrainedRuns

SHORT = ("policy=pg", "env=cartpole", "workers.fragment_length=16", "evaluation=none", "model.fcnet_hiddens=[8]")
MORE = "total_env_steps=1500"
NO_CHECKPOINT = "the run has no checkpoint; free some space there, and start it again"


@pytest.fixture
def out(trained_runs: TrainedRuns, tmp_path: Path) -> Path:
    """A copy of a run that has ended."""
    return trained_runs.copy("ppo", tmp_path / "out")


def raise_full(*arguments: Any, **keywords: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_run_that_lives_is_not_joined_by_another(command: Command, out: Path):
    before = contents(out)
    with RunLock(out):
        cases = dict.fromkeys(("train env=cartpole run_dir=out", f"resume out {MORE}"), f"process {os.getpid()} ")
        assert not_refused(command, cases) == {}
    assert contents(out) == before


def test_the_run_holds_its_lock_until_it_ends(command: Command, tmp_path: Path):
    (tmp_path / "looks.py").write_text(
        "from pathlib import Path\n"
        "from lightning_rl.callbacks import RLCallback\n"
        "from lightning_rl.run_directory.lock import live_owner\n"
        "class Looks(RLCallback):\n"
        "    def on_train_batch_end(self, *args):\n"
        "        Path('seen').write_text(str(live_owner(Path('new')) is not None))\n"
    )
    assert command("train", *SHORT, "total_env_steps=64", "run_dir=new", "callbacks=[looks:Looks]").code == 0
    assert (tmp_path / "seen").read_text() == "True"
    assert not (tmp_path / "new" / "run.lock").exists()


def test_resume_keeps_the_changes_it_made_in_the_history(command: Command, out: Path):
    config, taken = (out / "config.yaml").read_bytes(), status_of(out)["env_steps"]
    assert command("resume", "out", MORE).code == 0
    (entry,) = yaml.safe_load((out / "config_history.yaml").read_text())
    assert (entry["env_steps"], entry["changes"]["total_env_steps"]) == (taken, [400, 1500])
    assert (out / "config.yaml").read_bytes() != config


def test_an_interrupted_run_that_has_all_its_steps_is_resumed_to_its_end(command: Command, out: Path):
    """Without a word on steps, such a run goes on with what is left of its end."""
    edit_status(out, state="interrupted")
    assert command("resume", "out").code == 0
    edit_config(out, "total_env_steps", "soon")
    assert "total_env_steps='soon'" in command("resume", "out").refusal


def test_resume_on_a_full_disk_does_not_change_the_run(
    command: Command, out: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    before = contents(out)
    monkeypatch.setattr(os, "fsync", raise_full)
    outcome = command("resume", "out", MORE)
    monkeypatch.undo()
    message = f"error: {out}/config.yaml could not be written (No space left on dev"
    assert outcome.code == 1 and outcome.err.splitlines()[-1].startswith(message)
    after = contents(out)
    assert "could not be written" in after.pop("train.log").decode()
    assert json.loads(after.pop("status.json"))["state"] == "failed"
    assert after == {name: content for name, content in before.items() if name != "status.json"}
    os.chdir(tmp_path)
    assert command("resume", "out", MORE).code == 0


def test_a_damaged_file_is_one_line(command: Command, out: Path):
    for file in ("config.yaml", "status.json"):
        content = (out / file).read_bytes()
        verbs = [f"resume out {MORE}", *(["evaluate out --episodes 1"] if file == "config.yaml" else [])]
        for part in (0, len(content) // 2):
            (out / file).write_bytes(content[:part])
            assert not_refused(command, dict.fromkeys(verbs, f"{file} is damaged")) == {}
        (out / file).write_bytes(content)


def test_a_log_that_cannot_be_written_does_not_hide_why_the_run_failed(
    command: Command, out: Path, caplog: pytest.LogCaptureFixture
):
    (out / "train.log").mkdir()
    last = out / "checkpoints" / "last.ckpt"
    content = bytearray(last.read_bytes())
    with zipfile.ZipFile(last) as archive:
        largest = max(archive.infolist(), key=lambda entry: entry.file_size if "/data/" in entry.filename else 0)
    content[largest.header_offset + largest.file_size] ^= 255  # in a tensor: noticed when all of the file is read
    last.write_bytes(content)
    outcome = command("resume", "out", MORE)
    assert outcome.code == 2 and "train.log" in caplog.text
    assert outcome.err.splitlines()[-1].startswith("error: checkpoint out/checkpoints/last.ckpt is damaged")
    assert "is damaged" in status_of(out)["error"]


@pytest.mark.parametrize("unreadable", [False, True])
def test_the_error_of_a_resumed_run_replaces_its_previous_status(unreadable: bool, out: Path):
    write_status(out / "status.json", "failed", error="OSError: long ago")
    with pytest.raises(ValueError, match="of today"), run.record_outcome(out):
        if unreadable:
            (out / "status.json").write_text("{")
        raise ValueError("of today")
    assert status_of(out)["error"] == "ValueError: of today"


def limited_run(tmp_path: Path, *overrides: str) -> Fork:
    """A run that can write no file larger than 6 kB: enough for the config, and not for a checkpoint."""

    def train() -> int:
        resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000))
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what runs in the background
        return main(["train", *SHORT, "run_dir=out", "logger=none", *overrides])

    return Fork(train, tmp_path / "log.txt")


def test_a_run_whose_last_checkpoint_cannot_be_written_has_failed(tmp_path: Path):
    with limited_run(tmp_path, "total_env_steps=256") as process:
        assert process.wait() == 1, process.text
    *lines, last = process.text.splitlines()
    assert last.startswith("error: out/checkpoints/last.ckpt ") and "File too large" in last
    assert last.endswith(NO_CHECKPOINT) and not any(line.startswith("ok") for line in lines)
    status = status_of(tmp_path / "out")
    assert status["state"] == "failed" and "last.ckpt" in status["error"]


def test_ctrl_c_does_not_claim_a_checkpoint_that_could_not_be_written(tmp_path: Path):
    with limited_run(tmp_path, "total_env_steps=100000000") as process:
        process.until((tmp_path / "out" / "status.json").exists)
        os.kill(process.pid, signal.SIGINT)
        assert process.wait() == 1, process.text
    assert process.text.endswith(f"{NO_CHECKPOINT}\n")
    assert status_of(tmp_path / "out")["state"] == "failed"


def test_list_runs_shows_how_each_is_doing(command: Command, out: Path, tmp_path: Path):
    killed = shutil.copytree(out, tmp_path / "runs" / "killed")
    shutil.copytree(out, tmp_path / "runs" / "2025-01-01" / "done")
    status, config = status_of(out), config_of(out)
    edit_status(killed, state="running", pid=2**30, **{"return": None})
    outcome = command("list", "runs")
    assert outcome.code == 0
    heading, first, second, _, note = outcome.out.splitlines()
    assert heading.split() == ["state", "policy", "env", "seed", "env", "steps", "return", "best", "age", "directory"]
    assert first.split()[0] == "dead" and first.endswith("runs/killed")
    assert second.split()[0] == "ok" and second.endswith("runs/2025-01-01/done")
    assert note.startswith("dead: its process ended without a word; `lightning-rl resume")
    (row,) = json.loads(command("list", "runs", "runs/2025-01-01", "--json").out)["runs"]
    assert (row["state"], row["env_steps"]) == ("ok", status["env_steps"])
    assert (row["env"], row["seed"]) == (config["env"]["id"], str(config["seed"]))
    assert config["policy"]["_target_"].endswith(f".{row['policy']}")


def test_list_runs_can_be_limited_to_an_environment_or_a_policy_and_sorted(
    command: Command, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Without reading the configs as YAML, which takes seconds where there are a thousand runs."""
    text = (out / "config.yaml").read_text()
    cases = (("low", "CartPole-v1", 3.0), ("nan", "CartPole-v1", float("nan")), ("high", "my_envs:Own", 7.0))
    for name, env, value in (*cases, ("none", "CartPole-v1", None), ("odd", "CartPole-v1", "12")):
        run_dir = shutil.copytree(out, tmp_path / "runs" / name)
        (run_dir / "config.yaml").write_text(text.replace("id: CartPole-v1", f"id: {env}"))
        edit_status(run_dir, **{"return": value})
    monkeypatch.setattr(yaml, "load", pytest.fail)

    def names(*options: str) -> list[str]:
        rows = json.loads(command("list", "runs", "--json", *options).out)["runs"]
        return [Path(row["directory"]).name for row in rows]

    order = names("--sort", "return")  # the status of "odd" is damaged
    assert order[:2] == ["high", "low"] and {*order[2:]} == {"nan", "none", "odd"}
    assert names("--env", "cartpole", "--sort", "return")[0] == "low"
    assert names("--env", "own") == ["high"]
    assert names("--policy", "nothing") == [] and len(names("--policy", "ppo")) == 5


def test_list_refuses_directories_that_are_not_there_or_make_no_sense(command: Command, tmp_path: Path):
    cases = {
        "list runs": "runs is not a directory",
        "list policies runs": "list policies takes no directory; `list runs",
    }
    assert not_refused(command, cases) == {}
    (tmp_path / "empty").mkdir()
    assert command("list", "runs", "empty").out == "no runs below empty\n"


def test_the_text_of_a_status_file_cannot_command_the_terminal(command: Command, out: Path, tmp_path: Path):
    hostile = shutil.copytree(out, tmp_path / "runs" / "red\x1b[31m")
    for fields in ({"state": "\x1b[31mok"}, {"state": "ok", "env_steps": "\x1b[2J", "return": "a\nb"}):
        edit_status(hostile, **fields)
        outcome = command("list", "runs")
        assert outcome.code == 0 and outcome.out.splitlines()[1].split()[0] == "damaged" and "\x1b" not in outcome.out
    assert "status.json is damaged (env_steps='\\x1b[2J')" in command("resume", str(hostile), MORE).refusal


def test_what_a_lock_says_becomes_no_command(command: Command, out: Path):
    """Neither to the shell nor to the terminal; one without a process is nobody's."""
    for pid in ("1; rm -rf ~ #", True, None, -1):
        (out / "run.lock").write_text(json.dumps({"pid": pid, "host": "there\x1b[31m", "since": "now"}))
        assert live_owner(out) is None
    (out / "run.lock").write_text(json.dumps({"pid": 7, "host": "there\x1b[31m", "since": "now\n"}))
    expected = "out is in use: process 7 on there[31m trains there since now; wait until it"
    assert command("resume", "out", MORE).refusal.startswith(expected)


def test_what_resume_cannot_change_is_one_line(command: Command, out: Path):
    """A number of steps is checked before it is compared; keys are suggested for the names of other libraries."""
    steps = (f"total_env_steps={value}" for value in ("abc", "null", "50%", "1.5", "1,2"))
    keys = {
        "lr=1e-4": "no key 'lr'. Did you mean 'policy.lr'?",
        "policy.learning_rate=1e-4": "no key 'policy.learning_rate'. Did you mean 'policy.lr'?",
        "total_timesteps=999": "no key 'total_timesteps'. Did you mean 'total_env_steps'?",
        f"trainer.acelerator=cpu {MORE}": "no key 'trainer.acelerator'. Did you mean 'trainer.accelerator'?",
        "zzz=1": "no key 'zzz'. A resumed run can change total_env_steps, ",
        "policy.gamma=0.5": "policy.gamma=0.5 would make it another run; a resumed run can change total_env_",
        "run_dir=other": "would make it another run",
        "logger=cvs": "logger=cvs: no such logger. Did you mean 'csv'?",
    }
    cases = {f"resume out {typed}": words for typed, words in (dict.fromkeys(steps, "total_env_steps=") | keys).items()}
    assert not_refused(command, cases) == {}


def test_the_error_for_resuming_without_a_checkpoint_names_the_remedy(command: Command, out: Path):
    shutil.rmtree(out / "checkpoints")
    advice = ": delete the directory and train again, or give another run_dir"
    assert command("resume", "out", MORE).refusal == f"out has no checkpoint to continue from{advice}"
    refusal = command("train", *SHORT, "run_dir=out").refusal
    assert refusal == f"run_dir={out} holds a run that has no checkpoint{advice}"


@pytest.mark.parametrize("written", [0, 1])
def test_a_run_whose_last_status_cannot_be_written_is_still_ok(
    written: int, command: Command, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """The disk is full for status.json from the start, or after its first write."""
    write, calls = status_module.write_atomically, []

    def full(path: Path, content: bytes, *, durable: bool) -> None:
        calls.append(path)
        if len(calls) > written:
            raise_full()
        write(path, content, durable=durable)

    monkeypatch.setattr(status_module, "write_atomically", full)
    outcome = command("train", *SHORT, "total_env_steps=256", "run_dir=out")
    assert len(calls) > written
    assert outcome.code == 0 and outcome.out.splitlines()[-2].startswith("ok: out ")
    assert {record.getMessage() for record in caplog.records if "status.json" in record.getMessage()} == {
        "out/status.json could not be written (No space left on device)"
    }


@pytest.mark.parametrize("section", [5, "x", [1]])
def test_a_section_of_the_wrong_kind_is_no_environment_of_evaluations(section: object, command: Command, out: Path):
    edit_config(out, "evaluation", section)
    assert command("evaluate", str(out), "--episodes", "1").code == 0


def test_a_run_refused_before_its_first_step_may_be_started_again_where_it_was(command: Command, tmp_path: Path):
    """DQN's buffer is allocated when training begins, after config.yaml was written."""
    asked = ("train", "policy=dqn", "env=cartpole", "evaluation=none", "total_env_steps=64", f"run_dir={tmp_path}/out")
    assert command(*asked, "data.capacity=1_000_000_000_000").code == 2
    assert (tmp_path / "out" / "config.yaml").exists()
    assert command(*asked).code == 0
    assert command(*asked).code == 2
