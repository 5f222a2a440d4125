"""What the losses of algorithms that replay must do, seen from outside: rows in, TD errors, losses, gradients out."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.testing import assert_close

from lightning_rl.callbacks.metric_names import METRICS
from lightning_rl.errors import ConfigError
from lightning_rl.exploration import Exploration
from lightning_rl.losses.value import value_rescale
from lightning_rl.policies import DDPG, DQN, R2D2, SAC, TD3, TQC, Policy, Rainbow, SimpleQ
from lightning_rl.replay import ReplayBuffer
from lightning_rl.rollouts import RolloutWorker
from lightning_rl.sample_batch import SampleBatch
from tests.envs.classic_control import CARTPOLE
from tests.policies.off_policy_algorithms import (
    CRITICS,
    NORMED,
    OBS,
    Q_LEARNERS,
    SMALL,
    TWO,
    Draws,
    each_algorithm,
    each_with_critics,
    small_policy,
    transitions,
)


def td_errors(policy: Policy, batch: SampleBatch) -> Tensor:
    """Of the rows, with randomness that is always the same."""
    torch.manual_seed(0)
    policy.loss(batch)
    return batch["td_errors"]


def constant_q(model: Any, *values: float) -> None:
    """Q-values (or what stands for them) that are the same in every state."""
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    model.advantages.linear.bias.data = torch.tensor(values)


def vector(module: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in module.parameters()])


# -- targets ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("double", "following"), [(False, 10.0), (True, 3.0)])
def test_the_online_network_chooses_and_the_target_network_judges(double: bool, following: float) -> None:
    """Online Q(s') = (1, 2) chooses action 1; target Q(s') = (10, 3): its own best is 10, that of the choice 3."""
    policy = small_policy("dqn", double=double)
    constant_q(policy.model, 1.0, 2.0)
    constant_q(policy.target_model, 10.0, 3.0)
    found = td_errors(policy, transitions(rewards=torch.ones(6)))
    assert_close(found, torch.tensor([1.0, 2.0] * 3) - (1.0 + 0.9 * following))


@pytest.mark.parametrize(("policy_class", "keywords"), [(SimpleQ, {}), (DQN, {"double": False}), (DQN, {})])
def test_what_follows_is_the_best_allowed_action(policy_class: Any, keywords: dict[str, Any]) -> None:
    """Both networks say (10, 3), and 10 is forbidden next: Q(s, a) − (1 + 0.9 · 3)."""
    policy = policy_class(OBS, TWO, **SMALL, **keywords)
    constant_q(policy.model, 10.0, 3.0)
    constant_q(policy.target_model, 10.0, 3.0)
    now, following = torch.tensor([[True, True]]).expand(6, 2), torch.tensor([[False, True]]).expand(6, 2)
    found = td_errors(policy, transitions(rewards=torch.ones(6), action_mask=now, next_action_mask=following))
    assert_close(found, torch.tensor([10.0, 3.0] * 3) - 3.7)


@pytest.mark.parametrize(("double", "following"), [(False, 10.0), (True, 3.0)])
def test_the_online_network_chooses_among_quantiles_too(double: bool, following: float) -> None:
    """The same by means: quantiles (0, 2) and (1, 3) online, (9, 11) and (2, 4) of the target network."""
    policy = small_policy("dqn, quantiles", num_quantiles=2, double=double)
    constant_q(policy.model, 0.0, 2.0, 1.0, 3.0)
    constant_q(policy.target_model, 9.0, 11.0, 2.0, 4.0)
    found = td_errors(policy, transitions(rewards=torch.ones(6)))
    assert_close(found, torch.tensor([1.0, 2.0] * 3) - (1.0 + 0.9 * following))


def test_noise_of_the_target_network_is_drawn_for_each_gradient_step() -> None:
    """So nothing is computed ahead for several."""
    policy = small_policy("dqn", noisy=True, target_update_interval=8)
    batches = list(policy.batches_of(transitions(count=15), steps=5))
    assert len(batches) == 5 and not any("target_q" in batch or "td_targets" in batch for batch in batches)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("policy_class", [SimpleQ, DQN])
@pytest.mark.parametrize(("huber_delta", "expected"), [(1.0, 8.0), (2.0, 15.0), (None, 36.25)])
def test_errors_cost_linearly_beyond_huber_s_delta(
    policy_class: Any, huber_delta: float | None, expected: float, weighted: bool
) -> None:
    """Q(s, a) = 1 and 2, target 1 + 0.9 · 10: errors 9 and 8 cost δ (9 − δ/2) and δ (8 − δ/2), or half their squares.

    A weight of 1 changes nothing.
    """
    more = {"double": False} if policy_class is DQN else {}
    policy = policy_class(OBS, TWO, huber_delta=huber_delta, **SMALL, **more)
    constant_q(policy.model, 1.0, 2.0)
    constant_q(policy.target_model, 10.0, 3.0)
    batch = transitions(rewards=torch.ones(6), **({"weights": torch.ones(6)} if weighted else {}))
    assert policy.loss(batch)[0].item() == pytest.approx(expected)
    assert_close(batch["td_errors"], torch.tensor([-9.0, -8.0] * 3))


@pytest.mark.parametrize("name", Q_LEARNERS)
def test_targets_computed_for_several_steps_at_once_are_those_of_each_step(name: str) -> None:
    """Five gradient steps on a target network that moves after the second and the fourth, two of them in one go."""
    at_once, one_by_one = small_policy(name, target_update_interval=2), small_policy(name, target_update_interval=2)
    asked = count_calls(at_once.target_model)
    for number, batch in enumerate(at_once.batches_of(transitions(name, count=15), steps=5)):
        alone = transitions(name, count=15)[3 * number : 3 * number + 3]
        assert ("td_targets" in batch or "target_q" in batch) and "td_targets" not in alone
        found, expected = (stepped(policy, part) for policy, part in ((at_once, batch), (one_by_one, alone)))
        assert_close(found, expected, rtol=0, atol=1e-6)
    assert len(asked) == 3  # for 2, 2 and 1 steps


def test_targets_are_computed_for_the_steps_up_to_the_next_move_of_the_target_network() -> None:
    """One step was taken of three between moves: two more on 3 rows each, then three."""
    policy = small_policy("simple_q", target_update_interval=3)
    policy.gradient_steps = 1
    asked = count_calls(policy.target_model)
    for batch in policy.batches_of(transitions(count=15), steps=5):
        stepped(policy, batch)
    assert asked == [6, 9]


@pytest.mark.parametrize(("interval", "steps", "ahead"), [(8, 1, False), (8, 2, True), (1, 5, False)])
def test_targets_are_computed_ahead_where_several_steps_have_the_same(interval: int, steps: int, ahead: bool) -> None:
    batches = list(small_policy("simple_q", target_update_interval=interval).batches_of(transitions(count=10), steps))
    assert len(batches) == steps and all(("td_targets" in batch) is ahead for batch in batches)


def stepped(policy: Any, batch: SampleBatch) -> Tensor:
    """TD errors of a gradient step."""
    policy.learner.step(batch)
    return batch["td_errors"]


def count_calls(module: nn.Module) -> list[int]:
    """A list that grows with every forward: rows of each."""
    calls: list[int] = []
    module.register_forward_hook(lambda _, inputs, __: calls.append(len(inputs[0]["obs"])))
    return calls


@pytest.mark.parametrize("name", ["simple_q", "dqn", "dqn, plain", "c51"])
def test_scaled_rewards_are_those_of_each_step_where_targets_are_computed_ahead(name: str) -> None:
    """Three draws of one step each, and one draw of three: the same weights, and not those of raw rewards."""
    weights = []
    for reward_filter, draws in (("return_std", 1), ("return_std", 3), ("none", 3)):
        policy = small_policy(name, reward_filter=reward_filter, target_update_interval=500)
        batch = transitions(name, count=9)
        if policy.reward_filter.normaliser is not None:
            policy.reward_filter.normaliser.moments.update(torch.tensor([[0.0], [20.0]]))
        size = 9 // draws
        policy.training_step(Draws((batch[start : start + size], 3 // draws) for start in range(0, 9, size)))
        assert policy.gradient_steps == 3 and torch.equal(batch.rewards, transitions(name, count=9).rewards)
        weights.append(vector(policy.model))
    assert_close(weights[0], weights[1], rtol=0, atol=1e-6)
    assert float((weights[0] - weights[2]).abs().max()) > 1e-5


def test_replayed_rows_are_scaled_when_they_are_learned_from_alone_too() -> None:
    """Deviation 10: rewards of 1 are 0.1 in the loss, and the caller's batch gets the errors and keeps its rewards."""
    policy = small_policy("dqn", reward_filter="return_std", lr=0.0, target_update_interval=500)
    policy.reward_filter.normaliser.moments.update(torch.tensor([[0.0], [20.0]]))
    replayed, others = (transitions(rewards=torch.full((6,), reward)) for reward in (1.0, 0.1))
    replayed["batch_indexes"] = torch.arange(6)
    policy.learn_on_batch(replayed)
    policy.learn_on_batch(others)  # which nobody replayed: they are as they shall be
    assert_close(replayed["td_errors"], others["td_errors"])
    assert replayed.rewards.tolist() == [1.0] * 6
    gradients = [policy.learner.gradient_update(batch).gradients[0] for batch in (replayed, others)]
    np.testing.assert_allclose(*gradients, rtol=1e-5)


