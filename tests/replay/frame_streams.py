"""A stream of image stacks."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


class Cycling:
    """Takes the actions in turn, whatever it sees."""

    env_steps = 0

    def __init__(self, actions: int) -> None:
        self.actions, self.step = actions, 0

    def eval(self) -> None: ...

    def seed_exploration(self, seed: int) -> None: ...

    def get_initial_state(self, batch_size: int) -> list[torch.Tensor]:
        return []

    def compute_actions(self, obs: Any, state: Any, **_: Any) -> Any:
        self.step += 1
        count = len(next(iter(obs.values())) if isinstance(obs, dict) else obs)
        return (torch.arange(count) + self.step) % self.actions, [], {}

    def env_actions(self, actions: torch.Tensor) -> np.ndarray:
        return actions.numpy()
