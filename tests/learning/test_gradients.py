"""Gradients that travel: a contribution is what learning here would have done, and computing it changes nothing."""

from __future__ import annotations

import pickle
import warnings
from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from lightning_rl import ScratchPolicy
from lightning_rl.errors import ConfigError, NonFiniteError
from lightning_rl.learning.gradients import GradientUpdate
from lightning_rl.models.filters import RunningMoments
from lightning_rl.models.fully_connected import FullyConnectedNetwork
from lightning_rl.policies import A2C, A3C, APPO, PG, Policy
from lightning_rl.rollouts import RolloutWorker
from lightning_rl.sample_batch import SampleBatch
from tests.envs.classic_control import CARTPOLE

SCALED: dict[str, Any] = {"observation_filter": "mean_std", "reward_filter": "return_std", "lr": [[0, 1e-2], [200, 0]]}
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "statistics and a schedule": SCALED,
    "lstm": {"model": {"use_lstm": True, "lstm_cell_size": 8, "max_seq_len": 7}},
    "batch norm": {"model": {"custom_model": "docs.examples.batch_norm:BatchNormNet"}},
    "intrinsic rewards": {"exploration": {"type": "rnd"}},
    "microbatches": {"microbatches": 3},
}


def made(kind: type[Policy] = A3C, **keywords: Any) -> Policy:
    return kind(*CARTPOLE.spaces(), seed=1, optimizer="adam", **keywords)


def fragments(policy: Policy, count: int = 2) -> Any:
    worker = RolloutWorker(CARTPOLE, policy, num_envs=3, fragment_length=16, seed=1)
    for _ in range(count):
        yield worker.sample()


def state(policy: Policy) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in policy.state_dict().items()}


@pytest.mark.parametrize("case", CASES)
def test_taking_one_s_own_contribution_is_learning_from_the_fragment(case: str) -> None:
    """Weights, statistics and counters, after two of them; they travel as workers would send them."""
    here, there = made(**CASES[case]), made(**CASES[case])
    for fragment in fragments(here):
        here.learn_on_batch(fragment)
        sent = pickle.loads(pickle.dumps(there.learner.gradient_update(fragment)))
        there.learn_on_gradients([(0, sent, True)])
    first, second = state(here), state(there)
    for name, value in first.items():
        torch.testing.assert_close(second[name], value, rtol=1e-5, atol=1e-7, msg=f"{name}: {second[name]}, {value}")
    assert (here.env_steps, here.iterations, here.gradient_steps) == (there.env_steps, there.iterations, 2)
    assert there.iteration_metrics.keys() == here.iteration_metrics.keys()
    shared = {name: pytest.approx(value, rel=1e-4, abs=1e-6) for name, value in here.iteration_metrics.items()}
    assert there.iteration_metrics == shared


@pytest.mark.parametrize("case", CASES)
def test_computing_a_contribution_changes_nothing_and_draws_nothing(case: str) -> None:
    policy = made(**CASES[case])
    (fragment,) = fragments(policy, 1)
    policy.learn_on_batch(fragment)
    before, counters, generator = state(policy), policy.env_steps, torch.random.get_rng_state()
    policy.learner.gradient_update(fragment)
    assert all(torch.equal(value, policy.state_dict()[name]) for name, value in before.items())
    assert policy.env_steps == counters and torch.equal(generator, torch.random.get_rng_state())


def test_an_older_contribution_steps_by_its_own_gradients() -> None:
    """SGD with rate 1: the weights of now minus gradients of weights that are two steps old."""
    policy = A2C(*CARTPOLE.spaces(), optimizer="sgd", lr=1.0, max_grad_norm=None, seed=1)
    old, *others = fragments(policy, 3)
    contribution = policy.learner.gradient_update(old)
    for fragment in others:
        policy.learn_on_batch(fragment)
    expected = [
        p.detach() - torch.as_tensor(g) for p, g in zip(policy.parameters(), contribution.gradients, strict=True)
    ]
    policy.learner.apply_update(contribution)
    for parameter, value in zip(policy.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.detach(), value)


def test_what_is_too_old_is_counted_and_seen_but_not_stepped_with() -> None:
    policy = made(**SCALED)
    (fragment,) = fragments(policy, 1)
    weights = [p.detach().clone() for p in policy.parameters()]
    policy.learn_on_gradients([(0, policy.learner.gradient_update(fragment), False)])
    steps = int(fragment.valid.sum())
    assert policy.env_steps == steps and policy.gradient_steps == 0
    assert int(policy.observation_filter.moments.count) == steps  # type: ignore[union-attr]
    assert float(policy.observation_filter.scale[0]) != 1.0  # type: ignore[union-attr]
    assert all(torch.equal(p, before) for p, before in zip(policy.parameters(), weights, strict=True))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_gradients_that_are_not_finite_name_the_worker_and_step_nothing(value: float) -> None:
    policy = made()
    (fragment,) = fragments(policy, 1)
    good = policy.learner.gradient_update(fragment)
    good.gradients[2][0] = value
    before = state(policy)
    with pytest.raises(NonFiniteError, match=r"worker 5 \(its loss is [\d.]+\): gradients not finite: model\.\w+"):
        policy.learn_on_gradients([(5, good, True)])
    assert all(torch.equal(value, policy.state_dict()[name]) for name, value in before.items())


