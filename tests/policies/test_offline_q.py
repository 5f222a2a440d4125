"""Algorithms that learn Q-values of recorded actions: their losses by hand, and what they learn from data alone."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from gymnasium import spaces
from torch import nn
from torch.testing import assert_close

from lightning_rl.policies import AWAC, CQL, DQN, IQL, SAC, TD3, TD3BC, DiscreteCQL, Policy, ReBRAC
from lightning_rl.sample_batch import SampleBatch
from tests.policies.off_policy_algorithms import (
    BOX,
    OBS,
    SMALL,
    TWO,
    set_constant_critics,
    set_constant_q,
    set_constant_values,
)

STEPS, ROWS = 400, 64


def bandit(actions: torch.Tensor, rewards: torch.Tensor) -> SampleBatch:
    """Episodes of one step whose observations are noise."""
    count = len(actions)
    obs = torch.randn(count, 3, generator=torch.Generator().manual_seed(0))
    return SampleBatch(
        obs=obs,
        next_obs=obs,
        actions=actions,
        rewards=rewards,
        terminated=torch.ones(count, dtype=torch.bool),
        discounts=torch.full((count,), 0.9),
    )


def learn(policy: Policy, rows: SampleBatch, steps: int = STEPS) -> None:
    """Gradient steps on random rows of a fixed data set."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        policy.learn_on_batch(rows[torch.randint(rows.count, (ROWS,), generator=generator)])


# -- discrete CQL -----------------------------------------------------------------------------------------------------
def test_discrete_cql_adds_the_gap_to_dqn_s_loss() -> None:
    """Q = (4, 2): log(e⁴ + e²) = 4.126928, less 4 for the first row and 2 for the second one: the mean is 1.126928."""
    rows = bandit(torch.tensor([0, 1]), torch.tensor([3.0, -1.0]))
    losses = {}
    for policy_class, keywords in ((DQN, {}), (DiscreteCQL, {"min_q_weight": 10.0})):
        policy = policy_class(OBS, TWO, **SMALL, **keywords)
        set_constant_q(policy.model, 4.0, 2.0)
        losses[policy_class] = policy.loss(rows)[0].detach()
    assert_close(losses[DiscreteCQL] - losses[DQN], torch.tensor(11.26928))


def test_forbidden_actions_are_not_made_unlikely_by_discrete_cql() -> None:
    """Q = (4, 2), and only action 1 is allowed: there is no gap, and no gradient for Q(s, 0)."""
    space = spaces.Dict(x=OBS, action_mask=spaces.MultiBinary(2))
    policy = DiscreteCQL(space, TWO, **SMALL)
    set_constant_q(policy.model, 4.0, 2.0)
    rows = bandit(torch.tensor([1, 1]), torch.tensor([2.0, 2.0]))
    obs = SampleBatch(x=rows.obs, action_mask=torch.tensor([[0, 1], [0, 1]]))
    rows["obs"] = rows["next_obs"] = obs
    loss, metrics = policy.loss(rows)
    loss.backward()
    assert_close(metrics["conservative_gap"].detach(), torch.tensor(0.0))
    assert_close(policy.model.advantages.linear.bias.grad, torch.zeros(2))


@pytest.mark.parametrize("head", [{}, {"num_quantiles": 5}, {"dueling": True}], ids=["plain", "quantiles", "dueling"])
def test_discrete_cql_keeps_to_actions_of_the_data_and_dqn_does_not(head: dict[str, Any]) -> None:
    """The only recorded action costs 1; the other one was never tried."""
    rows = bandit(torch.zeros(256, dtype=torch.long), -torch.ones(256))
    chosen = {}
    for policy_class in (DQN, DiscreteCQL):
        policy = policy_class(OBS, TWO, model={"fcnet_hiddens": [16]}, lr=5e-3, **head)
        learn(policy, rows)
        chosen[policy_class] = policy.compute_actions(rows.obs, explore=False)[0].float().mean().item()
    assert chosen[DQN] > 0.9 and chosen[DiscreteCQL] < 0.1


