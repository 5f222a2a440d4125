"""SimpleQ, DQN, C51 and quantile regression: targets, heads, losses and rewards, with numbers worked by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from lightning_rl.callbacks.metric_names import METRICS
from lightning_rl.errors import ConfigError
from lightning_rl.exploration import Exploration
from lightning_rl.policies import DQN, R2D2, SAC, Rainbow, SimpleQ
from lightning_rl.replay import ReplayBuffer
from lightning_rl.sample_batch import SampleBatch
from tests.models.parameters import parameter_vector
from tests.policies.off_policy_algorithms import (
    NORMED,
    OBS,
    Q_LEARNERS,
    SMALL,
    TWO,
    Draws,
    set_constant_q,
    small_policy,
    td_errors,
    transitions,
)


# -- targets ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("double", "following"), [(False, 10.0), (True, 3.0)])
@pytest.mark.parametrize("quantiles", [False, True])
def test_double_dqn_takes_the_target_network_s_value_of_the_online_choice(
    quantiles: bool, double: bool, following: float
) -> None:
    """Online Q(s') = (1, 2), target Q(s') = (10, 3): the target's value of action 1 is 3, its own maximum 10.

    Of quantiles (0, 2) and (1, 3) online, and (9, 11) and (2, 4) in the target network, these are the means.
    """
    policy = small_policy("dqn", double=double, **({"num_quantiles": 2} if quantiles else {}))
    set_constant_q(policy.model, *((0.0, 2.0, 1.0, 3.0) if quantiles else (1.0, 2.0)))
    set_constant_q(policy.target_model, *((9.0, 11.0, 2.0, 4.0) if quantiles else (10.0, 3.0)))
    found = td_errors(policy, transitions(rewards=torch.ones(6)))
    assert_close(found, torch.tensor([1.0, 2.0] * 3) - (1.0 + 0.9 * following))


@pytest.mark.parametrize(("policy_class", "keywords"), [(SimpleQ, {}), (DQN, {"double": False}), (DQN, {})])
def test_q_targets_bootstrap_from_the_best_allowed_action(policy_class: Any, keywords: dict[str, Any]) -> None:
    """Both networks give (10, 3), and the next state forbids action 0: Q(s, a) − (1 + 0.9 · 3)."""
    policy = policy_class(OBS, TWO, **SMALL, **keywords)
    set_constant_q(policy.model, 10.0, 3.0)
    set_constant_q(policy.target_model, 10.0, 3.0)
    now, following = torch.tensor([[True, True]]).expand(6, 2), torch.tensor([[False, True]]).expand(6, 2)
    found = td_errors(policy, transitions(rewards=torch.ones(6), action_mask=now, next_action_mask=following))
    assert_close(found, torch.tensor([10.0, 3.0] * 3) - 3.7)


def test_noisy_dqn_computes_no_targets_ahead() -> None:
    """The target network draws its noise anew for each gradient step."""
    policy = small_policy("dqn", noisy=True, target_update_interval=8)
    batches = list(policy.prepare(transitions(count=15), steps=5))
    assert len(batches) == 5 and not any({"target_q", "td_targets"} & set(batch) for batch in batches)


@pytest.mark.parametrize("name", ["simple_q", "dqn, plain"])
@pytest.mark.parametrize(("huber_delta", "expected"), [(1.0, 8.0), (2.0, 15.0), (None, 36.25)])
def test_q_loss_is_linear_beyond_huber_delta(name: str, huber_delta: float | None, expected: float) -> None:
    """Q(s, a) = 1 and 2, target 1 + 0.9 · 10: errors 9 and 8 cost δ (9 − δ/2) and δ (8 − δ/2).

    Without δ they cost half their squares. A weight of 1 changes nothing.
    """
    policy = small_policy(name, huber_delta=huber_delta)
    set_constant_q(policy.model, 1.0, 2.0)
    set_constant_q(policy.target_model, 10.0, 3.0)
    for weights in ({}, {"weights": torch.ones(6)}):
        batch = transitions(rewards=torch.ones(6), **weights)
        loss, metrics = policy.loss(batch)
        assert loss.item() == pytest.approx(expected)
        assert_close(metrics["td_errors"], torch.tensor([-9.0, -8.0] * 3))


@pytest.mark.parametrize("name", Q_LEARNERS)
def test_targets_computed_for_several_steps_at_once_equal_those_of_each_step(name: str) -> None:
    """Five gradient steps with a target network that moves after the second and the fourth."""
    at_once, one_by_one = (small_policy(name, target_update_interval=2) for _ in range(2))
    row_counts = record_row_counts(at_once.target_model)
    for number, batch in enumerate(at_once.prepare(transitions(name, count=15), steps=5)):
        alone = transitions(name, count=15)[3 * number : 3 * number + 3]
        assert set(batch) - set(alone) in ({"td_targets"}, {"target_q", "target_returns"})
        found, expected = td_errors_of_a_step(at_once, batch), td_errors_of_a_step(one_by_one, alone)
        assert_close(found, expected, rtol=0, atol=1e-6)
    assert len(row_counts) == 3  # for 2, 2 and 1 steps


def test_targets_are_computed_ahead_up_to_the_next_target_update() -> None:
    """The target moves every 3 steps, and one was taken: targets of 2 · 3 rows, then of 3 · 3 rows."""
    policy = small_policy("simple_q", target_update_interval=3)
    policy.gradient_steps = 1
    row_counts = record_row_counts(policy.target_model)
    for batch in policy.prepare(transitions(count=15), steps=5):
        td_errors_of_a_step(policy, batch)
    assert row_counts == [6, 9]


@pytest.mark.parametrize(("interval", "steps", "ahead"), [(8, 1, False), (8, 2, True), (1, 5, False)])
def test_targets_are_computed_ahead_where_steps_share_a_target_network(interval: int, steps: int, ahead: bool) -> None:
    batches = list(small_policy("simple_q", target_update_interval=interval).prepare(transitions(count=10), steps))
    assert len(batches) == steps and all(("td_targets" in batch) is ahead for batch in batches)


def td_errors_of_a_step(policy: Any, batch: SampleBatch) -> Tensor:
    """TD errors of one gradient step."""
    policy.learner.step(batch)
    return policy.learner.td_errors


def record_row_counts(module: nn.Module) -> list[int]:
    """A list to which every forward of the module appends its number of rows."""
    calls: list[int] = []
    module.register_forward_hook(lambda _, inputs, __: calls.append(len(inputs[0]["obs"])))
    return calls


@pytest.mark.parametrize("name", ["simple_q", "dqn", "dqn, plain", "c51"])
def test_targets_computed_ahead_use_scaled_rewards(name: str) -> None:
    """Three draws of one step each and one draw of three steps give the same weights; raw rewards give others."""
    weights = []
    for reward_filter, draws in (("return_std", 1), ("return_std", 3), ("none", 3)):
        policy = small_policy(name, reward_filter=reward_filter, target_update_interval=500)
        batch = transitions(name, count=9)
        if policy.reward_filter.normalizer is not None:
            policy.reward_filter.normalizer.moments.update(torch.tensor([[0.0], [20.0]]))
        size = 9 // draws
        policy.training_step(Draws((batch[start : start + size], 3 // draws) for start in range(0, 9, size)))
        assert policy.gradient_steps == 3 and torch.equal(batch.rewards, transitions(name, count=9).rewards)
        weights.append(parameter_vector(policy.model))
    assert_close(weights[0], weights[1], rtol=0, atol=1e-6)
    assert float((weights[0] - weights[2]).abs().max()) > 1e-5


def test_dqn_scales_the_rewards_of_replayed_rows_outside_a_trainer_too() -> None:
    """Deviation 10: a reward of 1 is 0.1 in the loss; the caller's batch keeps its rewards."""
    policy = small_policy("dqn", reward_filter="return_std", lr=0.0, target_update_interval=500)
    policy.reward_filter.normalizer.moments.update(torch.tensor([[0.0], [20.0]]))
    replayed, others = (transitions(rewards=torch.full((6,), reward)) for reward in (1.0, 0.1))
    replayed["batch_indexes"] = torch.arange(6)
    policy.learn_on_batch(replayed)
    scaled = policy.learner.td_errors
    policy.learn_on_batch(others)  # not replayed, so not scaled
    assert_close(scaled, policy.learner.td_errors)
    assert replayed.rewards.tolist() == [1.0] * 6
    gradients = [policy.learner.gradient_update(batch).gradients[0] for batch in (replayed, others)]
    np.testing.assert_allclose(*gradients, rtol=1e-5)


