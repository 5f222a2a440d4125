"""Calls of a worker set to its actors, which are objects in this process without a Ray session."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lightning_rl.policies import DQN
from lightning_rl.rollouts import RolloutWorker


class Here:
    """An actor's methods, called as those of an actor are."""

    def __init__(self, worker: RolloutWorker) -> None:
        self.worker = worker

    def __getattr__(self, name: str) -> Any:
        return SimpleNamespace(remote=getattr(self.worker, name))


def test_exploration_follows_the_steps_of_the_learner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without env steps a worker's ε would stay at 1."""
    from lightning_rl.rollouts.ray import actors as ray_actors  # Ray takes 0.2 s to import

    monkeypatch.setattr(ray_actors.ray, "put", lambda value: value)
    monkeypatch.setattr(ray_actors, "get_worker_results", lambda references: references)
    config = {"seed": 1, "exploration": {"type": "epsilon_greedy"}}
    local, remote = (RolloutWorker("CartPole-v1", DQN, policy_config=config, worker_index=index) for index in range(2))
    local.policy.env_steps = 1_000_000
    actors = ray_actors.ActorSet([Here(remote)])
    actors.sync_weights(local.policy)
    actors.sample()
    epsilons = [worker.policy.exploration.info(worker.policy.env_steps)["epsilon"] for worker in (local, remote)]
    assert epsilons[0] == epsilons[1] < 0.1
    remote.set_weights(local.get_weights())
    assert remote.policy.env_steps == 1_000_000  # weights alone do not set env_steps
    assert actors.next_result() is None
