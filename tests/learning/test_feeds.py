"""One iteration on draws from a replay buffer, and one on workers' gradients: counters, hooks, modes and priorities."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from lightning_rl.learning.gradients import GradientUpdates
from lightning_rl.policies import A3C, DQN, Policy
from lightning_rl.rollouts import RolloutWorker
from lightning_rl.sample_batch import SampleBatch
from tests.envs.classic_control import CARTPOLE
from tests.learning.recording import recording


class Draws:
    """Pairs of rows and gradient steps; the policy acts before each. Records the calls of update_priorities."""

    def __init__(self, policy: Policy, *pairs: tuple[SampleBatch, int]) -> None:
        self.policy, self.pairs = policy, pairs
        self.reported: list[Tensor] = []

    def __iter__(self) -> Any:
        for pair in self.pairs:
            self.policy.eval()
            yield pair

    def update_priorities(self, batch: SampleBatch, td_errors: Tensor) -> None:
        self.reported.append(td_errors)


def policy_and_fragment(kind: type[Policy]) -> tuple[Any, SampleBatch]:
    policy = recording(kind)(*CARTPOLE.spaces(), seed=1)
    return policy, RolloutWorker(CARTPOLE, policy, num_envs=2, fragment_length=20, seed=1).sample()


def policy_and_rows() -> tuple[Any, SampleBatch]:
    policy, fragment = policy_and_fragment(DQN)
    return policy, policy.postprocess_trajectory(fragment)[torch.arange(20)]


def on_draws() -> tuple[Any, Callable[..., Any]]:
    """A policy, and what takes the given gradient steps on draws of an iteration."""
    policy, rows = policy_and_rows()
    return policy, lambda *steps: policy.training_step(Draws(policy, *((rows, each) for each in steps)))


def on_gradients() -> tuple[Any, Callable[..., Any]]:
    """The same for gradient updates, each of which is one step."""
    policy, fragment = policy_and_fragment(A3C)
    update = policy.learner.gradient_update(fragment)
    policy.eval()
    return policy, lambda *steps: policy.learner.update(GradientUpdates((n, update, True) for n, _ in enumerate(steps)))


each_feed = pytest.mark.parametrize("feed", [on_draws, on_gradients])


@each_feed
def test_an_iteration_counts_once_and_calls_after_iteration_and_hooks_once(feed: Any) -> None:
    policy, iterate = feed()
    learned: list[dict[str, Any]] = []
    listener = SimpleNamespace(on_learn_on_batch=lambda **what: learned.append(what))
    policy._trainer = SimpleNamespace(callbacks=[listener], training=False)
    iterate(1, 1)
    assert (policy.iterations, policy.gradient_steps, len(policy.means), len(learned)) == (1, 2, 1, 1)
    assert policy.means[0] == policy.iteration_metrics and {"loss", "lr"} <= policy.means[0].keys()
    assert learned[0]["policy"] is policy and learned[0]["result"] is policy.iteration_metrics
    # The rows of gradients stay with the worker.
    assert learned[0]["train_batch"].columns == [] if feed is on_gradients else learned[0]["train_batch"].count == 20


def test_an_iteration_without_draws_learns_nothing_and_the_hook_gets_the_last_batch() -> None:
    policy, rows = policy_and_rows()
    learned: list[SampleBatch] = []
    listener = SimpleNamespace(on_learn_on_batch=lambda train_batch, **_: learned.append(train_batch))
    policy._trainer = SimpleNamespace(callbacks=[listener], training=False)
    policy.training_step(Draws(policy))
    assert (policy.iterations, policy.gradient_steps, learned) == (1, 0, [])
    assert "loss" not in policy.means[0] and policy.means[0]["lr"] > 0
    policy.training_step(Draws(policy, (rows, 1), (rows, 2)))
    assert torch.equal(learned[0].obs, rows.obs[10:])  # the second half of the last draw


@each_feed
def test_learn_seconds_leaves_out_the_waits(feed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reading adds 1 to the clock: 7 seconds, of which 3 are waits for the next draw or update."""
    monkeypatch.setattr("lightning_rl.learning.learner.time", SimpleNamespace(perf_counter=count(10.0).__next__))
    policy, iterate = feed()
    for _ in range(2):
        iterate(1, 1)
        assert policy.learn_seconds == 4.0


@each_feed
def test_steps_are_in_train_mode_with_denormals_as_0_and_draw_by_seed_and_iteration(feed: Any) -> None:
    drawn = []
    for process_seed in (1, 2):
        policy, iterate = feed()
        torch.manual_seed(process_seed)
        policy.losses.clear()
        for _ in range(2):
            iterate(1)
        notes = policy.losses + policy.steps
        assert {(note.training, note.smallest) for note in notes} == {(True, 0.0)} and len(policy.steps) == 2
        drawn.append([note.drawn for note in notes])
    assert drawn[0] == drawn[1] and len(set(drawn[0])) == len(drawn[0])
    assert float(torch.tensor(1e-40) * 1.0) > 0.0


def test_log_extra_is_true_in_one_step_of_sixteen() -> None:
    """Steps 0 and 16 of 20; afterwards it is true again."""
    policy, iterate = on_draws()
    iterate(10, 10)
    assert [step for step, note in enumerate(policy.losses) if note.log_extra] == [0, 16]
    assert len(policy.losses) == 20 and policy.log_extra


@pytest.mark.parametrize("weighted", [False, True])
def test_update_priorities_is_called_for_rows_with_importance_weights_only(weighted: bool) -> None:
    policy, rows = policy_and_rows()
    if weighted:
        rows["weights"] = torch.ones(rows.count)
    draws = Draws(policy, (rows, 1), (rows, 1))
    policy.training_step(draws)
    assert len(draws.reported) == (2 if weighted else 0)
    assert all(errors.shape == (20,) for errors in draws.reported)
