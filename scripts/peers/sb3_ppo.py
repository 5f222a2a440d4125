"""Stable-Baselines3's PPO on CartPole-v1 with rl-zoo's tuned hyperparameters; the last line printed is a JSON object.

Runs in its own environment: `python scripts/benchmark.py setup`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

SCHEDULE_STEPS = 100_000  # rl-zoo's budget: learning rate and clip fall to 0 over it


def linear(initial: float, total: int) -> Callable[[float], float]:
    """From `initial` to 0 over `SCHEDULE_STEPS`, whatever part of them is run."""
    return lambda remaining: initial * max(0.0, 1 - (1 - remaining) * total / SCHEDULE_STEPS)


class StopAtReturn(BaseCallback):
    """Stops once the mean return of the last 100 episodes is reached; looks only when an episode has ended."""

    def __init__(self, threshold: float) -> None:
        super().__init__()
        self.threshold, self.solved = threshold, False

    def _on_step(self) -> bool:
        if self.locals["dones"].any():
            returns = [episode["r"] for episode in self.model.ep_info_buffer or ()]
            self.solved = len(returns) == 100 and float(np.mean(returns)) >= self.threshold
        return not self.solved


def train(args: argparse.Namespace) -> dict[str, float | bool]:
    """Learn; `seconds` is the time inside `learn`."""
    model = PPO(
        "MlpPolicy",
        make_vec_env("CartPole-v1", n_envs=8, seed=args.seed),  # DummyVecEnv
        n_steps=32,
        batch_size=256,
        n_epochs=20,
        gamma=0.98,
        gae_lambda=0.8,
        ent_coef=0.0,
        learning_rate=linear(1e-3, args.env_steps),
        clip_range=linear(0.2, args.env_steps),
        seed=args.seed,
        device="cpu",
    )
    stop = StopAtReturn(args.stop_return) if args.stop_return is not None else None
    start = time.perf_counter()
    model.learn(args.env_steps, callback=stop)
    seconds = time.perf_counter() - start
    mean = float(np.mean([episode["r"] for episode in model.ep_info_buffer or ()])) if model.ep_info_buffer else 0.0
    return {
        "env_steps": model.num_timesteps,
        "seconds": seconds,
        "steps_per_s": model.num_timesteps / seconds,
        "return": mean,
        "solved": stop is not None and stop.solved,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env-steps", type=int, default=SCHEDULE_STEPS)
    parser.add_argument("--stop-return", type=float, help="stop once the mean of the last 100 episodes reaches this")
    parser.add_argument("--threads", type=int, default=0, help="torch threads; 0 keeps torch's default")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    print(json.dumps(train(options)))
