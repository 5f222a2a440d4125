"""Self-play in Connect Four: turns, action masks, a league, and two opponents that it never trains against.

PettingZoo's game lets one agent act at a time and says in each observation which columns are allowed; nothing here has
to know that. The values are those of conf/experiment/ppo_connect_four.yaml: one policy plays itself and a league of its
past copies. "searcher" (`envs.multi_agent.connect_four:two_ply`) wins where it can at once, and never lets its opponent
win at once where it can help it.

The network (`models.connect_four`) rates a column by the cell in which its disc would land.

Share of 200 games won with the best actions after 700k env steps (8 to 13 minutes): `random` ≥ 0.95, `searcher` ≥ 0.7.
"""

from __future__ import annotations

import tempfile
from typing import Any, cast

from lightning_rl import Algorithm, PolicySet
from lightning_rl.envs import EnvCreator
from lightning_rl.rollouts import RolloutWorker

OPPONENTS = {"random": "random", "searcher": "lightning_rl.envs.multi_agent.connect_four:two_ply"}


def share_won(env: EnvCreator, policy: Any, opponent: str, seed: int) -> float:
    """Share of 200 games that a policy wins, on a random side, against a policy that a config could name."""
    policies = {"main": policy, "opponent": {"_target_": opponent}}
    matches = {"_target_": "lightning_rl.policies.Matches", "policy": "main", "opponents": {"opponent": 1.0}}
    both = PolicySet(*env.spaces(), policies=policies, policy_mapping=matches, seed=seed)
    worker = RolloutWorker(env, both, num_envs=16, explore=False, seed=seed)
    played: Any = worker.run_episodes(200)
    worker.stop()
    return sum(episode.by_policy["main"] > 0 for episode in played) / len(played)


def main(iterations: int = 178, seed: int = 0) -> dict[str, float]:
    """Train by self-play, and return the share of games won against each fixed opponent."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {"seed": seed, "run_dir": folder, "evaluation": {"every_env_steps": 0}}
        algorithm = Algorithm("ppo", "connect_four", config=settings)
        for _ in range(iterations):
            algorithm.train()
        env, policy = algorithm.datamodule.env, cast(Any, algorithm.policy).policies["main"]
        scores = {name: share_won(env, policy, opponent, seed) for name, opponent in OPPONENTS.items()}
        algorithm.stop()
    return scores


if __name__ == "__main__":
    print(main())
