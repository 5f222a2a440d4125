"""What `dqn_loop.py` and `sac_loop.py` share: one environment, replay, flat parameters; each plain, and each fast."""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import RecordEpisodeStatistics
from torch import Tensor, nn

Transition = tuple[np.ndarray, np.ndarray, float, bool]  # obs, next obs, reward, terminated


class VectorOfOne:
    """The ordinary idiom: a vector environment of one, with a wrapper that counts returns.

    Attributes:
        obs: what to act on.
        ended: whether the last step ended an episode.
        returns: the returns of the last 100 episodes.
    """

    ended = False

    def __init__(self, env_id: str, seed: int) -> None:
        creators = [lambda: RecordEpisodeStatistics(gym.make(env_id))]
        self.env = SyncVectorEnv(creators, autoreset_mode=AutoresetMode.SAME_STEP)
        self.env.action_space.seed(seed)
        (self.obs,), _ = self.env.reset(seed=seed)
        self.returns: deque[float] = deque(maxlen=100)

    def random_action(self) -> Any:
        """Uniform."""
        return self.env.action_space.sample()[0]

    def step(self, action: Any) -> Transition:
        """One step; the observation after an end is the final one, and `obs` is the reset's."""
        before = self.obs
        after, rewards, terminated, truncated, info = self.env.step(np.asarray([action]))
        self.obs = last = after[0]
        self.ended = bool(terminated[0] or truncated[0])
        if self.ended:
            last = info["final_obs"][0]
            self.returns.append(float(info["final_info"]["episode"]["r"][0]))
        return before, last, float(rewards[0]), bool(terminated[0])


class Single:
    """The same, without the vector form and without wrappers beyond the time limit."""

    ended = False

    def __init__(self, env_id: str, seed: int) -> None:
        self.env = gym.make(env_id, disable_env_checker=True)
        self.env.action_space.seed(seed)
        self.obs, _ = self.env.reset(seed=seed)
        self.returns: deque[float] = deque(maxlen=100)
        self.return_so_far = 0.0

    def random_action(self) -> Any:
        """Uniform."""
        return self.env.action_space.sample()

    def step(self, action: Any) -> Transition:
        """One step."""
        before = self.obs
        after, reward, terminated, truncated, _ = self.env.step(action)
        self.obs, self.return_so_far = after, self.return_so_far + float(reward)
        self.ended = terminated or truncated
        if self.ended:
            self.returns.append(self.return_so_far)
            self.return_so_far = 0.0
            self.obs, _ = self.env.reset()
        return before, after, float(reward), terminated


class Replay:
    """Typed numpy columns; next observations are stored a second time, rows are gathered and then made tensors."""

    def __init__(self, capacity: int, obs_size: int, action: np.ndarray) -> None:
        self.obs, self.next_obs = (np.zeros((capacity, obs_size), dtype=np.float32) for _ in range(2))
        self.actions = np.zeros((capacity, action.size), dtype=action.dtype)
        self.rewards, self.terminated = (np.zeros((capacity, 1), dtype=np.float32) for _ in range(2))
        self.capacity, self.position, self.full = capacity, 0, False

    def add(self, obs: np.ndarray, action: Any, next_obs: np.ndarray, reward: float, terminated: bool) -> None:
        """One transition."""
        i = self.position
        self.obs[i], self.actions[i], self.next_obs[i] = obs, action, next_obs
        self.rewards[i], self.terminated[i] = reward, terminated
        self.position = (i + 1) % self.capacity
        self.full = self.full or self.position == 0

    def sample(self, rows: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Obs, actions `[N, A]`, next obs, rewards `[N]`, terminated `[N]`; uniform with replacement."""
        chosen = np.random.randint(0, self.capacity if self.full else self.position, size=rows)
        columns = (self.obs, self.actions, self.next_obs, self.rewards, self.terminated)
        obs, actions, next_obs, rewards, terminated = (torch.as_tensor(column[chosen]) for column in columns)
        return obs, actions, next_obs, rewards.squeeze(1), terminated.squeeze(1)


class PackedReplay:
    """A row is one line of a single tensor: obs, action, next obs, reward, terminated; all are float32."""

    def __init__(self, capacity: int, obs_size: int, action_size: int) -> None:
        self.sizes = (obs_size, action_size, obs_size, 1, 1)
        self.rows = torch.zeros(capacity, sum(self.sizes))
        self.array, self.capacity, self.count = self.rows.numpy(), capacity, 0
        edges = np.cumsum((0, *self.sizes[:3])).tolist()
        self.obs, self.actions, self.next_obs = (slice(*pair) for pair in pairwise(edges))

    def add(self, obs: np.ndarray, action: Any, next_obs: np.ndarray, reward: float, terminated: bool) -> None:
        """One transition."""
        row = self.array[self.count % self.capacity]
        row[self.obs], row[self.actions], row[self.next_obs] = obs, action, next_obs
        row[-2], row[-1] = reward, terminated
        self.count += 1

    def sample(self, rows: int) -> Tensor:
        """Lines, uniform with replacement."""
        return self.rows.index_select(0, torch.randint(min(self.count, self.capacity), (rows,)))


def flat_parameters(parameters: list[nn.Parameter]) -> tuple[nn.Parameter, Tensor]:
    """One tensor of which all these become views, and one of which their gradients do."""
    flat = nn.Parameter(torch.cat([p.detach().flatten() for p in parameters]))
    flat.grad = grads = torch.zeros_like(flat)
    sizes = [p.numel() for p in parameters]
    for p, data, grad in zip(parameters, flat.detach().split(sizes), grads.split(sizes), strict=True):
        p.data, p.grad = data.view_as(p), grad.view_as(p)
    return flat, grads