# -- intrinsic rewards ------------------------------------------------------------------------------------------------
class HalfReward(Exploration):
    """Pays an intrinsic reward of ½ for every step."""

    def postprocess_trajectory(self, policy: Any, batch: SampleBatch) -> SampleBatch:
        return SampleBatch(dict(batch.items()), intrinsic_rewards=torch.full_like(batch.rewards, 0.5))


def rows_of_one_episode(reward_filter: str, rewards: list[float], **keywords: Any) -> tuple[Any, SampleBatch]:
    """A policy, and the rows that a replay buffer holds after one fragment with these rewards."""
    policy = small_policy("dqn", exploration={"type": HalfReward}, reward_filter=reward_filter, gamma=0.5)
    count = len(rewards)
    fragment = SampleBatch(
        obs=torch.arange(3.0 * count + 3).view(-1, 1, 3),
        actions=torch.zeros(count, 1, dtype=torch.int64),
        rewards=torch.tensor(rewards).unsqueeze(1),
        t=torch.arange(count).unsqueeze(1),
        valid=torch.ones(count, 1, dtype=torch.bool),
        **dict.fromkeys(("terminated", "truncated"), torch.zeros(count, 1, dtype=torch.bool)),
    )
    raw = fragment.rewards.clone()
    buffer = ReplayBuffer(100, gamma=0.5, **keywords)
    buffer.add(policy.learner.take_experience(fragment))
    assert torch.equal(fragment.rewards, raw) and policy.env_steps == count
    assert buffer.ring is not None
    return policy, buffer.rows(buffer.ring.ids(np.arange(count)))


