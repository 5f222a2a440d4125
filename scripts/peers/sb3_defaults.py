"""Stable-Baselines3 with its own defaults on an environment; the last line printed is a JSON object.

Runs in its own environment: `python scripts/benchmark.py setup`, then
`DIR/sb3/bin/python scripts/peers/sb3_defaults.py dqn CartPole-v1 --env-steps 100000`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import time
from functools import partial

import gymnasium as gym
import numpy as np
import stable_baselines3
import torch
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

ALGORITHMS = ("ppo", "a2c", "dqn", "sac", "td3", "ddpg")


def train(args: argparse.Namespace) -> dict[str, float]:
    """Learn, then play with the last policy's best actions."""
    algorithm = getattr(stable_baselines3, args.algorithm.upper())
    made = {"env_kwargs": args.made_by["kwargs"], "wrapper_class": partial(wrapped, args.made_by["wrappers"])}
    model = algorithm("MlpPolicy", make_vec_env(args.env, 1, args.seed, **made), seed=args.seed, device="cpu")
    start = time.process_time()  # CPU seconds, so that other jobs of the machine do not count
    model.learn(args.env_steps)
    seconds = time.process_time() - start
    finished = [episode["r"] for episode in model.ep_info_buffer or ()]
    unseen = make_vec_env(args.env, 1, 10_000 + args.seed, **made)
    played, _ = evaluate_policy(model, unseen, n_eval_episodes=args.episodes, return_episode_rewards=True)
    return {
        "env_steps": model.num_timesteps,
        "seconds": round(seconds, 1),
        "train": float(np.mean(finished)) if finished else float("nan"),
        "evaluate": float(np.mean(played)),
    }


def wrapped(paths: list[str], env: gym.Env) -> gym.Env:
    """The environment in the wrappers of these import paths."""
    for path in paths:
        module, name = path.rsplit(".", 1)
        env = getattr(importlib.import_module(module), name)(env)
    return env


def main() -> None:
    """Train with one seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("algorithm", choices=ALGORITHMS)
    parser.add_argument("env", help="a Gymnasium id")
    parser.add_argument(
        "--made-by", type=json.loads, default={"kwargs": {}, "wrappers": []}, help="its keywords and wrappers, as JSON"
    )
    parser.add_argument("--env-steps", type=int, default=100_000)
    parser.add_argument("--episodes", type=int, default=100, help="of the evaluation")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(json.dumps(train(args)))


if __name__ == "__main__":
    main()
