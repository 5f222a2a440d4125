"""The sign and size of each term of a loss, compared with the term computed here."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from lightning_rl.learning.metrics import mean_entropy
from lightning_rl.policies import APPO, PG, PPO, Policy
from lightning_rl.policies.advantages import NOISE, standardize_over_ranks
from lightning_rl.policies.sac import flat
from lightning_rl.sample_batch import SampleBatch
from tests.policies.off_policy_algorithms import small_policy, transitions
from tests.policies.rows_of_an_older_policy import ON_POLICY, policy_and_older_rows


def term(policy: Any, batch: SampleBatch, name: str, coefficient: Any) -> Tensor:
    """The loss with this coefficient minus the loss with a coefficient of 0."""
    losses = []
    for value in (0.0 * coefficient, coefficient):
        setattr(policy, name, value)
        losses.append(policy.loss(batch)[0].detach())
    return losses[1] - losses[0]


@pytest.mark.parametrize("policy_class", ON_POLICY)
def test_entropy_coef_times_entropy_is_subtracted_from_the_loss(policy_class: type[Policy]) -> None:
    policy, batch = policy_and_older_rows(policy_class)
    entropy = policy.distribution_and_values(batch)[0].entropy().mean().detach()
    assert entropy.abs() > 0.1
    assert_close(term(policy, batch, "entropy_coef", 0.3), -0.3 * entropy, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("policy_class", ON_POLICY)
def test_advantages_of_a_solved_task_do_not_become_as_large_as_those_of_one_that_is_learned(policy_class: Any) -> None:
    """They are the value network's errors; without rewards in deviations of the return, their unit is not known."""
    advantages = torch.randn(1000)
    for reward_filter, least in (("return_std", NOISE), ("none", 1e-4)):
        policy = policy_and_older_rows(policy_class, reward_filter=reward_filter)[0]
        for size in (0.1 * least, 10.0):
            deviation = standardize_over_ranks(policy, size * advantages).std()
            assert_close(deviation, torch.tensor(min(size / least, 1.0)), rtol=0.1, atol=0.0)


def test_mean_entropy_has_a_gradient_with_a_coefficient_above_0_only() -> None:
    policy, batch = policy_and_older_rows(PPO)
    for coefficient in (0.0, 0.3):
        assert mean_entropy(policy.distribution_and_values(batch)[0], coefficient).requires_grad is (coefficient > 0)


@pytest.mark.parametrize("policy_class", [*ON_POLICY, PG])
def test_the_reported_entropy_is_the_mean_in_nats(policy_class: type[Policy]) -> None:
    """Compared with torch's entropy of a normal distribution, summed over the action."""
    policy, batch = policy_and_older_rows(policy_class)
    dist = policy.distribution_of(batch)
    expected = torch.distributions.Normal(dist.mean, dist.log_std.exp()).entropy().sum(1).mean()
    assert_close(policy.loss(batch)[1]["entropy"].detach(), expected.detach())


def test_ppo_s_loss_does_not_depend_on_log_extra() -> None:
    policy, batch = policy_and_older_rows(PPO, entropy_coef=0.3)
    whole, metrics = policy.loss(batch)
    policy.log_extra = False
    loss, fewer = policy.loss(batch)
    assert_close(loss, whole)
    assert set(metrics) - set(fewer) == {"clip_fraction"} and {"approx_kl", "entropy"} <= set(fewer)
    policy.target_kl = None
    assert set(fewer) - set(policy.loss(batch)[1]) == {"approx_kl"}


@pytest.mark.parametrize("clip", [0.05, 0.2])
def test_ppo_s_clip_fraction_is_the_share_of_ratios_outside_the_clip(clip: float) -> None:
    policy, batch = policy_and_older_rows(PPO, clip=clip)
    ratio = (policy.distribution_of(batch).logp(batch.actions) - batch.action_logp).exp().detach()
    share = sum(abs(value - 1.0) > clip for value in ratio.tolist()) / len(ratio)
    assert 0.0 < share < 1.0
    assert policy.loss(batch)[1]["clip_fraction"].item() == pytest.approx(share)


@pytest.mark.parametrize(("approx_kl", "goes_on"), [(0.7, True), (0.75, True), (0.8, False)])
def test_ppo_s_keep_learning_is_false_beyond_1_5_times_target_kl(approx_kl: float, goes_on: bool) -> None:
    policy, _ = policy_and_older_rows(PPO, target_kl=0.5)
    assert policy.keep_learning({"approx_kl": torch.tensor(approx_kl)}) is goes_on
    assert policy.keep_learning({})  # after a loss of one's own, without this metric
    policy.target_kl = None
    assert policy.keep_learning({"approx_kl": torch.tensor(9.0)})


