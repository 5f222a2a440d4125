"""What the losses of all algorithms that learn from replay have in common."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from lightning_rl.sample_batch import SampleBatch
from tests.policies.off_policy_algorithms import (
    ALL,
    CRITICS,
    each_algorithm,
    gradients,
    small_policy,
    td_errors,
    transitions,
)


@each_algorithm
def test_td_errors_of_rows_depend_on_the_next_observation_unless_they_terminated(name: str) -> None:
    """Rows with another next observation: the errors of terminated rows stay, those of all others change."""
    policy, ends = small_policy(name), torch.tensor([True, False] * 3)
    # Rewards of 5 put every target above the values of both critics.
    batch = transitions(name, terminated=ends, rewards=torch.full((6,), 5.0))
    found = td_errors(policy, batch)
    batch["next_obs"] = batch.next_obs + 1.0
    elsewhere = td_errors(policy, batch)
    assert_close(found[ends], elsewhere[ends], rtol=0, atol=1e-6)
    assert bool(((found - elsewhere).abs()[~ends] > 1e-5).all())


@pytest.mark.parametrize("name", ["dqn", "sac", "td3"])
def test_rows_of_a_fragment_bootstrap_where_the_episode_was_truncated(name: str) -> None:
    """Two environments, two steps each; one episode terminates, the other is truncated."""
    ends = torch.tensor([[False, False], [True, True]])
    fragment = SampleBatch(
        obs=torch.randn(3, 2, 3, generator=torch.Generator().manual_seed(1)),
        actions=torch.zeros(2, 2, 2) if name in CRITICS else torch.zeros(2, 2, dtype=torch.int64),
        rewards=torch.ones(2, 2),
        terminated=ends & torch.tensor([True, False]),
        truncated=ends & torch.tensor([False, True]),
        valid=torch.ones(2, 2, dtype=torch.bool),
        t=torch.tensor([[0, 0], [1, 1]], dtype=torch.int32),
    )
    policy = small_policy(name, gamma=0.5)
    found = td_errors(policy, policy.postprocess_trajectory(fragment)).view(2, 2)  # by environment and time
    fragment.obs[2] += 1.0  # the final observations
    again = td_errors(policy, policy.postprocess_trajectory(fragment)).view(2, 2)
    assert_close(((found - again).abs() > 1e-6), torch.tensor([[False, False], [False, True]]))


@each_algorithm
def test_td_errors_use_the_discount_of_the_row(name: str) -> None:
    """A discount of 0 is as a termination; where targets are linear in the discount, half of it gives the mean."""
    policy, six = small_policy(name), torch.ones(6)
    large = {"rewards": 5.0 * six}  # so that no error changes its sign
    discounts = [{"discounts": discount * six} for discount in (0.0, 0.45, 0.9)]
    none, half, whole, ended = (
        td_errors(policy, transitions(name, **columns, **large)) for columns in (*discounts, {"terminated": six.bool()})
    )
    assert_close(none, ended)
    if name in ("dqn", "dqn, plain", "dqn, dueling", "sac", "td3", "ddpg"):  # where targets are linear in it
        assert_close(half, (none + whole) / 2, rtol=1e-4, atol=1e-5)
    else:
        assert bool(((none - whole).abs() > 1e-6).all())


@pytest.mark.parametrize("name", [name for name in ALL if not name.startswith("c51")])
def test_td_errors_fall_as_rewards_rise(name: str) -> None:
    """Error = value − target. C51's error, a KL, has no sign; with several critics it is a mean of absolute errors.

    These fall as rewards rise where the rewards put the targets below every value.
    """
    policy = small_policy(name)
    rewards = (-21.0, -20.0) if hasattr(policy, "critic") else (0.0, 1.0)
    less, more = (td_errors(policy, transitions(name, rewards=torch.full((6,), reward))) for reward in rewards)
    assert bool((more < less).all())


@pytest.mark.parametrize("name", ["dqn, quantiles", "tqc"])
def test_quantile_fractions_are_the_midpoints_of_equal_shares(name: str) -> None:
    """Dabney et al. 2018: 1/8, 3/8, 5/8 and 7/8 for four quantiles; not saved, as they follow from that number."""
    policy = small_policy(name, num_quantiles=4)
    assert_close(policy.fractions, torch.tensor([0.125, 0.375, 0.625, 0.875]))
    assert "fractions" not in policy.state_dict()


@each_algorithm
def test_td_errors_and_target_networks_have_no_gradient(name: str) -> None:
    """And the parameters of these do not require one."""
    policy, batch = small_policy(name), transitions(name)
    loss, metrics = policy.loss(batch)
    assert loss.requires_grad and not metrics["td_errors"].requires_grad
    found = gradients(policy, batch)
    targets = [key for key in found if key.startswith("target_")]
    assert targets and not any(bool(found[key].any()) for key in targets)
    assert not any(p.requires_grad for key, p in policy.named_parameters() if key.startswith("target_"))


@each_algorithm
def test_importance_weights_scale_the_loss_of_each_row(name: str) -> None:
    """The loss is the mean of w · error: weights of 2 double it, and the losses of single rows add up to it."""
    policy = small_policy(name)

    def error(batch: SampleBatch) -> float:
        torch.manual_seed(0)
        loss, metrics = policy.loss(batch)
        return (metrics["value_loss"] if "critic" in dict(policy.named_children()) else loss).item()

    plain = error(transitions(name))
    assert error(transitions(name, weights=torch.full((6,), 2.0))) == pytest.approx(2 * plain, rel=1e-5)
    each = [error(transitions(name, weights=torch.eye(6)[row])) for row in range(6)]
    assert sum(each) == pytest.approx(plain, rel=1e-5) and min(each) > 0


def test_backward_writes_into_the_flat_gradient_after_a_hook_replaced_it() -> None:
    """A hook may clip by `parameter.grad = …`; the next gradient must not be that one."""
    policy = small_policy("dqn")
    policy.learn_on_batch(transitions("dqn"))
    (flat,) = policy.learner.optimizer.torch_optimizer.flat
    flat.parameter.grad = torch.full_like(flat.gradient, 7.0)
    policy.learner.optimizer.backward(policy.loss(transitions("dqn"))[0])
    assert flat.parameter.grad is flat.gradient and bool((flat.gradient != 7.0).all())
