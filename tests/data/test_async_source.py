"""Asynchronous learning: requests in flight and their weights, the batches, and which fragments are dropped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from lightning_rl.callbacks import RLCallback
from lightning_rl.data.async_source import AsyncSource, batches_as_they_come
from lightning_rl.data.datamodule import RolloutDataModule
from lightning_rl.data.fragment_joiner import FragmentJoiner
from lightning_rl.data.inflight_requests import InflightRequests
from lightning_rl.errors import EnvError
from lightning_rl.policies import IMPALA
from lightning_rl.rollouts.processes.remote_objects import LocalObject
from lightning_rl.sample_batch import SampleBatch
from tests.data.small_runs import fit
from tests.data.virtual_workers import Virtual, fragment
from tests.envs.classic_control import CARTPOLE
from tests.run_comparison import assert_equal_weights

SMALL = ["policy=impala", "policy.passes=1", "policy.minibatches=1"]
WORKERS = ["workers.logical_workers=2", "workers.envs_per_worker=2", "workers.fragment_length=8"]


class Notes(RLCallback):
    """What every iteration learned from: columns of the batch, observations, and what was reported of it."""

    def __init__(self) -> None:
        self.batches: list[SampleBatch] = []
        self.reports: list[dict[str, float]] = []

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.batches.append(batch)

    def on_train_result(self, trainer: Any, policy: Any, result: dict[str, float]) -> None:
        self.reports.append(dict(result))


def train(run_dir: Path, *overrides: str) -> tuple[Any, Any, Notes]:
    """Policy, DataModule and notes of a finished run."""
    notes = Notes()
    return *fit(run_dir, *SMALL, *WORKERS, *overrides, callbacks=[notes]), notes


def assert_equal_runs(one: Any, other: Any) -> None:
    assert one.gradient_steps == other.gradient_steps > 0 and one.env_steps == other.env_steps
    assert_equal_weights(one, other)


# -- in one process ---------------------------------------------------------------------------------------------------
def test_workers_of_this_process_take_turns_with_the_newest_weights(tmp_path: Path) -> None:
    """Both start with a seeded reset of their own; then the first goes on where it was."""
    policy, _, notes = train(tmp_path, "total_env_steps=100")
    first, second, third = notes.batches[:3]
    assert first.valid.shape == (8, 2) and not torch.equal(first.obs[0], second.obs[0])
    assert torch.equal(third.obs[0], first.obs[-1])
    assert [report["rollout/policy_lag"] for report in notes.reports] == [0.0] * len(notes.reports)
    assert all(abs(report["train/approx_kl"]) < 1e-9 for report in notes.reports)
    assert policy.env_steps == sum(int(batch.valid.sum()) for batch in notes.batches) >= 100


def test_a_batch_joins_fragments_per_batch_fragments(tmp_path: Path) -> None:
    _, _, notes = train(tmp_path, "total_env_steps=150", "data.fragments_per_batch=3")
    assert {tuple(batch.valid.shape) for batch in notes.batches} == {(8, 6)}
    one, two = notes.batches[:2]
    assert torch.equal(two.obs[0, 2:4], one.obs[-1, 4:])  # 0 1 0, 1 0 1: worker 0 after its second turn


def test_data_async_feeds_algorithms_of_rollouts(tmp_path: Path) -> None:
    policy, _, _ = train(tmp_path, "total_env_steps=60", "policy=ppo", "data=async", "policy.minibatches=2")
    assert policy.gradient_steps > 0


def test_force_reset_succeeds_although_an_aggregator_has_died() -> None:
    dead = Mock()
    dead.submit.return_value.result.side_effect = EnvError("the process of a FragmentJoiner died")
    source = AsyncSource(order="fixed")
    source.joiners = [dead]
    RolloutDataModule(CARTPOLE, None, None, source).force_reset()


def one_after_the_other(workers: Any, policy: Any, fragments: Any) -> Iterator[Any]:
    while True:
        while fragments.wants_more:
            fragments.receive()
        yield from fragments.next_batch()


def test_a_user_s_plan_gives_the_batches(tmp_path: Path) -> None:
    plans = [[], [f"data.plan={__name__}:one_after_the_other"]]
    (one, *_), (other, *_) = (train(tmp_path / str(len(plan)), "total_env_steps=150", *plan) for plan in plans)
    assert_equal_runs(one, other)


# -- joining and replay -----------------------------------------------------------------------------------------------
def test_without_replay_fragments_are_side_by_side_and_shorter_ones_are_padded() -> None:
    batch = FragmentJoiner().join(0, [fragment(1)], [fragment(2, length=6), fragment(3)]).torch()
    assert batch.rewards[0].tolist() == [1.0, 2.0, 3.0] and "replayed" not in batch
    assert batch.valid.sum(0).tolist() == [4, 6, 4]


@pytest.mark.parametrize("proportion", [0.25, 0.5, 1.0, 2.5])
def test_the_latest_fragments_are_replayed_in_proportion(proportion: float) -> None:
    """The very first fragment has none before it; after that 99 × p are replayed, each at most 5 new ones old."""
    joiner, replays = FragmentJoiner(proportion, replay_slots=5), 0
    for number in range(100):
        batch = joiner.join(number, [fragment(number)]).torch()
        numbers, replayed = batch.rewards[0].tolist(), batch.replayed.all(0).tolist()
        assert numbers[0] == number and not replayed[0] and all(replayed[1:])
        assert all(number - 5 <= old < number for old in numbers[1:])
        replays += len(numbers) - 1
    assert replays == int(99 * proportion)


def test_replayed_fragments_depend_on_the_seed_alone() -> None:
    drawn = []
    for seed in (1, 1, 2):
        joiner = FragmentJoiner(2.0, replay_slots=50)
        drawn.append([joiner.join(seed + 10 * n, [fragment(n)]).torch().rewards[0].tolist() for n in range(30)])
    assert drawn[0] == drawn[1] != drawn[2]


def test_a_run_with_replay_counts_new_steps_only(tmp_path: Path) -> None:
    policy, _, notes = train(tmp_path, "total_env_steps=200", "data.replay_proportion=1.0")
    new = [int((batch.valid & ~batch.replayed).sum()) for batch in notes.batches]
    assert policy.env_steps == sum(new) < sum(int(batch.valid.sum()) for batch in notes.batches)
    assert notes.batches[-1].valid.shape == (8, 4)


# -- requests, with workers of given speed ----------------------------------------------------------------------------
def learn(workers: Virtual, batches: int, learning: float = 1.0, **keywords: Any) -> tuple[AsyncSource, list[int]]:
    """Learn from `batches` batches, each of which adds `learning` to the clock; gives the policy lag of each."""
    policy = IMPALA(*CARTPOLE.spaces(), model={"fcnet_hiddens": [4]})
    source = AsyncSource(**keywords)
    RolloutDataModule(CARTPOLE, {"num_workers": 2}, None, source).workers = workers
    source.policy = policy
    most = source.max_outstanding_mb * 2**20
    limits: dict[str, Any] = {"max_bytes": most, "in_order": source.order == "fixed", "nbytes": workers.nbytes}
    source.inflight = InflightRequests(source.requests_per_worker, **limits)
    source.joiners = [LocalObject(FragmentJoiner, {})]
    ages: list[int] = []
    for _ in batches_as_they_come(workers, policy, source):
        ages.append(source.policy_lag)
        source.policy_lag = 0
        workers.clock += learning
        policy.gradient_steps += 1
        if len(ages) == batches:
            return source, ages
    raise AssertionError("the plan ended")


def test_the_learner_goes_on_while_a_slow_worker_acts_unless_the_order_is_fixed() -> None:
    """A thousand times as slow as the other one: 50 batches of the fast one take what learning takes."""
    workers = Virtual(1.0, 1000.0)
    learn(workers, 50)
    assert workers.received == [50, 0] and workers.clock < 55
    workers = Virtual(1.0, 100.0)
    learn(workers, 10, order="fixed")
    assert workers.received == [5, 5] and workers.clock >= 500


@pytest.mark.parametrize("limit", [1, 2, 4])
def test_workers_act_while_the_policy_learns(limit: int) -> None:
    """Policy lag is the number of requests in flight. Acting and learning take 1 each: together about 1 a batch."""
    workers = Virtual(1.0)
    _, ages = learn(workers, 50, requests_per_worker=limit)
    assert workers.clock < 52 and ages == [*range(limit), *[limit] * (50 - limit)]


def test_requests_are_sent_with_the_newest_weights_and_weights_are_stored_once() -> None:
    workers = Virtual(1.0, 1.0, 1.0)
    source, _ = learn(workers, 20)
    assert workers.syncs == 20  # no request has the weights of the last gradient step yet
    source.submit_samples()
    assert workers.syncs == 21 and workers.weights == 20


@pytest.mark.parametrize("limit", [1, 3, 7, 70])
def test_no_batch_is_staler_than_max_policy_lag_and_dropped_steps_are_counted(limit: int) -> None:
    """Process 1 needs 30 gradient steps for a fragment: too old for all limits but the last; the learner goes on."""
    workers = Virtual(1.0, 30.0)
    source, ages = learn(workers, 100, max_policy_lag=limit)
    assert 0 < max(ages) <= limit and source.dropped == 8 * (sum(workers.received) - 100)
    assert workers.received[1] >= 2 and workers.received[0] >= 97 - 30 * (limit == 70)
    assert (max(ages) > 20) == (source.dropped == 0) == (limit == 70)


@pytest.mark.parametrize("room", [1, 3, 5])
def test_bytes_in_flight_are_bounded_and_every_worker_gets_its_turn(room: int) -> None:
    """Eight processes, two requests each, fragments of 1 MiB."""
    workers = Virtual(*[1.0] * 8, nbytes=2**20)
    source, _ = learn(workers, 200, max_outstanding_mb=float(room))
    assert workers.most == room and min(workers.received) >= 24
    source.submit_samples()
    assert workers.inflight_samples == room


def test_waiting_fragments_count_against_the_bytes_in_flight() -> None:
    """Room for 6; four wait for the fifth that makes a batch: two more may be in flight, then the last one."""
    workers = Virtual(*[1.0] * 8, nbytes=2**20)
    source, _ = learn(workers, 4, max_outstanding_mb=6.0, fragments_per_batch=5, requests_per_worker=1)
    source._discard_batches()
    while len(source._group) < 4:
        source.receive()
    source.submit_samples()
    assert workers.inflight_samples == 2


def test_one_request_is_allowed_whatever_its_size() -> None:
    workers = Virtual(1.0, 1.0, nbytes=2**30)
    _, ages = learn(workers, 10, max_outstanding_mb=1.0, fragments_per_batch=3)
    assert len(ages) == 10


def test_aggregators_join_the_next_batch_while_the_policy_learns() -> None:
    """Acting takes 1, learning 5: the next batches are there when the learner comes back."""
    workers = Virtual(1.0, 1.0)
    source, ages = learn(workers, 30, learning=5.0, num_aggregators=2)
    assert workers.clock <= 30 * 5.0 + 1.0
    assert 1 <= len(source._pending) <= 2 and max(ages) <= 6  # four samples are in flight, two batches wait


def test_the_size_of_fragments_is_estimated_from_the_spaces_and_then_measured(tmp_path: Path) -> None:
    _, datamodule, notes = train(tmp_path, "total_env_steps=100", "workers.fragment_length=64")
    assert datamodule.source.inflight.nbytes == notes.batches[0].nbytes
    assert 0.6 < datamodule.source._expected_bytes() / notes.batches[0].nbytes < 1.0


@pytest.mark.parametrize("size", [0.5, 3.0])
def test_the_first_fragment_corrects_the_estimated_size(size: float) -> None:
    requests, workers = InflightRequests(1, nbytes=1e6), Virtual(1.0, nbytes=int(size * 1e6))
    requests.submit(workers, IMPALA(*CARTPOLE.spaces()))
    assert requests.inflight_bytes(workers) == 1e6
    requests.next_sample(workers)
    assert requests.nbytes == size * 1e6


def test_bytes_in_flight_and_dropped_steps_are_reported() -> None:
    source, _ = learn(Virtual(1.0, 30.0, nbytes=2**20), 40, max_policy_lag=3)
    metrics = source.pop_metrics()
    assert metrics["rollout/dropped_steps"] == source.dropped > 0
    assert metrics["rollout/outstanding_mb"] == pytest.approx(4.0)


# -- processes --------------------------------------------------------------------------------------------------------
@pytest.mark.ray(own_session=True)
@pytest.mark.parametrize("aggregators", [pytest.param(0, marks=pytest.mark.slow), 2])
def test_processes_act_while_the_policy_learns_and_end_with_the_run(tmp_path: Path, aggregators: int) -> None:
    import ray

    overrides = ["workers.num_workers=2", f"data.num_aggregators={aggregators}", "data.fragments_per_batch=2"]
    policy, datamodule, notes = train(tmp_path, "total_env_steps=800", "data.max_policy_lag=8", *overrides)
    assert not ray.is_initialized() and datamodule.workers is None and not datamodule.source.joiners
    assert policy.env_steps == sum(int(batch.valid.sum()) for batch in notes.batches)
    ages = [report["rollout/policy_lag"] for report in notes.reports]
    assert 1 <= max(ages) <= 8 and notes.reports[-1]["rollout/episodes"] > 0  # a slow process's weights grow old
    assert {batch.valid.shape for batch in notes.batches} == {(8, 4)}


@pytest.mark.ray
def test_the_learner_goes_on_while_a_worker_hangs(tmp_path: Path) -> None:
    """One of two hangs in its tenth step and answers nothing; the run ends all the same, with the other one's steps."""
    crash = f"env.kwargs={{how: hang, at: 10, once: '{tmp_path / 'hangs'}'}}"
    overrides = ["env.id=tests.rollouts.crashing:CrashingCartPole", crash, "env.check=false", "workers.num_workers=2"]
    overrides += ["env=custom", "workers.vectorization=sync"]
    policy, _, _ = train(tmp_path / "run", "total_env_steps=400", *overrides)
    assert policy.env_steps >= 400 and (tmp_path / "hangs").exists()


# -- equal runs --------------------------------------------------------------------------------------
@pytest.mark.ray
@pytest.mark.parametrize(
    "overrides", [pytest.param([], marks=pytest.mark.slow), ["data.num_aggregators=1", "data.replay_proportion=0.5"]]
)
def test_in_fixed_order_two_runs_of_one_seed_are_equal(tmp_path: Path, overrides: list[str]) -> None:
    """Three logical workers in two processes, so that these are not equally fast."""
    several = ["workers.num_workers=2", "workers.logical_workers=3", "data.order=fixed", "data.fragments_per_batch=3"]
    runs = [train(tmp_path / str(number), "total_env_steps=600", *several, *overrides) for number in range(2)]
    assert_equal_runs(runs[0][0], runs[1][0])
    ages = [[report["rollout/policy_lag"] for report in notes.reports] for _, _, notes in runs]
    assert ages[0] == ages[1] and max(ages[0]) >= 1
