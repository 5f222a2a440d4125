"""Stable-Baselines3's SAC or TD3 on HalfCheetah-v5 with rl-zoo3's values: prints env steps and return as it goes.

Run it in an environment with stable-baselines3 and gymnasium[mujoco]:
`python scripts/peers/sb3_off_policy_halfcheetah.py sac 0 --env-steps 100000`.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from stable_baselines3 import SAC, TD3
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv

EPISODES = 20  # of which the mean return is printed


class Curve(BaseCallback):
    """A line every 10,000 env steps: env steps and the mean return of the last training episodes."""

    def _on_step(self) -> bool:
        episodes = self.model.ep_info_buffer
        if self.num_timesteps % 10_000 == 0 and episodes:
            print(self.num_timesteps, sum(episode["r"] for episode in episodes) / len(episodes), flush=True)
        return True


def learner(algorithm: str, env: VecEnv, seed: int) -> OffPolicyAlgorithm:
    """SAC with 2 × 256, or TD3 with 400 and 300; one update an env step after 10,000 random ones."""
    if algorithm == "sac":
        return SAC(
            "MlpPolicy",
            env,
            learning_rate=3e-4,
            learning_starts=10_000,
            batch_size=256,
            policy_kwargs={"net_arch": [256, 256]},
            stats_window_size=EPISODES,
            seed=seed,
            device="cpu",
        )
    size = env.action_space.shape[0]
    return TD3(
        "MlpPolicy",
        env,
        learning_rate=1e-3,
        learning_starts=10_000,
        batch_size=256,
        train_freq=1,
        gradient_steps=1,
        action_noise=NormalActionNoise(np.zeros(size), np.full(size, 0.1)),
        policy_kwargs={"net_arch": [400, 300]},
        stats_window_size=EPISODES,
        seed=seed,
        device="cpu",
    )


def main() -> None:
    """Train with one seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("algorithm", choices=["sac", "td3"])
    parser.add_argument("seed", type=int)
    parser.add_argument("--env-steps", type=int, default=100_000)
    args = parser.parse_args()
    torch.set_num_threads(1)
    env = make_vec_env("HalfCheetah-v5", 1, seed=args.seed)
    learner(args.algorithm, env, args.seed).learn(args.env_steps, callback=Curve())


if __name__ == "__main__":
    main()
