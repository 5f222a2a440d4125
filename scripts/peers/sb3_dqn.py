"""Stable-Baselines3's DQN on CartPole-v1 with rl-zoo's tuned hyperparameters; the last line printed is a JSON object.

Runs in its own environment: `python scripts/benchmark.py setup`.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np
import torch
from sb3_ppo import StopAtReturn
from stable_baselines3 import DQN
from stable_baselines3.common.env_util import make_vec_env

EXPLORATION_STEPS = 8_000  # 16 % of rl-zoo's 50,000 env steps, whatever part of them is run


def train(args: argparse.Namespace) -> dict[str, float | bool]:
    """Learn; `seconds` is the time inside `learn`."""
    model = DQN(
        "MlpPolicy",
        make_vec_env("CartPole-v1", n_envs=1, seed=args.seed),
        learning_rate=2.3e-3,
        batch_size=64,
        buffer_size=100_000,
        learning_starts=1_000,
        gamma=0.99,
        target_update_interval=10,
        train_freq=256,
        gradient_steps=128,
        exploration_fraction=EXPLORATION_STEPS / args.env_steps,
        exploration_final_eps=0.04,
        policy_kwargs={"net_arch": [256, 256]},
        seed=args.seed,
        device="cpu",
    )
    stop = StopAtReturn(args.stop_return) if args.stop_return is not None else None
    start = time.perf_counter()
    model.learn(args.env_steps, callback=stop)
    seconds = time.perf_counter() - start
    returns = [episode["r"] for episode in model.ep_info_buffer or ()]
    return {
        "env_steps": model.num_timesteps,
        "updates": model._n_updates,
        "seconds": seconds,
        "updates_per_s": model._n_updates / seconds,
        "steps_per_s": model.num_timesteps / seconds,
        "return": float(np.mean(returns)) if returns else 0.0,
        "solved": stop is not None and stop.solved,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env-steps", type=int, default=50_000)
    parser.add_argument("--stop-return", type=float, help="stop once the mean of the last 100 episodes reaches this")
    parser.add_argument("--threads", type=int, default=0, help="torch threads; 0 keeps torch's default")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    print(json.dumps(train(options)))