def test_discrete_cql_chooses_the_better_of_the_recorded_actions() -> None:
    """Action 0 earns 1, action 1 nothing: with equal shares in the data the gap is least at equal Q-values."""
    actions = torch.arange(256) % 2
    policy = DiscreteCQL(OBS, TWO, model={"fcnet_hiddens": [16]}, lr=5e-3)
    rows = bandit(actions, 1.0 - actions.float())
    learn(policy, rows)
    assert policy.compute_actions(rows.obs, explore=False)[0].float().mean() < 0.1
    assert math.isfinite(policy.iteration_metrics["conservative_gap"])


# -- advantage-weighted regression ------------------------------------------------------------------------------------
def test_iql_s_three_losses() -> None:
    """Critics 3 and 5, target critics 4 and 6, V = 2, γ = ½, r = 1, β = 1, expectile 0.7, π uniform over two actions.

    Target 1 + ½ · 2 = 2, or 1 after the end; critics ½ (1² + 3²) and ½ (2² + 4²), mean 7.5. A = 4 − 2: 0.7 · 2² = 2.8;
    exp(2) log 2. CORL's iql.py gives the same: its critics' loss is the mean of two, ours the sum of halves.
    """
    policy = IQL(OBS, TWO, beta=1.0, **SMALL)
    set_constant_values(policy.model, 2.0)
    set_constant_critics(policy.critic, [3.0, 3.0], [5.0, 5.0])
    set_constant_critics(policy.target_critic, [4.0, 4.0], [6.0, 6.0])
    rows = bandit(torch.tensor([0, 1]), torch.ones(2))
    rows["terminated"], rows["discounts"] = torch.tensor([False, True]), torch.full((2,), 0.5)
    loss, metrics = policy.loss(rows)
    found = [metrics[name].detach() for name in ("value_loss", "expectile_loss", "policy_loss")]
    expected = torch.tensor([7.5, 2.8, math.exp(2.0) * math.log(2.0)])
    assert_close(torch.stack(found), expected)
    assert_close(loss.detach(), expected.sum())


def test_iql_values_below_the_target_weigh_less() -> None:
    """Target critics 1, V = 2: A = −1, (1 − 0.7) · 1 = 0.3."""
    policy = IQL(OBS, TWO, **SMALL)
    set_constant_values(policy.model, 2.0)
    set_constant_critics(policy.target_critic, [1.0, 1.0], [1.0, 1.0])
    assert_close(policy.loss(bandit(torch.tensor([0]), torch.ones(1)))[1]["expectile_loss"].detach(), torch.tensor(0.3))


def test_awac_s_advantages_of_discrete_actions_are_exact() -> None:
    """Q = (3, 1), π = (½, ½): V = 2, so A = 1, 1 and −1; β = 2: the mean of e², e² and e⁻², times log 2.

    The target critics' Q is (6, 2): 1 + ½ · 4 = 3; each critic's errors are 0, 0 and 2, and ½ · 4 / 3 their loss.
    """
    policy = AWAC(OBS, TWO, beta=2.0, **SMALL)
    set_constant_values(policy.model, 0.0)
    set_constant_critics(policy.critic, [3.0, 1.0], [3.0, 1.0])
    set_constant_critics(policy.target_critic, [6.0, 2.0], [6.0, 2.0])
    rows = bandit(torch.tensor([0, 0, 1]), torch.ones(3))
    rows["terminated"], rows["discounts"] = torch.zeros(3, dtype=torch.bool), torch.full((3,), 0.5)
    _, metrics = policy.loss(rows)
    weight = (2.0 * math.exp(2.0) + math.exp(-2.0)) / 3.0
    assert_close(metrics["policy_loss"].detach(), torch.tensor(weight * math.log(2.0)))
    assert_close(metrics["value_loss"].detach(), torch.tensor(4.0 / 3.0))


