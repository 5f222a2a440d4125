"""Gradient updates that workers compute and the learner applies, and microbatches."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import pytest
import torch

from lightning_rl import ScratchPolicy, build_policy
from lightning_rl.errors import ConfigError, NonFiniteError
from lightning_rl.learning.gradients import GradientUpdate, GradientUpdates
from lightning_rl.models.filters import RunningMoments
from lightning_rl.models.fully_connected import FullyConnectedNetwork
from lightning_rl.policies import A2C, A3C, APPO, Policy
from lightning_rl.rollouts import RolloutWorker
from lightning_rl.sample_batch import SampleBatch
from tests.envs.classic_control import CARTPOLE
from tests.learning.recording import recording
from tests.run_comparison import assert_equal

SCALED: dict[str, Any] = {"observation_filter": "mean_std", "reward_filter": "return_std", "lr": [[0, 1e-2], [200, 0]]}
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "statistics and a schedule": SCALED,
    "lstm": {"model": {"use_lstm": True, "lstm_cell_size": 8, "max_seq_len": 7}},
    "batch norm": {"model": {"custom_model": "docs.examples.batch_norm:BatchNormNet"}},
    "intrinsic rewards": {"exploration": {"type": "rnd"}},
    "microbatches": {"microbatches": 3},
}


def small_policy(kind: type[Policy] = A3C, **keywords: Any) -> Policy:
    return kind(*CARTPOLE.spaces(), seed=1, optimizer="adam", **keywords)


def fragments(policy: Policy, count: int = 2) -> Any:
    worker = RolloutWorker(CARTPOLE, policy, num_envs=3, fragment_length=16, seed=1)
    for _ in range(count):
        yield worker.sample()


def copy_state(policy: Policy) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in policy.state_dict().items()}


@pytest.mark.parametrize("case", CASES)
def test_learning_from_an_own_gradient_update_equals_learn_on_batch(case: str) -> None:
    """Equal weights, statistics and counters after two fragments; updates are pickled as workers send them."""
    here, there = small_policy(**CASES[case]), small_policy(**CASES[case])
    for fragment in fragments(here):
        here.learn_on_batch(fragment)
        sent = pickle.loads(pickle.dumps(there.learner.gradient_update(fragment)))
        there.learner.update(GradientUpdates([(0, sent, True)]))
    first, second = copy_state(here), copy_state(there)
    for name, value in first.items():
        torch.testing.assert_close(second[name], value, rtol=1e-5, atol=1e-7, msg=f"{name}: {second[name]}, {value}")
    assert (here.env_steps, here.iterations, here.gradient_steps) == (there.env_steps, there.iterations, 2)
    assert there.iteration_metrics.keys() == here.iteration_metrics.keys()
    shared = {name: pytest.approx(value, rel=1e-4, abs=1e-6) for name, value in here.iteration_metrics.items()}
    assert there.iteration_metrics == shared


@pytest.mark.parametrize("case", CASES)
def test_gradient_update_changes_no_state_and_draws_nothing_from_the_global_generator(case: str) -> None:
    policy = small_policy(**CASES[case])
    (fragment,) = fragments(policy, 1)
    policy.learn_on_batch(fragment)
    before, counters, generator = copy_state(policy), policy.env_steps, torch.random.get_rng_state()
    policy.learner.gradient_update(fragment)
    assert_equal(dict(policy.state_dict()), before)
    assert policy.env_steps == counters and torch.equal(generator, torch.random.get_rng_state())


def test_apply_update_of_older_weights_steps_by_the_update_s_gradients() -> None:
    """SGD with rate 1: the current weights minus the gradients at weights two steps older."""
    policy = A2C(*CARTPOLE.spaces(), optimizer="sgd", lr=1.0, max_grad_norm=None, seed=1)
    old, *others = fragments(policy, 3)
    update = policy.learner.gradient_update(old)
    for fragment in others:
        policy.learn_on_batch(fragment)
    pairs = zip(policy.parameters(), update.gradients, strict=True)
    expected = [parameter.detach() - torch.as_tensor(gradient) for parameter, gradient in pairs]
    policy.learner.apply_update(update)
    torch.testing.assert_close([parameter.detach() for parameter in policy.parameters()], expected)


def test_stale_gradient_updates_and_their_statistics_count_but_take_no_step() -> None:
    policy = small_policy(**SCALED)
    (fragment,) = fragments(policy, 1)
    weights = [p.detach().clone() for p in policy.parameters()]
    policy.learner.update(GradientUpdates([(0, policy.learner.gradient_update(fragment), False)]))
    steps = int(fragment.valid.sum())
    assert policy.env_steps == steps and policy.gradient_steps == 0
    assert int(policy.observation_filter.moments.count) == steps  # type: ignore[union-attr]
    assert float(policy.observation_filter.scale[0]) != 1.0  # type: ignore[union-attr]
    assert all(torch.equal(p, before) for p, before in zip(policy.parameters(), weights, strict=True))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_gradient_updates_that_are_not_finite_are_refused_by_the_name_of_their_worker(value: float) -> None:
    policy = small_policy()
    (fragment,) = fragments(policy, 1)
    good = policy.learner.gradient_update(fragment)
    good.gradients[2][0] = value
    before = copy_state(policy)
    with pytest.raises(NonFiniteError, match=r"worker 5 .*model\.\w+"):
        policy.learner.update(GradientUpdates([(5, good, True)]))
    assert_equal(dict(policy.state_dict()), before)


def test_metrics_of_gradient_updates_are_means_over_those_that_have_them() -> None:
    policy = small_policy()
    (fragment,) = fragments(policy, 1)
    one = policy.learner.gradient_update(fragment)
    rest = {"env_steps": 3, "moments": {}, "changes": {}}
    first = GradientUpdate(one.gradients, {"loss": 1.0, "kl": 4.0}, **rest)
    second = GradientUpdate(one.gradients, {"loss": 5.0}, **rest)
    metrics = policy.learner.update(GradientUpdates([(0, first, True), (1, second, True)]))
    assert metrics["loss"] == 3.0 and metrics["kl"] == 4.0 and policy.env_steps == 6


class FromScratch(ScratchPolicy):
    """A ScratchPolicy without gradients."""

    def compute_actions(self, obs: Any, state: Any) -> Any:
        return [0 for _ in obs], [], {}

    def learn_on_batch(self, samples: SampleBatch) -> Any:
        return {}


class WithGradients(FromScratch):
    """Its gradients are the number of rows."""

    total = 0

    def compute_gradients(self, batch: SampleBatch) -> Any:
        return batch.count, {"rows": batch.count}

    def apply_gradients(self, gradients: Any) -> None:
        self.total += gradients


def test_a_scratch_policy_contributes_by_its_own_compute_and_apply_gradients_if_it_has_them() -> None:
    worker, without = (
        RolloutWorker(CARTPOLE, kind(*CARTPOLE.spaces(), {}), fragment_length=8)
        for kind in (WithGradients, FromScratch)
    )
    policy = worker.policy
    metrics = policy.learner.update(GradientUpdates([(0, worker.contribute(), True)]))
    assert metrics == {"rows": policy.env_steps} and policy.total == policy.env_steps == 8
    with pytest.raises(ConfigError, match=r"FromScratch.*compute_gradients"):
        without.contribute()


# -- gradients from elsewhere -----------------------------------------------------------------------------------------
def test_compute_gradients_runs_the_loss_in_train_mode_with_log_extra() -> None:
    policy: Any = small_policy(recording(A2C))
    (fragment,) = fragments(policy, 1)
    policy.eval()
    policy.log_extra = False
    policy.compute_gradients(fragment)
    assert policy.losses[0][:2] == (True, True)


def test_random_numbers_in_the_loss_of_a_gradient_update_follow_from_the_fragment_s_seed() -> None:
    policy: Any = small_policy(recording(A2C))
    (fragment,) = fragments(policy, 1)
    for process_seed, seed in ((1, 5), (2, 5), (2, 6)):
        torch.manual_seed(process_seed)
        policy.seed_exploration(seed)
        policy.learner.gradient_update(fragment)
    drawn = [note.drawn for note in policy.losses]
    assert drawn[0] == drawn[1] != drawn[2]


def test_gradient_update_leaves_no_collected_statistics_behind() -> None:
    """RunningMoments collects news for an update only, not while learning."""
    policy = small_policy(**SCALED)
    first, second = fragments(policy, 2)
    policy.learner.gradient_update(first)
    policy.learn_on_batch(second)
    parts = [part for part in policy.modules() if isinstance(part, RunningMoments)]
    assert len(parts) > 1 and all(part.news is None for part in parts)


class Switched(FullyConnectedNetwork):
    """Has a buffer of bools that each forward in train mode inverts."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.register_buffer("on", torch.tensor([True, False]))

    def forward(self, input_dict: Any, *others: Any) -> Any:
        if self.training:
            self.on = ~self.on
        return super().forward(input_dict, *others)


