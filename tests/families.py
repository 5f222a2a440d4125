"""Which members of a family of cases the default run tries; the others are marked `every`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

__all__ = ["ONE_PER_PIPELINE", "each", "first"]

# One policy for each way in which experience reaches a learner, of discrete or of continuous actions.
ONE_PER_PIPELINE = ("apex", "dqn", "es", "impala", "ppo", "sac")


def each(cases: Iterable[Any], default: Iterable[Any] = ONE_PER_PIPELINE) -> list[Any]:
    """The cases as parameters of a test; the default run tries those in `default`, `pytest -m every` the others.

    Args:
        cases: found, never listed: a case that is added is tried in CI without a line here.
        default: representatives; one that is no case is ignored.
    """
    chosen = set(default)
    return [pytest.param(case, marks=() if case in chosen else pytest.mark.every, id=str(case)) for case in cases]


def first(count: int, cases: Iterable[tuple[Any, ...]]) -> list[Any]:
    """Cases of several values as parameters: the default run tries the first ones, `pytest -m every` the others."""
    return [pytest.param(*case, marks=() if n < count else pytest.mark.every) for n, case in enumerate(cases)]
