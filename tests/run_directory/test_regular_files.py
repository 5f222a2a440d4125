"""Files of a run directory: links are not followed, FIFOs and devices are not opened, whatever the command."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lightning_rl import Algorithm
from lightning_rl.callbacks import CSVLogger
from lightning_rl.cli import main
from lightning_rl.errors import CheckpointError, ConfigError
from lightning_rl.run_directory.listing import runs_below
from lightning_rl.run_directory.regular_files import is_regular, open_regular, read_text
from tests.trained_runs import train

SECRET = "a line that no output may hold"


@pytest.fixture(autouse=True)
def no_hang() -> Iterator[None]:
    """A call that waits for a FIFO or reads a device without end becomes an error."""

    def end(number: int, frame: Any) -> None:
        raise TimeoutError("this call would never end")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(120)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with every kind of file."""
    run_dir = tmp_path_factory.mktemp("runs") / "trained"
    small = ["model.fcnet_hiddens=[4]", "workers.fragment_length=100", "report_every_env_steps=100"]
    train(run_dir, "policy=pg", "env=cartpole", *small)
    others = {"videos/step_1.png": "a picture", ".hydra/overrides.yaml": "[policy=pg]", "config_history.yaml": "[]"}
    for name, content in {**others, "run.lock": "{}"}.items():
        (run_dir / name).parent.mkdir(exist_ok=True)
        (run_dir / name).write_text(content)
    os.utime(run_dir / "run.lock", (0, 0))
    return run_dir


@pytest.fixture
def run_dir(trained: Path, tmp_path: Path) -> Path:
    """A copy to be damaged."""
    return shutil.copytree(trained, tmp_path / "runs" / "theirs")


def link(file: Path) -> None:
    secret = file.parents[2] / f"secret{file.suffix}"
    secret.write_text(f"# {SECRET}\nrun_dir: {SECRET}\n")
    file.symlink_to(secret)


def link_to_device(file: Path) -> None:
    file.symlink_to("/dev/zero")


REPLACEMENTS: list[Callable[[Path], None]] = [link, link_to_device, os.mkfifo]


