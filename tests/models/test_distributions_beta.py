"""Beta and Dirichlet compared with torch.distributions, and the spaces that they take."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import distributions as reference
from torch.testing import assert_close

from lightning_rl.errors import UnsupportedSpaceError
from lightning_rl.models.catalog import ModelCatalog
from lightning_rl.models.distributions import Beta, Dirichlet
from tests.models.distribution_cases import generator, parts, random_distribution

EXTREME = torch.tensor([[0.3, 9.0], [-6.0, 9.0], [2.0, -9.0], [0.0, 100.0], [-100.0, 100.0]])


def beta_twin(dist: Beta) -> reference.Beta:
    return reference.Beta(dist.alpha.double(), dist.beta.double())


# -- Beta -------------------------------------------------------------------------------------------------------------
def test_a_beta_worked_by_hand() -> None:
    """Mode ¾, κ = 4: α = 4, β = 2, density 20 x³ (1 − x) = 1.25 at x = ½, half of that on [−1, 1], at 0."""
    dist = Beta(torch.tensor([[math.log(3.0), math.log(4.0)]]))
    assert_close(dist.logp(torch.tensor([[0.0]])), torch.tensor([math.log(0.625)]))
    assert float(dist.deterministic_sample()) == pytest.approx(0.5)


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-1.0, 1.0), (-2.0, 6.0)])
def test_beta_is_that_of_torch(low: float, high: float) -> None:
    p, q = (Beta(torch.randn(30, 4, generator=generator(seed)), low=low, high=high) for seed in (1, 2))
    actions, volume = p.sample(generator()), 2 * math.log(high - low)
    expected = beta_twin(p).log_prob((actions.double() - low) / (high - low)).sum(1) - volume
    assert_close(p.logp(actions), expected.float(), rtol=1e-4, atol=1e-4)
    assert_close(p.entropy(), beta_twin(p).entropy().sum(1).float() + volume, rtol=1e-4, atol=1e-5)
    kl = reference.kl_divergence(beta_twin(p), beta_twin(q)).sum(1)
    assert_close(p.kl(q), kl.float(), rtol=1e-4, atol=1e-5)


def test_a_concentrated_beta_is_still_exact() -> None:
    """α near 10⁴: log Γ is near 10⁵, and float32 would leave errors of 0.01."""
    dist, other = Beta(EXTREME, low=0.0, high=1.0), Beta(EXTREME + 0.1, low=0.0, high=1.0)
    actions = dist.sample(generator())
    assert_close(dist.logp(actions), beta_twin(dist).log_prob(actions.double()).sum(1).float(), rtol=1e-4, atol=1e-3)
    assert_close(dist.entropy(), beta_twin(dist).entropy().sum(1).float(), rtol=1e-4, atol=1e-4)
    kl = reference.kl_divergence(beta_twin(dist), beta_twin(other)).sum(1)
    assert_close(dist.kl(other), kl.float(), rtol=1e-3, atol=1e-4)


def test_moments_of_beta_samples() -> None:
    dist = Beta(torch.tensor([[1.0, 0.5]]).expand(40_000, 2), low=-2.0, high=6.0)
    actions, expected = dist.sample(generator()), reference.Beta(dist.alpha[0], dist.beta[0])
    assert float(actions.mean()) == pytest.approx(-2 + 8 * float(expected.mean), abs=0.03)
    assert float(actions.std()) == pytest.approx(8 * float(expected.stddev), abs=0.03)


@pytest.mark.parametrize("kind", ["Beta", "Dirichlet"])
def test_the_best_action_is_the_mode(kind: str) -> None:
    """No other action of many is likelier."""
    best = random_distribution(kind, rows=1)
    at_best = best.logp(best.deterministic_sample())
    factory = parts(kind)[1]
    many = factory(best.inputs.expand(5000, -1), None, None)
    assert bool((many.logp(many.sample(generator())) <= at_best + 1e-4).all())


def test_the_width_does_not_move_a_betas_best_action() -> None:
    narrow, wide = (Beta(torch.tensor([[0.8, log]])).deterministic_sample() for log in (-5.0, 5.0))
    assert torch.equal(narrow, wide)


# -- Dirichlet --------------------------------------------------------------------------------------------------------
def dirichlet_twin(dist: Dirichlet) -> reference.Dirichlet:
    return reference.Dirichlet(dist.alpha.double())


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-1.0, 1.0), (0.0, 100.0)])
def test_dirichlet_is_that_of_torch(low: float, high: float) -> None:
    p, q = (Dirichlet(torch.randn(30, 5, generator=generator(seed)), low=low, high=high) for seed in (1, 2))
    actions, volume = p.sample(generator()), 3 * math.log(high - low)
    shares = (actions.double() - low) / (high - low)
    expected = dirichlet_twin(p).log_prob(shares / shares.sum(1, keepdim=True)) - volume
    assert_close(p.logp(actions), expected.float(), rtol=1e-3, atol=1e-3)
    assert_close(p.entropy(), dirichlet_twin(p).entropy().float() + volume, rtol=1e-4, atol=1e-4)
    assert_close(p.kl(q), reference.kl_divergence(dirichlet_twin(p), dirichlet_twin(q)).float(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("case", ["Dirichlet", "Dirichlet on bounds"])
@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_the_environment_gets_shares_that_sum_to_one(case: str, scale: float) -> None:
    transform, dist = parts(case)[0], random_distribution(case, rows=500, scale=scale)
    for actions in (dist.sample(generator()), dist.deterministic_sample(), dist.uniform_sample(generator())[0]):
        sent = transform.to_env(actions)
        assert sent.min() >= 0.0
        np.testing.assert_allclose(sent.sum(1), 1.0, atol=1e-5)


def test_uniform_shares_have_the_density_of_a_flat_dirichlet() -> None:
    """Of 4 shares: 3! on [0, 1], and each is ¼ on average."""
    actions, logp = random_distribution("Dirichlet on bounds", rows=20_000).uniform_sample(generator())
    assert_close(logp, torch.full((20_000,), math.log(6.0)))
    assert_close(actions.mean(0), torch.full((4,), 0.25), atol=0.01, rtol=0)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-1, 1, (3,)),
        spaces.Box(0, 1, (1,)),
        spaces.Box(0, 1, (2, 2)),
        spaces.Box(0, np.inf, (3,)),
        spaces.Box(0, np.array([1, 2], np.float32)),
        spaces.Discrete(3),
    ],
    ids=str,
)
def test_dirichlet_refuses_spaces_other_than_shares(space: spaces.Space) -> None:
    with pytest.raises(UnsupportedSpaceError, match=r"Dirichlet.*Box\(0, 1, \(n,\)\)"):
        ModelCatalog.get_action_dist(space, {"custom_action_dist": "Dirichlet"})
