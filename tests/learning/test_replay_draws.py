"""One iteration on draws from a replay buffer: counters, hooks, modes, random numbers and priorities."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from lightning_rl.policies import DQN, Policy
from lightning_rl.rollouts import RolloutWorker
from lightning_rl.sample_batch import SampleBatch
from tests.envs.classic_control import CARTPOLE


class RecordingDQN(DQN):
    """Records mode, log_extra, a random and a denormal number in each loss, and the metrics of iterations."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.modes: list[bool] = []
        self.log_extras: list[bool] = []
        self.drawn: list[float] = []
        self.smallest: list[float] = []
        self.means: list[dict[str, float]] = []

    def loss(self, batch: SampleBatch) -> Any:
        self.modes.append(self.training)
        self.log_extras.append(self.log_extra)
        self.drawn.append(float(torch.rand(())))
        self.smallest.append(float(torch.tensor(1e-40) * 1.0))
        return super().loss(batch)

    def after_iteration(self, metrics: dict[str, float]) -> None:
        self.means.append(dict(metrics))
        super().after_iteration(metrics)


class Draws:
    """Pairs of rows and gradient steps; the policy acts before each. Records the calls of update_priorities."""

    def __init__(self, policy: Policy, *pairs: tuple[SampleBatch, int]) -> None:
        self.policy, self.pairs = policy, pairs
        self.reported: list[SampleBatch] = []

    def __iter__(self) -> Any:
        for pair in self.pairs:
            self.policy.eval()
            yield pair

    def update_priorities(self, batch: SampleBatch) -> None:
        self.reported.append(batch)


def policy_and_rows(**keywords: Any) -> tuple[RecordingDQN, SampleBatch]:
    policy = RecordingDQN(*CARTPOLE.spaces(), seed=1, **keywords)
    fragment = RolloutWorker(CARTPOLE, policy, num_envs=2, fragment_length=20, seed=1).sample()
    rows = policy.postprocess_trajectory(fragment)
    return policy, rows[torch.arange(20)]


def test_an_iteration_on_draws_counts_one_iteration_and_calls_after_iteration_and_hooks_once() -> None:
    policy, rows = policy_and_rows()
    learned: list[dict[str, Any]] = []
    listener = SimpleNamespace(on_learn_on_batch=lambda **what: learned.append(what))
    policy._trainer = SimpleNamespace(callbacks=[listener], training=False)
    policy.training_step(Draws(policy, (rows, 1), (rows, 2)))
    assert (policy.iterations, policy.gradient_steps, len(policy.means), len(learned)) == (1, 3, 1, 1)
    assert policy.means[0] == policy.iteration_metrics and {"loss", "lr"} <= policy.iteration_metrics.keys()
    assert learned[0]["policy"] is policy and learned[0]["result"] is policy.iteration_metrics
    assert torch.equal(learned[0]["train_batch"].obs, rows.obs[10:])  # the second half of the last draw


def test_an_iteration_without_draws_learns_nothing_and_calls_no_hook() -> None:
    policy, _ = policy_and_rows()
    listener = SimpleNamespace(on_learn_on_batch=lambda **what: pytest.fail("there was no batch"))
    policy._trainer = SimpleNamespace(callbacks=[listener], training=False)
    policy.training_step(Draws(policy))
    assert (policy.iterations, policy.gradient_steps) == (1, 0)
    assert "loss" not in policy.means[0] and policy.means[0]["lr"] > 0


def test_learn_seconds_leaves_out_the_waits_for_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reading adds 1 to the clock: 7 seconds, of which 3 are waits for the next draw."""
    clock = SimpleNamespace(perf_counter=count(10.0).__next__)
    monkeypatch.setattr("lightning_rl.learning.learner.time", clock)
    policy, rows = policy_and_rows()
    for _ in range(2):
        policy.training_step(Draws(policy, (rows, 1), (rows, 1)))
        assert policy.learn_seconds == 4.0


def test_losses_of_draws_run_in_train_mode_after_acting_in_eval_mode() -> None:
    policy, rows = policy_and_rows()
    policy.training_step(Draws(policy, (rows, 2), (rows, 1)))
    assert policy.modes == [True] * 3


def test_log_extra_is_true_in_one_step_of_sixteen() -> None:
    """Steps 0 and 16 of 20; afterwards it is true again."""
    policy, rows = policy_and_rows()
    policy.training_step(Draws(policy, (rows, 10), (rows, 10)))
    assert [step for step, diagnosed in enumerate(policy.log_extras) if diagnosed] == [0, 16]
    assert len(policy.log_extras) == 20 and policy.log_extra


def test_random_numbers_in_losses_of_draws_follow_from_seed_and_iteration() -> None:
    drawn = []
    for process_seed in (1, 2):
        policy, rows = policy_and_rows()
        torch.manual_seed(process_seed)
        for _ in range(2):
            policy.training_step(Draws(policy, (rows, 1)))
        drawn.append(policy.drawn)
    assert drawn[0] == drawn[1] and drawn[0][0] != drawn[0][1]


def test_denormal_numbers_are_0_while_learning_from_draws() -> None:
    policy, rows = policy_and_rows()
    policy.training_step(Draws(policy, (rows, 1)))
    assert policy.smallest == [0.0] and float(torch.tensor(1e-40) * 1.0) > 0.0


@pytest.mark.parametrize("weighted", [False, True])
def test_update_priorities_is_called_for_rows_with_importance_weights_only(weighted: bool) -> None:
    policy, rows = policy_and_rows()
    if weighted:
        rows["weights"] = torch.ones(rows.count)
    draws = Draws(policy, (rows, 1), (rows, 1))
    policy.training_step(draws)
    assert len(draws.reported) == (2 if weighted else 0)
    assert all(batch["td_errors"].shape == (20,) for batch in draws.reported)
