"""The counters of a policy, which schedules follow and checkpoints keep."""

from __future__ import annotations

from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any

__all__ = ["COUNTERS", "Progress", "counter"]


@dataclass(slots=True)
class Progress:
    """How far a policy has learned.

    Attributes:
        env_steps: environment steps that it has learned from.
        iterations: Lightning batches.
        gradient_steps: steps of its optimizer.
    """

    env_steps: int = 0
    iterations: int = 0
    gradient_steps: int = 0


COUNTERS = tuple(field.name for field in fields(Progress))


def counter(name: str) -> Any:
    """An attribute of a policy that stands for a counter of its `progress`."""
    return property(attrgetter(f"progress.{name}"), lambda policy, count: setattr(policy.progress, name, count))
