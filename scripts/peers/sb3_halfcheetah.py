"""Stable-Baselines3's PPO on HalfCheetah-v5 with rl-zoo3's values: prints env steps and the mean return as it goes.

Run it in an environment with stable-baselines3 and gymnasium[mujoco]: `python scripts/peers/sb3_halfcheetah.py SEED`.
"""

from __future__ import annotations

import sys

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize


class Curve(BaseCallback):
    """A line every 10,240 env steps."""

    def _on_step(self) -> bool:
        episodes = self.model.ep_info_buffer
        if self.num_timesteps % 10_240 == 0 and episodes:
            print(self.num_timesteps, sum(episode["r"] for episode in episodes) / len(episodes), flush=True)
        return True


def main(seed: int, total_env_steps: int = 300_000) -> None:
    """Train with one seed."""
    torch.set_num_threads(1)
    network = {"pi": [256, 256], "vf": [256, 256]}
    model = PPO(
        "MlpPolicy",
        VecNormalize(make_vec_env("HalfCheetah-v5", 1, seed=seed)),
        n_steps=512,
        batch_size=64,
        n_epochs=20,
        gamma=0.98,
        gae_lambda=0.92,
        learning_rate=2.0633e-05,
        ent_coef=0.000401762,
        clip_range=0.1,
        max_grad_norm=0.8,
        vf_coef=0.58096,
        seed=seed,
        device="cpu",
        policy_kwargs={"log_std_init": -2, "ortho_init": False, "activation_fn": torch.nn.ReLU, "net_arch": network},
    )
    model.learn(total_env_steps, callback=Curve())


if __name__ == "__main__":
    main(int(sys.argv[1]))