@pytest.mark.parametrize("replace", [link, *(pytest.param(each, marks=pytest.mark.every) for each in REPLACEMENTS[1:])])
def test_no_command_reads_what_is_no_regular_file(
    replace: Callable[[Path], None], trained: Path, run_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Files at the top and one level below, each in turn; the commands that read without training."""
    page = run_dir.parent / "page.html"
    files = [path.relative_to(run_dir) for path in run_dir.rglob("*") if path.is_file()]
    assert len(files) >= 11
    for name in files:
        (run_dir / name).unlink()
        replace(run_dir / name)
        for command in (
            ["report", str(run_dir), "--out", str(page)],
            ["compare", str(trained), str(run_dir)],
            ["list", "runs", str(run_dir.parent)],
            ["explain", str(run_dir), "policy.lr"],
        ):
            main(command)
            text = "".join(capsys.readouterr()) + (page.read_text() if page.exists() else "")
            assert SECRET not in text and "Traceback" not in text, (name, command)
        (run_dir / name).unlink()
        shutil.copy(trained / name, run_dir / name)


@pytest.mark.parametrize("replace", REPLACEMENTS, ids=lambda replace: replace.__name__)
@pytest.mark.parametrize("name", ["config.yaml", "checkpoints/last.ckpt", "metrics.csv", "train.log"])
def test_resume_and_evaluate_refuse_what_is_no_regular_file(
    replace: Callable[[Path], None], name: str, run_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run_dir / name).unlink(missing_ok=True)
    replace(run_dir / name)
    assert main(["resume", str(run_dir), "total_env_steps=500"]) == 2
    if name.startswith(("config", "checkpoints")):
        main(["evaluate", str(run_dir), "--episodes", "1"])
    output = "".join(capsys.readouterr())
    assert Path(name).name in output and SECRET not in output and "Traceback" not in output


def test_what_links_lead_to_is_in_no_report(trained: Path, run_dir: Path) -> None:
    """A picture, and the directory of pictures."""
    page = run_dir.parent / "page.html"
    secret = run_dir.parent / "secret"
    secret.mkdir()
    (secret / "private.png").write_text(SECRET)
    (run_dir / "videos" / "step_2.png").symlink_to(secret / "private.png")
    assert main(["report", str(run_dir), "--out", str(page)]) == 0
    assert "step 1" in page.read_text() and "step 2" not in page.read_text()
    shutil.rmtree(run_dir / "videos")
    (run_dir / "videos").symlink_to(secret)
    assert main(["report", str(run_dir), "--out", str(page)]) == 0
    assert "private" not in page.read_text()


@pytest.mark.parametrize("name", ["checkpoints", "tb", "videos", "export", "metrics.csv", "train.log"])
def test_a_run_writes_and_deletes_nothing_through_a_link(
    name: str, run_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a command would write to is refused before anything is written, with the place in the message."""
    elsewhere = run_dir.parent / "elsewhere"
    if (run_dir / name).exists():
        (run_dir / name).rename(elsewhere)
    else:
        elsewhere.mkdir()
    (run_dir / name).symlink_to(elsewhere)
    leftover = elsewhere / ".last.ckpt.1.1.staging" if elsewhere.is_dir() else elsewhere
    before = leftover.read_text() if leftover.exists() else leftover.write_text("") or ""
    files = sorted(elsewhere.rglob("*"))
    for verb in (["resume", str(run_dir), "total_env_steps=500"], ["export", str(run_dir)], ["video", str(run_dir)]):
        assert main(verb) == 2
        assert "Traceback" not in (error := capsys.readouterr().err) and name in error
    assert files == sorted(elsewhere.rglob("*")) and leftover.read_text() == before
    if name == "checkpoints":
        with pytest.raises(CheckpointError, match="link"):
            Algorithm.restore(run_dir / name / "last.ckpt")


def test_an_algorithm_saves_nothing_through_a_link(tmp_path: Path) -> None:
    small = ["model.fcnet_hiddens=[4]", "workers.fragment_length=16", f"run_dir={tmp_path}/run"]
    algorithm = Algorithm("pg", "CartPole-v1", overrides=small)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "checkpoints").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="checkpoints"):
        algorithm.save()
    algorithm.stop()
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_user_s_link_to_a_run_directory_is_followed(
    run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Such as runs/latest; also one to a checkpoint, outside of a run directory."""
    latest, best = tmp_path / "latest", tmp_path / "best.ckpt"
    latest.symlink_to(run_dir)
    best.symlink_to(run_dir / "checkpoints" / "last.ckpt")
    assert main(["evaluate", str(latest), "--episodes", "1"]) == 0
    assert main(["evaluate", str(best), "--episodes", "1", "--env", "CartPole-v1"]) == 0
    assert main(["resume", str(latest), "total_env_steps=1200"]) == 0
    assert main(["report", str(latest), "--out", str(tmp_path / "page.html")]) == 0
    assert [row["state"] for row in runs_below(latest)] == ["ok"]


def test_rows_are_not_added_to_a_file_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    (tmp_path / "metrics.csv").symlink_to(tmp_path / "mine.txt")
    logger = CSVLogger(tmp_path / "metrics.csv")
    logger.log_metrics({"a": 1.0}, 1)
    logger.save()
    with pytest.raises(ConfigError, match=r"metrics\.csv"):
        logger.continue_from(0)
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_a_regular_file_is_opened_and_a_longer_one_than_expected_is_not(tmp_path: Path) -> None:
    file = tmp_path / "a" / "b"
    file.parent.mkdir()
    with open_regular(file, tmp_path, append=True) as opened:
        opened.write(b"text")
    assert is_regular(file, tmp_path) and read_text(file, tmp_path, most=4) == "text"
    with pytest.raises(ValueError, match="4 bytes"):
        read_text(file, most=3)
    (tmp_path / "c").symlink_to(tmp_path / "a")
    assert not is_regular(tmp_path / "c" / "b", tmp_path) and is_regular(tmp_path / "c" / "b", tmp_path / "c")
    assert not is_regular(tmp_path / ("x" * 5000)) and not is_regular(tmp_path / "a")
