"""Run directories through the command line: locks, damaged files, full disks, and the list of runs."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import signal
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from lightning_rl.cli import main
from lightning_rl.run_directory import listing
from lightning_rl.run_directory import status as status_module
from lightning_rl.run_directory.lock import RunLock
from lightning_rl.run_directory.process_identity import this_process
from lightning_rl.runs import run
from tests.cli.conftest import Command
from tests.run_processes import Fork

SHORT = ("policy=pg", "env=cartpole", "workers.fragment_length=16", "evaluation=none", "model.fcnet_hiddens=[8]")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("trained") / "run"
    assert main(["train", *SHORT, "total_env_steps=256", f"run_dir={run_dir}"]) == 0
    return run_dir


@pytest.fixture
def out(trained: Path, tmp_path: Path) -> Path:
    """A copy of a run that has ended."""
    return shutil.copytree(trained, tmp_path / "out")


def raise_full(*arguments: Any, **keywords: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def contents(run_dir: Path) -> dict[str, bytes]:
    return {str(path.relative_to(run_dir)): path.read_bytes() for path in run_dir.rglob("*") if path.is_file()}


@pytest.mark.parametrize("verb", ["train", "resume"])
def test_a_run_that_lives_is_not_joined_by_another(verb: str, command: Command, out: Path):
    before = contents(out)
    asked = ("train", *SHORT, "run_dir=out") if verb == "train" else ("resume", "out", "total_env_steps=999")
    with RunLock(out):
        outcome = command(*asked)
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert f"process {os.getpid()} " in outcome.err
    assert contents(out) == before


def test_the_run_holds_its_lock_until_it_ends(out: Path, command: Command, tmp_path: Path):
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
    config = (out / "config.yaml").read_bytes()
    taken = json.loads((out / "status.json").read_text())["env_steps"]
    assert command("resume", "out", "total_env_steps=512").code == 0
    (entry,) = yaml.safe_load((out / "config_history.yaml").read_text())
    assert entry["env_steps"] == taken
    assert entry["changes"]["total_env_steps"] == [256, 512]
    assert (out / "config.yaml").read_bytes() != config


def test_fewer_steps_than_an_interrupted_run_has_taken_are_refused(command: Command, out: Path):
    """Without a word on steps, such a run goes on with what is left of its end."""
    status = json.loads((out / "status.json").read_text())
    (out / "status.json").write_text(json.dumps({**status, "state": "interrupted"}))
    before = contents(out)
    outcome = command("resume", "out", "total_env_steps=64")
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert "total_env_steps=64" in outcome.err
    assert contents(out) == before
    assert command("resume", "out").code == 0


def test_a_number_of_steps_in_the_file_that_is_none_is_refused_whatever_is_typed(command: Command, out: Path):
    status, config = json.loads((out / "status.json").read_text()), yaml.safe_load((out / "config.yaml").read_text())
    (out / "status.json").write_text(json.dumps({**status, "state": "interrupted"}))
    (out / "config.yaml").write_text(yaml.safe_dump({**config, "total_env_steps": "soon"}))
    outcome = command("resume", "out", "total_env_steps=64")
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert "total_env_steps='soon'" in outcome.err


def test_resume_on_a_full_disk_does_not_change_the_run(
    command: Command, out: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    before = contents(out)
    monkeypatch.setattr(os, "fsync", raise_full)
    outcome = command("resume", "out", "total_env_steps=512")
    monkeypatch.undo()
    assert outcome.code == 1
    assert outcome.err.splitlines()[-1].startswith(
        f"error: {out}/config.yaml could not be written (No space left on dev"
    )
    after = contents(out)
    assert "could not be written" in after.pop("train.log").decode()
    assert json.loads(after.pop("status.json"))["state"] == "failed"
    assert after == {name: content for name, content in before.items() if name != "status.json"}
    os.chdir(tmp_path)
    assert command("resume", "out", "total_env_steps=512").code == 0


@pytest.mark.parametrize("file", ["status.json", "config.yaml"])
@pytest.mark.parametrize("part", [0.0, 0.5])
def test_a_damaged_file_is_one_line(file: str, part: float, command: Command, out: Path):
    content = (out / file).read_bytes()
    (out / file).write_bytes(content[: int(part * len(content))])
    outcome = command("resume", "out", "total_env_steps=512")
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert f"{file} is damaged" in outcome.err
    if file == "config.yaml":
        outcome = command("evaluate", "out", "--episodes", "1")
        assert (outcome.code, outcome.err.count("\n")) == (2, 1)
        assert f"{file} is damaged" in outcome.err


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
    outcome = command("resume", "out", "total_env_steps=512")
    assert outcome.code == 2
    assert "train.log" in caplog.text
    assert outcome.err.splitlines()[-1].startswith(f"error: checkpoint {Path('out/checkpoints/last.ckpt')} is damaged")
    assert "is damaged" in json.loads((out / "status.json").read_text())["error"]


def test_the_error_of_a_resumed_run_replaces_its_previous_error(out: Path):
    config = run.resumed_config(out, {"total_env_steps": 512})
    run.write_status(out / "status.json", "failed", error="OSError: long ago")
    with pytest.raises(ValueError, match="of today"), run.record_outcome(config["run_dir"]):
        raise ValueError("of today")
    assert json.loads((out / "status.json").read_text())["error"] == "ValueError: of today"


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
    lines = process.text.splitlines()
    assert lines[-1].startswith("error: out/checkpoints/last.ckpt ") and "File too large" in lines[-1]
    assert lines[-1].endswith("the run has no checkpoint; free some space there, and start it again")
    assert not any(line.startswith("ok") for line in lines)
    status = json.loads((tmp_path / "out" / "status.json").read_text())
    assert status["state"] == "failed"
    assert "last.ckpt" in status["error"]


def test_ctrl_c_does_not_claim_a_checkpoint_that_could_not_be_written(tmp_path: Path):
    status_file = tmp_path / "out" / "status.json"
    with limited_run(tmp_path, "total_env_steps=100000000") as process:
        process.until(status_file.exists)
        os.kill(process.pid, signal.SIGINT)
        assert process.wait() == 1, process.text
    assert process.text.endswith("the run has no checkpoint; free some space there, and start it again\n")
    assert json.loads(status_file.read_text())["state"] == "failed"


def test_list_runs_shows_how_each_is_doing(command: Command, out: Path, tmp_path: Path):
    killed = shutil.copytree(out, tmp_path / "runs" / "killed")
    shutil.copytree(out, tmp_path / "runs" / "2025-01-01" / "done")
    status = json.loads((killed / "status.json").read_text())
    (killed / "status.json").write_text(json.dumps({**status, "state": "running", "pid": 2**30, "return": None}))
    outcome = command("list", "runs")
    assert outcome.code == 0
    heading, first, second, _, note = outcome.out.splitlines()
    assert heading.split() == ["state", "policy", "env", "seed", "env", "steps", "return", "best", "age", "directory"]
    assert first.split()[0] == "dead" and first.endswith(f"{Path('runs/killed')}")
    assert second.split()[0] == "ok" and second.endswith(f"{Path('runs/2025-01-01/done')}")
    assert note.startswith("dead: its process ended without a word; `lightning-rl resume")
    rows = json.loads(command("list", "runs", "runs/2025-01-01", "--json").out)["runs"]
    assert [(row["state"], row["env_steps"]) for row in rows] == [("ok", status["env_steps"])]
    config = yaml.safe_load((killed / "config.yaml").read_text())
    assert rows[0]["env"] == config["env"]["id"] and rows[0]["seed"] == str(config["seed"])
    assert config["policy"]["_target_"].endswith(f".{rows[0]['policy']}")


def test_list_runs_can_be_limited_to_an_environment_or_a_policy_and_sorted(command: Command, out: Path, tmp_path: Path):
    text = (out / "config.yaml").read_text()
    status = json.loads((out / "status.json").read_text())
    cases = (("low", "CartPole-v1", 3.0), ("nan", "CartPole-v1", float("nan")), ("high", "my_envs:Own", 7.0))
    for name, env, value in (*cases, ("none", "CartPole-v1", None), ("odd", "CartPole-v1", "12")):
        run_dir = shutil.copytree(out, tmp_path / "runs" / name)
        (run_dir / "config.yaml").write_text(text.replace("id: CartPole-v1", f"id: {env}"))
        (run_dir / "status.json").write_text(json.dumps({**status, "return": value}))

    def names(*options: str) -> list[str]:
        return [
            Path(row["directory"]).name for row in json.loads(command("list", "runs", "--json", *options).out)["runs"]
        ]

    order = names("--sort", "return")  # the status of "odd" is damaged
    assert order[:2] == ["high", "low"] and {*order[2:]} == {"nan", "none", "odd"}
    assert names("--env", "cartpole", "--sort", "return")[0] == "low"
    assert names("--env", "own") == ["high"]
    policy = yaml.safe_load(text)["policy"]["_target_"].rpartition(".")[2]
    assert names("--policy", "nothing") == [] and len(names("--policy", policy.lower())) == 5
    outcome = command("list", "envs", "--sort", "return")
    assert outcome.code == 2 and outcome.err == "error: --env, --policy and --sort are of `list runs`\n"


def test_the_text_of_a_status_file_cannot_command_the_terminal(command: Command, out: Path, tmp_path: Path):
    hostile = shutil.copytree(out, tmp_path / "runs" / "red\x1b[31m")
    status = json.loads((hostile / "status.json").read_text())
    (hostile / "status.json").write_text(json.dumps({**status, "env_steps": "\x1b[2J", "return": "a\nb"}))
    outcome = command("list", "runs")
    assert outcome.code == 0 and outcome.out.splitlines()[1].split()[0] == "damaged"
    assert "\x1b" not in outcome.out
    outcome = command("resume", str(hostile), "total_env_steps=10000")
    assert "status.json is damaged (env_steps='\\x1b[2J')" in outcome.err and outcome.err.count("\n") == 1
    (hostile / "status.json").write_text(json.dumps({**status, "state": "\x1b[31mok"}))
    outcome = command("list", "runs")
    assert outcome.out.splitlines()[1].split()[0] == "damaged"
    assert "\x1b" not in outcome.out


@pytest.mark.parametrize("pid", ["1; rm -rf ~ #", True, None, -1])
def test_a_lock_that_names_no_process_becomes_no_command(pid: object, command: Command, out: Path):
    (out / "run.lock").write_text(json.dumps({"pid": pid, "host": "there\x1b[31m", "since": "now"}))
    outcome = command("resume", "out", "total_env_steps=512")
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert outcome.err.startswith(
        "error: out is in use: its run.lock is new and names no process; wait 120 seconds, or "
    )


def test_train_in_the_directory_of_a_dead_run_leaves_its_lock(command: Command, out: Path):
    """A pid beyond what Linux gives."""
    lock = json.dumps({**this_process(), "pid": 2**30, "since": "now"})
    (out / "run.lock").write_text(lock)
    outcome = command("train", "env=cartpole", "run_dir=out")
    assert outcome.code == 2 and "`lightning-rl resume`" in outcome.err
    assert "taken over" not in outcome.err and (out / "run.lock").read_text() == lock


def test_a_lock_of_another_machine_is_shown_without_control_characters(command: Command, out: Path):
    (out / "run.lock").write_text(json.dumps({"pid": 7, "host": "there\x1b[31m", "since": "now\n"}))
    outcome = command("resume", "out", "total_env_steps=512")
    assert outcome.err.startswith("error: out is in use: process 7 on there[31m trains there since now; wait until it")


@pytest.mark.parametrize("value", ["abc", "null", "50%", "1.5", "1,2"])
def test_resume_checks_the_number_of_steps_before_comparing(value: str, command: Command, out: Path):
    outcome = command("resume", "out", f"total_env_steps={value}")
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert outcome.err.startswith("error: total_env_steps=")


@pytest.mark.parametrize(
    ("override", "start"),
    [
        ("lr=1e-4", "no key 'lr'. Did you mean 'policy.lr'?"),
        ("policy.learning_rate=1e-4", "no key 'policy.learning_rate'. Did you mean 'policy.lr'?"),
        ("total_timesteps=999", "no key 'total_timesteps'. Did you mean 'total_env_steps'?"),
        ("zzz=1", "no key 'zzz'. A resumed run can change total_env_steps, "),
    ],
)
def test_resume_suggests_keys_for_names_of_other_libraries(override: str, start: str, command: Command, out: Path):
    outcome = command("resume", "out", override)
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert outcome.err.startswith(f"error: {start}")


def test_the_error_for_resuming_without_a_checkpoint_names_the_remedy(command: Command, out: Path):
    shutil.rmtree(out / "checkpoints")
    advice = ": delete the directory and train again, or give another run_dir\n"
    outcome = command("resume", "out", "total_env_steps=512")
    assert (outcome.code, outcome.err) == (2, f"error: out has no checkpoint to go on from{advice}")
    outcome = command("train", *SHORT, "run_dir=out")
    assert (outcome.code, outcome.err) == (2, f"error: run_dir={out} holds a run that has no checkpoint{advice}")


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
    assert outcome.code == 0
    assert outcome.out.splitlines()[-2].startswith("ok: out ")
    file = tmp_path / "out" / "status.json"
    before = "still says 'running' at 0 env steps" if written else "is missing"
    first, last = [record.getMessage() for record in caplog.records if "status.json" in record.getMessage()]
    assert first == "out/status.json could not be written (No space left on device)"
    assert last == f"{file} could not be written at the end: the run is ok, the file {before}"


def test_final_status_gives_the_last_state_though_its_file_cannot_be_written(
    out: Path, monkeypatch: pytest.MonkeyPatch
):
    """For this process, whatever is in the file; for a rank on another node that returned without an error."""
    file = out / "status.json"
    run.write_status(file, "running", env_steps=5)
    outcome = run.final_status(file)
    assert (outcome["state"], outcome["env_steps"]) == ("ok", 5)
    run.write_status(file, "ok", env_steps=6)
    with monkeypatch.context() as patch:
        patch.setattr(status_module, "write_atomically", raise_full)
        run.write_status(file, "interrupted", env_steps=7)
    outcome = run.final_status(file)
    assert (outcome["state"], outcome["env_steps"]) == ("interrupted", 7)


def test_a_run_that_fails_with_an_unreadable_status_reports_its_error(out: Path):
    with pytest.raises(ValueError, match="of today"), run.record_outcome(out):
        (out / "status.json").write_text("{")
        raise ValueError("of today")
    assert json.loads((out / "status.json").read_text())["error"] == "ValueError: of today"


def test_list_refuses_directories_that_are_not_there_or_make_no_sense(command: Command, tmp_path: Path):
    assert command("list", "runs").err.startswith("error: runs is no directory")
    assert command("list", "policies", "runs").err.startswith("error: list policies takes no directory; `list runs")
    (tmp_path / "empty").mkdir()
    assert command("list", "runs", "empty").out == "no runs below empty\n"


def test_a_thousand_runs_are_listed_at_once(tmp_path: Path, out: Path):
    for number in range(1000):
        run_dir = tmp_path / "runs" / str(number)
        run_dir.mkdir(parents=True)
        for name in ("config.yaml", "status.json"):
            os.link(out / name, run_dir / name)
    begun = time.thread_time()
    assert len(listing.runs_below(tmp_path / "runs")) == 1000
    assert time.thread_time() - begun < 5


@pytest.mark.parametrize("section", [5, "x", [1]])
def test_a_section_of_the_wrong_kind_is_no_environment_of_evaluations(section: object, command: Command, out: Path):
    config = yaml.safe_load((out / "config.yaml").read_text())
    (out / "config.yaml").write_text(yaml.safe_dump({**config, "evaluation": section}))
    assert command("evaluate", str(out), "--episodes", "1").code == 0


def test_a_run_refused_before_its_first_step_may_be_started_again_where_it_was(command: Command, tmp_path: Path):
    """DQN's buffer is allocated when training begins, after config.yaml was written."""
    asked = ("train", "policy=dqn", "env=cartpole", "evaluation=none", "total_env_steps=64", f"run_dir={tmp_path}/out")
    assert command(*asked, "data.capacity=1_000_000_000_000").code == 2
    assert (tmp_path / "out" / "config.yaml").exists()
    assert command(*asked).code == 0
    assert command(*asked).code == 2
