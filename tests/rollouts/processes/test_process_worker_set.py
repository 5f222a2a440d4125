"""Deaths of processes change nothing in what is collected; with a transport that needs no processes."""

from __future__ import annotations

import faulthandler
from collections.abc import Sequence
from operator import methodcaller
from typing import Any

import numpy as np
import pytest
import torch

from lightning_rl.envs import EnvCreator
from lightning_rl.errors import EnvError
from lightning_rl.policies import DQN, PPO
from lightning_rl.rollouts import WorkerSet
from lightning_rl.rollouts.processes.limits import Limits
from lightning_rl.rollouts.processes.process_worker_set import ProcessWorkerSet
from lightning_rl.rollouts.processes.rollout_process import RolloutProcess
from lightning_rl.sample_batch import SampleBatch
from tests.rollouts.processes.fake_transport import FakeProcess, FakeTransport, Fate

CARTPOLE = EnvCreator("CartPole-v1")
OPTIONS: dict[str, Any] = {"num_envs": 2, "fragment_length": 16, "seed": 3}
PATIENT = Limits(max_restarts=1000, max_failures=1000)


@pytest.fixture(autouse=True)
def own_faulthandler(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes are objects in this one, whose crashes pytest wants to report."""
    monkeypatch.setattr(faulthandler, "enable", lambda file: None)


@pytest.fixture
def policy() -> PPO:
    return PPO(*CARTPOLE.spaces(), seed=1, passes=1, observation_filter="mean_std")


def mortal(seed: int, share: float, kinds: Sequence[str] = ("dies", "hangs", "dies after")) -> Any:
    """Fates of which that share is a process's end."""
    random = np.random.default_rng(seed)

    def fate(process: FakeProcess, method: str, arguments: Sequence[Any]) -> Fate:
        ends = random.random() < share
        return Fate(str(random.choice(kinds)) if ends else "done", float(random.uniform(0.5, 2.0)), bool(ends))

    return fate


def in_processes(policy: Any, fate: Any, indices: Sequence[int] = (0, 1, 2), **options: Any) -> ProcessWorkerSet:
    keywords: dict[str, Any] = {"num_workers": 2, "limits": PATIENT, **OPTIONS, **options}
    return ProcessWorkerSet(FakeTransport(RolloutProcess, fate), CARTPOLE, policy, list(indices), **keywords)


def assert_equal(first: SampleBatch, second: SampleBatch) -> None:
    assert first.columns == second.columns
    for name in first:
        assert torch.equal(first[name], second[name]), name


@pytest.mark.parametrize("seed", range(3))
def test_whole_episodes_are_the_same_to_the_bit_whoever_dies(policy: PPO, seed: int) -> None:
    """A tenth of all requests ends its process; the policy and its observation filter learn between the rounds."""
    local = WorkerSet(CARTPOLE, policy, [0, 1, 2], batch_mode="complete_episodes", **OPTIONS)
    remote = in_processes(policy, mortal(seed, 0.15, ("dies", "dies after")), batch_mode="complete_episodes")
    for round in range(12):
        for workers in (local, remote):
            workers.sync_weights(policy)
            if round % 7 == 6:
                workers.force_reset()
        here, there = local.sample(), remote.sample()
        assert_equal(here, there)
        assert local.get_metrics() == remote.get_metrics()
        policy.learn_on_batch(here)
    assert local.state_dict() == remote.state_dict()
    for workers in (local, remote):
        workers.sync_weights(policy)
    assert local.run_episodes(5) == remote.run_episodes(5)
    assert remote.get_health()["sys/worker_restarts"] >= 2
    remote.stop()


def test_fragments_that_are_cut_off_go_on_at_a_reset_after_a_death(policy: PPO) -> None:
    """Nothing is spliced: the first row after a death starts an episode, and no fragment comes twice."""
    deaths = iter([False] * 4 + [True] + [False] * 100)

    def fate(process: FakeProcess, method: str, arguments: Sequence[Any]) -> Fate:
        return Fate("dies" if method == "sample" and next(deaths) else "done")

    twin = WorkerSet(CARTPOLE, policy, [0], **OPTIONS)
    remote = in_processes(policy, fate, [0], num_workers=1)
    for workers in (twin, remote):
        workers.sync_weights(policy)
    for _ in range(4):
        assert_equal(twin.sample(), remote.sample())
    after = remote.sample()
    assert not after.t[0].any()
    twin.force_reset()
    assert_equal(twin.sample(), after)
    assert remote.state_dict() == twin.state_dict()
    remote.stop()


def test_in_order_deaths_change_nothing_although_weights_are_renewed_meanwhile(policy: PPO) -> None:
    """Two sets of asynchronous workers, one of which is mortal: the same fragments with the same weights."""
    options: dict[str, Any] = {"batch_mode": "complete_episodes"}
    sets = [in_processes(policy, fate, **options) for fate in (mortal(0, 0.0), mortal(5, 0.1, ("dies",)))]
    for workers in sets:
        workers.sync_weights(policy)
    for _ in range(30):
        samples = []
        for workers in sets:
            workers.submit_samples(2, policy.env_steps, in_order=True)
            samples.append(workers.next_sample(in_order=True))
        pair = [workers.fetch(sample) for workers, sample in zip(sets, samples, strict=True)]
        for first, second in zip(*pair, strict=True):
            assert_equal(first, second)
        policy.learn_on_batch(pair[0][0])
        for workers in sets:
            workers.sync_weights(policy)
    assert sets[1].supervisor.restarts > 2
    for workers in sets:
        workers.stop()


def test_as_ready_no_fragment_is_lost_or_comes_twice(policy: PPO) -> None:
    """Every fragment of every worker, told apart by what is in it."""
    remote = in_processes(policy, mortal(1, 0.15), batch_mode="complete_episodes")
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
    remote.stop()


def test_a_worker_asked_for_something_answers_though_its_process_dies(policy: PPO) -> None:
    remote = in_processes(policy, mortal(3, 0.2, ("dies",)))
    policy.gradient_steps = 4
    remote.sync_weights(policy)
    for _ in range(20):
        for worker_index in remote.idle_workers:
            remote.submit(worker_index, methodcaller("get_metrics"))
        answered = remote.next_result()
        assert answered is not None
        assert answered.gradient_steps == 4 and answered.value.keys() == {"episode_returns", "episode_lengths"}
    assert remote.supervisor.restarts > 1
    remote.stop()


def test_a_restarted_process_has_the_newest_weights_before_it_is_asked_to_act() -> None:
    """Also where nothing is sampled: a function is applied to a worker whose process died."""
    policy = DQN(*CARTPOLE.spaces(), seed=1)
    dies = iter([False, True, False, False, False])  # start, sample, start, sample, call
    remote = in_processes(policy, lambda *_: Fate("dies" if next(dies) else "done"), [0], num_workers=1)
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
    remote.stop()


def test_a_checkpoint_asks_no_process(policy: PPO) -> None:
    """What is known here is enough, so that a run can be saved while all workers hang."""
    hangs = iter([False] * 3 + [True] * 10)
    remote = in_processes(policy, lambda *_: Fate("hangs" if next(hangs) else "done"), [0], num_workers=1)
    remote.sync_weights(policy)
    remote.submit_samples(1, 0)
    remote.next_sample()
    remote.submit_samples(2, 0)
    before = remote.transport.seconds
    remote.force_reset()
    assert remote.state_dict()["0"]["fragment"] == 1
    assert remote.transport.seconds == before
    remote.stop()


def test_a_round_that_is_broken_off_has_not_been(policy: PPO) -> None:
    """One of two workers has answered when the run is interrupted: a resumed run begins with both fragments again."""
    hangs = iter([False] * 4 + [True, False])

    def fate(process: FakeProcess, method: str, arguments: Sequence[Any]) -> Fate:
        return Fate("hangs" if next(hangs) else "done")

    remote = in_processes(policy, fate, [0, 1], num_workers=2)
    remote.sync_weights(policy)
    remote.sample()
    before = remote.state_dict()
    remote.stop_when(lambda: True)
    with pytest.raises(KeyboardInterrupt):
        remote.sample()
    assert remote.state_dict() == before
    remote.stop()


def test_in_order_what_is_asked_of_a_process_that_is_down_has_the_weights_of_then(policy: PPO) -> None:
    """A successor needs 5 s to start; meanwhile the learner goes on with what process 1 has done before."""

    def ages(mortal: bool) -> list[int]:
        asked = {0: 0, 1: 0}

        def fate(process: FakeProcess, method: str, arguments: Sequence[Any]) -> Fate:
            if method == "start":
                return Fate(seconds=5.0 if process.number > 1 else 0.1)
            asked[place := min(arguments[0])] += 1
            if place == 1:
                return Fate(seconds=6.0 if asked[1] == 1 else 0.1)
            return Fate("dies" if mortal and asked[0] == 3 else "done")

        policy.gradient_steps = 0
        remote = in_processes(policy, fate, [0, 1], batch_mode="complete_episodes")
        found = []
        for _ in range(12):
            remote.sync_weights(policy)
            remote.submit_samples(2, policy.env_steps, in_order=True)
            found.append(remote.next_sample(in_order=True).gradient_steps)
            policy.gradient_steps += 1
        assert remote.supervisor.restarts == mortal
        remote.stop()
        return found

    assert ages(mortal=True) == ages(mortal=False)


def loses_the_second(process: FakeProcess, method: str, arguments: Sequence[Any]) -> Fate:
    """Worker 1 kills its process whenever it is asked to do something."""
    return Fate("dies" if method == "call_worker" and arguments[0] == 1 else "done")


def test_who_is_asked_and_given_up_owes_no_answer(policy: PPO) -> None:
    remote = in_processes(policy, loses_the_second, [0, 1], limits=Limits(max_failures=2, min_healthy=0.5))
    remote.sync_weights(policy)
    for worker_index in remote.idle_workers:
        remote.submit(worker_index, methodcaller("get_metrics"))
    assert [answered.worker_index for answered in iter(remote.next_result, None)] == [0]
    assert remote.idle_workers == [0] and remote.next_result() is None
    remote.stop()


def test_who_is_given_up_while_nothing_is_asked_of_him_is_not_idle(policy: PPO) -> None:
    def fate(process: FakeProcess, method: str, arguments: Sequence[Any]) -> Fate:
        return Fate("dies" if method == "sample" and arguments[0] == [1] else "done")

    remote = in_processes(policy, fate, [0, 1], limits=Limits(max_failures=2, min_healthy=0.5))
    remote.sync_weights(policy)
    assert remote.idle_workers == [0, 1]
    remote.sample()
    assert remote.idle_workers == [0]
    remote.stop()


def test_a_round_of_workers_in_this_process_that_is_broken_off_has_not_been(
    policy: PPO, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = WorkerSet(CARTPOLE, policy, [0, 1], **OPTIONS)
    before, first = workers.state_dict(), workers.sample()
    workers.load_state_dict(before)

    def raises() -> None:
        raise EnvError("wheels came off")

    with monkeypatch.context() as patch, pytest.raises(EnvError):
        patch.setattr(workers.workers[1], "sample", raises)
        workers.sample()
    assert workers.state_dict() == before
    assert_equal(workers.sample(), first)