@each_algorithm
def test_a_terminated_row_does_not_look_at_what_follows_and_any_other_does(name: str) -> None:
    """A truncated row is one that is not terminated."""
    policy, ends = small_policy(name), torch.tensor([True, False] * 3)
    # Rewards of 5 put every target above the values of both critics.
    batch = transitions(name, terminated=ends, rewards=torch.full((6,), 5.0))
    found = td_errors(policy, batch)
    batch["next_obs"] = batch.next_obs + 1.0
    elsewhere = td_errors(policy, batch)
    assert_close(found[ends], elsewhere[ends], rtol=0, atol=1e-6)
    assert bool(((found - elsewhere).abs()[~ends] > 1e-5).all())


@pytest.mark.parametrize("name", ["dqn", "sac", "td3"])
def test_rows_of_a_fragment_bootstrap_where_it_was_truncated(name: str) -> None:
    """Two environments, two steps each; the first one's episode terminates, the other's is cut by a time limit."""
    generator = torch.Generator().manual_seed(1)
    box = name in CRITICS
    ends = torch.tensor([[False, False], [True, True]])
    fragment = SampleBatch(
        obs=torch.randn(3, 2, 3, generator=generator),
        actions=torch.zeros(2, 2, 2) if box else torch.zeros(2, 2, dtype=torch.int64),
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
def test_the_discount_is_that_of_the_row(name: str) -> None:
    """A discount of 0 is an end; the farther from 0, the more of what follows counts."""
    policy = small_policy(name)
    paid = {"rewards": torch.full((6,), 5.0)}  # so that no error changes its sign
    none, half, whole, ended = (
        td_errors(policy, batch)
        for batch in (
            *(transitions(name, discounts=torch.full((6,), discount), **paid) for discount in (0.0, 0.45, 0.9)),
            transitions(name, terminated=torch.ones(6, dtype=torch.bool), **paid),
        )
    )
    assert_close(none, ended)
    if name in ("dqn", "dqn, plain", "dqn, dueling", "sac", "td3", "ddpg"):  # where targets are linear in it
        assert_close(half, (none + whole) / 2, rtol=1e-4, atol=1e-5)
    else:
        assert bool(((none - whole).abs() > 1e-6).all())


@each_algorithm
def test_the_more_a_row_pays_the_lower_is_its_td_error(name: str) -> None:
    """Error = value − target; C51's is a cross entropy, which has no sign, and of several critics they have none."""
    if name.startswith("c51"):
        return
    policy, several = small_policy(name), "critic" in dict(small_policy(name).named_children())
    rewards = (-20.0, -21.0) if several else (0.0, 1.0)  # below every value: there the sizes fall with the errors
    less, more = (td_errors(policy, transitions(name, rewards=torch.full((6,), reward))) for reward in sorted(rewards))
    assert bool((more < less).all())


@pytest.mark.parametrize("name", ["sac", "td3", "tqc", "sac, discrete"])
def test_errors_of_several_critics_do_not_cancel_out(name: str) -> None:
    """Critics that say t + 3 and t − 1 where the target is t: the row is surprising by (3 + 1) / 2, not by 1.

    The mean that is reported is that of what they say, t + 1.
    """
    policy = small_policy(name, **({"dropped_quantiles": 0} if name == "tqc" else {}))
    for parameter in policy.critic.parameters():
        nn.init.zeros_(parameter)
    size = policy.critic.networks.biases[-1].shape[-1]
    policy.critic.networks.biases[-1].data = torch.tensor([23.0, 19.0]).view(2, 1, 1).expand(2, 1, size).clone()
    ended = torch.ones(6, dtype=torch.bool)
    batch = transitions(name, rewards=torch.full((6,), 20.0), terminated=ended)
    assert_close(td_errors(policy, batch), torch.full((6,), 2.0))
    assert_close(policy.loss(batch)[1]["q_mean"], torch.tensor(21.0))


class Pays(Exploration):
    """Half a reward for every step."""

    def postprocess_trajectory(self, policy: Any, batch: SampleBatch) -> SampleBatch:
        return SampleBatch(dict(batch.items()), intrinsic_rewards=torch.full_like(batch.rewards, 0.5))


def paid_rows(reward_filter: str, rewards: list[float], **keywords: Any) -> tuple[Any, SampleBatch]:
    """A policy whose returns deviate by 2 or so; rows of one episode of these rewards, out of a replay buffer."""
    policy = small_policy("dqn", exploration={"type": Pays}, reward_filter=reward_filter, gamma=0.5)
    count = len(rewards)
    columns = {"actions": torch.zeros(count, 1, dtype=torch.int64), "obs": torch.arange(3.0 * count + 3).view(-1, 1, 3)}
    fragment = SampleBatch(columns, rewards=torch.tensor(rewards).unsqueeze(1), t=torch.arange(count).unsqueeze(1))
    for name in ("terminated", "truncated"):
        fragment[name] = torch.zeros(count, 1, dtype=torch.bool)
    fragment["valid"] = torch.ones(count, 1, dtype=torch.bool)
    raw = fragment.rewards.clone()
    buffer = ReplayBuffer(100, gamma=0.5, **keywords)
    buffer.add(policy.learner.take_experience(fragment))
    assert torch.equal(fragment.rewards, raw) and policy.env_steps == count
    assert buffer.ring is not None
    return policy, buffer.rows(buffer.ring.ids(np.arange(count)))


@pytest.mark.parametrize(
    ("n_step", "expected"),
    [
        (1, [1.5, -0.5, 1.5]),
        (2, [1.5 - 0.25, -0.5 + 0.75, 1.5]),  # γ = ½; the newest row sums one reward
    ],
)
def test_what_the_exploration_pays_comes_on_top_of_clipped_rewards(n_step: int, expected: list[float]) -> None:
    policy, rows = paid_rows("sign", [3.0, -2.0, 7.0], n_step=n_step)
    assert policy.learner.scale_rewards(rows).rewards.tolist() == expected
    assert "intrinsic_rewards" in rows and "intrinsic_rewards" not in policy.learner.scale_rewards(rows)


def test_what_the_exploration_pays_is_not_scaled_with_the_rewards() -> None:
    """Deviation 10: 3 + γ (−2) + γ² 7 = 3.75 becomes 0.375, and three times ½, discounted, is 0.875 on top."""
    policy, rows = paid_rows("return_std", [3.0, -2.0, 7.0], n_step=3)
    moments = policy.reward_filter.normaliser.moments
    moments.m2.copy_(100.0 * moments.count)
    assert policy.learner.scale_rewards(rows).rewards[0].item() == pytest.approx(0.375 + 0.875)


def test_each_scaled_reward_is_clipped_and_not_their_sum() -> None:
    """Deviation 1, γ = ½: 7, 8 and 30 become 7, 8 and 10, so 7 + 4 + 2.5. Their sum of 18.5 would become 10."""
    policy, rows = paid_rows("return_std", [7.0, 8.0, 30.0], n_step=3)
    moments = policy.reward_filter.normaliser.moments
    moments.m2.copy_(moments.count)
    assert rows["step_rewards"].tolist() == [[7.0, 8.0, 30.0], [8.0, 30.0, 0.0], [30.0, 0.0, 0.0]]
    assert policy.learner.scale_rewards(rows).rewards.tolist() == pytest.approx([13.5 + 0.875, 13.0 + 0.75, 10.5])
    assert "step_rewards" not in policy.learner.scale_rewards(rows)


@pytest.mark.parametrize("interval", [1, 3])
def test_a_hard_target_moves_at_its_interval_and_not_before(interval: int) -> None:
    policy: Any = DQN(OBS, TWO, target_update_interval=interval, tau=1.0, **SMALL)
    for step in range(1, 7):
        before = vector(policy.target_model)
        policy.learn_on_batch(transitions())
        moved = vector(policy.model if step % interval == 0 else policy.target_model)
        assert_close(vector(policy.target_model), moved if step % interval == 0 else before, rtol=0, atol=0)
        assert not torch.equal(vector(policy.model), before)


def test_a_target_that_moves_at_every_step_follows_softly_unless_told_otherwise() -> None:
    """An interval alone, as other packages have it, is one between copies."""
    taus = [DQN(OBS, TWO, **SMALL, **more).tau for more in ({}, {"target_update_interval": 8}, {"tau": 0.5})]
    assert taus == [0.005, 1.0, 0.5]


@pytest.mark.parametrize("name", ["sac", "ddpg"])
def test_a_soft_target_moves_by_tau_at_every_step(name: str) -> None:
    policy = small_policy(name, tau=0.25)
    for _ in range(3):
        before = vector(policy.target_critic)
        policy.learn_on_batch(transitions(name))
        assert_close(vector(policy.target_critic), 0.75 * before + 0.25 * vector(policy.critic))


# -- heads ------------------------------------------------------------------------------------------------------------
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
def test_a_head_makes_q_values_but_where_a_custom_model_alone_does(
    custom: bool, hiddens: list[int], dueling: bool, widths: list[int] | None
) -> None:
    """Widths of the head's layers; a model of one's own without hidden layers or parts after it gives Q-values."""
    policy = small_policy("dqn", hiddens=hiddens, dueling=dueling, **(NORMED if custom else {}))
    head = policy.model.advantages
    linear = [] if head is None else [layer for layer in head.modules() if isinstance(layer, nn.Linear)]
    assert sorted(layer.out_features for layer in linear) == sorted(widths or [])
    assert (policy.model.state_value is not None) is dueling
    assert policy.q_values(policy.model, transitions())[0].shape == (6, 2)


def test_the_dueling_head_adds_the_advantage_over_the_mean() -> None:
    """V = 2, A = (1, 3): Q = 2 + (1 − 2, 3 − 2)."""
    policy = small_policy("dqn, dueling")
    constant_q(policy.model, 1.0, 3.0)
    policy.model.state_value.linear.bias.data = torch.tensor([2.0])
    values, returns = policy.q_values(policy.model, transitions())
    assert_close(values, torch.tensor([[1.0, 3.0]]).expand(6, 2))
    assert returns.shape == (6, 2)


def test_the_atoms_of_c51_are_a_distribution_whose_mean_is_the_value() -> None:
    """Atoms −1, 0, 1; action 0 has probabilities (½, ½, 0), action 1 (0, ½, ½)."""
    policy = small_policy("c51", num_atoms=3, v_min=-1.0, v_max=1.0)
    constant_q(policy.model, 0.0, 0.0, -50.0, -50.0, 0.0, 0.0)
    values, returns = policy.q_values(policy.model, transitions())
    assert returns.shape == (6, 2, 3)
    assert_close(values, torch.tensor([[-0.5, 0.5]]).expand(6, 2))
    assert policy.compute_single_action(np.zeros(3, np.float32), explore=False) == 1


def test_the_quantiles_mean_is_the_value() -> None:
    policy = small_policy("dqn, quantiles", num_quantiles=2)
    constant_q(policy.model, 0.0, 2.0, 5.0, 6.0)
    values, returns = policy.q_values(policy.model, transitions())
    assert returns.shape == (6, 2, 2)
    assert_close(values, torch.tensor([[1.0, 5.5]]).expand(6, 2))


@pytest.mark.parametrize("name", ["dqn, quantiles", "tqc"])
def test_quantiles_stand_for_the_middles_of_equal_shares(name: str) -> None:
    """Dabney et al. 2018: four of them for 1/8, 3/8, 5/8 and 7/8; they follow from their number and are not saved."""
    policy = small_policy(name, num_quantiles=4)
    assert_close(policy.fractions, torch.tensor([0.125, 0.375, 0.625, 0.875]))
    assert "fractions" not in policy.state_dict()


def test_the_ends_of_c51_s_support() -> None:
    """Two atoms are the fewest; ends that are no range are refused; whole numbers may be of any size."""
    fewest = small_policy("c51", num_atoms=2, v_min=-3.0, v_max=5.0)
    assert_close(fewest.model.support, torch.tensor([-3.0, 5.0]))
    assert_close(fewest.target_model.support, torch.tensor([-3.0, 5.0]))
    fewest.log_extra = True
    assert "support_clipped" in fewest.loss(transitions())[1]
    fewest.log_extra = False
    assert fewest.loss(transitions())[1] == {}
    assert small_policy("c51", v_min=0, v_max=2**70).model.support[-1] == 2.0**70
    with pytest.raises(ConfigError, match=r"v_min=1\.0, policy\.v_max=1\.0"):
        small_policy("c51", v_min=1.0, v_max=1.0)


@pytest.mark.parametrize(("huber_delta", "kappa"), [(2.0, 2.0), (None, 1.0)])
def test_quantiles_cost_huber_s_error_weighted_by_their_share(huber_delta: float | None, kappa: float) -> None:
    """One state, quantiles 0 and 4 at the shares ¼ and ¾, both targets 1: errors 1 and −3, Huber's of which are
    ½ and κ (3 − κ/2), are weighted by ¼ and by |¾ − 1| and divided by κ."""
    policy = small_policy("dqn, quantiles", num_quantiles=2, huber_delta=huber_delta)
    constant_q(policy.model, 0.0, 4.0, 0.0, 4.0)
    batch = transitions(rewards=torch.ones(6), terminated=torch.ones(6, dtype=torch.bool))
    loss, _ = policy.loss(batch)
    assert loss.item() == pytest.approx((0.25 * 0.5 + 0.25 * kappa * (3.0 - kappa / 2)) / kappa)
    assert not batch["td_errors"].requires_grad and batch["td_errors"].tolist() == [1.0] * 6


def test_rows_of_quantiles_are_as_surprising_as_their_means() -> None:
    """Q of action 0 is the mean 1 of 0 and 2, the target 1 + 0.9 · 4 of 3 and 5 by its own choice: 1 − 4.6."""
    policy = small_policy("dqn, quantiles", num_quantiles=2, double=False)
    constant_q(policy.model, 0.0, 2.0, 0.0, 2.0)
    constant_q(policy.target_model, 3.0, 5.0, 0.0, 0.0)
    found = td_errors(policy, transitions(rewards=torch.ones(6)))
    assert_close(found, torch.full((6,), -3.6))


def test_c51_learns_the_projected_distribution() -> None:
    """Atoms 0, 1, 2. Target: atom 1 surely, reward ½, discount 1: half of it on atom 1, half on atom 2.

    The online network says (⅓, ⅓, ⅓): the cross entropy is log 3, the gradient of its logits ⅓ − target.
    """
    policy = small_policy("c51", num_atoms=3, v_min=0.0, v_max=2.0, double=False)
    constant_q(policy.model, *[0.0] * 6)
    constant_q(policy.target_model, -50.0, 0.0, -50.0, -50.0, 0.0, -50.0)
    batch = transitions(
        rewards=torch.full((6,), 0.5), discounts=torch.ones(6), actions=torch.zeros(6, dtype=torch.int64)
    )
    loss, _ = policy.loss(batch)
    loss.backward()
    assert loss.item() == pytest.approx(np.log(3.0), rel=1e-5)
    assert_close(policy.model.advantages.linear.bias.grad[:3], torch.tensor([1 / 3, 1 / 3 - 0.5, 1 / 3 - 0.5]))


def test_two_atoms_are_a_distribution_too() -> None:
    """Atoms 0 and 1, reward ¼ at an end: the target is (¾, ¼), and log 2 what (½, ½) costs."""
    policy = small_policy("c51", num_atoms=2, v_min=0.0, v_max=1.0)
    constant_q(policy.model, *[0.0] * 4)
    batch = transitions(rewards=torch.full((6,), 0.25), terminated=torch.ones(6, dtype=torch.bool))
    loss, _ = policy.loss(batch)
    loss.backward()
    assert loss.item() == pytest.approx(math.log(2.0))
    assert_close(policy.model.advantages.linear.bias.grad, torch.tensor([-0.25, 0.25, -0.25, 0.25]) / 2)


def test_c51_draws_by_how_far_a_row_is_from_its_target_not_by_how_random_it_is() -> None:
    """Rainbow's KL(target‖Z). The target is (0, ½, ½): cross-entropy log 3 against (⅓, ⅓, ⅓), less its entropy log 2;
    a network that says the target itself has a cross-entropy of log 2, and nothing to learn."""
    policy = small_policy("c51", num_atoms=3, v_min=0.0, v_max=2.0, double=False)
    constant_q(policy.model, *[0.0] * 3, -50.0, 0.0, 0.0)
    constant_q(policy.target_model, -50.0, 0.0, -50.0, -50.0, 0.0, -50.0)
    batch = transitions(
        rewards=torch.full((6,), 0.5), discounts=torch.ones(6), actions=torch.tensor([0, 1, 0, 1, 0, 1])
    )
    policy.loss(batch)
    assert_close(batch["td_errors"], torch.tensor([math.log(1.5), 0.0]).repeat(3), atol=1e-5, rtol=1e-5)
    assert not batch["td_errors"].requires_grad and float(batch["td_errors"].min()) >= 0.0


@pytest.mark.parametrize(("reward", "warned"), [(1.0, 0), (30.0, 1)])
def test_c51_warns_once_when_returns_leave_its_support(reward: float, warned: int, caplog: Any) -> None:
    """Half of 11 even atoms from −10 to 10 at γ = 0.9: with r = 1 none lands half an atom outside, with r = 30 all."""
    policy = small_policy("c51", gamma=0.9)
    constant_q(policy.model, *[0.0] * 22)
    constant_q(policy.target_model, *[0.0] * 22)
    batch = transitions(rewards=torch.full((6,), reward), terminated=torch.zeros(6, dtype=torch.bool))
    for _ in range(3):
        metrics = policy.learn_on_batch(batch)
    assert metrics["support_clipped"] == pytest.approx(float(warned), abs=0.05)
    messages = [record.getMessage() for record in caplog.records if "policy.v_min" in record.getMessage()]
    assert len(messages) == warned and all("100 %" in message and "[-10, 10]" in message for message in messages)
    assert "train/support_clipped" in METRICS


def test_c51_warns_beyond_three_tenths(caplog: Any) -> None:
    policy = small_policy("c51")
    for metrics in ({}, {"support_clipped": 0.3}):
        policy.after_iteration(metrics)
    assert not caplog.records
    policy.after_iteration({"support_clipped": 0.4})
    assert "40 %" in caplog.records[0].getMessage()


def test_two_atoms_and_two_quantiles_exclude_each_other() -> None:
    with pytest.raises(ConfigError, match="exclude each other"):
        DQN(OBS, TWO, num_atoms=2, num_quantiles=2)


def test_a_keyword_that_an_optimizer_does_not_have_is_refused_when_the_policy_is_made() -> None:
    """The ε that Rainbow and R2D2 give Adam means nothing to SGD."""
    for policy_class in (Rainbow, R2D2):
        with pytest.raises(ConfigError, match=r"no key 'policy\.optimizer_kwargs\.eps'"):
            policy_class(OBS, TWO, optimizer="sgd")
        policy_class(OBS, TWO, optimizer="sgd", optimizer_kwargs=None)
    assert Rainbow(OBS, TWO).learner.optimiser.torch_optimizer.param_groups[0]["eps"] == 1.5e-4
    assert R2D2(OBS, TWO).learner.optimiser.torch_optimizer.param_groups[0]["eps"] == 1e-3


@pytest.mark.parametrize("policy_class", [SAC, TQC, TD3, DDPG])
def test_an_action_may_be_a_single_number_without_an_axis(policy_class: type[Policy]) -> None:
    """A Box of shape `()` is learned from as one of shape `(1,)` is."""
    actions = torch.linspace(-0.9, 0.9, 6)
    losses = []
    for shape in ((), (1,)):
        policy = policy_class(OBS, spaces.Box(-1, 1, shape), **SMALL, seed=1)
        torch.manual_seed(0)
        losses.append(policy.loss(transitions(actions=actions.view(6, *shape)))[0])
    assert torch.equal(*losses)


# -- who learns from what ---------------------------------------------------------------------------------------------
def gradients(policy: Any, batch: SampleBatch) -> dict[str, Tensor]:
    """By parameter, of one loss, on TD3's turn to train the actor."""
    policy.gradient_steps = 1
    policy.zero_grad()
    torch.manual_seed(0)
    policy.loss(batch)[0].backward()
    return {key: torch.zeros_like(p) if p.grad is None else p.grad.clone() for key, p in policy.named_parameters()}


@each_with_critics
def test_actor_and_critics_learn_from_their_own_losses_only(name: str) -> None:
    """Weights scale the critics' error alone: with none, critics get no gradient; the actor's never changes."""
    policy = small_policy(name)
    with_error, without = (
        gradients(policy, transitions(name, weights=torch.full((6,), weight))) for weight in (1.0, 0.0)
    )
    for key in with_error:
        if key.startswith("critic."):
            assert float(with_error[key].abs().max()) > 0 and float(without[key].abs().max()) == 0
        elif key.startswith("model.") and "value" not in key:
            assert float(without[key].abs().max()) > 0
            assert_close(with_error[key], without[key], rtol=0, atol=0)


@each_with_critics
def test_actor_and_critics_descend_the_losses_that_are_reported(name: str) -> None:
    policy, batch = small_policy(name), transitions(name)
    policy.gradient_steps = 1
    loss, metrics = policy.loss(batch)
    for part, reported in ((policy.model, "policy_loss"), (policy.critic, "value_loss")):
        parameters = list(part.parameters())
        whole, own = (
            torch.autograd.grad(value, parameters, retain_graph=True, allow_unused=True, materialize_grads=True)
            for value in (loss, metrics[reported])
        )
        assert max(float(gradient.abs().max()) for gradient in own) > 1e-4
        assert_close(whole, own)


@pytest.mark.parametrize("name", ["dqn", "c51", "simple_q"])
def test_q_learning_reports_means_of_the_actions_taken(name: str) -> None:
    """Q = 1 and 2 (C51: the atoms −10 and 10 surely), taken in turn; the target is 1¼: errors −¼ and ¾."""
    policy = small_policy(name, **({"num_atoms": 2} if name == "c51" else {}))
    constant_q(policy.model, *([90.0, 0.0, 0.0, 90.0] if name == "c51" else [1.0, 2.0]))
    metrics = policy.loss(transitions(rewards=torch.full((6,), 1.25), terminated=torch.ones(6, dtype=torch.bool)))[1]
    assert metrics["q_mean"].item() == pytest.approx(0.0 if name == "c51" else 1.5)
    if name != "c51":
        assert metrics["td_error"].item() == pytest.approx(0.5)


@each_algorithm
def test_td_errors_that_a_buffer_keeps_hold_no_graph(name: str) -> None:
    batch = transitions(name)
    assert small_policy(name).loss(batch)[0].requires_grad and not batch["td_errors"].requires_grad


def test_sac_reports_what_only_curves_need_where_it_diagnoses() -> None:
    policy = small_policy("sac", initial_alpha=0.25)
    assert policy.loss(transitions("sac"))[1]["alpha"].item() == pytest.approx(0.25)
    policy.log_extra = False
    assert set(policy.loss(transitions("sac"))[1]) == {"value_loss", "policy_loss"}


@each_algorithm
def test_no_gradient_flows_into_targets(name: str) -> None:
    """What follows makes no difference to who gets a gradient: nothing of the target networks ever has one."""
    policy = small_policy(name)
    found = gradients(policy, transitions(name))
    targets = [key for key in found if key.startswith("target_")]
    assert targets and all(float(found[key].abs().max()) == 0 for key in targets)
    assert not any(p.requires_grad for key, p in policy.named_parameters() if key.startswith("target_"))


@each_algorithm
def test_weights_scale_the_rows_errors(name: str) -> None:
    """The mean of w · e: a weight of 2 doubles it, and (1, 0, 0, …) leaves a sixth of the first row's error."""
    policy = small_policy(name)

    def error(batch: SampleBatch) -> float:
        torch.manual_seed(0)
        loss, metrics = policy.loss(batch)
        return (metrics["value_loss"] if "critic" in dict(policy.named_children()) else loss).item()

    plain = error(transitions(name))
    assert error(transitions(name, weights=torch.full((6,), 2.0))) == pytest.approx(2 * plain, rel=1e-5)
    each = [error(transitions(name, weights=torch.eye(6)[row])) for row in range(6)]
    assert sum(each) == pytest.approx(plain, rel=1e-5) and min(each) > 0


def test_td3_s_actor_rests_in_between_with_its_moments_and_the_targets() -> None:
    policy = small_policy("td3", policy_delay=3, tau=0.5)
    parts = {part: getattr(policy, part) for part in ("model", "critic", "target_model", "target_critic")}
    for step in range(1, 7):
        before = {part: vector(module) for part, module in parts.items()}
        moments = [copy.deepcopy(policy.learner.optimiser.torch_optimizer.state[p]) for p in actor_group(policy)]
        policy.learn_on_batch(transitions("td3"))
        assert not torch.equal(before["critic"], vector(policy.critic))
        same = {part: torch.equal(before[part], vector(module)) for part, module in parts.items() if part != "critic"}
        assert set(same.values()) == {step % 3 != 0}, f"step {step}: {same}"
        now = [policy.learner.optimiser.torch_optimizer.state[p] for p in actor_group(policy)]
        assert all(map(moments_equal, moments, now)) == (step % 3 != 0)
        if step % 3 == 0:
            for part in ("model", "critic"):
                halfway = (before[f"target_{part}"] + vector(parts[part])) / 2
                assert_close(vector(parts[f"target_{part}"]), halfway)


def test_td3_s_actor_rests_where_gradients_come_from_elsewhere_too() -> None:
    policy = small_policy("td3", policy_delay=3)
    moved = []
    for _ in range(6):
        before = {part: vector(getattr(policy, part)) for part in ("model", "critic")}
        policy.apply_gradients(policy.compute_gradients(transitions("td3"))[0])
        assert not torch.equal(before["critic"], vector(policy.critic))
        moved.append(not torch.equal(before["model"], vector(policy.model)))
    assert moved == [False, False, True] * 2


def actor_group(policy: Any) -> list[Any]:
    """What the optimizer steps at every so manieth gradient step."""
    return next(group["params"] for group in policy.learner.optimiser.torch_optimizer.param_groups if "every" in group)


def moments_equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Of one parameter; none at all before its first step."""
    return set(one) == set(other) and all(torch.equal(one[key], other[key]) for key in one)


def test_td3_s_first_critic_teaches_the_actor_and_the_lowest_makes_the_target() -> None:
    """Critics that say 3 and −1 wherever they are asked: the target is r + 0.9 · (−1)."""
    policy = small_policy("td3", target_noise=0.0)
    for parameter in policy.target_critic.parameters():
        nn.init.zeros_(parameter)
    policy.target_critic.networks.biases[-1].data = torch.tensor([3.0, -1.0]).view(2, 1, 1)
    for parameter in policy.critic.parameters():
        nn.init.zeros_(parameter)
    assert_close(td_errors(policy, transitions("td3", rewards=torch.ones(6))), torch.full((6,), 1.0 - 0.9))
    policy.critic.networks.weights[0].data[1] = 1.0  # only of the second critic, which nobody climbs
    policy.critic.networks.weights[1].data[1] = 1.0
    found = gradients(policy, transitions("td3"))
    assert all(float(value.abs().max()) == 0 for key, value in found.items() if key.startswith("model."))


class FirstAction(nn.Module):
    """A critic that says the action."""

    def forward(self, inputs: Any, actions: Tensor) -> Tensor:
        return actions[None, :, 0]


@pytest.mark.parametrize(("noise", "clip"), [(100.0, 0.25), (1e-9, 0.25), (100.0, 0.0)])
def test_target_actions_are_disturbed_within_the_clip_and_the_space(noise: float, clip: float) -> None:
    """A target critic that says its first input action: −1 to 1 it is, and within ± clip of the actor's."""
    policy = small_policy("td3", target_noise=noise, target_noise_clip=clip, num_critics=1)
    policy.target_critic = FirstAction()
    batch = transitions("td3", count=200)
    undisturbed = policy.actor_actions(policy.target_model, policy.input_dict(batch.next_obs))[:, 0]
    found = policy.bootstrap_values(batch)
    distance = (found - undisturbed).abs()
    assert float(found.abs().max()) <= 1.0 and float(distance.max()) <= clip + 1e-6
    if noise > 1 and clip:
        assert float((distance - clip).abs().median()) < 1e-6  # nearly all noise is cut


@pytest.mark.parametrize("name", ["sac", "tqc", "td3", "sac, discrete"])
def test_target_critics_are_told_that_they_rest_and_the_others_that_they_are_trained(name: str) -> None:
    """A model of one's own may read it, where modes of modules do not reach."""
    policy = small_policy(name).train()
    told: dict[str, set[bool]] = {}
    for part, network in policy.named_children():
        if part in ("model", "critic", "target_model", "target_critic"):
            network.register_forward_pre_hook(
                lambda _, inputs, part=part: told.setdefault(part, set()).add(inputs[0]["is_training"])
            )
    policy.gradient_steps = 1
    policy.loss(transitions(name))
    assert told == {part: {not part.startswith("target_")} for part in told} and len(told) >= 3


def test_a_forbidden_action_of_discrete_sac_has_no_probability_now_and_next() -> None:
    policy, mask = small_policy("sac, discrete"), torch.tensor([[True, False], [False, True]]).repeat(3, 1)
    batch = transitions(action_mask=mask, next_action_mask=~mask)
    for following, allowed in ((False, mask), (True, ~mask)):
        _, dist = policy.inputs_and_distribution(batch, following=following)
        assert_close(dist.log_probs().exp(), allowed.float())


@pytest.mark.parametrize("name", ["sac", "tqc", "td3", "ddpg"])
def test_actions_of_any_shape_are_judged_as_vectors(name: str) -> None:
    """2 × 2 numbers, and the same four in a row."""
    policy_class, keywords = CRITICS[name]
    actions, found = torch.rand(6, 2, 2, generator=torch.Generator().manual_seed(1)) - 0.5, []
    for shape in ((2, 2), (4,)):
        policy: Any = policy_class(OBS, spaces.Box(-1, 1, shape), seed=1, **SMALL, **keywords)
        policy.gradient_steps = 1
        torch.manual_seed(0)
        found.append(policy.loss(transitions(name, actions=actions.view(6, *shape))))
    assert_close(found[0][0], found[1][0])
    assert_close(found[0][1], found[1][1])


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_of_target_critics_only_networks_with_dropout_are_in_train_mode(dropout: float) -> None:
    policy = small_policy("sac", critic_dropout=dropout, **NORMED).train()
    target = policy.target_critic
    assert target.networks.training is (dropout > 0)
    assert not target.training and not any(module.training for module in target.encoder.modules())
    assert all(module.training for module in policy.critic.modules())


@pytest.mark.parametrize(
    ("delay", "actor_scale", "expected"),
    [
        (1, 3.0, {("critic", "model"): (3.0, 1)}),
        (1, 2.0, {("critic",): (3.0, 1), ("model",): (2.0, 1)}),
        (2, 3.0, {("critic",): (3.0, 1), ("model",): (3.0, 2)}),
    ],
)
def test_td3_s_actor_and_critics_have_their_own_learning_rates_and_turns(
    delay: int, actor_scale: float, expected: dict[tuple[str, ...], tuple[float, int]]
) -> None:
    """Learned together where both are the same; weights that are frozen, and targets, are in no group."""
    policy = small_policy("td3", policy_delay=delay, actor_lr_scale=actor_scale, critic_lr_scale=3.0)
    fixed = [policy.model.head.linear.bias, policy.critic.networks.biases[0]]
    for parameter in fixed:
        parameter.requires_grad_(False)
    names = {id(parameter): key for key, parameter in policy.named_parameters()}
    found = [{names[id(p)] for p in group["params"]} for group in policy.parameter_groups()]
    learned = {key for key, p in policy.named_parameters() if not key.startswith("target_") and p.requires_grad}
    assert set().union(*found) == learned and sum(map(len, found)) == len(learned) == len(names) // 2 - len(fixed)
    parts = [tuple(sorted({key.split(".")[0] for key in keys})) for keys in found]
    settings = [(group["lr_scale"], group.get("every", 1)) for group in policy.parameter_groups()]
    assert dict(zip(parts, settings, strict=True)) == expected


def test_bounds_of_target_actions_are_td3_s_own_and_not_saved() -> None:
    """Not a view of the space's arrays; they follow from the space."""
    space = spaces.Box(-3.0, 5.0, (2,))
    policy: Any = TD3(OBS, space, normalize_actions=False, **SMALL)
    space.low[:], space.high[:] = 0.0, 0.0
    assert policy.low.tolist() == [-3.0, -3.0] and policy.high.tolist() == [5.0, 5.0]
    assert not {"low", "high"} & set(policy.state_dict())


def test_noise_of_target_actions_is_as_large_as_asked_and_lies_on_both_sides() -> None:
    """Of an actor that says 0: deviation 0.1, where ± 0.25 cuts hardly anything."""
    policy = small_policy("td3", target_noise=0.1, target_noise_clip=0.25, num_critics=1)
    policy.target_critic = FirstAction()
    for parameter in policy.target_model.parameters():
        nn.init.zeros_(parameter)
    torch.manual_seed(0)
    found = policy.bootstrap_values(transitions("td3", count=2000))
    assert abs(float(found.mean())) < 0.01 and float(found.std()) == pytest.approx(0.1, rel=0.1)


# -- SAC --------------------------------------------------------------------------------------------------------------
def test_the_better_of_two_actions_is_taken_nine_times_in_ten_by_default() -> None:
    """A bandit that pays 0 or 1. An entropy of ½ log 2 leaves p = 0.89; one of 0.98 log 2, the paper's, p = 0.58."""
    policy = SAC(OBS, TWO, model={"fcnet_hiddens": [16]}, lr=1e-2, initial_alpha=0.1, tau=0.1)
    actions = torch.arange(64) % 2
    batch = SampleBatch(
        obs=torch.zeros(64, 3),
        next_obs=torch.zeros(64, 3),
        actions=actions,
        rewards=actions.float(),
        terminated=torch.ones(64, dtype=torch.bool),
        discounts=torch.zeros(64),
    )
    for _ in range(400):
        policy.learn_on_batch(batch)
    probability = policy.distribution_of(batch).log_probs().exp()[0, 1].item()
    assert 0.85 < probability < 0.93


@pytest.mark.parametrize("name", ["sac", "sac, discrete"])
@pytest.mark.parametrize(("target_entropy", "sign"), [(50.0, 1), (-50.0, -1)])
def test_the_temperature_moves_the_entropy_towards_its_target(name: str, target_entropy: float, sign: int) -> None:
    """Too little entropy: the temperature rises, and the other way round."""
    policy = small_policy(name, target_entropy=target_entropy)
    before = policy.log_alpha.item()
    for _ in range(3):
        policy.learn_on_batch(transitions(name))
    assert sign * (policy.log_alpha.item() - before) > 0


def test_the_temperature_s_gradient_is_entropy_less_its_target() -> None:
    policy = small_policy("sac", target_entropy=-2.0)
    batch = transitions("sac")
    torch.manual_seed(0)
    loss, metrics = policy.loss(batch)
    loss.backward()
    assert policy.log_alpha.grad.item() == pytest.approx(metrics["entropy"].item() + 2.0, rel=1e-5)


@pytest.mark.parametrize("name", ["sac", "sac, discrete"])
def test_a_frozen_temperature_stays(name: str) -> None:
    policy = small_policy(name, target_entropy=None, initial_alpha=0.3)
    for _ in range(3):
        metrics = policy.learn_on_batch(transitions(name))
    assert metrics["alpha"] == pytest.approx(0.3) and "log_alpha" not in dict(policy.named_parameters())
    assert "log_alpha" in policy.state_dict()


def test_the_default_target_entropy_follows_the_action_space() -> None:
    """−A nats for A real numbers, ½ log n for n discrete actions."""
    assert small_policy("sac").target_entropy == -2.0 and small_policy("tqc").target_entropy == -2.0
    assert SAC(OBS, spaces.Box(-1, 1, ()), **SMALL).target_entropy == -1.0
    assert SAC(OBS, spaces.Discrete(9), **SMALL).target_entropy == pytest.approx(math.log(3.0))


@pytest.mark.parametrize(
    ("name", "asked", "expected"),
    [
        ("sac", None, "SquashedGaussian"),
        ("sac", "Beta", "Beta"),
        ("tqc", "Beta", "Beta"),
        ("td3", None, "SquashedDeterministic"),
        ("td3", "Beta", "Beta"),
        ("sac, discrete", None, "Categorical"),
    ],
)
def test_actions_keep_within_their_bounds_unless_another_distribution_is_asked_for(
    name: str, asked: str | None, expected: str
) -> None:
    policy = small_policy(name, model={"fcnet_hiddens": [16], "custom_action_dist": asked})
    outputs, _ = policy.model(policy.inputs_of(transitions(name)), (), None)
    assert type(policy.distribution(outputs)).__name__ == expected


@pytest.mark.parametrize("name", ["sac", "td3"])
def test_an_actor_has_no_network_for_values_that_critics_give(name: str) -> None:
    policy = small_policy(name, model={"fcnet_hiddens": [16], "vf_share_layers": False})
    layers = {key.split(".")[0] for key, _ in policy.model.named_parameters()}
    assert layers == {"trunk", "head", "value_head"}


def test_all_critics_may_make_the_targets_but_no_more() -> None:
    """Two of two: the lowest of both; the actor then follows their mean."""
    policy, q_values = small_policy("sac", num_critics=2, target_critics=2), torch.tensor([[1.0, 4.0], [3.0, 2.0]])
    assert policy.min_target_q(q_values).tolist() == [1.0, 2.0] and policy.actor_q_values(q_values).tolist() == [
        2.0,
        3.0,
    ]
    with pytest.raises(ConfigError, match=r"target_critics=3; expected at most policy\.num_critics=2"):
        small_policy("sac", num_critics=2, target_critics=3)


def test_each_part_of_sac_has_its_own_learning_rate() -> None:
    policy = small_policy("sac", actor_lr_scale=2.0, critic_lr_scale=3.0, alpha_lr_scale=5.0)
    found = {group["lr_scale"]: {id(p) for p in group["params"]} for group in policy.parameter_groups()}
    assert found[2.0] == {id(p) for p in policy.model.parameters()}
    assert found[3.0] == {id(p) for p in policy.critic.parameters()}
    assert found[5.0] == {id(policy.log_alpha)} and len(found) == 3


def test_a_higher_temperature_makes_more_random_states_worth_more() -> None:
    """V(s') = Q − α log π: with actions that are sure to be less likely than 1 (entropy > 0), α adds to the target."""
    policy = small_policy("sac, discrete", target_entropy=None)
    with torch.no_grad():
        low, high = (policy.targets(transitions("sac, discrete"), torch.tensor(alpha)) for alpha in (0.1, 1.0))
    assert bool((high > low).all())


def test_redq_takes_the_lowest_of_a_random_subset_and_the_actor_the_mean() -> None:
    """Critics say 1, 2, 3, 4; the lowest of two of them is 1, 2 or 3 (with chances ½, ⅓, ⅙), of all of them 1."""
    q_values = torch.tensor([1.0, 2.0, 3.0, 4.0]).view(4, 1).expand(4, 5)
    policy = small_policy("sac, redq")
    torch.manual_seed(0)
    lowest = torch.stack([policy.min_target_q(q_values) for _ in range(600)])
    assert bool((lowest == lowest[:, :1]).all())  # one subset for all rows
    chances = torch.bincount(lowest[:, 0].long(), minlength=5)[1:].float() / 600
    assert_close(chances, torch.tensor([1 / 2, 1 / 3, 1 / 6, 0.0]), rtol=0, atol=0.06)
    assert_close(policy.actor_q_values(q_values), torch.full((5,), 2.5))
    plain = small_policy("sac", num_critics=4)
    assert_close(plain.min_target_q(q_values), torch.ones(5))
    assert_close(plain.actor_q_values(q_values), torch.ones(5))


def test_tqc_s_targets_are_made_of_a_random_subset_of_the_critics() -> None:
    """Critics say 1, 2 and 3: the quantiles of one of them, or all, less the highest of each."""
    for target_critics, expected in ((1, {1.0, 2.0, 3.0}), (None, {1.0, 2.0})):
        policy = small_policy("tqc", num_critics=3, target_critics=target_critics, num_quantiles=3, dropped_quantiles=1)
        for parameter in policy.target_critic.parameters():
            nn.init.zeros_(parameter)
        policy.target_critic.networks.biases[-1].data = torch.arange(1.0, 4.0).view(3, 1, 1).expand(3, 1, 3).clone()
        batch = transitions("tqc", rewards=torch.zeros(6), discounts=torch.ones(6))
        found = torch.stack([policy.targets(batch, torch.tensor(0.0)) for _ in range(40)])
        assert set(found.unique().tolist()) == expected
        assert found.shape[2] == 2 * (target_critics or 3)


def test_tqc_keeps_one_quantile_of_each_critic_at_least() -> None:
    assert small_policy("tqc", num_quantiles=3, dropped_quantiles=2).targets(
        transitions("tqc"), torch.tensor(0.0)
    ).shape == (6, 2)
    with pytest.raises(ConfigError, match=r"dropped_quantiles=3; expected fewer than policy\.num_quantiles=3"):
        small_policy("tqc", num_quantiles=3, dropped_quantiles=3)


def test_tqc_leaves_out_each_row_s_highest_quantiles_and_its_actor_follows_the_mean_of_all() -> None:
    """Two critics of four quantiles, two dropped for each: row by row the four lowest of eight remain."""
    policy, batch = small_policy("tqc", num_quantiles=4, dropped_quantiles=2), transitions("tqc")
    torch.manual_seed(0)
    found = policy.targets(batch, torch.tensor(0.0))
    torch.manual_seed(0)
    inputs, dist = policy.inputs_and_distribution(batch, following=True)
    every = policy.target_critic(inputs, dist.rsample())
    for row in range(6):
        lowest = sorted(number for critic in every for number in critic[row].tolist())[:4]
        expected = batch.rewards[row] + 0.9 * torch.tensor(lowest)
        assert_close(found[row].sort().values, expected)
    assert policy.actor_q_values(torch.tensor([[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0], [7.0, 9.0]]])).tolist() == [
        3.5,
        5.75,
    ]