@pytest.mark.parametrize(("n_step", "expected"), [(1, [1.5, -0.5, 1.5]), (2, [1.5 - 0.25, -0.5 + 0.75, 1.5])])
def test_intrinsic_rewards_are_added_to_clipped_rewards(n_step: int, expected: list[float]) -> None:
    """γ = ½; the last row sums one reward only."""
    policy, rows = rows_of_one_episode("sign", [3.0, -2.0, 7.0], n_step=n_step)
    assert policy.reward_filter.scale_rewards(rows).rewards.tolist() == expected
    assert "intrinsic_rewards" in rows and "intrinsic_rewards" not in policy.reward_filter.scale_rewards(rows)


def test_intrinsic_rewards_are_added_to_scaled_rewards_unscaled() -> None:
    """Deviation 10, γ = ½: 3 − 2γ + 7γ² = 3.75 becomes 0.375; intrinsic rewards add ½ (1 + γ + γ²) = 0.875."""
    policy, rows = rows_of_one_episode("return_std", [3.0, -2.0, 7.0], n_step=3)
    moments = policy.reward_filter.normalizer.moments
    moments.m2.copy_(100.0 * moments.count)
    assert policy.reward_filter.scale_rewards(rows).rewards[0].item() == pytest.approx(0.375 + 0.875)


def test_n_step_rewards_are_scaled_and_clipped_one_by_one() -> None:
    """Deviation 1, γ = ½: 7, 8 and 30 become 7, 8 and 10, so 7 + 4 + 2.5. Their sum of 18.5 would become 10."""
    policy, rows = rows_of_one_episode("return_std", [7.0, 8.0, 30.0], n_step=3)
    moments = policy.reward_filter.normalizer.moments
    moments.m2.copy_(moments.count)
    assert rows["step_rewards"].tolist() == [[7.0, 8.0, 30.0], [8.0, 30.0, 0.0], [30.0, 0.0, 0.0]]
    assert policy.reward_filter.scale_rewards(rows).rewards.tolist() == pytest.approx([13.5 + 0.875, 13.0 + 0.75, 10.5])
    assert "step_rewards" not in policy.reward_filter.scale_rewards(rows)


# -- target networks --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("interval", [1, 3])
def test_dqn_copies_its_target_network_every_target_update_interval_steps(interval: int) -> None:
    policy: Any = DQN(OBS, TWO, target_update_interval=interval, tau=1.0, **SMALL)
    for step in range(1, 7):
        before = parameter_vector(policy.target_model)
        policy.learn_on_batch(transitions())
        expected = before if step % interval else parameter_vector(policy.model)
        assert_close(parameter_vector(policy.target_model), expected, rtol=0, atol=0)
        assert not torch.equal(parameter_vector(policy.model), before)


