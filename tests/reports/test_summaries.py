"""Verdicts in plain words, probabilities of improvement, and numbers as people write them."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lightning_rl.callbacks.metric_names import EVAL_RETURN
from lightning_rl.reports.arms import Arm
from lightning_rl.reports.page import best_words
from lightning_rl.reports.run_records import RunRecord, Series, read_runs
from lightning_rl.reports.summaries import Difference, Summary, Task, difference, number, time_words, verdict
from tests.families import each
from tests.reports.run_files import DISTRIBUTIONS, rising, write_run, write_runs

NAMES = ("A", "B")


def summaries(directory: Path) -> list[Summary]:
    (task,) = Task.all_of(read_runs([directory]))
    return list(task.summaries)


def test_a_solved_task_says_how_well_and_how_fast(tmp_path: Path):
    """Returns of 480, 490 and 500 reach 475 in the last row at 20,000 steps and 40 s."""
    (summary,) = summaries(write_runs(tmp_path, 480, 490, 500))
    assert verdict(summary) == (
        "Solved: above the environment's reward threshold (475). Return of the last evaluation (10 episodes): "
        "interquartile mean 490 over 3 seeds, too few for an interval (5 have one). 3 of 3 seeds reached 475, after "
        "20,000 env steps and 40 s (median)."
    )
    assert (summary.steps_to_target, summary.seconds_to_target, summary.speed) == (20_000, 40.0, 500.0)


NO_CLEAR_MARGIN = "Solved, but not by a clear margin: the environment's reward threshold (475) is "


@pytest.mark.parametrize(
    ("lasts", "begins"),
    [
        ((400, 410), "Not solved: below the environment's reward threshold (475)."),
        ((400, 480), "Solved by 1 of 2 seeds only: they are above the environment's reward threshold (475)."),
        ((470, 490), f"{NO_CLEAR_MARGIN}above the lowest seed"),
        ((470, 480, 490, 490, 490), f"{NO_CLEAR_MARGIN}inside the interval"),
    ],
)
def test_the_first_sentence_of_a_verdict(tmp_path: Path, lasts: tuple[float, ...], begins: str):
    assert verdict(summaries(write_runs(tmp_path, *lasts))[0]).startswith(begins)


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
    (summary,) = summaries(write_runs(tmp_path, *lasts, stop={"return": 100.0}))
    assert (summary.steps_to_target, summary.seconds_to_target) == (steps, seconds)


def test_a_run_and_its_copy_are_not_two_seeds(tmp_path: Path):
    write_run(tmp_path / "0", seed=3, returns=rising(100))
    write_run(tmp_path / "1", seed=4, returns=rising(200))
    assert "independent" not in verdict(summaries(tmp_path)[0])
    shutil.copytree(tmp_path / "0", tmp_path / "copy")
    words = verdict(summaries(tmp_path)[0])
    assert words.endswith("Not independent: runs of seed 3 (2 runs).")


def test_environments_are_tasks_of_their_own(tmp_path: Path):
    write_run(tmp_path / "0", returns=rising(100))
    write_run(tmp_path / "1", returns=rising(100), env="Pendulum-v1")
    assert [task.env for task in Task.all_of(read_runs([tmp_path]))] == ["CartPole-v1", "Pendulum-v1"]


def arm(scores: Iterable[float], label: str = "", **keywords: Any) -> Summary:
    """The figures of runs with these last evaluations, and seeds 0, 1, …"""
    runs = []
    for seed, score in enumerate(scores):
        run = {"config": {"seed": seed}, "overrides": {}, "status": {}, "state": "ok", "sessions": (), **keywords}
        curves = {EVAL_RETURN: Series(np.array([1000]), np.array([score], float))}
        runs.append(RunRecord(directory=Path(str(seed)), curves=curves, **run))
    return Summary.of(Arm(label, runs), EVAL_RETURN)


def compared(ours: Summary, theirs: Summary, arms: int = 2) -> Difference:
    found = difference(ours, theirs, NAMES, arms)
    assert found is not None
    return found


def test_the_probability_of_improvement_of_arms():
    """10 and 30 against 20 and 25: two of four pairs are won."""
    assert compared(arm([10, 30]), arm([20, 25])).chance == 0.5


@pytest.mark.parametrize(
    ("ours", "theirs", "more"),
    [
        (2, 2, "2 more of A and 2 more of B"),
        (3, 3, "1 more of A and 1 more of B"),
        (5, 2, "1 more of B"),
        (1, 9, "1 more of A"),
    ],
)
def test_no_seeds_that_are_too_few_name_a_better_arm(ours: int, theirs: int, more: str):
    """Exact tests reach 2 / C(4, 2) = 0.33, 2 / C(6, 3) = 0.1, 2 / C(7, 2) = 0.095 and 2 / 10 at best."""
    found = compared(arm(np.arange(ours) + 100.0), arm(np.arange(theirs)))
    assert (found.p_value, found.better, found.chance) == (None, None, 1.0)
    assert found.words == f"{ours} against {theirs} seeds cannot show a difference at 5%: run {more}"


def test_seeds_that_are_enough_name_the_better_arm():
    for ours, theirs in ((4, 4), (3, 5), (2, 8)):
        high, low = arm(np.arange(ours) + 100.0), arm(np.arange(theirs))
        assert (compared(high, low).better, compared(low, high).better) == ("ours", "theirs")
        assert compared(low, high).words == "B is better"


def test_equal_copied_or_incomplete_runs_name_no_better_arm():
    assert compared(arm([500] * 9), arm([500] * 9)).better is None
    twice = compared(arm([10, 11, 12] * 2, config={"seed": 3}), arm([1, 2, 3, 4, 5, 6]))
    assert (twice.better, twice.words) == (None, "runs of one seed are in A twice")
    running = compared(arm([10, 11, 12, 13], state="running"), arm([1, 2, 3, 4]))
    assert (running.better, running.words) == (None, "no run of A is complete")


def test_failed_runs_count_as_the_lowest_scores_of_the_arm_that_would_be_better():
    """Four of A above five of B alone: p = 2 / C(9, 4) = 0.016; with three of A below all, p = 1. B needs no more."""
    high = arm([100, 101, 102, 103, *[np.nan] * 3])
    assert (high.failures, len(high.scores)) == (3, 4)
    found = compared(high, arm([1, 2, 3, 4, 5]))
    assert found.better is None and found.words.endswith("failed runs (3 of A) count as the lowest of their side")
    assert compared(high, arm([200, 201, 202, 203, 204])).better == "theirs"
    assert compared(arm([100, 101, 102, 103]), arm([1, 2, 3, 4, 5])).better == "ours"


@pytest.mark.parametrize("name", each(DISTRIBUTIONS, default=("normal", "one in five fails")))
@pytest.mark.parametrize(
    ("count", "most"), [(2, 0.0), (3, 0.0), (5, 0.06), pytest.param(10, 0.06, marks=pytest.mark.every)]
)
def test_equal_arms_are_called_better_in_one_report_of_twenty_at_most(name: str, count: int, most: float):
    """400 pairs of arms with draws from one distribution. Bootstrap intervals: 31 and 22 % with 2 and 3 seeds."""
    generator = np.random.default_rng(0)
    draws = [DISTRIBUTIONS[name](generator, (2, count)) for _ in range(400)]
    pairs = [(arm(ours, "A"), arm(theirs, "B")) for ours, theirs in draws]
    assert np.mean([compared(*pair).better is not None for pair in pairs]) <= most
    headlines = [best_words(Task("any", EVAL_RETURN, pair)) for pair in pairs]
    assert np.mean([" is best: " in str(words) for words in headlines]) <= most


def test_the_best_of_several_equal_arms_is_called_better_than_any_in_one_report_of_twenty_at_most():
    """Among 4 arms a verdict asks for p ≤ 0.05 / 6; without that, 11 % of the reports would name a better arm."""
    generator, found, plain = np.random.default_rng(1), 0, 0
    for _ in range(300):
        ranking = Task("any", EVAL_RETURN, [arm(scores) for scores in generator.normal(size=(4, 7))]).ranking
        found += any(compared(ranking[0], other, arms=4).better is not None for other in ranking[1:])
        plain += any(compared(ranking[0], other).better is not None for other in ranking[1:])
    assert found / 300 <= 0.05 < 0.09 < plain / 300


def test_ten_seeds_show_what_differs_by_two_deviations():
    generator = np.random.default_rng(2)
    pairs = [(arm(generator.normal(2.0, 1.0, 10)), arm(generator.normal(size=10))) for _ in range(100)]
    assert sum(compared(*pair).better == "ours" for pair in pairs) > 90


def test_numbers_and_times_in_words():
    numbers = [12345.6, 498.2, 500.0, -143.43, 9.876, 0.01234, 0.0]
    assert [number(value) for value in numbers] == ["12,346", "498.2", "500", "-143.4", "9.88", "0.0123", "0"]
    times = [0.42, 12.3, 150.0, 9000.0, 400_000.0]
    assert [time_words(value) for value in times] == ["0.4 s", "12 s", "2.5 min", "2.5 h", "4.6 d"]
