"""How many gradient steps are due: an exact ratio to environment steps, which a resumed run keeps."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from lightning_rl.errors import ConfigError

__all__ = ["UpdateRatio"]


class UpdateRatio:
    """Keeps gradient steps at `training_intensity` × (environment steps − `learning_starts`), rounded down.

    The product is exact: 0.1 means a tenth, and 3 in 10 steps stay 3 in 10 after a billion.

    Args:
        training_intensity: gradient steps for each environment step, > 0.
        learning_starts: environment steps before the first.

    Raises:
        ConfigError: a number is out of range.
    """

    def __init__(self, training_intensity: float = 1.0, learning_starts: int = 0) -> None:
        if training_intensity <= 0:
            raise ConfigError(
                f"data.training_intensity={training_intensity}; expected more than 0 gradient steps per env step"
            )
        if learning_starts < 0:
            raise ConfigError(f"data.learning_starts={learning_starts}; expected 0 or more env steps")
        self._steps, self._every = Fraction(str(training_intensity)).as_integer_ratio()
        self.learning_starts, self.taken = learning_starts, 0

    def due(self, env_steps: int) -> int:
        """Gradient steps that have not been taken yet after `env_steps` of all workers and ranks."""
        if env_steps <= self.learning_starts:
            return 0
        return (env_steps - self.learning_starts) * self._steps // self._every - self.taken

    def start_again(self, env_steps: int) -> None:
        """Count from here: as many steps as before the first gradient step pass again, and none is made up for."""
        self.learning_starts, self.taken = env_steps + self.learning_starts, 0

    def took(self, steps: int = 1) -> None:
        """Gradient steps were taken."""
        self.taken += steps

    def state_dict(self) -> dict[str, int]:
        """What was taken since when."""
        return {"taken": self.taken, "learning_starts": self.learning_starts}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state`."""
        self.taken, self.learning_starts = int(state["taken"]), int(state["learning_starts"])
