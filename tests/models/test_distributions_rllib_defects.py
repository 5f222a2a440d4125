"""RLlib's known defects of actions and distributions: one test for each."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch.testing import assert_close

from lightning_rl.envs import EnvCreator
from lightning_rl.exploration import Random, StochasticSampling
from lightning_rl.models.distributions import (
    Categorical,
    DiagGaussian,
    Dirichlet,
    MultiActionDistribution,
    MultiCategorical,
    SquashedGaussian,
)
from lightning_rl.policies import PPO
from lightning_rl.rollouts import RolloutWorker
from lightning_rl.spaces import ActionTransform
from tests.models.distribution_cases import generator, parts, random_distribution
from tests.training import probes

OBS = spaces.Box(-1, 1, (3,))


def policy_for(space: Any, **keywords: Any) -> PPO:
    return PPO(OBS, space, seed=1, **keywords)


# -- which space an action is in --------------------------------------------------------------------------------------
def test_stored_actions_and_their_log_probabilities_are_of_one_space() -> None:
    """Recorded are the policy's actions in [−1, 1], and the log-probability is of these; the env acts in [−2, 6]."""
    creator = EnvCreator(probes.MatchedBox)
    policy = PPO(*creator.spaces(), model={"custom_action_dist": "SquashedGaussian"}, seed=1)
    fragment = RolloutWorker(creator, policy, num_envs=4, fragment_length=20, vectorization="sync", seed=1).sample()
    assert float(fragment.actions.abs().max()) <= 1.0
    rows = policy.flatten_fragment(fragment)
    assert_close(policy.compute_log_likelihoods(rows.actions, rows.obs), rows.action_logp)


def test_log_likelihoods_of_environment_actions_are_those_of_the_policys() -> None:
    """The classic mix-up: [−2, 6] read as if it were [−1, 1]."""
    policy = policy_for(spaces.Box(-2.0, 6.0, (2,)), model={"custom_action_dist": "Beta"})
    obs = np.zeros((8, 3), np.float32)
    actions, _, extra = policy.compute_actions(obs)
    logp = policy.compute_log_likelihoods(policy.env_actions(actions), obs, actions_normalized=False)
    assert_close(logp, extra["action_logp"], atol=1e-3, rtol=1e-3)


def test_random_warm_up_actions_are_drawn_where_the_policy_acts() -> None:
    """Drawn in [0, 100] and then un-squashed, every action of a warm-up would be the upper bound."""
    transform = ActionTransform(spaces.Box(0.0, 100.0, (1,)))
    dist = SquashedGaussian(torch.zeros(2000, 2))
    actions, _ = Random(transform.policy_space).get_exploration_action(
        dist, timestep=0, explore=True, generator=generator()
    )
    sent = transform.to_env(actions)
    assert sent.mean() == pytest.approx(50.0, abs=3.0) and (sent == 100.0).mean() < 0.01


def test_the_offset_of_an_integer_box_does_not_change_the_log_probability() -> None:
    """Box(−3, 4) of integers: the policy counts from 0, and −3 is its first action, not its fourth from the end."""
    transform, dist = parts("int Box")[0], random_distribution("int Box")
    policys = torch.zeros(6, 2, dtype=torch.int64)
    assert transform.to_env(policys).tolist() == [[-3, -3]] * 6
    assert_close(dist.logp(transform.from_env(np.full((6, 2), -3))), dist.logp(policys))


# -- masks and log-probabilities of random actions --------------------------------------------------------------------
def test_random_actions_of_nested_spaces_obey_masks() -> None:
    """Only the first value of each discrete part of the Dict is allowed."""
    widths, first = [2, 2, 3, 2, 4], []
    for width in widths:
        first += [True] + [False] * (width - 1)
    dist = random_distribution("nested", rows=200, mask=torch.tensor([first]).expand(200, -1))
    actions, _ = Random(parts("nested")[0].policy_space).get_exploration_action(
        dist, timestep=0, explore=True, generator=generator()
    )
    assert not actions["bits"].any() and not actions["mode"][0].any() and not actions["mode"][1].any()


def test_random_phases_do_not_record_a_probability_of_one() -> None:
    """With logp = 0 recorded, the first importance ratio after a warm-up would be 1/n · e⁰, or explode."""
    dist = Categorical(torch.zeros(5, 4))
    exploration = StochasticSampling(spaces.Discrete(4), random_timesteps=10)
    _, logp = exploration.get_exploration_action(dist, timestep=0, explore=True, generator=generator())
    assert_close(logp, torch.full((5,), -math.log(4)))


# -- SquashedGaussian -------------------------------------------------------------------------------------------------
def test_squashed_gaussian_counts_the_scale_jacobian() -> None:
    """μ .3, σ .5, u .1, range ±2: −.988955, where RLlib says −.295808."""
    dist = SquashedGaussian(torch.tensor([[0.3, math.log(0.5)]]), low=-2.0, high=2.0)
    assert float(dist.logp(torch.tensor([[2 * math.tanh(0.1)]]))) == pytest.approx(-0.988955, abs=1e-5)