def test_gradient_updates_leave_out_bool_buffers_and_restore_them() -> None:
    policy = small_policy(model={"custom_model": Switched})
    (fragment,) = fragments(policy, 1)
    contribution = policy.learner.gradient_update(fragment)
    assert not contribution.changes and policy.model.on.tolist() == [True, False]  # type: ignore[union-attr]


def test_apply_gradients_names_the_parameters_whose_gradients_are_not_finite() -> None:
    policy = small_policy()
    names = [name for name, _ in policy.named_parameters()]
    gradients: list[Any] = [np.zeros(tuple(parameter.shape), np.float32) for parameter in policy.parameters()]
    gradients[0], gradients[-1] = None, gradients[-1] + np.nan
    with pytest.raises(NonFiniteError, match=f"not finite: {names[-1]}, in"):
        policy.apply_gradients(gradients)


def test_apply_gradients_reads_read_only_arrays_without_a_warning() -> None:
    """Arrays from Ray's shared memory are read-only, and torch would warn of them."""
    policy = small_policy()
    gradients = [np.broadcast_to(np.float32(1), tuple(parameter.shape)) for parameter in policy.parameters()]
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            policy.apply_gradients(gradients)
    finally:
        torch.set_warn_always(False)
    assert not gradients[0].flags.writeable and policy.gradient_steps == 1


