"""References to fragments, with their sizes before they are fetched: equal from this process and from others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from lightning_rl.policies import PPO
from lightning_rl.rollouts import WorkerSet, make_worker_set
from tests.envs.classic_control import CARTPOLE

OPTIONS: dict[str, Any] = {"num_envs": 2, "fragment_length": 40, "seed": 3}


@pytest.fixture
def policy() -> PPO:
    return PPO(*CARTPOLE.spaces(), seed=1, passes=1)


@pytest.fixture
def remote(policy: PPO) -> Iterator[Any]:
    workers = make_worker_set(CARTPOLE, policy, num_workers=2, worker_indices=[0, 1, 2], **OPTIONS)
    yield workers
    workers.stop()


def test_workers_in_this_process_take_turns_and_start_with_the_first_after_a_forced_reset(policy: PPO) -> None:
    workers, twins = (WorkerSet(CARTPOLE, policy, [0, 1], **OPTIONS) for _ in range(2))
    policy.gradient_steps = 7
    workers.sync_weights(policy)
    for turn in (0, 1, 0):
        sample = workers.next_sample()
        (fragment,) = workers.fetch(sample)
        assert torch.equal(fragment.obs, twins.workers[turn].sample().obs)
        assert sample.env_steps == int(fragment.valid.sum()) < 80  # a reset is no step
        assert sample.gradient_steps == 7
    assert workers.oldest_gradient_steps is None
    for each in (workers, twins):
        each.force_reset()
    assert torch.equal(workers.fetch(workers.next_sample())[0].obs, twins.workers[0].sample().obs)


@pytest.mark.ray
def test_submit_samples_keeps_as_many_in_flight_with_the_steps_of_their_weights(policy: PPO, remote: Any) -> None:
    remote.sync_weights(policy)
    assert remote.oldest_gradient_steps is None
    remote.submit_samples(2, 0)
    policy.gradient_steps = 5
    remote.sync_weights(policy)
    remote.submit_samples(2, 0)  # none is missing: no request has the new weights
    assert [remote.next_sample().gradient_steps for _ in range(3)] == [0, 0, 0]
    remote.submit_samples(2, 0)
    assert remote.oldest_gradient_steps == 0
    assert sorted(remote.next_sample().gradient_steps for _ in range(4)) == [0, 5, 5, 5]
    assert remote.oldest_gradient_steps is None


@pytest.mark.ray
def test_schedules_in_processes_follow_the_run_without_new_weights(policy: PPO, remote: Any) -> None:
    remote.sync_weights(policy)
    for env_steps in (0, 500):
        remote.submit_samples(1, env_steps)
        for _ in range(2):
            remote.next_sample()
    assert set(remote.foreach_worker(lambda worker: worker.policy.env_steps)) == {500}
