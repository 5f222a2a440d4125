"""The tanh-squashed Gaussian compared with torch.distributions and quadrature."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import distributions as reference
from torch.testing import assert_close

from lightning_rl.models.distributions import DiagGaussian, SquashedGaussian
from tests.models.distribution_cases import generator

SATURATED = torch.tensor([[9.0, 0.0], [-9.0, 0.0], [40.0, -3.0]])


def twin(inputs: torch.Tensor, low: float = -1.0, high: float = 1.0) -> reference.TransformedDistribution:
    mean, log_std = inputs.chunk(2, 1)
    stretch = reference.AffineTransform((low + high) / 2, (high - low) / 2)
    squash = reference.TanhTransform(cache_size=1)
    return reference.TransformedDistribution(reference.Normal(mean, log_std.exp()), [squash, stretch])


@pytest.mark.parametrize(("low", "high"), [(-1.0, 1.0), (-2.0, 3.0), (0.0, 10.0)])
def test_logp_is_that_of_torch(low: float, high: float) -> None:
    inputs = 0.5 * torch.randn(50, 2, generator=generator())
    dist = SquashedGaussian(inputs, low=low, high=high)
    actions = dist.sample(generator(1))
    expected = twin(inputs.double(), low, high).log_prob(actions.double()).sum(1)
    assert_close(dist.logp(actions), expected.float(), atol=1e-3, rtol=1e-3)


def test_every_entry_has_its_own_bounds() -> None:
    """A density in other units: log p shrinks by the sum of the logarithms of the half widths."""
    inputs, action = torch.zeros(1, 4), torch.tensor([[0.2, -0.4]])
    stretched = SquashedGaussian(inputs, low=(0.0, -2.0), high=(4.0, 8.0))
    there = torch.tensor([[2.0 + 0.2 * 2.0, 3.0 - 0.4 * 5.0]])
    assert_close(stretched.logp(there), SquashedGaussian(inputs).logp(action) - math.log(2.0 * 5.0))


def test_a_bound_without_room_gives_its_only_value() -> None:
    dist = SquashedGaussian(torch.zeros(1, 4), low=(0.5, -1.0), high=(0.5, 1.0))
    actions = dist.sample(generator())
    assert actions[0, 0] == 0.5 and dist.logp(actions).isfinite().all()


def test_a_reparametrized_sample_keeps_its_exact_density_where_tanh_is_one() -> None:
    """u ≈ 9 … 40: float32's tanh is 1, and inverting it gives nothing; Gaussian − 2 (log 2 − u − log(1 + e⁻²ᵘ))."""
    dist = SquashedGaussian(SATURATED)
    dist.rsample(generator())
    noise = torch.empty(3, 1).normal_(generator=generator()).double()
    mean, log_std = SATURATED.double().chunk(2, 1)
    raw = (mean + log_std.exp() * noise).abs()
    slope = 2 * (math.log(2) - raw - torch.log1p(torch.exp(-2 * raw)))
    expected = -0.5 * noise**2 - log_std - 0.5 * math.log(2 * math.pi) - slope
    assert_close(dist.sampled_action_logp(), expected.sum(1).float())


def test_a_saturated_reparametrized_sample_is_pulled_back_by_its_log_probability() -> None:
    """d/du −log(1 − tanh² u) = 2 tanh u: an entropy bonus must not lose its grip at the bounds, as clipping would."""
    inputs = torch.tensor([[12.0, -5.0]], requires_grad=True)
    dist = SquashedGaussian(inputs)
    dist.rsample(generator())
    dist.sampled_action_logp().sum().backward()
    assert inputs.grad is not None
    assert float(inputs.grad[0, 0]) == pytest.approx(2.0, abs=1e-3)


def test_recorded_samples_keep_a_first_ratio_of_one_even_at_the_bounds() -> None:
    """What a loss computes of the recorded float32 action is what was recorded beside it."""
    dist = SquashedGaussian(SATURATED.repeat(100, 1))
    actions = dist.sample(generator())
    assert torch.equal(dist.logp(actions.clone()), dist.sampled_action_logp())
    assert bool((actions.abs() < 1.0).all())


def test_given_actions_at_and_beyond_the_bounds_have_a_finite_density() -> None:
    dist = SquashedGaussian(torch.zeros(4, 2, requires_grad=True))
    logp = dist.logp(torch.tensor([[1.0], [-1.0], [1.5], [-np.inf]]))
    gradient = torch.autograd.grad(logp.sum(), dist.inputs)[0]
    assert logp.isfinite().all() and gradient.isfinite().all()


@pytest.mark.parametrize(
    ("deviation", "means", "error"),
    [
        *((deviation, (0.0, 0.7, 3.0), {"abs": 1e-3}) for deviation in (0.05, 0.5, 1.0, 2.0)),
        *((deviation, (0.0, 0.4 * deviation, deviation), {"rel": 0.03}) for deviation in (4.0, 7.0)),
    ],
)
def test_entropy_is_that_of_the_integral(deviation: float, means: Any, error: dict[str, float]) -> None:
    """Within a thousandth of a nat, or three percent for wide Gaussians (log σ is 2 at most)."""
    for mean in means:
        dist = SquashedGaussian(torch.tensor([[mean, math.log(deviation)]]))
        assert float(dist.entropy()) == pytest.approx(integrated_entropy(mean, deviation), **error)


def integrated_entropy(mean: float, deviation: float) -> float:
    """The integral over ±12 σ in 200 001 steps, in double precision."""
    points = torch.linspace(-12, 12, 200_001, dtype=torch.float64)
    weights = (-0.5 * points**2).exp()
    raw = mean + deviation * points
    slopes = 2 * (math.log(2) - raw - torch.nn.functional.softplus(-2 * raw))
    return 0.5 + 0.5 * math.log(2 * math.pi) + math.log(deviation) + float((slopes * weights).sum() / weights.sum())


def test_a_squashed_gaussian_is_no_wider_than_e_squared() -> None:
    """Beyond, nearly all actions are at the bounds, and the gradient that would bring σ back is nearly 0."""
    inputs = torch.tensor([[0.0, 5.0], [0.0, 1.0], [0.0, -30.0]])
    assert SquashedGaussian(inputs).log_std.flatten().tolist() == [2.0, 1.0, -20.0]
    assert DiagGaussian(inputs).log_std.flatten().tolist() == [5.0, 1.0, -20.0]
    narrow: Any = SimpleNamespace(log_std_clip=0.5)
    for kind in (SquashedGaussian, DiagGaussian):
        assert kind(inputs, narrow).log_std.flatten().tolist() == [0.5, 0.5, -0.5]


def test_the_best_action_is_tanh_of_the_mean_stretched() -> None:
    dist = SquashedGaussian(torch.tensor([[0.5, 3.0]]), low=0.0, high=10.0)
    assert float(dist.deterministic_sample()) == pytest.approx(5.0 + 5.0 * math.tanh(0.5))