def test_apply_gradients_moves_appo_s_target_network_at_its_interval() -> None:
    policy = APPO(*CARTPOLE.spaces(), target_update_interval=2, lr=0.1, optimizer="sgd")
    gradients = [torch.ones_like(parameter) for parameter in policy.parameters()]
    equal = []
    for _ in range(4):
        policy.apply_gradients(gradients)
        pairs = zip(policy.model.parameters(), policy.target_model.parameters(), strict=True)
        equal.append(all(torch.equal(*pair) for pair in pairs))
    assert equal == [False, True, False, True]


# -- iterations -------------------------------------------------------------------------------------------------------
def test_extra_grad_process_fn_is_called_for_gradient_updates_with_a_loss_of_none() -> None:
    """The loss stays with the worker."""
    hooks: dict[str, Any] = {
        "extra_grad_process_fn": lambda policy, optimizer, loss: {"no loss": float(loss is None)},
        "optimizer_fn": lambda policy: torch.optim.SGD(policy.parameters(), lr=0.1),
    }
    here, there = (build_policy("Reporting", base=A3C, **hooks)(*CARTPOLE.spaces(), seed=1) for _ in range(2))
    (fragment,) = fragments(here, 1)
    assert there.learner.update(GradientUpdates([(0, here.learner.gradient_update(fragment), True)]))["no loss"] == 1.0


# -- microbatches -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("memory", [False, True], ids=["feed-forward", "lstm"])
@pytest.mark.parametrize("standardize", [False, True])
def test_gradients_of_microbatches_add_up_to_the_gradient_of_the_batch(standardize: bool, memory: bool) -> None:
    """Seven parts of 48 rows differ in size; one step is taken."""
    model = {"use_lstm": True, "lstm_cell_size": 8, "max_seq_len": 5} if memory else {}
    keywords: dict[str, Any] = {"standardize_advantages": standardize, "entropy_coef": 0.1, "model": model}
    both = whole, parts = small_policy(A2C, **keywords), small_policy(A2C, microbatches=7, **keywords)
    (fragment,) = fragments(whole, 1)
    (expected, metrics), (found, of_parts) = (policy.compute_gradients(fragment) for policy in both)
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-6)
    assert of_parts == {name: pytest.approx(value, rel=1e-4, abs=1e-6) for name, value in metrics.items()}
    _, tensors = parts.learner.differentiate(parts.learner.rows_of(fragment))
    assert not any(value.requires_grad for value in tensors.values())
    for policy in both:
        policy.learn_on_batch(fragment)
    assert parts.gradient_steps == 1
    torch.testing.assert_close([*parts.parameters()], [*whole.parameters()], rtol=1e-3, atol=2e-5)


def test_two_microbatches_are_two_losses_of_half_the_rows_with_log_extra() -> None:
    policy: Any = small_policy(recording(A2C), microbatches=2, standardize_advantages=True)
    (fragment,) = fragments(policy, 1)
    rows = policy.learner.rows_of(fragment)
    advantages = rows.advantages.clone()
    for learn in (lambda: policy.learner.differentiate(rows), lambda: policy.learn_on_batch(fragment)):
        policy.losses, policy.log_extra = [], False
        learn()
        first, second = (note.rows for note in policy.losses)
        assert first + second == rows.count and abs(first - second) <= 1
    assert all(note.log_extra for note in policy.losses)
    assert torch.equal(rows.advantages, advantages)  # the caller's rows stay as they were


def test_compute_gradients_standardizes_advantages_once() -> None:
    """Advantages of ±1e-6 are divided by the least deviation, 1e-4: ±0.01; standardized twice they would be ±1."""
    policy = small_policy(A2C, standardize_advantages=True)
    (fragment,) = fragments(policy, 1)
    rows = policy.learner.rows_of(fragment)
    rows["advantages"] = 1e-6 * (-1.0) ** torch.arange(rows.count)
    expected = torch.autograd.grad(policy.learner.total_loss(rows)[0], list(policy.parameters()))
    gradients, _ = policy.compute_gradients(rows)
    for gradient, of_loss in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(gradient, of_loss.numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("microbatches", [1, 2])
def test_microbatches_call_keep_learning_and_report_extra_grad_process_fn_s_metrics(microbatches: int) -> None:
    class Stops(A2C):
        def keep_learning(self, metrics: Any) -> bool:
            return "loss" not in metrics

    policy: Any = small_policy(Stops, microbatches=microbatches)
    (fragment,) = fragments(policy, 1)
    assert "loss" in policy.learn_on_batch(fragment) and policy.gradient_steps == 0
    reporting = small_policy(
        build_policy("Reporting", base=A2C, extra_grad_process_fn=lambda policy: {"reported": 2.0}),
        microbatches=microbatches,
    )
    assert reporting.learn_on_batch(fragment)["reported"] == 2.0
