"""GradientSource (A3C): which weights workers get, and what happens to late gradients."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from lightning_rl.data.datamodule import RolloutDataModule
from lightning_rl.data.gradient_source import GradientSource
from lightning_rl.data.plans import async_gradients
from lightning_rl.errors import NonFiniteError
from lightning_rl.policies import A2C
from lightning_rl.rollouts.worker_results import WorkerResult
from tests.data.small_runs import fit
from tests.families import each
from tests.run_comparison import assert_equal_weights

WORKERS = ["workers.logical_workers=2", "workers.envs_per_worker=2", "workers.fragment_length=8"]
LSTM = ["model=lstm", "model.lstm_cell_size=8"]
FILTERED = ["policy.observation_filter=mean_std", "policy.reward_filter=clip", "policy.lr=[[0,1e-2],[400,0.0]]"]
SCALED = [*FILTERED, "policy.reward_filter=return_std"]  # that each process has one worker for
VARIANTS: dict[str, list[str]] = {"plain": [], "statistics": SCALED, "lstm": LSTM}
ENV = {"id": "CartPole-v1"}


def train(run_dir: Path, *overrides: str, resume: bool = False) -> Any:
    """The policy of a finished run, whose learning rate is the same however long the run is."""
    return fit(run_dir, "policy=a3c", "policy.lr=1e-3", *WORKERS, *overrides, resume=resume)[0]


@pytest.mark.parametrize("name", each(VARIANTS, default=["plain"]))
def test_one_worker_in_this_process_learns_as_a2c_does(tmp_path: Path, name: str) -> None:
    """Same fragments, same gradients, same steps: the same weights, bit for bit."""
    same = [*VARIANTS[name], "workers.logical_workers=1", "total_env_steps=300", "policy.entropy_coef=0.01"]
    first = train(tmp_path / "a3c", "data.gradients_per_iteration=1", *same)
    second = train(tmp_path / "a2c", "policy=a2c", *same)
    assert first.gradient_steps == second.gradient_steps > 5 and first.env_steps == second.env_steps
    assert_equal_weights(first, second)


def test_workers_in_this_process_take_turns_with_the_newest_weights(tmp_path: Path) -> None:
    policy = train(tmp_path, "workers.logical_workers=3", "total_env_steps=300")
    assert policy.reported["rollout/policy_lag"] == 0 and policy.reported["rollout/dropped"] == 0
    assert policy.gradient_steps == policy.lightning_steps == 10 * policy.iterations
    assert policy.reported["train/grad_norm"] > 0 and policy.reported["time/collect_s"] > 0


class Broken(A2C):
    """Its loss is NaN where worker 1 acted."""

    def loss(self, batch: Any) -> Any:
        loss, metrics = super().loss(batch)
        return (loss * torch.nan if self.exploration.actor.worker_index == 1 else loss), metrics


@pytest.mark.parametrize("processes", [0, pytest.param(2, marks=pytest.mark.ray)])
def test_a_loss_that_is_not_finite_names_its_worker(tmp_path: Path, processes: int) -> None:
    broken = [f"policy._target_={__name__}:Broken", "data=gradients", "total_env_steps=300"]
    with pytest.raises(NonFiniteError, match="worker 1 "):
        train(tmp_path, *broken, f"workers.num_workers={processes}")


# -- policy lag, with workers of given speed --------------------------------------------------------------------------
class Scripted:
    """Three workers that answer in a given order; records the weights that each call was sent with."""

    def __init__(self, order: list[int]) -> None:
        self.order, self.requests = list(order), dict[int, int]()
        self.sent: list[tuple[int, int]] = []  # worker, gradient steps of the weights

    @property
    def idle_workers(self) -> list[int]:
        return [index for index in range(3) if index not in self.requests]

    def sync_weights(self, policy: Any) -> None:
        self.weights = policy.gradient_steps

    def submit(self, worker_index: int, fn: Callable[[Any], Any]) -> None:
        self.sent.append((worker_index, self.weights))
        self.requests[worker_index] = self.weights

    def next_result(self) -> WorkerResult:
        index = self.order.pop(0)
        return WorkerResult(index, "contribution", self.requests.pop(index))


def learn(order: list[int], **keywords: Any) -> tuple[Scripted, GradientSource, list[tuple[int, bool]]]:
    """The workers, the source, and (worker index, whether it counted) of each gradient."""
    source, workers = GradientSource(**keywords), Scripted(order)
    RolloutDataModule(ENV, {"logical_workers": 3}, None, source)
    source.policy = policy = SimpleNamespace(gradient_steps=0, policies_to_train=())
    came, answers = [], async_gradients(workers, policy)
    for _ in range(len(order)):
        index, _, fresh = source.check_policy_lag(next(answers))
        policy.gradient_steps += fresh
        came.append((index, fresh))
    return workers, source, came


def test_new_weights_are_sent_to_the_worker_that_gave_the_gradient() -> None:
    workers, source, _ = learn([1, 1, 0, 2])
    assert workers.sent == [(0, 0), (1, 0), (2, 0), (1, 1), (1, 2), (0, 3)]
    assert source.policy_lag == 3  # worker 2's gradient comes after three others, from the first weights


@pytest.mark.parametrize(("limit", "counted"), [(3, [True] * 4), (2, [True, True, True, False]), (None, [True] * 4)])
def test_a_gradient_from_older_weights_than_allowed_is_dropped_and_counted(limit: Any, counted: list[bool]) -> None:
    """Worker 2 is three gradient steps behind at its turn; then it gets new weights like any other."""
    _, source, came = learn([1, 1, 0, 2], max_policy_lag=limit)
    assert [fresh for _, fresh in came] == counted and source.dropped == counted.count(False)
    assert source.state_dict()["dropped"] == source.dropped
    assert source._most_stale == (12 if limit is None else limit)


# -- processes --------------------------------------------------------------------------------------------------------
@pytest.mark.ray(own_session=True)
@pytest.mark.parametrize("more", [[], pytest.param(LSTM, marks=pytest.mark.slow)], ids=["plain", "lstm"])
def test_processes_compute_gradients_and_a_run_resumes_from_its_checkpoint(tmp_path: Path, more: list[str]) -> None:
    import ray

    overrides = [*more, *FILTERED, "workers.num_workers=2", "workers.logical_workers=3"]
    policy = train(tmp_path, "total_env_steps=400", *overrides)
    assert not ray.is_initialized()
    assert int(policy.observation_filter.moments.count) == policy.env_steps >= 400
    assert policy.reported["rollout/policy_lag"] >= 1 and policy.reported["rollout/episodes"] > 5
    assert policy.reported["rollout/policy_lag"] <= 12 or policy.reported["rollout/dropped"] > 0  # of older weights
    taken = 10 * policy.iterations - policy.reported["rollout/dropped"]
    assert policy.gradient_steps == policy.lightning_steps == taken
    again = train(tmp_path, "total_env_steps=600", *overrides, resume=True)
    assert again.gradient_steps > policy.gradient_steps and again.env_steps >= 600
    assert int(again.observation_filter.moments.count) == again.env_steps


@pytest.mark.ray
def test_one_process_with_one_worker_learns_synchronously(tmp_path: Path) -> None:
    """A single worker waits for the step with its gradient, so both runs learn the same."""
    one = ["workers.logical_workers=1", "total_env_steps=300", *SCALED]
    here, there = train(tmp_path / "here", *one), train(tmp_path / "there", *one, "workers.num_workers=1")
    assert there.reported["rollout/policy_lag"] == 0
    assert_equal_weights(here, there)
