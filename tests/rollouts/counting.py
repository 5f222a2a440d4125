"""Counting environments, and a policy that acts by the parity of their counts."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch


class Counter(gym.Env[np.ndarray, int]):
    """Counts its steps; ends at `length`: terminated if `terminates`, else truncated. Reward = step number."""

    def __init__(self, length: int = 3, terminates: bool = True, nested: bool = False) -> None:
        box = gym.spaces.Box(-1, 1e6, (1,), np.float32)
        self.observation_space = gym.spaces.Dict({"n": box, "flag": gym.spaces.Discrete(2)}) if nested else box
        self.action_space = gym.spaces.Discrete(2)
        self.length, self.terminates, self.nested = length, terminates, nested

    def _obs(self) -> Any:
        count = np.array([self.count], np.float32)
        return {"n": count, "flag": np.int64(self.count % 2)} if self.nested else count

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.count = 0
        return self._obs(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.count += 1
        end = self.count == self.length
        return self._obs(), float(self.count), end and self.terminates, end and not self.terminates, {}


class Breaks(Counter):
    """Raises in its third step, or gives an observation or a reward that is no number there, or at its "reset"."""

    def __init__(self, part: str) -> None:
        super().__init__(length=5)
        self.part = part

    def reset(self, **keywords: Any) -> tuple[Any, dict[str, Any]]:
        obs, info = super().reset(**keywords)
        return (obs * np.nan if self.part == "reset" else obs), info

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, reward, *ends, info = super().step(action)
        if self.count == 3 and self.part == "raise":
            raise RuntimeError("motor on fire")
        if self.count == 3:
            obs, reward = (obs * np.nan, reward) if self.part == "obs" else (obs, float("nan"))
        return obs, reward, *ends, info


class Alternating:
    """Acts by the parity of the observation, so that equal observations give equal actions."""

    env_steps = 0
    agents = ()

    @property
    def policies(self) -> dict[str, Alternating]:
        return {"default_policy": self}

    def eval(self) -> None: ...

    def seed_exploration(self, seed: int) -> None: ...

    def get_initial_state(self, batch_size: int) -> list[torch.Tensor]:
        return []

    def compute_actions(
        self, obs: Any, state: Any, **_: Any
    ) -> tuple[torch.Tensor, list[torch.Tensor], dict[str, torch.Tensor]]:
        count = obs["n"] if isinstance(obs, dict) else obs
        actions = torch.from_numpy((np.abs(count[:, 0] * 1000).astype(np.int64) // 7) % 2)
        return actions, [], {"action_logp": torch.from_numpy(-count[:, 0])}

    def env_actions(self, actions: torch.Tensor) -> np.ndarray:
        return actions.numpy()
