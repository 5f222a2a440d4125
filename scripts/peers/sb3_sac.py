"""Stable-Baselines3's SAC on Pendulum-v1, one update an env step; the last line printed is a JSON object.

Runs in its own environment: `python scripts/benchmark.py setup`.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np
import torch
from stable_baselines3 import SAC
from stable_baselines3.common.env_util import make_vec_env


def train(args: argparse.Namespace) -> dict[str, float]:
    """Learn; `seconds` is the time inside `learn`."""
    model = SAC(
        "MlpPolicy",
        make_vec_env("Pendulum-v1", n_envs=1, seed=args.seed),
        learning_rate=args.lr,
        batch_size=256,
        buffer_size=100_000,
        learning_starts=args.learning_starts,
        train_freq=1,
        gradient_steps=1,
        policy_kwargs={"net_arch": [256, 256]},
        seed=args.seed,
        device="cpu",
    )
    start = time.perf_counter()
    model.learn(args.env_steps)
    seconds = time.perf_counter() - start
    returns = [episode["r"] for episode in model.ep_info_buffer or ()]
    return {
        "env_steps": model.num_timesteps,
        "updates": model._n_updates,
        "seconds": seconds,
        "updates_per_s": model._n_updates / seconds,
        "steps_per_s": model.num_timesteps / seconds,
        "return": float(np.mean(returns[-20:])) if returns else float("nan"),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env-steps", type=int, default=5_000)
    parser.add_argument("--learning-starts", type=int, default=100, help="random actions before the first update")
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--threads", type=int, default=0, help="torch threads; 0 keeps torch's default")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    print(json.dumps(train(options)))
