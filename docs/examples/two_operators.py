"""A log of two operators: behavior cloning imitates the one who acts more often, MARWIL the one who gets rewards.

One operator of CartPole balances the pole, with every tenth push at random, in 20 episodes. The other one confuses left
and right, and drops the pole within ten steps, 3,000 times. Near the upright pole, where every episode begins, most of
the pushes are therefore wrong. `behavior` is the log's mean return; `top` is behavior cloning of the 0.5 % of the
episodes with the highest returns.

Returns of the best actions, after 200k transitions (5 seconds each): `marwil` ≥ 300 and `top` ≥ 450, but `bc` ≤ 20.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from lightning_rl import Algorithm

EPISODES = {1.0: 20, -1.0: 3000}  # of the operator with this sense of direction
RANDOM = 0.1  # share of random pushes


def write_log(file: Path, seed: int = 0) -> float:
    """Write the operators' steps as arrays, and return the mean return of an episode."""
    env, generator = gym.make("CartPole-v1"), np.random.default_rng(seed)
    directions = np.repeat(list(EPISODES), list(EPISODES.values()))
    steps: dict[str, list[object]] = {name: [] for name in ("obs", "actions", "rewards", "terminated", "truncated")}
    for number, direction in enumerate(directions):
        obs, _ = env.reset(seed=seed + number)
        ended = False
        while not ended:
            wise = direction * (obs[2] + 0.3 * obs[3]) > 0
            push = int(generator.integers(2) if generator.random() < RANDOM else wise)
            following, reward, terminated, truncated, _ = env.step(push)
            for column, value in zip(steps.values(), (obs, push, reward, terminated, truncated), strict=True):
                column.append(value)
            obs, ended = following, terminated or truncated
    arrays: Any = {name: np.array(column) for name, column in steps.items()}
    np.savez(file, **arrays)
    return len(steps["rewards"]) / len(directions)


def main(iterations: int = 49, seed: int = 0) -> dict[str, float]:
    """Learn from the same log by three algorithms, and return the best actions' mean return of each."""
    runs = {"bc": ("bc", 1.0), "top": ("bc", 0.005), "marwil": ("marwil", 1.0)}
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "log.npz"
        scores = {"behavior": write_log(log)}
        for name, (policy, top_fraction) in runs.items():
            data = {"input": str(log), "top_fraction": top_fraction}
            overrides = ["experiment=none", f"run_dir={directory}/{name}"]
            algorithm = Algorithm(policy, env="CartPole-v1", overrides=overrides, config={"seed": seed, "data": data})
            for _ in range(iterations):
                algorithm.train()
            scores[name] = algorithm.evaluate()["eval/ep_rew_mean"]
            algorithm.stop()
    return scores


if __name__ == "__main__":
    print(main())
