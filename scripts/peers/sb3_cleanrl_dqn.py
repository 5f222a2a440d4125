"""DQN in one file as CleanRL has it: the plain loop of `dqn_loop.py` on Stable-Baselines3's replay buffer.

CleanRL takes its buffer from there, turns observations into tensors by copying, and moves its target network parameter
by parameter. What it writes to TensorBoard is left out. Runs in Stable-Baselines3's environment.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np
import torch
from dqn_loop import Plain, arguments, train
from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer
from torch import Tensor


class SB3Replay:
    """The buffer behind the verbs of `loop_parts.Replay`."""

    def __init__(self, capacity: int) -> None:
        obs = spaces.Box(-np.inf, np.inf, (4,), np.float32)
        self.buffer = ReplayBuffer(capacity, obs, spaces.Discrete(2), "cpu", handle_timeout_termination=False)

    def add(self, obs: np.ndarray, action: Any, next_obs: np.ndarray, reward: float, terminated: bool) -> None:
        """One transition."""
        self.buffer.add(obs[None], next_obs[None], np.array([action]), np.array([reward]), np.array([terminated]), [{}])

    def sample(self, rows: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """As `loop_parts.Replay.sample`."""
        data = self.buffer.sample(rows)
        return data.observations, data.actions, data.next_observations, data.rewards.flatten(), data.dones.flatten()


class CleanRL(Plain):
    """Its idioms."""

    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__(args)
        self.replay: Any = SB3Replay(args.capacity)

    def copy_target(self) -> None:
        """Hard update."""
        for target, source in zip(self.target.parameters(), self.q.parameters(), strict=True):
            target.data.copy_(source.data)

    def best(self, obs: np.ndarray) -> int:
        """Greedy action."""
        return int(torch.argmax(self.q(torch.Tensor(obs[None])), dim=1).cpu().numpy()[0])


if __name__ == "__main__":
    options = arguments()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    np.random.seed(options.seed)
    print(json.dumps(train(options, CleanRL)))