def test_metrics_are_means_over_the_contributions_that_have_them() -> None:
    policy = made()
    (fragment,) = fragments(policy, 1)
    one = policy.learner.gradient_update(fragment)
    rest = {"env_steps": 3, "moments": {}, "changes": {}}
    first = GradientUpdate(one.gradients, {"loss": 1.0, "kl": 4.0}, **rest)
    second = GradientUpdate(one.gradients, {"loss": 5.0}, **rest)
    metrics = policy.learn_on_gradients([(0, first, True), (1, second, True)])
    assert metrics["loss"] == 3.0 and metrics["kl"] == 4.0 and policy.env_steps == 6


class FromScratch(ScratchPolicy):
    """Actions of its own, and a learning of its own."""

    def compute_actions(self, obs: Any, state: Any) -> Any:
        return [0 for _ in obs], [], {}

    def learn_on_batch(self, samples: SampleBatch) -> Any:
        return {}


class WithGradients(FromScratch):
    """And gradients: how many rows there are."""

    total = 0

    def compute_gradients(self, batch: SampleBatch) -> Any:
        return batch.count, {"rows": batch.count}

    def apply_gradients(self, gradients: Any) -> None:
        self.total += gradients


def test_a_policy_from_scratch_contributes_by_its_own_methods() -> None:
    worker = RolloutWorker(CARTPOLE, WithGradients(*CARTPOLE.spaces(), {}), fragment_length=8)
    policy = worker.policy
    metrics = policy.learn_on_gradients([(0, worker.contribute(), True)])
    assert metrics == {"rows": policy.env_steps} and policy.total == policy.env_steps == 8


def test_a_policy_without_gradients_says_so() -> None:
    worker = RolloutWorker(CARTPOLE, FromScratch(*CARTPOLE.spaces(), {}), fragment_length=8)
    with pytest.raises(ConfigError, match="FromScratch computes no gradients: define compute_gradients"):
        worker.contribute()


def test_other_on_policy_algorithms_contribute_too() -> None:
    policy = PG(*CARTPOLE.spaces(), seed=1)
    (fragment,) = fragments(policy, 1)
    assert policy.learn_on_gradients([(0, policy.learner.gradient_update(fragment), True)])["grad_norm"] > 0


# -- gradients from elsewhere -----------------------------------------------------------------------------------------
class Rolls(A2C):
    """Notes what a loss finds: the mode, whether curves are read, and a number from the global generator."""

    def loss(self, batch: SampleBatch) -> Any:
        self.found = self.training, self.log_extra, float(torch.rand(()))
        return super().loss(batch)


def test_gradients_are_of_a_loss_in_train_mode_that_reports_everything() -> None:
    policy: Any = made(Rolls)
    (fragment,) = fragments(policy, 1)
    policy.eval()
    policy.log_extra = False
    policy.compute_gradients(fragment)
    assert policy.found[:2] == (True, True)


def test_what_the_loss_of_a_contribution_draws_follows_from_the_fragment_s_seed() -> None:
    policy: Any = made(Rolls)
    (fragment,) = fragments(policy, 1)
    drawn = []
    for process_seed, seed in ((1, 5), (2, 5), (2, 6)):
        torch.manual_seed(process_seed)
        policy.seed_exploration(seed)
        policy.learner.gradient_update(fragment)
        drawn.append(policy.found[2])
    assert drawn[0] == drawn[1] != drawn[2]


def test_statistics_are_collected_for_the_contribution_alone() -> None:
    """What is learned later would pile up with them."""
    policy = made(**SCALED)
    first, second = fragments(policy, 2)
    policy.learner.gradient_update(first)
    policy.learn_on_batch(second)
    parts = [part for part in policy.modules() if isinstance(part, RunningMoments)]
    assert len(parts) > 1 and all(part.news is None for part in parts)


