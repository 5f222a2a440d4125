"""`lightning-rl report`: the page of real runs, and the check for CI."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Command, not_refused
from tests.reports.run_files import rising, write_run

SHORT = ("total_env_steps=600", "workers.fragment_length=16", "experiment=none", "evaluation.episodes=2")


def test_runs_of_two_algorithms_become_a_page(command: Command, tmp_path: Path):
    assert command("train", "-m", "policy=ppo,a2c", "seed=1,2", "policy.lr=1e-5", "run_dir=sweep", *SHORT).code == 0
    (tmp_path / "sweep" / "report.html").unlink()
    outcome = command("report", "sweep")
    assert outcome.code == 0 and outcome.err == ""
    first, second, path = outcome.out.splitlines()
    assert first.startswith("CartPole-v1, PPO: Not solved:") and second.startswith("CartPole-v1, A2C: Not solved:")
    assert path == str(Path("sweep", "report.html"))
    page = (tmp_path / path).read_text()
    assert "PPO and A2C on CartPole-v1" in page and "Performance profile" in page and "lightning_rl" in page
    assert "The command to repeat them" in page  # from provenance.json
    assert "median explained variance" in page and "gradient steps" in page

    jobs = sorted(str(job) for job in Path("sweep").glob("?_*"))
    outcome = command("report", *jobs[:2], "--out", "both.html")
    assert outcome.out.splitlines()[-1] == "both.html" and "2 runs (2 ok)" in Path("both.html").read_text()
    assert command("report", *jobs[:2]).out.splitlines()[-1] == "report.html"


def test_check_exits_with_1_on_a_regression_only(command: Command, tmp_path: Path):
    for name, last in (("good", 400), ("bad", 300)):
        for seed in range(5):
            write_run(tmp_path / name / str(seed), seed=seed, returns=rising(last + seed))
    assert command("report", "good", "--save-baseline", "baseline.json").code == 0
    assert len(json.loads(Path("baseline.json").read_text())["arms"]) == 1
    fine = command("report", "good", "--check", "baseline.json")
    assert fine.code == 0 and fine.out.splitlines()[-1].startswith("ok: CartPole-v1, PPO: 402 [400, 404] against")
    worse = command("report", "bad", "--check", "baseline.json")
    assert worse.code == 1 and worse.out.splitlines()[-1].startswith("regression: CartPole-v1, PPO: 302")
    assert command("report", "bad", "--check", "baseline.json", "--margin", "0.3").code == 0


def test_mistakes_are_one_line(command: Command, tmp_path: Path):
    write_run(tmp_path / "run", returns=rising(400))
    cases = {
        "report nowhere": "nowhere is not a directory",
        "report run --check none.json": "none.json is not a baseline (No such file or directory)",
        "report run --save-baseline b.json": "PPO has 1 complete runs",
        "report": "the following arguments are required: runs",
    }
    assert not_refused(command, cases) == {}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]
    (tmp_path / "file").touch()
    outcome = command("report", "run", "--out", "file/report.html")
    assert outcome.code == 1 and outcome.err.startswith("error: file/report.html could not be written")
