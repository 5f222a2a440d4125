"""Ray's own processes die, or the run ends while Ray starts: its status is right, and no process is left."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from tests.edited_runs import status_of
from tests.run_processes import Run

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]

ENDLESS = (
    *("train", "policy=pg", "env=cartpole", "workers.num_workers=1", "workers.fragment_length=32", "evaluation=none"),
    *("total_env_steps=100_000_000", "trainer.enable_progress_bar=false", "run_dir=out"),
)


def process_named(run: Run, name: str) -> psutil.Process | None:
    """A process of the run by its program's name."""
    return next((each for each in run.all() if each.is_running() and each.name() == name), None)


@pytest.mark.parametrize(("name", "seconds"), [("raylet", 60), pytest.param("gcs_server", 200, marks=pytest.mark.slow)])
def test_a_run_whose_ray_session_dies_has_failed_and_leaves_nothing(name: str, seconds: float, tmp_path: Path):
    """Ray ends the process that uses it a second after its raylet died, and a minute after its gcs_server did."""
    with Run(*ENDLESS, "checkpoint.every_env_steps=320", cwd=tmp_path) as run:
        run.until((tmp_path / "out" / "checkpoints" / "last.ckpt").exists, 300)
        run.until(lambda: status_of(tmp_path / "out")["env_steps"] > 0, 30)  # it beats
        victim = process_named(run, name)
        assert victim is not None
        victim.kill()
        assert run.wait(seconds) == 1, run.text
        run.until_gone(20)
        died = f"process {run.process.pid} ended because Ray's {name} (process {victim.pid}) had died"
        resume = f"`lightning-rl resume {tmp_path}/out` continues from its last checkpoint"
        assert [line for line in run.text.splitlines() if line.startswith("error: ")] == [f"error: {died}: {resume}"]
    status = status_of(tmp_path / "out")
    assert (status["state"], status["error"], status["env_steps"] > 0) == ("failed", died, True)


def test_sigterm_while_ray_starts_is_an_interrupt(tmp_path: Path):
    with Run(*ENDLESS, cwd=tmp_path) as run:
        run.until(lambda: process_named(run, "gcs_server"), 300)
        run.process.terminate()
        assert run.wait(100) == 130, run.text
        run.until_gone(30)
        assert run.text.splitlines()[-1] == f"interrupted: {tmp_path}/out: it has no checkpoint"
    status = status_of(tmp_path / "out")
    assert (status["state"], status["error"]) == ("interrupted", None)
