"""RLlib's policy optimizers: constructor, `step` and `stats`, with workers here and in processes."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch

from lightning_rl import rllib
from lightning_rl.policies import A2C, DQN, PPO, SAC
from lightning_rl.rllib import AsyncGradientsOptimizer, SyncReplayOptimizer, SyncSamplesOptimizer
from lightning_rl.rollouts import RolloutWorker
from tests.models.parameters import parameter_vector
from tests.refusals import not_refused

SMALL = {"model": {"fcnet_hiddens": [8]}}
OPTIMIZERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "SyncSamplesOptimizer": (A2C, {"train_batch_size": 24}),
    "AsyncSamplesOptimizer": (A2C, {"train_batch_size": 24}),
    "AsyncGradientsOptimizer": (A2C, {"grads_per_step": 3}),
    "SyncReplayOptimizer": (DQN, {"learning_starts": 10, "train_batch_size": 8}),
}


def worker(policy: Any, env: str = "CartPole-v1", length: int = 12) -> RolloutWorker:
    return RolloutWorker(env, policy, fragment_length=length, policy_config=SMALL)


def take_three_steps(optimizer: Any) -> None:
    """Three steps: they learn, count, and time."""
    policy = optimizer.local_worker.policy
    before = parameter_vector(policy)
    results = [optimizer.step() for _ in range(3)]
    stats = optimizer.stats()
    assert all("loss" in result for result in results) and policy.gradient_steps >= 3
    assert not torch.equal(before, parameter_vector(policy))
    assert stats["num_steps_sampled"] == policy.env_steps > 20 and stats["num_steps_trained"] > 20
    if "Samples" in type(optimizer).__name__:  # 24 rows a step
        assert stats["num_steps_trained"] == stats["num_steps_sampled"] >= 72
    assert stats["sample_time_ms"] > 0 and stats["learn_time_ms"] > 0


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_policy_optimizers_learn_without_remote_workers(name: str) -> None:
    """Each takes the workers first, as in classic RLlib."""
    (policy, keywords), kind = OPTIMIZERS[name], getattr(rllib, name)
    assert list(inspect.signature(kind).parameters)[:2] == ["local_worker", "remote_workers"]
    take_three_steps(kind(worker(policy), **keywords))


@pytest.mark.ray
def test_policy_optimizers_learn_with_remote_workers() -> None:
    remote, actors = RolloutWorker.as_remote(num_cpus=0), dict[Any, list[Any]]()
    for name, (policy, keywords) in OPTIMIZERS.items():
        if policy not in actors:
            options = {"fragment_length": 12, "policy_config": SMALL}
            actors[policy] = [remote.remote("CartPole-v1", policy, worker_index=i, **options) for i in range(2)]
        take_three_steps(getattr(rllib, name)(worker(policy), actors[policy], **keywords))


def test_a_batch_is_learned_from_in_minibatches_several_times() -> None:
    """24 or more rows in parts of 8, three times: 9 gradient steps; the policy stops early only by its `target_kl`."""
    made = RolloutWorker("CartPole-v1", PPO, fragment_length=12, policy_config={**SMALL, "target_kl": None})
    optimizer = SyncSamplesOptimizer(made, (), 24, num_sgd_iter=3, sgd_minibatch_size=8)
    optimizer.step()
    policy: Any = made.policy
    assert policy.gradient_steps == 3 * round(optimizer.num_steps_trained / 8) >= 9


def test_asynchronous_gradients_of_one_worker_are_synchronous_learning() -> None:
    """Two loops with the same seeds: one learns on samples, the other by their gradients."""
    samples = SyncSamplesOptimizer(worker(A2C), train_batch_size=1)
    gradients = AsyncGradientsOptimizer(worker(A2C), grads_per_step=1)
    for _ in range(4):
        samples.step()
        gradients.step()
    vectors = (parameter_vector(optimizer.local_worker.policy) for optimizer in (samples, gradients))
    torch.testing.assert_close(*vectors)


def test_sync_replay_optimizer_learns_once_per_step_after_learning_starts() -> None:
    """8 env steps a step (fewer where an episode was reset); learning from 40 on, 16 rows a gradient step."""
    local = worker(DQN, length=8)
    optimizer = SyncReplayOptimizer(local, learning_starts=40, buffer_size=200, train_batch_size=16)
    trained = [(bool(optimizer.step()), optimizer.stats()["num_steps_sampled"]) for _ in range(10)]
    assert all(learned == (sampled >= 40) for learned, sampled in trained)
    steps = sum(learned for learned, _ in trained)
    assert local.policy.gradient_steps == steps and optimizer.stats()["num_steps_trained"] == 16 * steps
    assert local.policy.env_steps == trained[-1][1] == optimizer.stats()["replay_buffer"]["num_added"]


def test_draws_follow_the_td_errors_or_are_uniform() -> None:
    optimizer = SyncReplayOptimizer(worker(DQN, length=8), learning_starts=16, train_batch_size=16, gradient_steps=3)
    uniform = {"learning_starts": 16, "train_batch_size": 16, "prioritized_replay": False}
    other = SyncReplayOptimizer(worker(SAC, "Pendulum-v1", length=8), **uniform)
    for _ in range(4):
        optimizer.step()
        result = other.step()
    (tree,) = [buffer.tree for buffer in optimizer.replay_buffer.buffers.values()]  # type: ignore[attr-defined]
    priorities = tree.get(range(tree.size))
    assert len({round(priority, 6) for priority in priorities if priority > 0}) > 10
    assert result["alpha"] > 0 and "total_priority" not in other.stats()["replay_buffer"]["policy_default_policy"]


def test_optimizers_refuse_on_policy_algorithms_and_steps_of_0() -> None:
    cases = [
        (AsyncGradientsOptimizer, A2C, {"grads_per_step": 0}, "grads_per_step=0"),
        (SyncReplayOptimizer, DQN, {"gradient_steps": 0}, "gradient_steps=0"),
        (SyncReplayOptimizer, PPO, {}, r"PPO.*SyncSamplesOptimizer"),
    ]
    assert not_refused(lambda kind, policy, keywords: kind(worker(policy), **keywords), cases) == []
