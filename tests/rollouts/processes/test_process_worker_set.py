"""ProcessWorkerSet with a fake transport: deaths of processes do not change the fragments."""

from __future__ import annotations

from collections.abc import Sequence
from operator import methodcaller
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from lightning_rl.errors import EnvError
from lightning_rl.policies import DQN, PPO
from lightning_rl.rollouts import WorkerSet
from lightning_rl.rollouts.processes.limits import Limits
from tests.envs.classic_control import CARTPOLE
from tests.families import each
from tests.rollouts.fragment_equality import assert_equal_fragments
from tests.rollouts.processes.fake_transport import FakeProcess, Fate
from tests.rollouts.processes.fake_worker_set import (
    OPTIONS,
    fake_worker_set,
    kill_worker_1,
    nth,
    own_faulthandler,  # noqa: F401 (an autouse fixture)
    random_deaths,
)
from tests.run_comparison import assert_equal


@pytest.fixture
def policy() -> PPO:
    return PPO(*CARTPOLE.spaces(), seed=1, passes=1, observation_filter="mean_std")


@pytest.mark.parametrize("seed", each(range(3), default=[0]))
def test_deaths_of_processes_leave_whole_episodes_bit_equal(policy: PPO, seed: int) -> None:
    """A tenth of all requests ends its process; the policy and its observation filter learn between the rounds."""
    local = WorkerSet(CARTPOLE, policy, [0, 1, 2], batch_mode="complete_episodes", **OPTIONS)
    remote = fake_worker_set(policy, random_deaths(seed, 0.15, ("dies", "dies after")), batch_mode="complete_episodes")
    for round in range(12):
        for workers in (local, remote):
            workers.sync_weights(policy)
            if round % 7 == 6:
                workers.force_reset()
        here, there = local.sample(), remote.sample()
        assert_equal_fragments(here, there)
        assert local.get_metrics() == remote.get_metrics()
        policy.learn_on_batch(here)
    assert local.state_dict() == remote.state_dict()
    for workers in (local, remote):
        workers.sync_weights(policy)
    assert local.run_episodes(5) == remote.run_episodes(5)
    assert remote.get_health()["sys/worker_restarts"] >= 2


class Reporter:
    """Sends the number of each fragment."""

    def __init__(self) -> None:
        self.got: list[tuple[int, int]] = []

    def on_sample_end(self, *, worker: Any, samples: Any) -> None:
        worker.reports.append((worker.worker_index, worker.fragment))

    def on_worker_report(self, *, report: tuple[int, int]) -> None:
        self.got.append(report)


def test_reports_and_metrics_come_with_the_results_of_every_request_to_sample(policy: PPO) -> None:
    """100 steps of CartPole end episodes in each of the two environments."""
    reporter, local = Reporter(), Reporter()
    workers = fake_worker_set(policy, lambda *_: Fate("done"), [0, 1], callbacks=[reporter], fragment_length=100)
    workers.sync_weights(policy)
    sample = methodcaller("sample")

    def sample_ahead() -> None:
        workers.submit_samples(1, 0)
        workers.next_sample()
        workers.next_sample()

    def call() -> None:
        for index in (0, 1):
            workers.submit(index, sample)
        workers.next_result()
        workers.next_result()

    for fragment, request in enumerate((workers.sample, lambda: workers.foreach_worker(sample), sample_ahead, call), 1):
        request()
        assert sorted(reporter.got) == [(0, fragment), (1, fragment)]
        reporter.got.clear()
        assert len(workers.get_metrics()["episode_returns"]) >= 4
    here = WorkerSet(CARTPOLE, policy, [0], callbacks=[SimpleNamespace(on_worker_report=local.on_worker_report)])
    here.sample()
    assert here.workers[0].reports is None and not local.got