def test_awac_evaluates_sampled_actions_within_their_bounds() -> None:
    """Actions that a Gaussian samples outside [−1, 1] are what the environment would make of them."""
    policy = AWAC(OBS, BOX, **SMALL)
    seen = []
    policy.critic.register_forward_pre_hook(lambda module, args: seen.append(args[1]))
    inputs, dist = policy.inputs_and_distribution(bandit(torch.zeros(512, 2), torch.zeros(512)))
    policy.critic.state_values(inputs, dist, policy.action_transform.policy_space)
    assert float(seen[0].abs().max()) == 1.0


@pytest.mark.parametrize("policy_class", [AWAC, IQL])
def test_better_recorded_actions_of_a_box_are_imitated(policy_class: type[Policy]) -> None:
    """Uniform actions in [−1, 1]² pay −4 times the squared distance from half of the first two observations.

    The mean of the recorded actions, 0, is 0.31 away from the best ones on average.
    """
    actions = torch.rand(1024, 2, generator=torch.Generator().manual_seed(1)) * 2 - 1
    rows = bandit(actions, torch.zeros(1024))
    rows["obs"] = rows["next_obs"] = rows.obs.clamp(-1, 1)
    rows["rewards"] = -4.0 * (actions - 0.5 * rows.obs[:, :2]).square().sum(1)
    policy = policy_class(OBS, BOX, beta=5.0, tau=0.05, model={"fcnet_hiddens": [32]}, lr=5e-3)
    learn(policy, rows, 800)
    found = policy.compute_actions(rows.obs, explore=False)[0]
    assert (found - 0.5 * rows.obs[:, :2]).abs().mean() < 0.2


@pytest.mark.parametrize("policy_class", [AWAC, IQL])
def test_better_recorded_discrete_actions_are_imitated(policy_class: type[Policy]) -> None:
    """The data hold three times as many actions 1, which earn nothing, as actions 0, which earn 1."""
    actions = (torch.arange(256) % 4 > 0).long()
    policy = policy_class(OBS, TWO, model={"fcnet_hiddens": [16]}, beta=3.0, lr=5e-3)
    rows = bandit(actions, 1.0 - actions.float())
    learn(policy, rows)
    assert policy.compute_actions(rows.obs, explore=False)[0].float().mean() < 0.1


def test_iql_stitches_the_better_parts_of_episodes() -> None:
    """Two steps: the first leads to the second whatever is done; each pays where its action is 0, half of the time.

    No recorded first step with action 1 was followed by more than 0 + 1, and V of the second step is nearly 1 with a
    high expectile: Q(first, 0) = 1 + ½ · 1.
    """
    actions = torch.tensor([0, 0, 1, 1])
    seconds = torch.tensor([0, 1, 0, 1])
    first, second = torch.zeros(4, 3), torch.ones(4, 3)
    rows = SampleBatch(
        obs=torch.cat([first, second]),
        next_obs=torch.cat([second, second]),
        actions=torch.cat([actions, seconds]),
        rewards=1.0 - torch.cat([actions, seconds]).float(),
        terminated=torch.arange(8) >= 4,
        discounts=torch.full((8,), 0.5),
    )
    policy = IQL(OBS, TWO, model={"fcnet_hiddens": [16]}, expectile=0.95, tau=0.1, lr=5e-3)
    learn(policy, rows, 1000)
    q_values = policy.critic(policy.inputs_of(rows)).mean(0).detach()
    assert_close(q_values[0], torch.tensor([1.5, 0.5]), atol=0.12, rtol=0)


# -- penalties for distance -------------------------------------------------------------------------------------------
def at_zero(policy_class: type[TD3], **keywords: Any) -> Any:
    """The actor's actions are 0, the critics' values 3 and 5, the target critics' 4 and 6; no delay, no noise."""
    policy = policy_class(OBS, BOX, target_noise=0.0, policy_delay=1, **SMALL, **keywords)
    set_constant_values(policy.model, 0.0)
    set_constant_values(policy.target_model, 0.0)
    set_constant_critics(policy.critic, 3.0, 5.0)
    set_constant_critics(policy.target_critic, 4.0, 6.0)
    return policy


