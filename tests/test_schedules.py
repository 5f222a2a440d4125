"""Schedules against points worked by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_rl.errors import ConfigError
from lightning_rl.schedules import check_schedule, schedule_value


def test_a_number_is_the_same_at_every_step() -> None:
    assert schedule_value(0.5, 0) == schedule_value(0.5, 10**12) == 0.5
    assert isinstance(schedule_value(1, 0), float)


@pytest.mark.parametrize(
    ("env_steps", "value"), [(0, 1.0), (100, 1.0), (150, 0.75), (200, 0.5), (350, 0.25), (500, 0.0), (10**9, 0.0)]
)
def test_points_are_joined_by_lines_and_the_ends_go_on(env_steps: int, value: float) -> None:
    """1 until step 100, ½ at 200, 0 from 500: halfway between 100 and 200 is ¾, between 200 and 500 is ¼."""
    assert schedule_value([[100, 1.0], [200, 0.5], [500, 0.0]], env_steps) == pytest.approx(value)


def test_one_point_is_a_constant() -> None:
    assert schedule_value([[100, 0.3]], 0) == schedule_value([[100, 0.3]], 1000) == 0.3


@st.composite
def schedules(draw: st.DrawFn) -> list[list[float]]:
    steps = sorted(draw(st.sets(st.integers(0, 10**9), min_size=1, max_size=5)))
    return [[step, draw(st.floats(-1e3, 1e3))] for step in steps]


@settings(derandomize=True, max_examples=50, deadline=None)
@given(schedules(), st.integers(0, 2 * 10**9))
def test_a_schedule_stays_between_its_values_and_meets_its_points(schedule: list[list[float]], env_steps: int) -> None:
    check_schedule("lr", schedule)
    values = [value for _, value in schedule]
    assert min(values) - 1e-9 <= schedule_value(schedule, env_steps) <= max(values) + 1e-9
    assert [schedule_value(schedule, int(step)) for step, _ in schedule] == values


@pytest.mark.parametrize(
    "schedule",
    ["3e-4", True, None, [], [1, 2], [[0, 1, 2]], [[0, "a"]], ["ab"], [[0, 1], [0, 2]], [[5, 1], [2, 2]], float("nan")],
)
def test_what_is_no_schedule_is_refused_by_name(schedule: Any) -> None:
    with pytest.raises(ConfigError, match=r"policy\.lr=.*expected a number, or \[\[env_step, value\]"):
        check_schedule("policy.lr", schedule)


@pytest.mark.parametrize("schedule", [0, 1e-3, [[0, 1]], ((0, 1.0), (10, 0))])
def test_numbers_and_rising_points_are_schedules(schedule: Any) -> None:
    check_schedule("policy.lr", schedule)