def test_tau_is_1_by_default_where_target_update_interval_is_given() -> None:
    """`target_update_interval` alone means copies at that interval, as in other packages."""
    taus = [DQN(OBS, TWO, **SMALL, **more).tau for more in ({}, {"target_update_interval": 8}, {"tau": 0.5})]
    assert taus == [0.005, 1.0, 0.5]


# -- heads and their losses -------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("custom", "hiddens", "dueling", "widths"),
    [
        (True, [], False, None),
        (True, [5], False, [5, 2]),
        (True, [], True, [2]),
        (True, [5], True, [5, 2]),
        (False, [], False, [2]),
        (False, [5, 4], False, [5, 4, 2]),
    ],
)
def test_q_heads_have_the_widths_of_hiddens_and_custom_models_may_need_none(
    custom: bool, hiddens: list[int], dueling: bool, widths: list[int] | None
) -> None:
    """Without hidden layers, dueling or several outputs per action a custom model gives the Q-values itself."""
    policy = small_policy("dqn", hiddens=hiddens, dueling=dueling, **(NORMED if custom else {}))
    head = policy.model.advantages
    linear = [] if head is None else [layer for layer in head.modules() if isinstance(layer, nn.Linear)]
    assert sorted(layer.out_features for layer in linear) == sorted(widths or [])
    assert (policy.model.state_value is not None) is dueling
    assert policy.q_values(policy.model, transitions())[0].shape == (6, 2)


def test_the_dueling_head_adds_the_advantage_over_the_mean_to_the_state_s_value() -> None:
    """V = 2, A = (1, 3): Q = 2 + (1 − 2, 3 − 2)."""
    policy = small_policy("dqn, dueling")
    set_constant_q(policy.model, 1.0, 3.0)
    policy.model.state_value.linear.bias.data = torch.tensor([2.0])
    values, returns = policy.q_values(policy.model, transitions())
    assert_close(values, torch.tensor([[1.0, 3.0]]).expand(6, 2))
    assert returns.shape == (6, 2)


def test_c51_q_values_are_the_means_of_its_atoms() -> None:
    """Atoms −1, 0, 1; action 0 has probabilities (½, ½, 0), action 1 (0, ½, ½)."""
    policy = small_policy("c51", num_atoms=3, v_min=-1.0, v_max=1.0)
    set_constant_q(policy.model, 0.0, 0.0, -50.0, -50.0, 0.0, 0.0)
    values, returns = policy.q_values(policy.model, transitions())
    assert returns.shape == (6, 2, 3)
    assert_close(values, torch.tensor([[-0.5, 0.5]]).expand(6, 2))
    assert policy.compute_single_action(np.zeros(3, np.float32), explore=False) == 1


def test_quantile_q_values_are_the_means_of_the_quantiles() -> None:
    policy = small_policy("dqn, quantiles", num_quantiles=2)
    set_constant_q(policy.model, 0.0, 2.0, 5.0, 6.0)
    values, returns = policy.q_values(policy.model, transitions())
    assert returns.shape == (6, 2, 2)
    assert_close(values, torch.tensor([[1.0, 5.5]]).expand(6, 2))


def test_c51_checks_its_number_of_atoms_and_the_ends_of_its_support() -> None:
    """Two atoms are the fewest; an empty interval is refused."""
    fewest = small_policy("c51", num_atoms=2, v_min=-3.0, v_max=5.0)
    assert_close(fewest.model.support, torch.tensor([-3.0, 5.0]))
    assert_close(fewest.target_model.support, torch.tensor([-3.0, 5.0]))
    fewest.log_extra = True
    assert "support_clipped" in fewest.loss(transitions())[1]
    fewest.log_extra = False
    assert fewest.loss(transitions())[1].keys() == {"td_errors"}
    with pytest.raises(ConfigError, match=r"v_min=1\.0, policy\.v_max=1\.0"):
        small_policy("c51", v_min=1.0, v_max=1.0)