def test_sampled_action_logp_is_right_on_every_range() -> None:
    """Not only on [−1, 1]."""
    dist = SquashedGaussian(torch.randn(200, 2, generator=generator()), low=3.0, high=11.0)
    actions = dist.sample(generator())
    assert_close(dist.sampled_action_logp(), dist.logp(actions))
    narrow = SquashedGaussian(dist.inputs)
    assert_close(dist.sampled_action_logp(), narrow.logp(actions / 4 - 1.75) - math.log(4), atol=0.01, rtol=0.01)


def test_squashed_gaussian_has_entropy_and_kl() -> None:
    """They raise in RLlib, so PPO cannot run with it; here it does, with an entropy bonus and a KL penalty."""
    creator = EnvCreator(probes.MatchedBox)
    model = {"custom_action_dist": "SquashedGaussian"}
    policy = PPO(*creator.spaces(), model=model, entropy_coef=0.01, kl_coef=0.2, seed=1)
    worker = RolloutWorker(creator, policy, num_envs=4, fragment_length=32, vectorization="sync", seed=1)
    metrics = [policy.learn_on_batch(worker.sample()) for _ in range(2)][-1]
    assert all(math.isfinite(value) for value in metrics.values()) and metrics["kl"] >= 0.0


# -- Categorical, Dirichlet, Slate, Tuple -----------------------------------------------------------------------------
@pytest.mark.parametrize("kind", [Categorical, MultiCategorical])
def test_categorical_with_temperature_mutates_no_logits(kind: Any) -> None:
    """RLlib divides the caller's tensor in place, so a second distribution of it is colder."""
    logits = torch.tensor([[1.0, 2.0, 3.0]])
    keywords: dict[str, Any] = {"choices": [3]} if kind is MultiCategorical else {}
    first, second = (kind(logits, temperature=0.5, **keywords) for _ in range(2))
    assert logits.tolist() == [[1.0, 2.0, 3.0]]
    assert torch.equal(first.entropy(), second.entropy())
    assert_close(first.entropy(), kind(2 * logits, **keywords).entropy())


def test_dirichlet_deterministic_is_the_mode_not_softmax_of_the_concentration() -> None:
    """α = (9, 3, 1.5)·: mode (α − 1) / Σ (α − 1) = (.7619, .1905, .0476); softmax would say (.997, .002, .001)."""
    mode = torch.tensor([[8.0, 2.0, 0.5]]) / 10.5
    dist = Dirichlet(torch.cat([mode.log(), torch.tensor([[math.log(10.5)]])], dim=1))
    assert_close(dist.alpha, torch.tensor([[9.0, 3.0, 1.5]]))
    assert_close(dist.deterministic_sample(), mode)


def test_logp_of_several_categoricals_is_not_a_constant() -> None:
    """As it is for RLlib's slates."""
    dist = MultiCategorical(torch.tensor([[0.0, 3.0, 0.0, 1.0]]), choices=[2, 2])
    values = {round(float(dist.logp(torch.tensor([[a, b]]))), 5) for a in range(2) for b in range(2)}
    assert len(values) == 4


def test_kl_of_a_tuple_with_gaussians_has_one_number_per_row() -> None:
    space = spaces.Tuple([spaces.Box(-1, 1, (3,)), spaces.Discrete(2)])
    factory = MultiActionDistribution.for_space(space)
    p, q = (factory(torch.randn(6, 8, generator=generator(seed)), None, None) for seed in (1, 2))
    gaussians = [DiagGaussian(dist.inputs[:, :6]) for dist in (p, q)]
    categoricals = [Categorical(dist.inputs[:, 6:]) for dist in (p, q)]
    assert_close(p.kl(q), gaussians[0].kl(gaussians[1]) + categoricals[0].kl(categoricals[1]))


# -- elsewhere --------------------------------------------------------------------------------------------------------
def test_boxes_of_two_dimensions_have_a_distribution() -> None:
    """RLlib refuses them."""
    policy = policy_for(spaces.Box(-1, 1, (2, 3)), model={"custom_action_dist": "SquashedGaussian"})
    actions, _, extra = policy.compute_actions(np.zeros((4, 3), np.float32))
    assert actions.shape == (4, 2, 3) and extra["action_logp"].shape == (4,)


def test_greedy_actions_record_their_own_log_probability() -> None:
    """Not that of the sample before."""
    dist = DiagGaussian(torch.tensor([[0.0, 0.0]]))
    dist.sample(generator())
    dist.deterministic_sample()
    assert float(dist.sampled_action_logp()) == pytest.approx(-0.5 * math.log(2 * math.pi))
