"""d3rlpy on D4RL's HDF5, with the settings of its reproductions; the last line printed is a JSON object.

Runs in its own environment, for `scripts/offline_scores.py`:
`VENV/bin/python scripts/peers/d3rlpy_offline.py iql medium.hdf5 Hopper-v5 --updates 50000`.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import d3rlpy
import gymnasium as gym
import h5py
import numpy as np
import torch
from d3rlpy.algos import AWACConfig, BCConfig, CQLConfig, IQLConfig, ReBRACConfig, TD3PlusBCConfig
from d3rlpy.logging import NoopAdapterFactory
from d3rlpy.models import VectorEncoderFactory
from d3rlpy.preprocessing import ReturnBasedRewardScaler, StandardObservationScaler

ALGORITHMS = ("bc", "td3_bc", "awac", "cql", "iql", "rebrac")


def config(args: argparse.Namespace) -> d3rlpy.algos.base.LearnableConfig:
    """The algorithm; ours have the same settings."""
    same = {"batch_size": args.batch, "observation_scaler": StandardObservationScaler()}
    if args.algorithm == "rebrac":
        actor, critic = (VectorEncoderFactory([256, 256, 256], use_layer_norm=normalized) for normalized in (0, 1))
        return ReBRACConfig(
            batch_size=args.batch,
            actor_beta=args.actor_bc,
            critic_beta=args.critic_bc,
            actor_encoder_factory=actor,
            critic_encoder_factory=critic,
        )
    if args.algorithm == "iql":
        return IQLConfig(**same, reward_scaler=ReturnBasedRewardScaler(multiplier=1000.0))
    if args.algorithm == "cql":  # its TD error is not halved
        return CQLConfig(**same, conservative_weight=10.0, alpha_learning_rate=0.0)
    return {"bc": BCConfig, "td3_bc": TD3PlusBCConfig, "awac": AWACConfig}[args.algorithm](**same)


def data_set(file: Path) -> d3rlpy.dataset.MDPDataset:
    """The episodes of a file; where recording cut one, it is truncated."""
    with h5py.File(file) as content:
        arrays = {name: content[name][:] for name in ("observations", "actions", "rewards", "terminals", "episode")}
    episode = arrays.pop("episode")
    last = np.append(episode[1:] != episode[:-1], True)
    return d3rlpy.dataset.MDPDataset(**arrays, timeouts=last & ~arrays["terminals"].astype(bool))


def play(algorithm: d3rlpy.algos.QLearningAlgoBase, env_id: str, episodes: int, seed: int) -> list[float]:
    """Returns of episodes with the best actions."""
    env, returns = gym.make(env_id), []
    for number in range(episodes):
        obs, _ = env.reset(seed=seed + number)
        total, ended = 0.0, False
        while not ended:
            obs, reward, terminated, truncated, _ = env.step(algorithm.predict(obs[None].astype(np.float32))[0])
            total, ended = total + float(reward), terminated or truncated
        returns.append(total)
    return returns


def main() -> None:
    """Train with one seed, and play."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("algorithm", choices=ALGORITHMS)
    parser.add_argument("file", type=Path)
    parser.add_argument("env", help="a Gymnasium id")
    parser.add_argument("--updates", type=int, default=50_000)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--episodes", type=int, default=20, help="of the evaluation")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--actor-bc", type=float, default=0.01, help="ReBRAC's β₁")
    parser.add_argument("--critic-bc", type=float, default=0.01, help="ReBRAC's β₂")
    args = parser.parse_args()
    torch.set_num_threads(1)
    d3rlpy.seed(args.seed)
    algorithm = config(args).create(device="cpu:0")
    data = data_set(args.file)
    start = time.process_time()  # CPU seconds, so that other jobs of the machine do not count
    algorithm.fit(
        data,
        n_steps=args.updates,
        n_steps_per_epoch=args.updates,
        show_progress=False,
        logger_adapter=NoopAdapterFactory(),
    )
    seconds = time.process_time() - start
    returns = play(algorithm, args.env, args.episodes, 10_000 + args.seed)
    print(
        json.dumps({"seconds": round(seconds, 1), "evaluate": float(np.mean(returns)), "std": float(np.std(returns))})
    )


if __name__ == "__main__":
    main()
