"""Verdicts in plain words, probabilities of improvement, and numbers as people write them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lightning_rl.reports.run_records import read_runs
from lightning_rl.reports.summaries import Summary, Task, improvement, number, time_words, verdict
from tests.reports.run_files import rising, write_run


def summaries(directory: Path) -> list[Summary]:
    (task,) = Task.all_of(read_runs([directory]))
    return list(task.summaries)


def test_a_solved_task_says_how_well_and_how_fast(tmp_path: Path):
    """Returns of 480, 490 and 500 reach 475 in the last row at 20,000 steps and 40 s."""
    for seed, last in enumerate((480, 490, 500)):
        write_run(tmp_path / str(seed), seed=seed, returns=rising(last))
    (summary,) = summaries(tmp_path)
    assert verdict(summary) == (
        "Solved: above the environment's reward threshold (475). Return of the last evaluation (10 episodes): "
        "interquartile mean 490 [480, 500] over 3 seeds. 3 of 3 seeds reached 475, after 20,000 env steps and 40 s "
        "(median)."
    )
    assert (summary.steps_to_target, summary.seconds_to_target, summary.speed) == (20_000, 40.0, 500.0)


@pytest.mark.parametrize(
    ("lasts", "begins"),
    [
        ((400, 410), "Not solved: below the environment's reward threshold (475)."),
        ((400, 480), "Solved by 1 of 2 seeds only: they are above the environment's reward threshold (475)."),
        (
            (470, 490),
            "Solved, but not by a clear margin: the environment's reward threshold (475) is inside",
        ),
    ],
)
def test_the_first_sentence_of_a_verdict(tmp_path: Path, lasts: tuple[float, ...], begins: str):
    for seed, last in enumerate(lasts):
        write_run(tmp_path / str(seed), seed=seed, returns=rising(last))
    assert verdict(summaries(tmp_path)[0]).startswith(begins)


def test_a_task_that_was_solved_and_lost_again_is_not_solved(tmp_path: Path):
    write_run(tmp_path / "0", returns=[100.0, 490.0, 100.0], evaluations={0: 100.0, 1: 490.0, 2: 100.0})
    (summary,) = summaries(tmp_path)
    words = verdict(summary)
    assert words.startswith("Reached the environment's reward threshold (475), and lost it again.")
    assert "100, one seed, so no interval." in words and "It reached 475, after 2,000 env steps and 4.0 s." in words


def test_failed_seeds_are_named_and_not_counted(tmp_path: Path):
    write_run(tmp_path / "0", seed=4, returns=rising(480))
    write_run(tmp_path / "1", seed=5, returns=rising(20, rows=3), state="failed")
    words = verdict(summaries(tmp_path)[0])
    assert "480, one seed, so no interval." in words and words.endswith("Failed: seed 5 (not in these figures).")


def test_runs_that_are_not_complete_are_no_verdict_yet(tmp_path: Path):
    write_run(tmp_path / "0", returns=rising(480), state="interrupted")
    words = verdict(summaries(tmp_path)[0])
    assert words.startswith("Not complete; now above") and "(figures are of the newest values)" in words


def test_without_evaluations_scores_are_training_returns(tmp_path: Path):
    write_run(tmp_path / "0", returns=rising(480), evaluations={})
    assert "Mean return of the last 100 training episodes: 480" in verdict(summaries(tmp_path)[0])


def test_a_stop_rule_of_its_own_is_the_target(tmp_path: Path):
    write_run(tmp_path / "0", returns=rising(100), stop={"return": 90.0})
    assert verdict(summaries(tmp_path)[0]).startswith("Reached stop.return (90) in rollout/ep_rew_mean.")
    write_run(tmp_path / "1", returns=rising(80), stop={"return": 90.0}, policy={"lr": 1.0})
    assert verdict(summaries(tmp_path)[1]).startswith("Did not reach stop.return (90)")


@pytest.mark.parametrize(
    ("lasts", "steps", "seconds"),
    [
        ((100, 200, 400), 10_000.0, 20.0),  # 100 in row 20, 10 and 5: 20,000, 10,000 and 5,000 steps, of 2 s per 1000
        ((90, 200, 400), 10_000.0, 20.0),  # the first one never: infinitely late
        ((90, 80, 400), None, None),
        ((90, 400), None, None),  # between 5,000 and never
    ],
)
def test_a_run_that_misses_the_target_is_infinitely_late(
    tmp_path: Path, lasts: tuple[float, ...], steps: float | None, seconds: float | None
):
    for seed, last in enumerate(lasts):
        write_run(tmp_path / str(seed), seed=seed, returns=rising(last), stop={"return": 100.0})
    (summary,) = summaries(tmp_path)
    assert (summary.steps_to_target, summary.seconds_to_target) == (steps, seconds)


def test_a_run_and_its_copy_are_not_two_seeds(tmp_path: Path):
    write_run(tmp_path / "0", seed=3, returns=rising(100))
    write_run(tmp_path / "1", seed=4, returns=rising(200))
    assert "independent" not in verdict(summaries(tmp_path)[0])
    shutil.copytree(tmp_path / "0", tmp_path / "copy")
    words = verdict(summaries(tmp_path)[0])
    assert words.endswith("Not independent, so the interval is too narrow: runs of seed 3 (2 runs).")


def test_environments_are_tasks_of_their_own(tmp_path: Path):
    write_run(tmp_path / "0", returns=rising(100))
    write_run(tmp_path / "1", returns=rising(100), env="Pendulum-v1")
    assert [task.env for task in Task.all_of(read_runs([tmp_path]))] == ["CartPole-v1", "Pendulum-v1"]


def test_the_probability_of_improvement_of_arms(tmp_path: Path):
    """10 and 30 against 20 and 25: two of four pairs are won."""
    for number_, (lr, last) in enumerate(((1.0, 10), (1.0, 30), (2.0, 20), (2.0, 25))):
        write_run(tmp_path / str(number_), seed=number_, returns=rising(last), policy={"lr": lr})
    ours, theirs = summaries(tmp_path)
    chance = improvement(ours, theirs)
    assert chance is not None and (chance.middle, chance.low, chance.high) == (0.5, 0.0, 1.0)


def test_numbers_and_times_in_words():
    numbers = [12345.6, 498.2, 500.0, -143.43, 9.876, 0.01234, 0.0]
    assert [number(value) for value in numbers] == ["12,346", "498.2", "500", "-143.4", "9.88", "0.0123", "0"]
    times = [0.42, 12.3, 150.0, 9000.0, 400_000.0, None]
    assert [time_words(value) for value in times] == ["0.4 s", "12 s", "2.5 min", "2.5 h", "4.6 d", "unknown time"]