@pytest.mark.parametrize(("huber_delta", "kappa"), [(2.0, 2.0), (None, 1.0)])
def test_quantile_loss_is_huber_s_weighted_by_the_fractions(huber_delta: float | None, kappa: float) -> None:
    """Quantiles 0 and 4 at the fractions ¼ and ¾, both targets 1.

    Errors 1 and −3: their Huber losses ½ and κ (3 − κ/2) are weighted by ¼ and |¾ − 1| and divided by κ.
    """
    policy = small_policy("dqn, quantiles", num_quantiles=2, huber_delta=huber_delta)
    set_constant_q(policy.model, 0.0, 4.0, 0.0, 4.0)
    batch = transitions(rewards=torch.ones(6), terminated=torch.ones(6, dtype=torch.bool))
    loss, metrics = policy.loss(batch)
    assert loss.item() == pytest.approx((0.25 * 0.5 + 0.25 * kappa * (3.0 - kappa / 2)) / kappa)
    assert not metrics["td_errors"].requires_grad and metrics["td_errors"].tolist() == [1.0] * 6


def c51_of_three_atoms(*logits: float) -> tuple[Any, SampleBatch]:
    """Atoms 0, 1, 2. The next state has atom 1 surely, reward ½, discount 1: the target is (0, ½, ½)."""
    policy = small_policy("c51", num_atoms=3, v_min=0.0, v_max=2.0, double=False)
    set_constant_q(policy.model, *logits)
    set_constant_q(policy.target_model, -50.0, 0.0, -50.0, -50.0, 0.0, -50.0)
    return policy, transitions(rewards=torch.full((6,), 0.5), discounts=torch.ones(6))


def test_c51_learns_the_projected_distribution() -> None:
    """The online network gives (⅓, ⅓, ⅓): the cross entropy is log 3, the gradient of its logits ⅓ − target."""
    policy, batch = c51_of_three_atoms(*[0.0] * 6)
    batch["actions"] = torch.zeros(6, dtype=torch.int64)
    loss, _ = policy.loss(batch)
    loss.backward()
    assert loss.item() == pytest.approx(np.log(3.0), rel=1e-5)
    assert_close(policy.model.advantages.linear.bias.grad[:3], torch.tensor([1 / 3, 1 / 3 - 0.5, 1 / 3 - 0.5]))


def test_c51_learns_with_two_atoms() -> None:
    """Atoms 0 and 1, reward ¼ in a terminated row: the target is (¾, ¼); the cross entropy of (½, ½) is log 2."""
    policy = small_policy("c51", num_atoms=2, v_min=0.0, v_max=1.0)
    set_constant_q(policy.model, *[0.0] * 4)
    batch = transitions(rewards=torch.full((6,), 0.25), terminated=torch.ones(6, dtype=torch.bool))
    loss, _ = policy.loss(batch)
    loss.backward()
    assert loss.item() == pytest.approx(math.log(2.0))
    assert_close(policy.model.advantages.linear.bias.grad, torch.tensor([-0.25, 0.25, -0.25, 0.25]) / 2)


def test_c51_td_errors_are_kl_to_the_target_not_cross_entropy() -> None:
    """KL(target‖Z), as in Rainbow.

    The target (0, ½, ½) has the entropy log 2. Against (⅓, ⅓, ⅓) the KL is log 3 − log 2; against itself 0, though
    the cross entropy is log 2.
    """
    policy, batch = c51_of_three_atoms(*[0.0] * 3, -50.0, 0.0, 0.0)
    errors = policy.loss(batch)[1]["td_errors"]
    assert_close(errors, torch.tensor([math.log(1.5), 0.0]).repeat(3), atol=1e-5, rtol=1e-5)
    assert not errors.requires_grad and float(errors.min()) >= 0.0


def test_c51_td_errors_are_never_below_0() -> None:
    """Of targets that the network gives exactly, rounding would make half of them so."""
    policy, zeros = small_policy("c51", num_atoms=11, v_min=0.0, v_max=10.0), torch.zeros(1000)
    logits = torch.randn(1000, 11, generator=torch.Generator().manual_seed(0))
    same = SampleBatch(rewards=zeros, terminated=zeros.bool(), discounts=torch.ones(1000))
    found = policy.distribution_losses(logits, logits, same)[1]
    assert bool((found >= 0).all()) and float(found.max()) < 1e-5


