"""RLlib's schedules: objects that are called with a number of steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import pairwise

__all__ = [
    "ConstantSchedule",
    "ExponentialSchedule",
    "LinearSchedule",
    "PiecewiseSchedule",
    "PolynomialSchedule",
    "Schedule",
]


class Schedule(ABC):
    """A number that depends on the steps so far; a subclass defines `_value`.

    Args:
        framework: not read.
    """

    def __init__(self, framework: str | None = None) -> None:
        self.framework = framework

    @abstractmethod
    def _value(self, t: int) -> float: ...

    def value(self, t: int) -> float:
        """The number after `t` steps."""
        return self._value(t)

    __call__ = value


class ConstantSchedule(Schedule):
    """The same number at all times.

    Args:
        value: the number.
        framework: not read.
    """

    def __init__(self, value: float, framework: str | None = None) -> None:
        super().__init__(framework)
        self._constant = value

    def _value(self, t: int) -> float:
        return self._constant


class PolynomialSchedule(Schedule):
    """From `initial_p` to `final_p` as (1 − t / schedule_timesteps)^power, and `final_p` from then on.

    Args:
        schedule_timesteps: steps until `final_p`.
        final_p, initial_p: the last and the first number.
        framework: not read.
        power: 1: a straight line.
    """

    def __init__(
        self,
        schedule_timesteps: int,
        final_p: float,
        framework: str | None = None,
        initial_p: float = 1.0,
        power: float = 2.0,
    ) -> None:
        super().__init__(framework)
        self.schedule_timesteps, self.final_p, self.initial_p, self.power = (
            schedule_timesteps,
            final_p,
            initial_p,
            power,
        )

    def _value(self, t: int) -> float:
        rest = 1.0 - min(t, self.schedule_timesteps) / self.schedule_timesteps
        return self.final_p + (self.initial_p - self.final_p) * rest**self.power


class LinearSchedule(PolynomialSchedule):
    """A straight line from `initial_p` to `final_p`; see `PolynomialSchedule`."""

    def __init__(
        self, schedule_timesteps: int, final_p: float, framework: str | None = None, initial_p: float = 1.0
    ) -> None:
        super().__init__(schedule_timesteps, final_p, framework, initial_p, power=1.0)


class ExponentialSchedule(Schedule):
    """`initial_p` · `decay_rate`^(t / schedule_timesteps).

    Args:
        schedule_timesteps: steps until the number is `decay_rate` times the first one.
        framework: not read.
        initial_p: the first number.
        decay_rate: the factor.
    """

    def __init__(
        self,
        schedule_timesteps: int,
        framework: str | None = None,
        initial_p: float = 1.0,
        decay_rate: float = 0.1,
    ) -> None:
        super().__init__(framework)
        self.schedule_timesteps, self.initial_p, self.decay_rate = schedule_timesteps, initial_p, decay_rate

    def _value(self, t: int) -> float:
        return self.initial_p * self.decay_rate ** (t / self.schedule_timesteps)


class PiecewiseSchedule(Schedule):
    """Numbers at some steps, interpolated between them.

    Args:
        endpoints: `[(step, number), …]` with rising steps.
        framework: not read.
        interpolation: a function of two neighbors' numbers and the share of the way between them; `None`: linear.
        outside_value: the number before the first and from the last step on.

    Raises:
        ValueError: the steps do not rise; and, when it is asked for, no `outside_value`.
    """

    def __init__(
        self,
        endpoints: Sequence[tuple[int, float]],
        framework: str | None = None,
        interpolation: Callable[[float, float, float], float] | None = None,
        outside_value: float | None = None,
    ) -> None:
        super().__init__(framework)
        if any(step >= following for (step, _), (following, _) in pairwise(endpoints)):
            raise ValueError(f"endpoints={endpoints!r}; expected [(step, number), …] with rising steps")
        self.endpoints, self.outside_value = list(endpoints), outside_value
        self.interpolation = interpolation or (lambda left, right, share: left + share * (right - left))

    def _value(self, t: int) -> float:
        for (start, left), (end, right) in pairwise(self.endpoints):
            if start <= t < end:
                return self.interpolation(left, right, (t - start) / (end - start))
        if self.outside_value is None:
            raise ValueError(f"step {t} is outside of the endpoints {self.endpoints!r}; give an outside_value")
        return self.outside_value
