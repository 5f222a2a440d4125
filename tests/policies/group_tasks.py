"""Small environments of a group of agents, and rows of them."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces

from lightning_rl.sample_batch import SampleBatch, to_nested_batch


class TwoStepGame(gym.Env[Any, Any]):
    """Rashid et al. 2018, arXiv:1803.11485, section 6.1: the first member chooses the matrix that both then play.

    Matrix A pays 7 for any actions; B pays 8 only if both choose 1, else 1 or 0. All see the state, one-hot.
    """

    PAYOFFS = np.array([[[7.0, 7.0], [7.0, 7.0]], [[0.0, 1.0], [1.0, 8.0]]])

    def __init__(self) -> None:
        self.observation_space = spaces.Tuple([spaces.Box(0, 1, (3,))] * 2)
        self.action_space = spaces.Tuple([spaces.Discrete(2)] * 2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.state = 0
        return self.look(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        first, second = (int(each) for each in action)
        if self.state == 0:
            self.state = 1 + first
            return self.look(), 0.0, False, False, {}
        return self.look(), float(self.PAYOFFS[self.state - 1, first, second]), True, False, {}

    def look(self) -> Any:
        return (np.eye(3, dtype=np.float32)[self.state],) * 2


class Remembered(gym.Env[Any, Any]):
    """Each of `members` sees a bit at the first of 4 steps, and all must name their own bits at the last one.

    The reward at the end is the share of right members. A member leaves before the last step with probability
    `leaving`; the first one never leaves. Action 2 is forbidden; taking it is an error.
    """

    def __init__(self, members: int = 3, leaving: float = 0.0, with_state: bool = True) -> None:
        self.members, self.leaving, self.with_state = members, leaving, with_state
        parts: dict[str, Any] = {
            "agents": spaces.Tuple([spaces.Box(-1, 1, (2,))] * members),
            "present": spaces.MultiBinary(members),
            "action_masks": spaces.Tuple([spaces.MultiBinary(3)] * members),
        }
        if with_state:
            parts["state"] = spaces.Box(-1, 1, (members + 1,))
        self.observation_space = spaces.Dict(parts)
        self.action_space = spaces.Tuple([spaces.Discrete(3)] * members)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.bits = self.np_random.integers(0, 2, self.members)
        self.stays = self.np_random.random(self.members) >= self.leaving
        self.stays[0] = True
        self.steps = 0
        return self.look(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        chosen, present = np.array([int(each) for each in action]), self.present()
        if (chosen[present] == 2).any():
            raise ValueError(f"actions {chosen} of present members {present}: 2 is forbidden")
        self.steps += 1
        over = self.steps == 4
        reward = float((chosen == self.bits)[present].mean()) if over else 0.0
        return self.look(), reward, over, False, {}

    def present(self) -> np.ndarray:
        return self.stays if self.steps >= 2 else np.ones(self.members, bool)

    def look(self) -> Any:
        present, signs = self.present(), 2.0 * self.bits - 1.0
        agents = np.zeros((self.members, 2), np.float32)
        agents[:, 0] = signs if self.steps == 0 else 0.0
        agents[:, 1] = self.steps / 4
        agents[~present] = 0.0
        masks = np.where(present[:, None], np.array([1, 1, 0], np.int8), np.int8(0))
        obs = {"agents": tuple(agents), "present": present.astype(np.int8), "action_masks": tuple(masks)}
        if self.with_state:
            obs["state"] = np.append(signs, self.steps / 4).astype(np.float32)
        return obs


def group_rows(env: gym.Env[Any, Any], count: int = 6, seed: int = 3) -> SampleBatch:
    """Random transitions of a group; observations and actions are samples of the spaces."""
    env.observation_space.seed(seed)
    env.action_space.seed(seed)

    def samples(space: spaces.Space[Any]) -> Any:
        return stacked([to_nested_batch(space.sample()) for _ in range(count)])

    generator = torch.Generator().manual_seed(seed)
    return SampleBatch(
        obs=samples(env.observation_space),
        next_obs=samples(env.observation_space),
        actions=samples(env.action_space),
        rewards=torch.randn(count, generator=generator),
        terminated=torch.arange(count) % 3 == 2,
        discounts=torch.full((count,), 0.9),
    )


def stacked(rows: list[Any]) -> Any:
    """Rows as one nested batch `[N, *]`."""
    if isinstance(rows[0], SampleBatch):
        return SampleBatch({name: stacked([row[name] for row in rows]) for name in rows[0]})
    return torch.from_numpy(np.stack([np.asarray(row) for row in rows]))