def test_tqc_s_critics_learn_quantiles_of_the_target() -> None:
    """Critics say (0, 2) and (5, 5) at the shares ¼ and ¾, the target is 1 surely.

    The first one's errors 1 and −1 cost Huber's ½ each, weighted by ¼ and |¾ − 1|: ¼ together, their mean is ⅛. The
    second one's errors are −4: 3.5, weighted by |¼ − 1| and |¾ − 1|, the mean of which is 1.75. Rows weigh ½ then.
    """
    policy = small_policy("tqc", num_quantiles=2, dropped_quantiles=0)
    for parameter in policy.critic.parameters():
        nn.init.zeros_(parameter)
    policy.critic.networks.biases[-1].data = torch.tensor([[[0.0, 2.0]], [[5.0, 5.0]]])
    for weights, expected in (({}, 1.875), ({"weights": torch.tensor([1.0, 0.0] * 3)}, 0.9375)):
        batch = transitions("tqc", rewards=torch.ones(6), terminated=torch.ones(6, dtype=torch.bool), **weights)
        metrics = policy.loss(batch)[1]
        assert metrics["value_loss"].item() == pytest.approx(expected)
        assert_close(batch["td_errors"], torch.full((6,), 2.0))  # (|1 − 1| + |5 − 1|) / 2
        assert metrics["q_mean"].item() == pytest.approx(3.0)


