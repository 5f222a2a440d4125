"""The ratio of gradient steps to environment steps: exact for any fragment size and after any resume."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_rl.data.update_ratio import UpdateRatio


@settings(derandomize=True, deadline=None)
@given(
    intensity=st.sampled_from([0.1, 0.25, 0.3, 0.5, 1.0, 1.5, 7.0, 20.0]),
    starts=st.integers(0, 100),
    fragments=st.lists(st.integers(0, 60), min_size=1, max_size=60),
    resumed=st.integers(0, 60),
)
def test_gradient_steps_due_are_the_product_rounded_down(
    intensity: float, starts: int, fragments: list[int], resumed: int
) -> None:
    ratio, env_steps = UpdateRatio(intensity, starts), 0
    for number, steps in enumerate(fragments):
        env_steps += steps
        while ratio.due(env_steps) > 0:
            ratio.record_steps()
        assert ratio.taken == int(max(0, env_steps - starts) * Fraction(str(intensity)))
        if number == resumed:
            state, ratio = ratio.state_dict(), UpdateRatio(intensity, starts)
            ratio.load_state_dict(state)


def test_the_update_ratio_is_exact_after_a_billion_steps() -> None:
    """As floats, 0.3 × 1e16 + 10 is off by one."""
    assert UpdateRatio(0.3).due(10**16 + 10) - UpdateRatio(0.3).due(10**16) == 3


def test_learning_starts_stays_in_a_longer_run_once_learning_has_started() -> None:
    """A tenth of 1,000, and of 10,000 in the run that goes on: steps go on at once, and none is made up for."""
    first = UpdateRatio(1.0, learning_starts=100)
    first.record_steps(first.due(1000))
    for later in (1000, 50):
        again = UpdateRatio(1.0, learning_starts=later)
        again.load_state_dict(first.state_dict())
        assert [again.due(steps) for steps in (1000, 1001, 1100)] == [0, 1, 100]
    waiting = UpdateRatio(1.0, learning_starts=1000)
    waiting.load_state_dict(UpdateRatio(1.0, learning_starts=100).state_dict())
    assert [waiting.due(steps) for steps in (101, 1001)] == [0, 1]  # a start that lies ahead is the new run's


def test_settle_forgets_gradient_steps_beyond_the_ratio() -> None:
    """A policy of 400 env steps, saved when 600 had been taken."""
    ratio = UpdateRatio(1.0, learning_starts=100)
    ratio.record_steps(500)
    ratio.settle(400)
    assert [ratio.due(steps) for steps in (400, 401, 500)] == [0, 1, 100]
    ratio.settle(450)
    assert ratio.due(450) == 50  # steps that are due stay due


@pytest.mark.parametrize(
    ("intensity", "starts", "first"), [(1, 1000, 1001), (0.002, 5000, 5500), (0.3, 0, 4), (20, 0, 1)]
)
def test_the_first_gradient_step_is_due_once_the_product_reaches_one(intensity: float, starts: int, first: int) -> None:
    """0.3 × 3 = 0.9 and 0.3 × 4 = 1.2."""
    ratio = UpdateRatio(intensity, starts)
    assert ratio.first_step == first and ratio.due(first - 1) == 0 < ratio.due(first)
