"""Beta and Dirichlet compared with torch.distributions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import distributions as reference
from torch.testing import assert_close

from lightning_rl.models.distributions import Beta, Dirichlet
from tests.models.distribution_cases import generator, parts, random_distribution

EXTREME = torch.tensor([[0.3, 9.0], [-6.0, 9.0], [2.0, -9.0], [0.0, 100.0], [-100.0, 100.0]])


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


def twin(dist: Beta | Dirichlet) -> reference.Distribution:
    """The distribution of torch, in double precision and on [0, 1]."""
    if isinstance(dist, Beta):
        return reference.Independent(reference.Beta(dist.alpha.double(), dist.beta.double()), 1)
    return reference.Dirichlet(dist.alpha.double())


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-1.0, 1.0), (-2.0, 98.0)])
@pytest.mark.parametrize(("kind", "size", "free"), [(Beta, 4, 2), (Dirichlet, 5, 3)])
def test_logp_entropy_and_kl_are_those_of_torch(kind: Any, size: int, free: int, low: float, high: float) -> None:
    p, q = (kind(torch.randn(30, size, generator=generator(seed)), low=low, high=high) for seed in (1, 2))
    actions, volume = p.sample(generator()), free * math.log(high - low)
    shares = (actions.double() - low) / (high - low)
    shares = shares / shares.sum(1, keepdim=True) if kind is Dirichlet else shares
    assert_close(p.logp(actions), twin(p).log_prob(shares).float() - volume, rtol=1e-3, atol=1e-3)
    assert_close(p.entropy(), twin(p).entropy().float() + volume, rtol=1e-4, atol=1e-4)
    assert_close(p.kl(q), reference.kl_divergence(twin(p), twin(q)).float(), rtol=1e-4, atol=1e-4)


def test_a_concentrated_beta_is_still_exact() -> None:
    """α near 10⁴: log Γ is near 10⁵, and float32 would leave errors of 0.01."""
    dist, other = Beta(EXTREME, low=0.0, high=1.0), Beta(EXTREME + 0.1, low=0.0, high=1.0)
    actions = dist.sample(generator())
    assert_close(dist.logp(actions), twin(dist).log_prob(actions.double()).float(), rtol=1e-4, atol=1e-3)
    assert_close(dist.entropy(), twin(dist).entropy().float(), rtol=1e-4, atol=1e-4)
    assert_close(dist.kl(other), reference.kl_divergence(twin(dist), twin(other)).float(), rtol=1e-3, atol=1e-4)


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
