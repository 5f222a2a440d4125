"""Learner: the sweeps, minibatches, steps, metrics and hooks of one iteration."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from lightning_rl.data.population_source import PopulationSource
from lightning_rl.errors import ConfigError
from lightning_rl.exploration import StochasticSampling
from lightning_rl.learning.metrics import means
from lightning_rl.policies import DQN, IMPALA, PG, PPO, R2D2, SAC, Policy
from lightning_rl.rollouts import RolloutWorker
from lightning_rl.sample_batch import SampleBatch
from lightning_rl.seeding import derive_seed
from tests.envs.classic_control import CARTPOLE
from tests.policies.off_policy_algorithms import small_policy, transitions

SMALL: dict[str, Any] = {"model": {"fcnet_hiddens": [8]}, "seed": 1}


class Scripted(Policy):
    """Numbers its loss calls 0, 1, 2, …, stops learning at number `last`, and records the calls of its methods."""

    def __init__(self, *spaces: Any, passes: int = 1, minibatches: int = 1, last: int = 100, **keywords: Any) -> None:
        super().__init__(*spaces, **keywords)
        self.passes, self.minibatches, self.last = passes, minibatches, last
        self.calls: list[Any] = []
        self.diagnosed: list[bool] = []

    def postprocess_trajectory(self, batch: SampleBatch, other_agent_batches: Any = None) -> SampleBatch:
        assert not torch.is_grad_enabled()
        return super().postprocess_trajectory(batch)

    def loss(self, batch: SampleBatch) -> tuple[Tensor, dict[str, Tensor]]:
        assert torch.is_grad_enabled()
        number = sum(isinstance(note, int) for note in self.calls)
        self.calls.append(number)
        self.diagnosed.append(self.log_extra)
        loss = torch.stack([p.square().sum() for p in self.model.parameters()]).sum()
        tiny = torch.full((), 1e-40) * 1.0
        return loss, {"number": torch.tensor(float(number)), "tiny": (tiny != 0).float()}

    def keep_learning(self, metrics: dict[str, Tensor]) -> bool:
        return metrics["number"] < self.last

    def before_next_sweep(self, rows: SampleBatch, fragment: SampleBatch) -> None:
        assert rows.count == 16 and fragment.valid.shape == (8, 2)
        self.calls.append("next sweep")


def scripted(**keywords: Any) -> Any:
    return Scripted(*CARTPOLE.spaces(), **SMALL, **keywords)


def fragment_of(policy: Policy, length: int = 8) -> SampleBatch:
    return RolloutWorker(CARTPOLE, policy, num_envs=2, fragment_length=length, seed=2).sample()


# -- sweeps and minibatches -------------------------------------------------------------------------------------------
def test_before_next_sweep_is_called_before_each_sweep_but_the_first_and_log_extra_is_true_at_both_ends() -> None:
    """In the first step and in the last sweep. Rows without a fragment have no sweep to prepare."""
    policy = scripted(passes=3, minibatches=2)
    fragment, started = fragment_of(policy), time.perf_counter()
    assert policy.learn_on_batch(fragment)["tiny"] == 0.0  # denormal numbers are 0 while learning
    assert 0.0 < policy.learn_seconds < time.perf_counter() - started
    assert float(torch.full((), 1e-40) * 1.0) > 0.0
    assert policy.calls == [0, 1, "next sweep", 2, 3, "next sweep", 4, 5]
    assert policy.diagnosed == [True, False, False, False, True, True]
    policy.calls.clear()
    policy.learn_on_batch(policy.learner.rows_of(fragment))
    assert policy.calls == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(("last", "steps", "mean"), [(0, 0, 0.0), (1, 1, 0.0), (3, 3, 1.0), (6, 6, 2.5)])
def test_metrics_are_means_over_the_steps_taken_before_keep_learning_is_false(
    last: int, steps: int, mean: float
) -> None:
    """The mean of 0 … `last` − 1; without any step, the metrics that stopped the first."""
    policy = scripted(passes=3, minibatches=2, last=last)
    metrics = policy.learn_on_batch(fragment_of(policy))
    assert (policy.gradient_steps, metrics["number"]) == (steps, mean)


@pytest.mark.parametrize(("minibatches", "late"), [(1, 10.0), (2, 9.0)])
def test_means_of_metrics_that_not_every_step_reports_are_over_the_last_sweep(minibatches: int, late: float) -> None:
    """Three steps: "late" is 8 in the second and 10 in the third, "early" is 7 in the first."""
    steps = [
        {"loss": 1.0, "approx_kl": 0.5, "early": 7.0},
        {"loss": 3.0, "approx_kl": 1.0, "late": 8.0},
        {"loss": 8.0, "approx_kl": 3.0, "late": 10.0},
    ]
    found = means([{name: torch.tensor(value) for name, value in step.items()} for step in steps], minibatches)
    assert found == {"loss": 4.0, "approx_kl": 1.5, "first_kl": 0.5, "early": 7.0, "late": late}


@pytest.mark.parametrize("number", ["high", [1.0, 2.0], torch.ones(3)])
def test_a_metric_of_a_loss_that_is_no_number_is_named(number: Any) -> None:
    class Odd(PPO):
        def loss(self, batch: SampleBatch) -> Any:
            loss, metrics = super().loss(batch)
            return loss, {**metrics, "odd": number, "plain": 0.5}

    policy = Odd(*CARTPOLE.spaces())
    with pytest.raises(ValueError, match="metric 'odd'"):
        policy.learn_on_batch(RolloutWorker(CARTPOLE, policy, fragment_length=8).sample())


@pytest.mark.parametrize(("rows_here", "rows_there", "count"), [(200, 184, 3), (5, 1000, 2), (1, 1000, 1)])
def test_minibatch_count_is_equal_on_all_ranks_with_two_rows_or_more_per_minibatch(
    rows_here: int, rows_there: int, count: int, monkeypatch: Any
) -> None:
    """Two ranks: a mean of 192 rows makes 3 minibatches; 5 rows here allow 2 of two rows or more, 1 row allows 1."""
    monkeypatch.setattr(
        "lightning_rl.learning.learner.all_gather_objects", lambda here: [here, (rows_there, rows_there // 2)]
    )
    policy = scripted()
    policy.minibatches = None
    assert policy.learner.minibatch_count(SampleBatch(rewards=torch.zeros(rows_here))) == count


def test_minibatch_count_of_null_gives_miniprepare_about_64_rows_and_no_more_than_there_are_sequences() -> None:
    null, three = (PPO(*CARTPOLE.spaces(), minibatches=count).learner for count in (None, 3))
    for count, steps in ((1, 1), (2, 1), (64, 1), (100, 2), (256, 4), (1024, 16), (4160, 65)):
        rows = SampleBatch(rewards=torch.zeros(count))
        assert (null.minibatch_count(rows), three.minibatch_count(rows)) == (steps, 3)
    assert null.minibatch_count(SampleBatch(rewards=torch.zeros(400), seq_lens=torch.full((4,), 100))) == 4


def test_prepare_cuts_a_draw_into_consecutive_parts_one_per_step() -> None:
    policy, drawn = scripted(), transitions(count=6)
    assert [part.rewards.tolist() for part in policy.prepare(drawn, 2)] == drawn.rewards.view(2, 3).tolist()
    assert [part.rewards.tolist() for part in policy.prepare(drawn, 3)] == drawn.rewards.view(3, 2).tolist()
    (whole,) = policy.prepare(drawn, 1)
    assert whole is drawn


def test_a_policy_without_class_attributes_learns_from_rollouts() -> None:
    policy = scripted()
    found = policy.learner.rows_of(fragment_of(policy))
    assert found.count == 16 and not {"next_obs", "discounts"} & set(found)
    with pytest.raises(ConfigError, match="data=on_policy"):
        PopulationSource(directions=4).prepare(policy)


def test_learn_on_batch_calls_every_callback_s_hooks_with_the_rows_then_with_the_result() -> None:
    policy, seen = scripted(passes=2), list[Any]()
    hooks = SimpleNamespace(
        on_postprocess_trajectory=lambda policy, **batches: seen.append(batches),
        on_learn_on_batch=lambda policy, **what: seen.append(what),
    )
    fragment = fragment_of(policy)
    policy._trainer = SimpleNamespace(callbacks=[hooks, object(), hooks], training=False)
    metrics = policy.learn_on_batch(fragment)
    policy._trainer = None
    names = ["postprocessed_batch", "original_batch"], ["train_batch", "result"]
    assert [[*arguments] for arguments in seen] == [names[0], names[0], names[1], names[1]]
    for batches, what in zip(seen[:2], seen[2:], strict=True):
        assert batches["original_batch"] is fragment and what["result"] is metrics
        assert batches["postprocessed_batch"] is what["train_batch"] and what["train_batch"].count == 16


def test_the_learner_s_seed_follows_the_rank_inside_a_fit_only() -> None:
    policy, trainer = scripted(), SimpleNamespace(callbacks=[], training=False, global_rank=3)
    alone = policy.learner.enter_training().initial_seed()
    assert alone == derive_seed(1, "learner", 0, 0)
    policy._trainer = trainer
    assert not policy.in_trainer and policy.learner.enter_training().initial_seed() == alone
    trainer.training = True
    assert policy.in_trainer and policy.learner.enter_training().initial_seed() == derive_seed(1, "learner", 0, 3)


def test_rows_of_scales_rewards_of_buffer_rows_for_off_policy_algorithms_only() -> None:
    for policy_class, scaled in ((PPO, False), (DQN, True)):
        policy: Any = policy_class(*CARTPOLE.spaces(), **SMALL, reward_filter="return_std")
        policy.reward_filter.normalizer.moments.update(torch.tensor([[0.0], [20.0]]))
        batch = transitions(count=4, rewards=torch.ones(4), batch_indexes=torch.arange(4))
        assert policy.learner.rows_of(batch).rewards.tolist() == pytest.approx([0.1 if scaled else 1.0] * 4)


# -- the loss of a step -----------------------------------------------------------------------------------------------
def test_total_loss_sums_the_losses_of_the_algorithm_the_model_and_the_exploration() -> None:
    """The model adds 2 and 4 times the algorithm's loss, the exploration adds 5."""
    policy, batch = scripted(), transitions(count=4)
    plain = policy.learner.total_loss(batch)[0].detach()
    policy.model.custom_loss = lambda loss, batch: [loss, 2.0 * loss, 4.0 * loss]
    policy.exploration.loss = lambda policy, batch: (torch.tensor(5.0), {"size": torch.tensor(3.0)})
    loss, metrics = policy.learner.total_loss(batch)
    assert_close(loss.detach(), 7.0 * plain + 5.0)
    assert metrics["loss"] is loss and metrics["exploration/size"] == 3.0
    assert not any(value.requires_grad for value in policy.learner.step(batch)[0].values())