def test_td3_bc_weighs_distance_and_q_value() -> None:
    """Distances (0.36 + 0.64) / 2 and 0, mean 0.25; Q₁ / mean |Q₁| = 1: 0.25 − 2.5 = −2.25, as in CORL's td3_bc.py."""
    rows = bandit(torch.tensor([[0.6, -0.8], [0.0, 0.0]]), torch.zeros(2))
    assert_close(at_zero(TD3BC).loss(rows)[1]["policy_loss"].detach(), torch.tensor(-2.25))


def test_rebrac_penalizes_distance_in_the_actor_and_in_the_targets() -> None:
    """β₁ = ½: ½ · mean(1, 0) − 1 = −0.75. β₂ = 2, a' = (0.6, −0.8): y = 1 + ½ (4 − 2 · 1) = 2, and 1 after the end.

    Critics: ½ mean(1², 2²) + ½ mean(3², 4²) = 7.5, as update_critic and update_actor of CORL's rebrac.py (without ½).
    """
    policy = at_zero(ReBRAC, actor_bc_coef=0.5, critic_bc_coef=2.0)
    rows = bandit(torch.tensor([[0.6, -0.8], [0.0, 0.0]]), torch.ones(2))
    rows["next_actions"] = torch.tensor([[0.6, -0.8], [0.6, -0.8]])
    rows["terminated"], rows["discounts"] = torch.tensor([False, True]), torch.full((2,), 0.5)
    _, metrics = policy.loss(rows)
    assert_close(metrics["policy_loss"].detach(), torch.tensor(-0.75))
    assert_close(metrics["value_loss"].detach(), torch.tensor(7.5))


def test_rebrac_s_critics_are_normalized_and_its_actor_is_not() -> None:
    policy = ReBRAC(OBS, BOX, **SMALL)
    assert len(policy.critic.networks.norms) == 1
    assert not any(isinstance(module, nn.LayerNorm) for module in policy.model.modules())


def test_rebrac_s_next_actions_are_those_of_the_same_episode() -> None:
    """Actions are numbers: 0 and 1 (truncated), the reset 2, 3 and 4 (terminated), the reset 5, 6.

    Left out are 1, which a time limit ends, and 6, after which nothing is recorded.
    """
    flags = {name: torch.zeros(7, 1, dtype=torch.bool) for name in ("truncated", "terminated", "valid")}
    flags["truncated"][1] = flags["terminated"][4] = True
    flags["valid"][[0, 1, 3, 4, 6]] = True
    numbers = torch.arange(7.0).view(7, 1, 1).expand(7, 1, 2)
    fragment = SampleBatch(obs=torch.zeros(8, 1, 3), actions=numbers, rewards=torch.zeros(7, 1), **flags)
    rows = ReBRAC(OBS, BOX, **SMALL).postprocess_trajectory(fragment)
    assert_close(rows.actions[:, 0], torch.tensor([0.0, 3.0, 4.0]))
    assert_close(rows["next_actions"][:2, 0], torch.tensor([1.0, 4.0]))


@pytest.mark.parametrize(
    ("policy_class", "keywords"), [(TD3BC, {"alpha": 1.0}), (ReBRAC, {"actor_bc_coef": 1.0})], ids=["td3_bc", "rebrac"]
)
def test_actors_stay_near_the_data_on_their_better_side(policy_class: type[TD3], keywords: dict[str, Any]) -> None:
    """Recorded actions lie within ±0.2 and pay their sum: TD3 goes to the bounds, the others less far."""
    actions = 0.4 * torch.rand(512, 2, generator=torch.Generator().manual_seed(1)) - 0.2
    rows = bandit(actions, actions.sum(1))
    rows["next_actions"] = torch.zeros_like(actions)
    found = []
    for each, options in ((TD3, {}), (policy_class, keywords)):
        policy = each(OBS, BOX, model={"fcnet_hiddens": [32]}, lr=5e-3, **options)
        learn(policy, rows, 600)
        found.append(float(policy.compute_actions(rows.obs, explore=False)[0].mean()))
    assert found[0] > 0.9 and 0.05 < found[1] < 0.7


