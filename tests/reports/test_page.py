"""The page: what is on it for whom, that nothing in it can run or call elsewhere, and a real browser that opens it."""

from __future__ import annotations

import base64
import csv
import io
import json
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from lightning_rl.reports.page import page
from lightning_rl.reports.run_records import read_runs
from lightning_rl.reports.summaries import Task
from tests.reports.html_checker import Checker
from tests.reports.run_files import rising, write_run, write_runs, write_session

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
PIXEL = base64.b64decode("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7")


def page_of(*directories: Path) -> str:
    return page(Task.all_of(read_runs(directories)), "here")


def missing(text: str, parts: Iterable[str]) -> list[str]:
    """The parts that the texts of a page do not hold."""
    shown = " ".join(" ".join(Checker(text).texts).split())
    return [part for part in parts if part not in shown]


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two arms of three seeds, one of which failed, one of which has a name that is markup."""
    directory = tmp_path_factory.mktemp("sweep")
    for number in range(6):
        seed, rows = number % 3, 7 if number == 5 else 20
        if number < 3:
            last, policy = 480.0 + 5 * seed, {"lr": 0.001, "note": "</style><img src=x onerror=alert(2)>"}
        else:
            last, policy = 200.0 + seed, {"lr": 0.01, "note": "plain"}
        ended: dict[str, Any] = {"evaluations": {4: 90.0, 9: 150.0, 19: last if number < 3 else 200.0}}
        if number == 5:
            ended = {"state": "failed", "error": "EnvError: <b>stuck</b>"}
        variance = {"train/explained_variance": [-0.9] * rows}
        name = f"{number}_<script>alert(1)<_script>"
        write_run(directory / name, seed=seed, returns=rising(last, rows), policy=policy, metrics=variance, **ended)
    return directory


def test_the_page_tells_the_whole_story(sweep: Path):
    parts = (
        "PPO on CartPole-v1",
        "6 runs (5 ok, 1 failed)",
        "✓ solved",
        "✗ not solved",
        "scores highest, but 3 against 2 seeds cannot show a difference at 5%: run 1 more of",
        "An interval of 2 seeds would miss too often, so there is none",
        "Return of training, by env steps",
        "Return of training, by wall time",
        "Return of evaluations, by env steps",
        "Performance profile",
        "Probability of improvement",
        "What explains the scores",
        "policy.lr (with 1 keys that change with it)",
        "Gradient steps took 50% of the time.",
        "Explained variance: ",
        "policy.value_coef",
        "Failed: seed 2 (not in these figures)",
        "their command is unknown",
        "curves.csv",
    )
    assert missing(page_of(sweep), parts) == []


def test_text_of_users_stays_text(sweep: Path):
    found = Checker(page_of(sweep))
    assert found.of("script") == found.of("img") == []
    shown = "".join(found.texts)
    for text in ("<script>alert(1)<_script>", "</style><img src=x onerror=alert(2)>", "EnvError: <b>stuck</b>"):
        assert text in shown


def test_nothing_on_the_page_is_elsewhere(sweep: Path):
    text = page_of(sweep)
    assert "http:" not in text and "https:" not in text and "@import" not in text and "url(" not in text
    found = Checker(text)
    for tag, attributes in found.seen:
        assert tag not in ("script", "iframe", "object", "embed", "form")
        for name, value in attributes.items():
            assert not name.startswith("on")
            if name in ("src", "href"):
                assert str(value).startswith("data:"), value
    assert any("default-src 'none'" in str(attributes.get("content")) for attributes in found.of("meta"))


def test_a_single_run_has_no_comparison(tmp_path: Path):
    comparison = ["Which is better", "What differs", "Performance profile", "Evaluation episodes"]
    text = page_of(write_run(tmp_path / "run", returns=rising(480)))
    assert missing(text, ["one seed, so no interval", *comparison]) == comparison
    for lr in (0.1, 0.2):
        write_runs(tmp_path / "equal", 300, policy={"lr": lr})
    assert missing(page_of(tmp_path / "equal"), ["Performance profile", "PPO on CartPole-v1"]) == [
        "Performance profile"
    ]


def test_the_curves_are_in_the_page_as_csv(tmp_path: Path):
    run = write_run(tmp_path / "a,b", seed=7, returns=rising(480), evaluations={9: 100.0, 19: 475.0})
    (link,) = Checker(page_of(run)).of("a")
    assert link["download"] == "curves.csv"
    kind, _, encoded = str(link["href"]).partition(",")
    assert kind == "data:text/csv;base64"
    rows = list(csv.DictReader(io.StringIO(base64.b64decode(encoded).decode())))
    assert len(rows) == 20 and {row["run"] for row in rows} == {"a,b"}
    assert rows[9] == {
        **{"env": "CartPole-v1", "arm": "PPO", "run": "a,b", "seed": "7", "env_steps": "10000", "seconds": "20.00"},
        **{"train_return": "240", "eval_return": "100"},
    }


def test_five_seeds_of_2000_rows_take_less_than_2_megabytes(tmp_path: Path):
    metrics = {f"train/m{index}": [0.123456789] * 2000 for index in range(12)}
    for number in range(10):
        returns = [100 + (row * 7919 * (number + 1)) % 397 / 1.7 for row in range(2000)]
        policy = {"lr": number // 5}
        write_run(tmp_path / str(number), seed=number % 5, returns=returns, policy=policy, metrics=metrics)
    assert len(page_of(tmp_path).encode()) < 2_000_000


def test_fifty_arms_are_a_page_too(tmp_path: Path):
    """Of more arms than there are colors, the best are drawn; all are in the tables."""
    for number in range(50):
        write_run(tmp_path / str(number), returns=rising(number + 1), policy={"lr": number})
    text = page_of(tmp_path)
    assert len(text.encode()) < 2_000_000 and "and 42 arms with lower scores, in the tables" in text
    assert "lr=0 " not in text.split("Scores")[0].split("legend")[-1] and ">lr=0<" in text


def test_provenance_is_the_command_the_code_and_the_machine(tmp_path: Path):
    for seed in range(2):
        write_session(write_run(tmp_path / str(seed), seed=seed, returns=rising(1)))
    command = "The command to repeat them: lightning-rl train policy=ppo"
    code = ("git commit c0ffee, with uncommitted changes", "torch 2.9.0 · numpy 2.4.0")
    assert missing(page_of(tmp_path), (command, *code, "host box · cpus 8", "2026-01-02 03:04 UTC", "0, 1")) == []
    write_session(tmp_path / "0", versions={"torch": "1"}, git=None, machine=7, command=3)
    assert "torch 1" in page_of(tmp_path)


def test_pictures_of_episodes_in_the_run_directory_are_on_the_page(tmp_path: Path):
    videos = write_run(tmp_path / "run", returns=rising(1)) / "videos"
    videos.mkdir()
    files = {"last_seed0.gif": PIXEL, "best.mp4": b"0" * 100, "notes.txt": b"no picture", "long.mp4": b"0" * 1_000_000}
    for name, content in files.items():
        (videos / name).write_bytes(content)
    found = Checker(page_of(tmp_path))
    (image,) = found.of("img")
    assert image["src"] == f"data:image/gif;base64,{base64.b64encode(PIXEL).decode()}"
    assert len(found.of("video")) == 1
    assert "PPO, seed 0: last seed0" in found.texts and "Evaluation episodes" in found.texts


def open_in_browser(file: Path, width: int) -> tuple[list[str], list[str], int]:
    """What the browser's console says, the addresses that the page asks for, and the size of its picture in bytes."""
    picture, log, profile = file.with_suffix(".png"), file.with_suffix(".json"), file.with_suffix(".profile")
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        "--enable-logging=stderr",
    ]
    outputs = [f"--screenshot={picture}", f"--log-net-log={log}", f"--user-data-dir={profile}"]
    command = [str(BROWSER), *flags, *outputs, f"--window-size={width},900", file.as_uri()]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    console = [line for line in result.stderr.splitlines() if "CONSOLE" in line]
    events = [event.get("params") for event in json.loads(log.read_text())["events"]]
    # Requests of the browser itself have the initiator "not an origin".
    asked = [
        each["url"] for each in events if isinstance(each, dict) and each.get("initiator", "not an origin") == "null"
    ]
    return console, asked, picture.stat().st_size


@pytest.mark.skipif(BROWSER is None, reason="needs chromium (apt-get install chromium)")
@pytest.mark.parametrize("width", [1200, 500])
def test_a_browser_shows_the_page_without_errors_and_requests(sweep: Path, tmp_path: Path, width: int):
    (tmp_path / "report.html").write_text(page_of(sweep))
    console, asked, size = open_in_browser(tmp_path / "report.html", width)
    assert (console, [url for url in asked if not url.startswith("data:")]) == ([], [])
    assert size > 20_000


@pytest.mark.skipif(BROWSER is None, reason="needs chromium (apt-get install chromium)")
def test_the_browser_would_have_shown_errors_and_requests(tmp_path: Path):
    file = tmp_path / "other.html"
    file.write_text("<!doctype html><img src='http://127.0.0.1:9/x.png'><script>missing()</script>")
    console, asked, _ = open_in_browser(file, 500)
    assert any("missing is not defined" in line for line in console)
    assert asked == ["http://127.0.0.1:9/x.png"]