def test_initial_priorities_depend_on_neither_dropout_nor_the_global_generator() -> None:
    policy, found = small_policy("sac", critic_dropout=0.5), []
    for seed, training in ((1, True), (2, True), (3, False)):
        policy.train(training)
        torch.manual_seed(seed)
        found.append(policy.learner.initial_priorities(transitions("sac")))
        assert policy.training is training
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])


# -- how it is computed -----------------------------------------------------------------------------------------------
class WeightAsReward(StochasticSampling):
    """Adds the model's first weight, with its gradient, to the rewards."""

    def postprocess_trajectory(self, policy: Any, batch: SampleBatch) -> SampleBatch:
        weight = next(policy.model.parameters()).flatten()[0]
        return SampleBatch(dict(batch.items()), rewards=batch.rewards + weight)


def test_rows_of_gives_rows_without_gradient() -> None:
    policy = scripted(exploration={"type": WeightAsReward})
    policy.learn_on_batch(fragment_of(policy))
    assert not policy.learner.rows_of(fragment_of(policy)).rewards.requires_grad


@pytest.mark.parametrize("policy_class", [PPO, IMPALA, PG, DQN, SAC, R2D2])
def test_postprocess_trajectory_changes_neither_the_fragment_nor_its_rewards(policy_class: type[Policy]) -> None:
    """Rewards are scaled and columns added in the rows only."""
    memory = {"use_lstm": True, "lstm_cell_size": 4} if policy_class in (PPO, PG, R2D2) else {}
    model = {"fcnet_hiddens": [8], **memory}
    policy = policy_class(*CARTPOLE.spaces(), model=model, seed=1, reward_filter="sign")
    fragment = fragment_of(policy)
    fragment["rewards"] = fragment.rewards * 5.0
    before = {name: column for name, column in fragment.items()}
    rewards = fragment.rewards.clone()
    found = policy.postprocess_trajectory(fragment)
    assert set(found) > set(before) - {"valid"}
    assert dict(fragment.items()) == before and torch.equal(fragment.rewards, rewards)
