"""Ranges of numbers that a constructor's annotations carry, and names for the common ones.

`gamma: Probability = 0.99` gives type and range at once. `signatures.py` reads both, for configs and for constructors.
Infinity and NaN are in no range, and fit no annotation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from lightning_rl.schedules import EnvSteps, Schedule

__all__ = [
    "Agents",
    "Atoms",
    "Coefficient",
    "CoefficientSchedule",
    "Count",
    "CountEnvSteps",
    "Critics",
    "LearningRate",
    "LogStd",
    "NonNegative",
    "NonNegativeSchedule",
    "Passes",
    "Portion",
    "Positive",
    "PositiveSchedule",
    "Probability",
    "ProbabilitySchedule",
    "Range",
    "Seed",
    "Whole",
    "WholeEnvSteps",
    "Width",
]


@dataclass(frozen=True, slots=True)
class Range:
    """The numbers between two ends.

    Args:
        low, high: the ends; infinite ones leave their side open.
        above_low, below_high: whether the end itself is excluded.
    """

    low: float = -math.inf
    high: float = math.inf
    above_low: bool = False
    below_high: bool = False

    def __contains__(self, number: float) -> bool:
        enough = number > self.low if self.above_low else number >= self.low
        return enough and (number < self.high if self.below_high else number <= self.high)

    def __str__(self) -> str:
        if -math.inf < self.low and self.high < math.inf and not (self.above_low or self.below_high):
            return f"between {self.low} and {self.high}"
        ends = [f"above {self.low}" if self.above_low else f"at least {self.low}"] if self.low > -math.inf else []
        ends += [f"below {self.high}" if self.below_high else f"at most {self.high}"] if self.high < math.inf else []
        return " and ".join(ends)


Passes = Annotated[int, Range(1, 10_000)]  # sweeps over an iteration's rows, which no signal interrupts
Probability = Annotated[float, Range(0, 1)]
Portion = Annotated[float, Range(0, 1, above_low=True)]
NonNegative = Annotated[float, Range(0)]
Positive = Annotated[float, Range(0, above_low=True)]
Coefficient = Annotated[float, Range(0, 1_000_000)]  # weight of a term of a loss; far larger ones end in infinity

Whole = Annotated[int, Range(0)]
Count = Annotated[int, Range(1)]
WholeEnvSteps = Annotated[EnvSteps, Range(0)]  # or a share of the run's env steps
CountEnvSteps = Annotated[EnvSteps, Range(1)]
Width = Annotated[int, Range(1, 65_536)]  # of a layer
Atoms = Annotated[int, Range(1, 10_000)]  # of a distribution of returns, or quantiles
Critics = Annotated[int, Range(1, 256)]
Agents = Annotated[int, Range(1, 10_000)]  # copies of an environment that are the agents of one
LogStd = Annotated[float, Range(-20, 20)]  # logarithm of a deviation
Seed = Annotated[int, Range(0, 2**32 - 1)]  # the seeds that NumPy and Lightning accept

ProbabilitySchedule = Annotated[Schedule, Range(0, 1)]
NonNegativeSchedule = Annotated[Schedule, Range(0)]
CoefficientSchedule = Annotated[Schedule, Range(0, 1_000_000)]
PositiveSchedule = Annotated[Schedule, Range(0, above_low=True)]
LearningRate = Annotated[Schedule, Range(0, 1000)]
