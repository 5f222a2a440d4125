"""One iteration on draws from a replay buffer: counters, hooks, modes and priorities."""

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
from tests.learning.recording import recording


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


def policy_and_rows() -> tuple[Any, SampleBatch]:
    policy = recording(DQN)(*CARTPOLE.spaces(), seed=1)
    fragment = RolloutWorker(CARTPOLE, policy, num_envs=2, fragment_length=20, seed=1).sample()
    return policy, policy.postprocess_trajectory(fragment)[torch.arange(20)]


def test_an_iteration_on_draws_counts_one_iteration_and_calls_after_iteration_and_hooks_once() -> None:
    """Without draws it learns nothing and calls no hook."""
    policy, rows = policy_and_rows()
    learned: list[dict[str, Any]] = []
    listener = SimpleNamespace(on_learn_on_batch=lambda **what: learned.append(what))
    policy._trainer = SimpleNamespace(callbacks=[listener], training=False)
    policy.training_step(Draws(policy))
    assert (policy.iterations, policy.gradient_steps, learned) == (1, 0, [])
    assert "loss" not in policy.means[0] and policy.means[0]["lr"] > 0
    policy.training_step(Draws(policy, (rows, 1), (rows, 2)))
    assert (policy.iterations, policy.gradient_steps, len(policy.means), len(learned)) == (2, 3, 2, 1)
    assert policy.means[1] == policy.iteration_metrics and {"loss", "lr"} <= policy.iteration_metrics.keys()
    assert learned[0]["policy"] is policy and learned[0]["result"] is policy.iteration_metrics
    assert torch.equal(learned[0]["train_batch"].obs, rows.obs[10:])  # the second half of the last draw


def test_losses_of_draws_are_in_train_mode_with_denormals_as_0_and_log_extra_in_one_step_of_sixteen() -> None:
    """The policy acts in eval mode before each draw; log_extra is true in steps 0 and 16 of 20, and afterwards."""
    policy, rows = policy_and_rows()
    policy.training_step(Draws(policy, (rows, 10), (rows, 10)))
    assert [(note.training, note.smallest) for note in policy.losses] == [(True, 0.0)] * 20
    assert [step for step, note in enumerate(policy.losses) if note.log_extra] == [0, 16] and policy.log_extra
    assert float(torch.tensor(1e-40) * 1.0) > 0.0


def test_learn_seconds_leaves_out_the_waits_for_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reading adds 1 to the clock: 7 seconds, of which 3 are waits for the next draw."""
    monkeypatch.setattr("lightning_rl.learning.learner.time", SimpleNamespace(perf_counter=count(10.0).__next__))
    policy, rows = policy_and_rows()
    for _ in range(2):
        policy.training_step(Draws(policy, (rows, 1), (rows, 1)))
        assert policy.learn_seconds == 4.0


@pytest.mark.parametrize("weighted", [False, True])
def test_update_priorities_is_called_for_rows_with_importance_weights_only(weighted: bool) -> None:
    policy, rows = policy_and_rows()
    if weighted:
        rows["weights"] = torch.ones(rows.count)
    draws = Draws(policy, (rows, 1), (rows, 1))
    policy.training_step(draws)
    assert len(draws.reported) == (2 if weighted else 0)
    assert all(batch["td_errors"].shape == (20,) for batch in draws.reported)