def test_dropout_of_the_critics_is_active_in_training_only() -> None:
    policy = small_policy("sac", critic_dropout=0.5)
    batch = transitions("sac")

    def judged(mode: bool) -> Tensor:
        policy.train(mode)
        return policy.critic(policy.input_dict(batch.obs), batch.actions)

    assert not torch.equal(judged(True), judged(True))
    assert torch.equal(judged(False), judged(False))
    policy.learn_on_batch(batch)
    assert policy.training


# -- R2D2 -------------------------------------------------------------------------------------------------------------
def sequences(**columns: Any) -> SampleBatch:
    """Two sequences of 5 and 3 rows, of which the first two and the first one only warm the state up."""
    lens = torch.tensor([5, 3])
    state = SampleBatch({"0": torch.zeros(2, 4), "1": torch.zeros(2, 4)})
    batch = transitions(count=8)
    batch["seq_lens"], batch["state_in"], batch["next_state_in"] = lens, state, state
    batch["burn_in"] = torch.tensor([True, True, False, False, False, True, False, False])
    batch["bootstrap_rows"] = torch.arange(8)
    for name, value in columns.items():
        batch[name] = value
    return batch


def recurrent(**changes: Any) -> Any:
    return R2D2(OBS, TWO, model={"fcnet_hiddens": [8], "use_lstm": True, "lstm_cell_size": 4}, **changes)