class Switched(FullyConnectedNetwork):
    """A buffer of bools that a forward in train mode turns over."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.register_buffer("on", torch.tensor([True, False]))

    def forward(self, input_dict: Any, *others: Any) -> Any:
        if self.training:
            self.on = ~self.on
        return super().forward(input_dict, *others)


def test_buffers_that_have_no_difference_do_not_travel() -> None:
    policy = made(model={"custom_model": Switched})
    (fragment,) = fragments(policy, 1)
    contribution = policy.learner.gradient_update(fragment)
    assert not contribution.changes and policy.model.on.tolist() == [True, False]  # type: ignore[union-attr]


def test_the_parameters_whose_gradients_are_not_finite_are_named_and_no_others() -> None:
    policy = made()
    names = [name for name, _ in policy.named_parameters()]
    gradients: list[Any] = [np.zeros(tuple(parameter.shape), np.float32) for parameter in policy.parameters()]
    gradients[0], gradients[-1] = None, gradients[-1] + np.nan
    with pytest.raises(NonFiniteError, match=rf"^gradients not finite: {names[-1]}, in gradient step 0\."):
        policy.apply_gradients(gradients)


def test_gradients_may_lie_in_memory_that_cannot_be_written_to() -> None:
    """As what Ray shares between processes does, of which torch warns."""
    policy = made()
    gradients = [np.ones(tuple(parameter.shape), np.float32) for parameter in policy.parameters()]
    for gradient in gradients:
        gradient.flags.writeable = False
    warned = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            policy.apply_gradients(gradients)
    finally:
        torch.set_warn_always(warned)
    assert policy.gradient_steps == 1


def test_a_target_network_follows_steps_with_gradients_from_elsewhere() -> None:
    policy = APPO(*CARTPOLE.spaces(), target_update_interval=2, lr=0.1, optimizer="sgd")
    gradients = [torch.ones_like(parameter) for parameter in policy.parameters()]
    equal = []
    for _ in range(4):
        policy.apply_gradients(gradients)
        pairs = zip(policy.model.parameters(), policy.target_model.parameters(), strict=True)
        equal.append(all(torch.equal(*pair) for pair in pairs))
    assert equal == [False, True, False, True]


# -- iterations -------------------------------------------------------------------------------------------------------
class Noted(A3C):
    """Notes what its steps find, and the metrics of its iterations."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.modes: list[bool] = []
        self.drawn: list[float] = []
        self.smallest: list[float] = []
        self.means: list[dict[str, float]] = []

    def after_step(self) -> None:
        self.modes.append(self.training)
        self.drawn.append(float(torch.rand(())))
        self.smallest.append(float(torch.tensor(1e-40) * 1.0))

    def after_iteration(self, metrics: dict[str, float]) -> None:
        self.means.append(dict(metrics))


def contributed(process_seed: int = 1) -> tuple[Any, GradientUpdate]:
    policy = made(Noted)
    (fragment,) = fragments(policy, 1)
    contribution = policy.learner.gradient_update(fragment)
    torch.manual_seed(process_seed)
    return policy.eval(), contribution


def test_an_iteration_on_gradients_is_counted_ended_and_reported_once() -> None:
    """The rows stayed where they were made."""
    policy, one = contributed()
    learned: list[dict[str, Any]] = []
    listener = SimpleNamespace(on_learn_on_batch=lambda **what: learned.append(what))
    policy._trainer = SimpleNamespace(callbacks=[listener], training=False)
    policy.learn_on_gradients([(0, one, True), (1, one, True)])
    assert (policy.iterations, policy.gradient_steps, len(policy.means), len(learned)) == (1, 2, 1, 1)
    assert policy.means[0] == policy.iteration_metrics and {"loss", "lr"} <= policy.means[0].keys()
    assert learned[0]["policy"] is policy and learned[0]["result"] is policy.iteration_metrics
    assert learned[0]["train_batch"].columns == []


