"""Stable-Baselines3's PPO on Pong with rl-zoo's hyperparameters for Atari; the last line printed is a JSON object.

Runs in its own environment: `python scripts/benchmark.py setup`.
"""

from __future__ import annotations

import argparse
import json
import time

import ale_py
import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.vec_env import VecFrameStack

gym.register_envs(ale_py)


def train(args: argparse.Namespace) -> dict[str, float]:
    """Learn; `seconds` is the time inside `learn`."""
    env = VecFrameStack(make_atari_env("PongNoFrameskip-v4", n_envs=8, seed=args.seed), n_stack=4)  # DummyVecEnv
    model = PPO(
        "CnnPolicy",
        env,
        n_steps=128,
        batch_size=256,
        n_epochs=4,
        ent_coef=0.01,
        vf_coef=0.5,
        learning_rate=lambda remaining: 2.5e-4 * remaining,
        clip_range=lambda remaining: 0.1 * remaining,
        seed=args.seed,
        device="cpu",
    )
    start = time.perf_counter()
    model.learn(args.env_steps)
    seconds = time.perf_counter() - start
    returns = [episode["r"] for episode in model.ep_info_buffer or ()]
    return {
        "env_steps": model.num_timesteps,
        "seconds": seconds,
        "steps_per_s": model.num_timesteps / seconds,
        **({"return": float(np.mean(returns))} if returns else {}),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env-steps", type=int, default=10_000)
    parser.add_argument("--threads", type=int, default=0, help="torch threads; 0 keeps torch's default")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    print(json.dumps(train(options)))
