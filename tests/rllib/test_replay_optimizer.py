"""RLlib's SyncReplayOptimizer: counts, start of learning, and draws by TD error."""

from __future__ import annotations

from typing import Any

import pytest

from lightning_rl.policies import DQN, PPO, SAC
from lightning_rl.rllib.replay_optimizer import SyncReplayOptimizer
from lightning_rl.rollouts import RolloutWorker
from tests.refusals import not_refused


def worker(policy: Any = DQN, env: str = "CartPole-v1", **config: Any) -> RolloutWorker:
    return RolloutWorker(env, policy, fragment_length=8, policy_config={"model": {"fcnet_hiddens": [8]}, **config})


def test_sync_replay_optimizer_learns_once_per_step_after_learning_starts() -> None:
    """8 env steps a step (fewer where an episode was reset); learning from 40 on, 16 rows a gradient step."""
    local = worker()
    optimizer = SyncReplayOptimizer(local, learning_starts=40, buffer_size=200, train_batch_size=16)
    trained = [(bool(optimizer.step()), optimizer.stats()["num_steps_sampled"]) for _ in range(10)]
    assert all(learned == (sampled >= 40) for learned, sampled in trained)
    steps = sum(learned for learned, _ in trained)
    assert local.policy.gradient_steps == steps and optimizer.stats()["num_steps_trained"] == 16 * steps
    assert local.policy.env_steps == trained[-1][1] == optimizer.stats()["replay_buffer"]["num_added"]


def test_draws_follow_the_td_errors() -> None:
    optimizer = SyncReplayOptimizer(worker(), learning_starts=16, train_batch_size=16, gradient_steps=3)
    for _ in range(4):
        optimizer.step()
    (tree,) = [buffer.tree for buffer in optimizer.replay_buffer.buffers.values()]  # type: ignore[attr-defined]
    priorities = tree.get(range(tree.size))
    assert len({round(priority, 6) for priority in priorities if priority > 0}) > 10


def test_uniform_draws_and_continuous_actions() -> None:
    local = worker(SAC, "Pendulum-v1")
    optimizer = SyncReplayOptimizer(local, learning_starts=16, train_batch_size=16, prioritized_replay=False)
    for _ in range(4):
        result = optimizer.step()
    assert result["alpha"] > 0 and "total_priority" not in optimizer.stats()["replay_buffer"]["default_policy"]


def test_sync_replay_optimizer_refuses_on_policy_algorithms_and_gradient_steps_of_0() -> None:
    cases = [(PPO, {}, r"PPO.*SyncSamplesOptimizer"), (DQN, {"gradient_steps": 0}, "gradient_steps=0")]
    assert not_refused(lambda kind, keywords: SyncReplayOptimizer(worker(kind), **keywords), cases) == []


@pytest.mark.ray
def test_remote_workers_fill_the_buffer() -> None:
    remote = RolloutWorker.as_remote(num_cpus=0)
    config = {"model": {"fcnet_hiddens": [8]}}
    actors = [remote.remote("CartPole-v1", DQN, fragment_length=8, policy_config=config) for _ in range(2)]
    optimizer = SyncReplayOptimizer(worker(), actors, learning_starts=32, train_batch_size=16)
    results = [optimizer.step() for _ in range(5)]
    assert results[-1]["loss"] > 0 and not results[0]
    assert optimizer.stats()["num_steps_sampled"] == optimizer.local_worker.policy.env_steps > 64