def test_seconds_of_learning_are_those_of_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock moves on by 1 with each look at it: 7 looks, of which 3 were waits for the next update."""
    monkeypatch.setattr("lightning_rl.learning.learner.time", SimpleNamespace(perf_counter=count(10.0).__next__))
    policy, one = contributed()
    for _ in range(2):
        policy.learn_on_gradients([(0, one, True), (1, one, True)])
        assert policy.learn_seconds == 4.0


def test_steps_are_in_train_mode_and_numbers_too_small_to_compute_with_quickly_are_0() -> None:
    policy, one = contributed()
    policy.learn_on_gradients([(0, one, True)])
    assert policy.modes == [True] and policy.smallest == [0.0]
    assert float(torch.tensor(1e-40) * 1.0) > 0.0


def test_what_steps_draw_follows_from_the_seed_and_the_iteration() -> None:
    drawn = []
    for process_seed in (1, 2):
        policy, one = contributed(process_seed)
        for _ in range(2):
            policy.learn_on_gradients([(0, one, True)])
        drawn.append(policy.drawn)
    assert drawn[0] == drawn[1] and drawn[0][0] != drawn[0][1]


def test_functions_of_the_user_s_see_gradients_that_come_from_elsewhere() -> None:
    """The loss stayed where it was computed."""
    seen = []

    def halve(policy: Any, optimizer: Any, loss: Any) -> dict[str, float]:
        seen.append(loss)
        return {"halved": 0.5}

    hooks: dict[str, Any] = {
        "extra_grad_process_fn": halve,
        "optimizer_fn": lambda policy: torch.optim.SGD(policy.parameters(), lr=0.1),
    }
    here, there = (A3C.with_updates("Halving", **hooks)(*CARTPOLE.spaces(), seed=1) for _ in range(2))
    (fragment,) = fragments(here, 1)
    assert there.learn_on_gradients([(0, here.learner.gradient_update(fragment), True)])["halved"] == 0.5
    assert seen == [None]


# -- microbatches -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("memory", [False, True], ids=["feed-forward", "lstm"])
@pytest.mark.parametrize("standardise", [False, True])
def test_microbatches_add_up_to_the_gradient_of_the_whole(standardise: bool, memory: bool) -> None:
    """Seven parts of 48 rows are not equally large; one step is taken all the same."""
    model = {"use_lstm": True, "lstm_cell_size": 8, "max_seq_len": 5} if memory else {}
    keywords: dict[str, Any] = {"standardise_advantages": standardise, "entropy_coef": 0.1, "model": model}
    whole, parts = made(A2C, **keywords), made(A2C, microbatches=7, **keywords)
    (fragment,) = fragments(whole, 1)
    (expected, told), (found, told_too) = whole.compute_gradients(fragment), parts.compute_gradients(fragment)
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-6)
    assert told_too == {name: pytest.approx(value, rel=1e-4, abs=1e-6) for name, value in told.items()}
    assert not any(
        value.requires_grad for value in parts.learner.differentiate(parts.learner.rows_of(fragment))[1].values()
    )
    whole.learn_on_batch(fragment)
    parts.learn_on_batch(fragment)
    assert parts.gradient_steps == 1
    for one, other in zip(whole.parameters(), parts.parameters(), strict=True):
        torch.testing.assert_close(other, one, rtol=1e-3, atol=2e-5)


class Watched(A2C):
    """Notes how many rows each loss is of, and whether curves are read."""

    def loss(self, batch: SampleBatch) -> Any:
        self.seen.append((batch.count, self.log_extra))
        return super().loss(batch)


def test_two_microbatches_are_two_losses_each_of_half_the_rows() -> None:
    policy: Any = made(Watched, microbatches=2, standardise_advantages=True)
    (fragment,) = fragments(policy, 1)
    rows = policy.learner.rows_of(fragment)
    advantages = rows.advantages.clone()
    for learn in (lambda: policy.learner.differentiate(rows), lambda: policy.learn_on_batch(fragment)):
        policy.seen, policy.log_extra = [], False
        learn()
        first, second = (count for count, _ in policy.seen)
        assert first + second == rows.count and abs(first - second) <= 1
    assert all(diagnosing for _, diagnosing in policy.seen)
    assert torch.equal(rows.advantages, advantages)  # whoever has the rows finds them as they were


class Stopped(A2C):
    """Does not go on learning."""

    def keep_learning(self, metrics: Any) -> bool:
        return False


def test_a_subclass_of_a2c_may_leave_its_step_out() -> None:
    policy = made(Stopped)
    (fragment,) = fragments(policy, 1)
    policy.learn_on_batch(fragment)
    assert policy.gradient_steps == 0


def test_a_whole_rollout_s_advantages_are_standardised_once() -> None:
    """Those that are nearly equal have a deviation of 1e-6, taken as 1e-4: 0.01 afterwards, and 1 if done twice."""
    policy = made(A2C, standardise_advantages=True)
    (fragment,) = fragments(policy, 1)
    rows = policy.learner.rows_of(fragment)
    rows["advantages"] = 1e-6 * (-1.0) ** torch.arange(rows.count)
    expected = torch.autograd.grad(policy.learner.total_loss(rows)[0], list(policy.parameters()))
    gradients, _ = policy.compute_gradients(rows)
    for gradient, of_loss in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(gradient, of_loss.numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("microbatches", [1, 2])
def test_microbatches_ask_whether_to_go_on_and_report_what_functions_say_of_gradients(microbatches: int) -> None:
    class Stops(A2C):
        def keep_learning(self, metrics: Any) -> bool:
            return "loss" not in metrics

    policy: Any = made(Stops, microbatches=microbatches)
    (fragment,) = fragments(policy, 1)
    assert "loss" in policy.learn_on_batch(fragment) and policy.gradient_steps == 0
    told = made(A2C.with_updates("Told", extra_grad_process_fn=lambda policy: {"told": 2.0}), microbatches=microbatches)
    assert told.learn_on_batch(fragment)["told"] == 2.0
