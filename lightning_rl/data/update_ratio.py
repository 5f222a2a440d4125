"""How many gradient steps are due: an exact ratio to environment steps, also after a resume."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

__all__ = ["UpdateRatio"]


class UpdateRatio:
    """Keeps gradient steps at `update_to_data_ratio` × (environment steps − `learning_starts`), rounded down.

    The product is exact: 0.1 means a tenth, and a ratio of 3 to 10 is still exact after a billion steps.

    Args:
        update_to_data_ratio: gradient steps for each environment step, > 0.
        learning_starts: environment steps before the first.

    Attributes:
        offset: environment steps that were taken before counting started.
        taken: gradient steps since then.
    """

    def __init__(self, update_to_data_ratio: float = 1.0, learning_starts: int = 0) -> None:
        self._steps, self._every = Fraction(str(update_to_data_ratio)).as_integer_ratio()
        self.learning_starts, self.offset, self.taken = learning_starts, 0, 0

    @property
    def first_step(self) -> int:
        """Environment steps, from where counting started, after which the first gradient step is due."""
        return self.learning_starts + -(-self._every // self._steps)

    def due(self, env_steps: int) -> int:
        """Gradient steps that are due and not taken yet, after `env_steps` of all workers and ranks."""
        counted = env_steps - self.offset - self.learning_starts
        return counted * self._steps // self._every - self.taken if counted > 0 else 0

    def env_steps_until(self, env_steps: int, steps: int) -> int:
        """Environment steps, after `env_steps`, until that many gradient steps are due; at least one."""
        needed = -(-(self.taken + steps) * self._every // self._steps) + self.learning_starts + self.offset
        return max(1, needed - env_steps)

    def settle(self, env_steps: int) -> None:
        """Continue at the ratio from here if more steps were taken than these env steps allow.

        The best policy of an evaluation in parallel to training is saved with its own env steps, but with the gradient
        steps that were taken since.
        """
        self.taken += min(0, self.due(env_steps))

    def start_again(self, env_steps: int) -> None:
        """Count from here: `learning_starts` env steps pass again before a gradient step, and none is made up for."""
        self.offset, self.taken = env_steps, 0

    def record_steps(self, steps: int = 1) -> None:
        """Count gradient steps that were taken."""
        self.taken += steps

    def state_dict(self) -> dict[str, int]:
        """The gradient steps taken, and since when."""
        return {"taken": self.taken, "offset": self.offset, "learning_starts": self.learning_starts}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state`; its `learning_starts` stays if gradient steps were taken, whatever the config says."""
        self.taken, self.offset = int(state["taken"]), int(state.get("offset", 0))
        if self.taken:
            self.learning_starts = int(state.get("learning_starts", self.learning_starts))