def test_rows_too_far_from_the_policy_are_not_learned_from_and_that_is_said() -> None:
    policy, batch = policy_and_older_rows(PPO)
    batch["action_logp"] = batch.action_logp - 3.0
    with pytest.warns(UserWarning, match="target_kl"):
        policy.learn_on_batch(batch)
    assert policy.gradient_steps == 0


@pytest.mark.parametrize("policy_class", ON_POLICY)
def test_value_coef_times_value_loss_is_added_to_the_loss(policy_class: type[Policy]) -> None:
    policy, batch = policy_and_older_rows(policy_class)
    metrics = policy.loss(batch)[1]
    assert metrics["value_loss"] > 0
    assert_close(term(policy, batch, "value_coef", 0.3), 0.3 * metrics["value_loss"].detach(), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("policy_class", [PPO, APPO])
def test_kl_coef_times_kl_from_the_old_policy_is_added_to_the_loss(policy_class: type[Policy]) -> None:
    """KL(π_old‖π), where π_old is the policy that acted (PPO) or the target network (APPO)."""
    policy, batch = policy_and_older_rows(policy_class, kl_coef=0.5)
    with torch.no_grad():
        dist = policy.distribution_and_values(batch)[0]
        old = (
            policy.distribution(batch.action_dist_inputs) if policy_class is PPO else policy.target_distribution(batch)
        )
        kl, reverse = old.kl(dist).mean(), dist.kl(old).mean()
    assert kl > 0.01 and (kl - reverse).abs() > 1e-3
    assert_close(term(policy, batch, "kl_coef", torch.tensor(0.5)), 0.5 * kl, rtol=1e-3, atol=1e-5)


def test_ppo_without_kl_coef_computes_no_kl_and_records_no_distribution_inputs() -> None:
    policy, batch = policy_and_older_rows(PPO)
    assert "kl" not in policy.loss(batch)[1] and "action_dist_inputs" not in batch
    policy, batch = policy_and_older_rows(PPO, kl_coef=0.5)
    assert policy.loss(batch)[1]["kl"] > 0.01 and "action_dist_inputs" in batch


@pytest.mark.parametrize("name", ["sac", "sac, redq", "tqc"])
def test_sac_and_tqc_targets_subtract_alpha_times_logp(name: str) -> None:
    """r + γ (Q − α log π), with equal actions at both temperatures."""
    policy, batch = small_policy(name), transitions(name)
    found = []
    for alpha in (0.0, 1.0):
        torch.manual_seed(0)
        found.append(policy.targets(batch, torch.tensor(alpha)).detach())
    torch.manual_seed(0)
    dist = policy.inputs_and_distribution(batch, following=True)[1]
    dist.rsample()
    bonus = -0.9 * dist.sampled_action_logp().detach()
    assert bonus.abs().max() > 0.1
    difference = found[1] - found[0]
    assert_close(difference, bonus.unsqueeze(1).expand_as(difference) if difference.dim() == 2 else bonus)


@pytest.mark.parametrize("name", ["sac", "sac, redq", "tqc"])
def test_the_gradient_of_log_alpha_is_sampled_entropy_minus_target_entropy(name: str) -> None:
    """d loss / d log α = −mean log π − H̄: critics and actor add nothing to it."""
    policy, batch = small_policy(name, target_entropy=-2.0), transitions(name)
    torch.manual_seed(0)
    policy.targets(batch, policy.log_alpha.exp())
    dist = policy.inputs_and_distribution(batch)[1]
    actions = dist.rsample()
    logp = dist.sampled_action_logp().detach()
    torch.manual_seed(0)
    loss, metrics = policy.loss(batch)
    assert_close(torch.autograd.grad(loss, policy.log_alpha)[0], -logp.mean() + 2.0)
    assert_close(metrics["entropy"], -logp.mean())
    with torch.no_grad():
        q_values = policy.actor_q_values(policy.critic(policy.inputs_of(batch), flat(actions)))
    assert_close(metrics["policy_loss"].detach(), (policy.log_alpha.exp().detach() * logp - q_values).mean())


@pytest.mark.parametrize("name", ["td3", "ddpg"])
def test_td3_and_ddpg_actors_climb_the_first_critic(name: str) -> None:
    policy, batch = small_policy(name, policy_delay=1), transitions(name)
    metrics = policy.loss(batch)[1]
    with torch.no_grad():
        inputs = policy.inputs_of(batch)
        q_values = policy.critic(inputs, policy.actor_actions(policy.model, inputs))[0].mean()
    assert_close(metrics["policy_loss"].detach(), -q_values)