# -- CQL --------------------------------------------------------------------------------------------------------------
def test_cql_samples_uniform_actions_and_those_of_both_observations_with_their_densities() -> None:
    """Two entries in [−1, 1]: uniform actions have the density ¼; the policy's have that of its distribution."""
    policy = CQL(OBS, BOX, num_actions=3, **SMALL)
    rows = bandit(torch.zeros(5, 2), torch.zeros(5))
    rows["next_obs"] = torch.ones(5, 3)
    actions, log_densities = policy.sampled_actions(rows)
    assert actions.shape == (5, 9, 2) and float(actions.abs().max()) <= 1.0
    assert_close(log_densities[:, :3], torch.full((5, 3), math.log(0.25)))
    for first, obs in ((3, rows.obs), (6, rows["next_obs"])):
        own = policy.compute_log_likelihoods(actions[:, first : first + 3].flatten(0, 1), obs.repeat_interleave(3, 0))
        assert_close(log_densities[:, first : first + 3].flatten(), own, atol=1e-3, rtol=1e-3)


def test_cql_adds_the_gap_of_each_critic_to_sac_s_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """Critics 3 and 5 everywhere: each gap is the soft maximum of −log μ, log Σ 1/μ = log(2 · 4) = 2.0794.

    With a weight of 10 the loss of both critics rises by 41.589.
    """
    rows = bandit(torch.zeros(4, 2), torch.ones(4))
    losses = []
    for policy_class, keywords in ((SAC, {"backup_entropy": False}), (CQL, {"min_q_weight": 10.0})):
        policy = policy_class(OBS, BOX, **SMALL, **keywords)
        set_constant_critics(policy.critic, 3.0, 5.0)
        sampled = torch.zeros(4, 2, 2), torch.full((4, 2), math.log(0.25))
        monkeypatch.setattr(policy, "sampled_actions", lambda batch, sampled=sampled: sampled, raising=False)
        torch.manual_seed(0)
        losses.append(policy.loss(rows)[0].detach())
    assert_close(losses[1] - losses[0], torch.tensor(20.0 * math.log(8.0)))


def test_the_weight_of_cql_rises_while_the_gap_is_above_its_threshold() -> None:
    rows = bandit(torch.zeros(4, 2), torch.ones(4))
    for threshold, sign in ((-100.0, 1.0), (100.0, -1.0)):
        policy = CQL(OBS, BOX, lagrangian=True, lagrangian_thresh=threshold, **SMALL)
        policy.loss(rows)[0].backward()
        assert float(policy.log_min_q_weight.grad) * sign < 0.0  # descent moves against the gradient


def test_cql_clones_actions_at_first() -> None:
    """In the first `bc_iters` steps the actor's loss has no gradient through the critics' values."""
    rows = bandit(torch.full((64, 2), 0.5), torch.zeros(64))
    policy = CQL(
        OBS, BOX, bc_iters=300, initial_alpha=0.01, target_entropy=None, model={"fcnet_hiddens": [16]}, lr=1e-2
    )
    learn(policy, rows, 300)
    assert_close(policy.compute_actions(rows.obs, explore=False)[0], rows.actions, atol=0.1, rtol=0)


def test_cql_stays_at_the_actions_of_the_data_where_sac_leaves_them() -> None:
    """Recorded actions lie within ±0.2 and pay their sum."""
    actions = 0.4 * torch.rand(512, 2, generator=torch.Generator().manual_seed(1)) - 0.2
    rows, found = bandit(actions, actions.sum(1)), []
    for policy_class in (SAC, CQL):
        policy = policy_class(OBS, BOX, initial_alpha=0.01, target_entropy=None, model={"fcnet_hiddens": [32]}, lr=5e-3)
        learn(policy, rows)
        found.append(float(policy.compute_actions(rows.obs, explore=False)[0].abs().mean()))
    assert found[0] > 0.9 and found[1] < 0.4