def test_rows_that_warm_up_do_not_reach_the_loss() -> None:
    """Their rewards are not numbers, and their weight is no weight: the loss and its gradient do not notice."""
    policy, burn_in = recurrent(), sequences()["burn_in"]
    plain = gradients(policy, sequences())
    rewards = sequences().rewards
    other = gradients(policy, sequences(rewards=torch.where(burn_in, 1e6, rewards)))
    for key, value in plain.items():
        assert_close(value, other[key], rtol=0, atol=0)
    batch = sequences(rewards=torch.where(burn_in, torch.nan, rewards))
    loss, _ = policy.loss(batch)
    assert bool(torch.isfinite(loss)) and bool(torch.isfinite(batch["td_errors"]).all())
    trained = gradients(policy, sequences(rewards=torch.where(burn_in, rewards, 1e6)))
    assert any(not torch.equal(value, trained[key]) for key, value in plain.items())


def test_rows_that_warm_up_reach_the_state() -> None:
    policy, burn_in = recurrent(), sequences()["burn_in"]
    plain, other = sequences(), sequences()
    other["obs"] = torch.where(burn_in.unsqueeze(1), other.obs + 1.0, other.obs)
    assert not torch.equal(td_errors(policy, plain), td_errors(policy, other))


def test_the_gradient_ends_where_the_state_was_warmed_up() -> None:
    """Against a loop over the LSTM's steps by hand, whose state is detached after the burn-in rows."""
    policy, batch = recurrent(rescale=False, double=False, dueling=False), sequences()
    batch["td_targets"] = targets = torch.randn(8)
    network, lstm = policy.model.wrapped, policy.model.wrapped.rnn
    found = gradients(policy, batch)
    policy.zero_grad()
    losses, start = [], 0
    for length in batch.seq_lens.tolist():
        state = (torch.zeros(1, 1, 4), torch.zeros(1, 1, 4))
        for row in range(start, start + length):
            features, _ = network.wrapped({"obs_flat": batch.obs[row : row + 1]})
            hidden, state = lstm(features.unsqueeze(0), state)
            if batch["burn_in"][row]:
                state = (state[0].detach(), state[1].detach())
            else:
                taken = policy.model.advantages(hidden[0])[0, batch.actions[row]]
                losses.append(nn.functional.huber_loss(taken, targets[row]))
        start += length
    torch.stack(losses).mean().backward()
    for name, parameter in policy.model.named_parameters():
        if parameter.grad is not None and bool(parameter.grad.any()):
            assert_close(found[f"model.{name}"], parameter.grad, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("memory", ["use_lstm", "use_gru", "use_attention"])
def test_states_are_warmed_up_under_autocast_too(memory: str) -> None:
    policy = R2D2(OBS, TWO, model={"fcnet_hiddens": [8], memory: True})
    batch = sequences()
    initial = [part.expand(2, *part.shape) for part in policy.model.get_initial_state()]
    batch["state_in"] = batch["next_state_in"] = SampleBatch({str(i): part for i, part in enumerate(initial)})
    with torch.autocast("cpu", torch.bfloat16):
        loss, _ = policy.loss(batch)
    assert bool(loss.isfinite())


def test_losses_of_a_subclass_count_without_priorities_too() -> None:
    class Doubled(DQN):
        def td_error_losses(self, td_errors: Tensor) -> Tensor:
            return 2.0 * super().td_error_losses(td_errors)

    plain, doubled = (kind(OBS, TWO, seed=1) for kind in (DQN, Doubled))
    assert_close(2.0 * plain.loss(transitions(count=6))[0], doubled.loss(transitions(count=6))[0])


def test_sequences_of_a_fragment_have_what_a_model_with_memory_reads_next() -> None:
    """Each row what the next step observes, each sequence the state in which its second row began."""
    env = CARTPOLE
    model = {"fcnet_hiddens": [8], "use_lstm": True, "lstm_cell_size": 4, "max_seq_len": 5}
    policy = R2D2(*env.spaces(), model={**model, "lstm_use_prev_action": True}, reward_filter="sign", gamma=0.75)
    fragment = RolloutWorker(env, policy, num_envs=2, fragment_length=32, seed=2).sample()
    fragment["place"], fragment["rewards"] = torch.arange(64).view(32, 2), fragment.rewards * 5.0
    found = policy.learner.rows_of(fragment)
    assert found.count == int(fragment.valid.sum()) and not fragment.valid.all()
    assert set(found.rewards.tolist()) == {1.0} and set(found["discounts"].tolist()) == {0.75}
    for row, place in enumerate(found["place"].tolist()):
        step, env_index = divmod(place, 2)
        for name in ("obs", "prev_actions"):
            assert torch.equal(found[name][row], fragment[name][step, env_index])
            assert torch.equal(found[f"next_{name}"][row], fragment[name][step + 1, env_index])
    starts = found["place"][found.seq_lens.cumsum(0) - found.seq_lens].tolist()
    assert len(starts) > 12
    for sequence, place in enumerate(starts):
        step, env_index = divmod(place, 2)
        for name in ("0", "1"):
            assert torch.equal(found.state_in[name][sequence], fragment.state_in[name][step, env_index])
            assert torch.equal(found["next_state_in"][name][sequence], fragment.state_in[name][step + 1, env_index])


def test_every_row_is_trained_where_none_warms_up() -> None:
    """Of errors 1, 2, 6, 1, 2 and −4, 2, 6: 0.9 · 6 + 0.1 · 12 / 5 = 5.64, and 0.9 · 6 + 0.1 · 4 = 5.8."""
    policy, batch = recurrent(), sequences().without("burn_in")
    errors = torch.tensor([1.0, 2.0, 6.0, 1.0, 2.0, -4.0, 2.0, 6.0])
    loss, priorities = policy.loss_and_priorities(errors, errors, batch)
    assert loss.item() == pytest.approx(2.0)
    assert_close(priorities, torch.tensor([5.64, 5.8]))
    plain, found = policy.loss_and_priorities(errors, errors, transitions(count=8))  # of a model without memory
    assert plain.item() == pytest.approx(2.0) and torch.equal(found, errors)


@pytest.mark.parametrize("training", [True, False])
def test_rows_that_warm_up_are_not_trained_in_any_way(training: bool) -> None:
    """The model is in eval mode for them, and does not keep gradients; then it is in the mode that it was in.

    The other rows, 3 and 2, are padded to 6, and where none warms up 5 and 3 to 10.
    """
    policy, seen = recurrent().train(training), []
    policy.model.register_forward_hook(
        lambda model, inputs, outputs: seen.append(
            (len(outputs[0]), model.training, inputs[0]["is_training"], outputs[0].requires_grad)
        )
    )
    policy.q_values(policy.model, sequences())
    assert sorted(seen) == [(1, False, False, False), (2, False, False, False), (6, training, training, True)]
    assert policy.model.training is training
    seen.clear()
    policy.q_values(policy.model, sequences(burn_in=torch.zeros(8, dtype=torch.bool)))
    assert seen == [(10, training, training, True)]
    seen.clear()
    with torch.no_grad():  # targets need no cut: one forward over whole sequences
        policy.q_values(policy.model, sequences())
    assert seen == [(10, training, training, False)]


def test_forbidden_actions_of_trained_rows_have_no_value_while_others_warm_up() -> None:
    policy, batch = recurrent(), sequences(action_mask=torch.tensor([[True, False]]).expand(8, 2))
    values, returns = policy.q_values(policy.model, batch)
    assert bool(values[~batch["burn_in"], 1].isneginf().all()) and bool(returns.isfinite().all())
    assert_close(values[:, 0], returns[:, 0])


def test_warming_up_changes_no_value() -> None:
    """Row by row the Q-values are those of one forward over the whole sequences."""
    policy, batch = recurrent(), sequences()
    apart, _ = policy.q_values(policy.model, batch)
    with torch.no_grad():
        whole, _ = policy.q_values(policy.model, batch)
    assert apart.requires_grad
    assert_close(apart.detach(), whole)


def test_the_rescaled_target_is_h_of_the_return() -> None:
    """h⁻¹ of the target's value 3 is 3 again; r + γ V = 1 + ½ · 3 = 2.5; h(2.5) = √3.5 − 1 + 0.0025 = 0.873329."""
    policy = small_policy("r2d2", dueling=False)
    constant_q(policy.model, 0.0, 0.0)
    constant_q(policy.target_model, *[value_rescale(torch.tensor(3.0)).item()] * 2)
    batch = transitions("r2d2", rewards=torch.ones(6), discounts=torch.full((6,), 0.5))
    assert_close(td_errors(policy, batch), torch.full((6,), -0.873329), rtol=0, atol=1e-5)
    plain = small_policy("r2d2", rescale=False, dueling=False)
    constant_q(plain.model, 0.0, 0.0)
    constant_q(plain.target_model, 3.0, 3.0)
    assert_close(td_errors(plain, batch), torch.full((6,), -2.5))


def test_the_value_that_follows_is_that_of_the_row_where_the_sum_ends() -> None:
    """Two rewards are summed in row 2: what follows is the value after row 3."""
    policy = recurrent(rescale=False, double=False)
    ends = torch.arange(8)
    ends[2] = 3
    plain, summed = sequences(), sequences(bootstrap_rows=ends)
    with torch.no_grad():
        of_rows, found = policy.bootstrap_values(plain), policy.bootstrap_values(summed)
    assert_close(found[2], of_rows[3], rtol=0, atol=0)
    assert_close(found[torch.arange(8) != 2], of_rows[torch.arange(8) != 2], rtol=0, atol=0)


def test_a_sequence_s_priority_mixes_its_largest_and_its_mean_error_and_its_weight_scales_its_rows() -> None:
    """η = 0.9 over the trained rows: of errors 1, 2, 6 it is 0.9 · 6 + 0.1 · 3 = 5.7; of −4, 2: 0.9 · 4 + 0.1 · 3."""
    policy = recurrent()
    errors = torch.tensor([9.0, 9.0, 1.0, 2.0, 6.0, 9.0, -4.0, 2.0])
    loss, priorities = policy.loss_and_priorities(errors, errors, sequences(weights=torch.tensor([1.0, 0.5])))
    assert_close(priorities, torch.tensor([5.7, 3.9]))
    assert loss.item() == pytest.approx((1 + 2 + 6 + 0.5 * (-4 + 2)) / 5)


def test_noise_is_drawn_anew_for_every_gradient_step_and_targets_have_their_own() -> None:
    policy: Any = Rainbow(OBS, TWO, num_atoms=5, **SMALL)
    seen = []
    for _ in range(2):
        policy.loss(transitions())
        seen.append([policy.model(policy.input_dict(transitions().obs), (), None)[0].detach().clone()])
        seen[-1].append(policy.target_model(policy.input_dict(transitions().obs), (), None)[0].detach().clone())
    assert not torch.equal(seen[0][0], seen[1][0]) and not torch.equal(seen[0][1], seen[1][1])
    assert not torch.equal(seen[0][0], seen[0][1])


def test_a_gradient_that_a_hook_put_there_is_not_kept() -> None:
    """Who clips by `parameter.grad = …` shall not learn from that one for ever."""
    policy = small_policy("dqn")
    policy.learn_on_batch(transitions("dqn"))
    (flat,) = policy.learner.optimiser.flat
    flat.parameter.grad = torch.full_like(flat.gradient, 7.0)
    policy.learner.optimiser.backward(policy.loss(transitions("dqn"))[0])
    assert flat.parameter.grad is flat.gradient and bool((flat.gradient != 7.0).all())
