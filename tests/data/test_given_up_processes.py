"""Learners whose worker processes are given up, or whose run ends with requests in flight, in virtual time."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from lightning_rl.data.evaluator import Evaluator
from lightning_rl.data.inflight_requests import InflightRequests
from lightning_rl.data.population_source import populations
from lightning_rl.errors import EnvError
from lightning_rl.policies import ES, PPO
from lightning_rl.rollouts.processes.limits import Limits
from lightning_rl.rollouts.processes.process_worker_set import ProcessWorkerSet
from lightning_rl.sample_batch import SampleBatch
from tests.envs.classic_control import CARTPOLE
from tests.rollouts.processes.fake_transport import Fate
from tests.rollouts.processes.fake_worker_set import (
    fake_worker_set,
    kill_worker_1,
    nth,
    own_faulthandler,  # noqa: F401 (an autouse fixture)
)


@pytest.fixture
def policy() -> PPO:
    return PPO(*CARTPOLE.spaces(), seed=1, passes=1)


# -- populations and evaluations --------------------------------------------------------------------------------------
WHOLE: dict[str, Any] = {"batch_mode": "complete_episodes", "fragment_length": 1}
HALF = Limits(max_failures=2, min_healthy=0.5)


def populations_of(fate: Any) -> tuple[ProcessWorkerSet, Iterator[SampleBatch]]:
    """A set of two workers, each of which tries one direction, and its populations."""
    policy = ES(*CARTPOLE.spaces(), seed=1)
    remote = fake_worker_set(policy, fate, [0, 1], limits=HALF, **WHOLE)
    shares = SimpleNamespace(shares=lambda indices: {index: ([10 * index + 1], []) for index in indices})
    return remote, populations(remote, policy, shares)


def test_a_population_is_smaller_without_given_up_processes() -> None:
    _, found = populations_of(kill_worker_1)
    assert [next(found)["seeds"].tolist() for _ in range(2)] == [[1], [1]]


def test_an_interrupted_population_is_rolled_back() -> None:
    """Worker 0 has answered when the run is interrupted: a resumed run begins with its episodes again."""
    remote, found = populations_of(nth("hangs", [3], "call_worker"))
    next(found)
    before = remote.positions()
    remote.stop_when(lambda: True)
    with pytest.raises(KeyboardInterrupt):
        next(found)
    assert remote.state_dict() == before


def test_an_evaluation_has_fewer_episodes_without_given_up_processes(policy: PPO) -> None:
    remote = fake_worker_set(policy, kill_worker_1, [0, 1], limits=HALF, stream="evaluation", explore=False)
    evaluator = Evaluator(remote, 4, parallel=True)
    for episodes in (2, 4):  # the next time all are worker 0's
        evaluator.begin(policy)
        assert len(evaluator.finish()) == episodes


# -- checkpoints of asynchronous learning -----------------------------------------------------------------------------
def requests_of(policy: PPO, fate: Any = lambda *_: Fate(), **options: Any) -> tuple[ProcessWorkerSet, Any]:
    """A set of two workers, and two requests to each in fixed order."""
    remote, requests = fake_worker_set(policy, fate, [0, 1], **options), InflightRequests(2, in_order=True)
    requests.submit(remote, policy)
    return remote, requests


def test_drain_ends_although_workers_hang_or_restarts_are_used_up(policy: PPO) -> None:
    """Requests in fixed order are waited for, unless the run ends because no process answers."""
    # The first two requests start the processes.
    for fate, ends in ((nth("hangs", range(5, 100)), KeyboardInterrupt), (nth("dies", range(2, 100)), EnvError)):
        remote, requests = requests_of(policy, fate, limits=Limits(max_restarts=0))
        remote.stop_when(lambda: True)
        with pytest.raises(ends):
            for _ in range(4):
                requests.next_sample(remote)
        before = remote.transport.seconds
        remote.drain()
        assert remote.inflight_samples == 0 and remote.transport.seconds - before < 1.0


def test_drain_ends_after_an_error_of_the_code(policy: PPO) -> None:
    """Which saving would raise again, instead of leaving a checkpoint."""
    remote, _ = requests_of(policy)
    remote.supervisor.broken = TypeError("add() takes 2 arguments")
    remote.drain()
    assert remote.inflight_samples == 0


def test_drain_waits_for_the_samples_in_flight(policy: PPO) -> None:
    remote, _ = requests_of(policy)
    remote.drain()
    assert {name: state["fragment"] for name, state in remote.state_dict().items()} == {"0": 2, "1": 2}
    assert not any(remote.get_metrics().values())