def test_after_a_death_the_next_fragment_begins_with_a_reset(policy: PPO) -> None:
    """Nothing is spliced: the first row after a death starts an episode, and no fragment comes twice."""
    twin = WorkerSet(CARTPOLE, policy, [0], **OPTIONS)
    remote = fake_worker_set(policy, nth("dies", [4], "sample"), [0], num_workers=1)
    for workers in (twin, remote):
        workers.sync_weights(policy)
    for _ in range(4):
        assert_equal_fragments(twin.sample(), remote.sample())
    after = remote.sample()
    assert not after.t[0].any()
    twin.force_reset()
    assert_equal_fragments(twin.sample(), after)
    assert_equal(remote.state_dict(), twin.state_dict())


def test_in_order_deaths_change_no_fragment_although_weights_are_synced_meanwhile(policy: PPO) -> None:
    """Two sets of asynchronous workers, one of which is mortal: the same fragments with the same weights."""
    options: dict[str, Any] = {"batch_mode": "complete_episodes"}
    fates = (random_deaths(0, 0.0), random_deaths(5, 0.1, ("dies",)))
    sets = [fake_worker_set(policy, fate, **options) for fate in fates]
    for workers in sets:
        workers.sync_weights(policy)
    for _ in range(30):
        samples = []
        for workers in sets:
            workers.submit_samples(2, policy.env_steps, in_order=True)
            samples.append(workers.next_sample(in_order=True))
        pair = [workers.fetch(sample) for workers, sample in zip(sets, samples, strict=True)]
        for first, second in zip(*pair, strict=True):
            assert_equal_fragments(first, second)
        policy.learn_on_batch(pair[0][0])
        for workers in sets:
            workers.sync_weights(policy)
    assert sets[1].supervisor.restarts > 2


def test_deaths_neither_lose_nor_duplicate_fragments(policy: PPO) -> None:
    """Every fragment of every worker, identified by its content."""
    remote = fake_worker_set(policy, random_deaths(1, 0.15), batch_mode="complete_episodes")
    remote.sync_weights(policy)
    seen: list[bytes] = []
    for _ in range(60):
        remote.submit_samples(2, 0)
        sample = remote.next_sample()
        fragments = remote.fetch(sample)
        assert sample.count == len(fragments) and sample.nbytes == sum(each.nbytes for each in fragments)
        assert sample.env_steps == sum(int(each.valid.sum()) for each in fragments)
        seen += [fragment.obs.numpy().tobytes() for fragment in fragments]
    assert remote.get_health()["sys/worker_restarts"] > 3
    for worker in WorkerSet(CARTPOLE, policy, [0, 1, 2], batch_mode="complete_episodes", **OPTIONS).workers:
        while (fragment := worker.sample().obs.numpy().tobytes()) in seen:
            seen.remove(fragment)
    assert not seen  # what was left over would be a fragment that came twice, or after a gap


def test_a_call_of_a_worker_has_a_result_although_its_process_dies(policy: PPO) -> None:
    remote = fake_worker_set(policy, random_deaths(3, 0.2, ("dies",)))
    policy.gradient_steps = 4
    remote.sync_weights(policy)
    for _ in range(20):
        for worker_index in remote.idle_workers:
            remote.submit(worker_index, methodcaller("get_metrics"))
        answered = remote.next_result()
        assert answered is not None
        assert answered.gradient_steps == 4 and answered.value.keys() == {"episode_returns", "episode_lengths"}
    assert remote.supervisor.restarts > 1


def test_a_restarted_process_has_the_newest_weights_before_it_samples() -> None:
    """Outside sampling too: a function is applied to a worker whose process died."""
    policy = DQN(*CARTPOLE.spaces(), seed=1)
    remote = fake_worker_set(policy, nth("dies", [1]), [0], num_workers=1)  # start, sample, start, sample, call
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.fill_(0.25)
    policy.env_steps = 321
    remote.sync_weights(policy)
    remote.sample()  # its process dies; the next one is started with the weights
    ((weights, env_steps),) = remote.foreach_worker(
        lambda worker: (next(iter(worker.policy.parameters())).flatten()[0].item(), worker.policy.env_steps)
    )
    assert (weights, env_steps) == (0.25, 321)


