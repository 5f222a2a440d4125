"""A policy written from scratch, without a network or an optimizer, in a loop written by hand.

Q-learning in a table (Watkins 1989). The policy needs four methods; workers sample with copies of it, and give rows
with "obs", "actions", "rewards", "next_obs", "terminated". With `--ray` each worker is a Ray actor.

After 40k env steps of FrozenLake 8 × 8 (2 seconds): `return` ≥ 0.99, where 1 is to reach the goal and 0 not to.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from lightning_rl import EnvCreator, RolloutWorker, SampleBatch, ScratchPolicy

LAKE = EnvCreator("FrozenLake-v1", {"map_name": "8x8", "is_slippery": False})


class QTable(ScratchPolicy):
    """Q(s, a) for every state and action. It starts too high, so that what was not tried looks best."""

    def __init__(self, observation_space: Any, action_space: Any, config: dict[str, Any]) -> None:
        super().__init__(observation_space, action_space, config)
        self.q = np.ones((observation_space.n, action_space.n))

    def compute_actions(self, obs: Any, state: Any = (), explore: bool = True, **kwargs: Any) -> tuple[Any, Any, Any]:
        """Actions `[B]`, the state after (none), and columns to record (none)."""
        best, random = self.q[obs].argmax(1), self.action_space.np_random  # which each worker seeds
        tried = random.integers(self.q.shape[1], size=len(best))
        return np.where(explore & (random.random(len(best)) < 0.1), tried, best), [], {}

    def learn_on_batch(self, batch: SampleBatch) -> dict[str, float]:
        """One update for each row; what is returned is reported."""
        columns = (batch.obs, batch.actions, batch.rewards, batch.next_obs, batch.terminated)
        for obs, action, reward, next_obs, terminated in zip(*(column.tolist() for column in columns), strict=True):
            target = reward + (0.0 if terminated else 0.99 * self.q[next_obs].max())
            self.q[obs, action] += 0.5 * (target - self.q[obs, action])
        return {"q_mean": float(self.q.mean())}

    def get_weights(self) -> dict[str, Any]:
        """What a copy needs to act alike."""
        return {"q": self.q}

    def set_weights(self, weights: Mapping[str, Any]) -> None:
        """Act alike."""
        self.q = np.array(weights["q"])


def main(iterations: int = 50, seed: int = 0, use_ray: bool = False) -> dict[str, float]:
    """Train, and return the mean return of 100 episodes."""
    policy = QTable(*LAKE.spaces(), {})
    size: dict[str, Any] = {"num_envs": 4, "fragment_length": 100, "seed": seed}
    if use_ray:
        import ray

        workers = [RolloutWorker.as_remote().remote(LAKE, QTable, worker_index=i, **size) for i in range(2)]
        for _ in range(iterations):
            batch = SampleBatch.concat_samples(ray.get([worker.sample.remote() for worker in workers]))
            policy.learn_on_batch(batch)
            weights = ray.put({"default_policy": policy.get_weights()})
            for worker in workers:
                worker.set_weights.remote(weights)
        ray.shutdown()
    else:
        workers = [RolloutWorker(LAKE, QTable, worker_index=i, **size) for i in range(2)]
        for _ in range(iterations):
            batch = SampleBatch.concat_samples([worker.sample() for worker in workers])
            policy.learn_on_batch(batch)
            for worker in workers:
                worker.set_weights({"default_policy": policy.get_weights()})
    episodes = RolloutWorker(LAKE, policy, seed=seed, stream="evaluation", explore=False).run_episodes(100)
    return {"return": float(np.mean([episode_return for episode_return, _ in episodes]))}


if __name__ == "__main__":
    print(main(use_ray="--ray" in sys.argv))