@pytest.mark.parametrize(("reward", "warned"), [(1.0, 0), (30.0, 1)])
def test_c51_warns_once_when_targets_leave_its_support(reward: float, warned: int, caplog: Any) -> None:
    """11 atoms from −10 to 10, γ = 0.9: with r = 1 no target lies half an atom or more outside, with r = 30 all do."""
    policy = small_policy("c51", gamma=0.9)
    set_constant_q(policy.model, *[0.0] * 22)
    set_constant_q(policy.target_model, *[0.0] * 22)
    batch = transitions(rewards=torch.full((6,), reward), terminated=torch.zeros(6, dtype=torch.bool))
    for _ in range(3):
        metrics = policy.learn_on_batch(batch)
    assert metrics["support_clipped"] == pytest.approx(float(warned), abs=0.05)
    messages = [record.getMessage() for record in caplog.records if "policy.v_min" in record.getMessage()]
    assert len(messages) == warned and all("100 %" in message and "[-10, 10]" in message for message in messages)
    assert "train/support_clipped" in METRICS


def test_c51_warns_when_more_than_30_percent_of_targets_leave_its_support(caplog: Any) -> None:
    policy = small_policy("c51")
    for metrics in ({}, {"support_clipped": 0.3}):
        policy.after_iteration(metrics)
    assert not caplog.records
    policy.after_iteration({"support_clipped": 0.4})
    assert "40 %" in caplog.records[0].getMessage()


def test_dqn_refuses_atoms_together_with_quantiles() -> None:
    with pytest.raises(ConfigError, match="exclude"):
        DQN(OBS, TWO, num_atoms=2, num_quantiles=2)


def test_default_optimizer_kwargs_are_refused_with_sgd() -> None:
    """Rainbow and R2D2 give Adam an ε, and SAC a β₁, that SGD does not have."""
    for policy_class, key in ((Rainbow, "eps"), (R2D2, "eps"), (SAC, "betas")):
        with pytest.raises(ConfigError, match=rf"no key 'policy\.optimizer_kwargs\.{key}'.*optimizer_kwargs=null"):
            policy_class(OBS, TWO, optimizer="sgd")
        policy_class(OBS, TWO, optimizer="sgd", optimizer_kwargs=None)
    assert Rainbow(OBS, TWO).learner.optimizer.torch_optimizer.param_groups[0]["eps"] == 1.5e-4
    assert R2D2(OBS, TWO).learner.optimizer.torch_optimizer.param_groups[0]["eps"] == 1e-3


@pytest.mark.parametrize("name", ["dqn", "c51", "simple_q"])
def test_q_mean_and_td_error_are_means_over_the_actions_taken(name: str) -> None:
    """The actions taken have Q = 1 and 2 in turn (C51: −10 and 10); the target is 1¼: errors −¼ and ¾."""
    policy = small_policy(name, **({"num_atoms": 2} if name == "c51" else {}))
    set_constant_q(policy.model, *([90.0, 0.0, 0.0, 90.0] if name == "c51" else [1.0, 2.0]))
    metrics = policy.loss(transitions(rewards=torch.full((6,), 1.25), terminated=torch.ones(6, dtype=torch.bool)))[1]
    assert metrics["q_mean"].item() == pytest.approx(0.0 if name == "c51" else 1.5)
    low, high = (-10.0, 10.0) if name == "c51" else (1.0, 2.0)
    assert (metrics["q_min"].item(), metrics["q_max"].item()) == pytest.approx((low, high))
    if name != "c51":
        assert metrics["td_error"].item() == pytest.approx(0.5)


def test_a_subclass_s_td_loss_is_used() -> None:
    class Doubled(DQN):
        def td_loss(self, td_errors: Tensor, batch: SampleBatch) -> tuple[Tensor, Tensor]:
            loss, priorities = super().td_loss(td_errors, batch)
            return 2.0 * loss, priorities

    plain, doubled = (kind(OBS, TWO, seed=1) for kind in (DQN, Doubled))
    assert_close(2.0 * plain.loss(transitions(count=6))[0], doubled.loss(transitions(count=6))[0])


def test_rainbow_draws_noise_for_each_gradient_step_and_for_targets_apart() -> None:
    policy: Any = Rainbow(OBS, TWO, num_atoms=5, **SMALL)
    inputs, seen = policy.input_dict(transitions().obs), []
    for _ in range(2):
        policy.loss(transitions())
        seen.append([model(inputs, (), None)[0].detach().clone() for model in (policy.model, policy.target_model)])
    (online, target), (later, later_target) = seen
    assert not torch.equal(online, later) and not torch.equal(target, later_target) and not torch.equal(online, target)