def test_state_dict_waits_for_no_process(policy: PPO) -> None:
    """It needs no answer of a worker, so a run can be saved while all workers hang."""
    remote = fake_worker_set(policy, nth("hangs", range(3, 100)), [0], num_workers=1)
    remote.sync_weights(policy)
    remote.submit_samples(1, 0)
    remote.next_sample()
    remote.submit_samples(2, 0)
    before = remote.transport.seconds
    remote.force_reset()
    assert remote.state_dict()["0"]["fragment"] == 1
    assert remote.transport.seconds == before


def test_an_interrupted_sample_is_rolled_back(policy: PPO) -> None:
    """One of two workers has answered when the run is interrupted: a resumed run begins with both fragments again."""
    remote = fake_worker_set(policy, nth("hangs", [2], "sample"), [0, 1], num_workers=2)
    remote.sync_weights(policy)
    remote.sample()
    before = remote.state_dict()
    remote.stop_when(lambda: True)
    with pytest.raises(KeyboardInterrupt):
        remote.sample()
    after = remote.state_dict()
    assert {index: own["fragment"] for index, own in after.items()} == {"0": 1, "1": 1}
    assert all("episodes" in own for own in before.values()) and not any("episodes" in own for own in after.values())


def test_in_order_a_request_to_a_dead_process_keeps_the_weights_at_submission(policy: PPO) -> None:
    """A successor needs 5 s to start; meanwhile the learner goes on with what process 1 has done before."""

    def ages(mortal: bool) -> list[int]:
        requests = {0: 0, 1: 0}

        def fate(process: FakeProcess, method: str, arguments: Sequence[Any]) -> Fate:
            if method == "start":
                return Fate(seconds=5.0 if process.number > 1 else 0.1)
            requests[place := min(arguments[0])] += 1
            if place == 1:
                return Fate(seconds=6.0 if requests[1] == 1 else 0.1)
            return Fate("dies" if mortal and requests[0] == 3 else "done")

        policy.gradient_steps = 0
        remote = fake_worker_set(policy, fate, [0, 1], batch_mode="complete_episodes")
        found = []
        for _ in range(12):
            remote.sync_weights(policy)
            remote.submit_samples(2, policy.env_steps, in_order=True)
            found.append(remote.next_sample(in_order=True).gradient_steps)
            policy.gradient_steps += 1
        assert remote.supervisor.restarts == mortal
        return found

    assert ages(mortal=True) == ages(mortal=False)


def test_a_given_up_process_gives_no_result_and_its_workers_are_not_idle(policy: PPO) -> None:
    """Worker 1 dies over every sample and every call."""
    for samples_first in (False, True):
        remote = fake_worker_set(policy, kill_worker_1, [0, 1], limits=Limits(max_failures=2, min_healthy=0.5))
        remote.sync_weights(policy)
        assert remote.idle_workers == [0, 1]
        if samples_first:
            remote.sample()
        for worker_index in remote.idle_workers:
            remote.submit(worker_index, methodcaller("get_metrics"))
        assert [answered.worker_index for answered in iter(remote.next_result, None)] == [0]
        assert remote.idle_workers == [0] and remote.next_result() is None


def test_a_failed_sample_of_workers_here_is_rolled_back(policy: PPO, monkeypatch: pytest.MonkeyPatch) -> None:
    workers = WorkerSet(CARTPOLE, policy, [0, 1], **OPTIONS)
    before, first = workers.state_dict(), workers.sample()
    workers.load_state_dict(before)
    with monkeypatch.context() as patch, pytest.raises(EnvError):
        patch.setattr(workers.workers[1], "sample", Mock(side_effect=EnvError("wheels came off")))
        workers.sample()
    assert workers.state_dict() == before
    assert_equal_fragments(workers.sample(), first)
