"""The tanh-squashed Gaussian compared with hand-worked numbers, torch.distributions and quadrature."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import distributions as reference
from torch.testing import assert_close

from lightning_rl.errors import UnsupportedSpaceError
from lightning_rl.models.catalog import ModelCatalog
from lightning_rl.models.distributions import DiagGaussian, SquashedGaussian
from tests.models.distribution_cases import generator

GOLDEN = torch.tensor([[0.3, math.log(0.5)]])  # μ and log σ; the raw action is 0.1
SATURATED = torch.tensor([[9.0, 0.0], [-9.0, 0.0], [40.0, -3.0]])


def twin(inputs: torch.Tensor, low: float = -1.0, high: float = 1.0) -> reference.TransformedDistribution:
    mean, log_std = inputs.chunk(2, 1)
    stretch = reference.AffineTransform((low + high) / 2, (high - low) / 2)
    squash = reference.TanhTransform(cache_size=1)
    return reference.TransformedDistribution(reference.Normal(mean, log_std.exp()), [squash, stretch])


def test_the_golden_number_in_the_policys_space() -> None:
    """log N(.1; .3, .5) = −.305791, minus log(1 − tanh² .1) = −.0099834: −.295808."""
    action = torch.tensor([[math.tanh(0.1)]])
    assert_close(SquashedGaussian(GOLDEN).logp(action), torch.tensor([-0.295808]), atol=1e-5, rtol=0)


def test_the_golden_number_on_bounds_counts_the_stretching() -> None:
    """Range ±2: the action is .199336, and the density is thinner by log 2: −.988955."""
    dist = SquashedGaussian(GOLDEN, low=-2.0, high=2.0)
    assert_close(dist.logp(torch.tensor([[0.199336]])), torch.tensor([-0.988955]), atol=1e-5, rtol=0)


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


def test_a_reparametrised_sample_keeps_its_exact_density_where_tanh_is_one() -> None:
    """u ≈ 9 … 40: float32's tanh is 1, and inverting it gives nothing; Gaussian − 2 (log 2 − u − log(1 + e⁻²ᵘ))."""
    dist = SquashedGaussian(SATURATED)
    dist.rsample(generator())
    noise = torch.empty(3, 1).normal_(generator=generator()).double()
    mean, log_std = SATURATED.double().chunk(2, 1)
    raw = (mean + log_std.exp() * noise).abs()
    slope = 2 * (math.log(2) - raw - torch.log1p(torch.exp(-2 * raw)))
    expected = -0.5 * noise**2 - log_std - 0.5 * math.log(2 * math.pi) - slope
    assert_close(dist.sampled_action_logp(), expected.sum(1).float())


def test_a_saturated_reparametrised_sample_is_pulled_back_by_its_log_probability() -> None:
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


@pytest.mark.parametrize("deviation", [0.05, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("mean", [0.0, 0.7, 3.0])
def test_entropy_is_within_a_thousandth_of_a_nat(mean: float, deviation: float) -> None:
    dist = SquashedGaussian(torch.tensor([[mean, math.log(deviation)]]))
    assert float(dist.entropy()) == pytest.approx(integrated_entropy(mean, deviation), abs=1e-3)


@pytest.mark.parametrize("deviation", [4.0, 7.0])  # log σ is 2 at most
@pytest.mark.parametrize("mean", [0.0, 0.4, 1.0])
def test_the_entropy_of_a_wide_gaussian_is_within_three_percent(mean: float, deviation: float) -> None:
    """The integral, by the slow way."""
    dist = SquashedGaussian(torch.tensor([[mean * deviation, math.log(deviation)]]))
    assert float(dist.entropy()) == pytest.approx(integrated_entropy(mean * deviation, deviation), rel=0.03)


def integrated_entropy(mean: float, deviation: float) -> float:
    """The integral over ±12 σ in 200 001 steps, in double precision."""
    points = torch.linspace(-12, 12, 200_001, dtype=torch.float64)
    weights = (-0.5 * points**2).exp()
    raw = mean + deviation * points
    slopes = 2 * (math.log(2) - raw - torch.nn.functional.softplus(-2 * raw))
    return 0.5 + 0.5 * math.log(2 * math.pi) + math.log(deviation) + float((slopes * weights).sum() / weights.sum())


def test_the_entropy_of_a_wide_gaussian_falls_with_its_width() -> None:
    """Mass piles up at the bounds: a Gaussian's own entropy, as a bound, would reward exactly that."""
    narrow, wide = (SquashedGaussian(torch.tensor([[0.0, log_std]])).entropy() for log_std in (0.0, 2.0))
    assert float(wide) < float(narrow)


def test_a_squashed_gaussian_is_no_wider_than_e_squared() -> None:
    """Beyond, nearly all actions are at the bounds, and the gradient that would bring σ back is nearly 0."""
    inputs = torch.tensor([[0.0, 5.0], [0.0, 1.0], [0.0, -30.0]])
    assert SquashedGaussian(inputs).log_std.flatten().tolist() == [2.0, 1.0, -20.0]
    assert DiagGaussian(inputs).log_std.flatten().tolist() == [5.0, 1.0, -20.0]
    narrow: Any = SimpleNamespace(log_std_clip=0.5)
    assert SquashedGaussian(inputs, narrow).log_std.flatten().tolist() == [0.5, 0.5, -0.5]


def test_kl_is_that_of_the_gaussians_because_both_are_squashed_alike() -> None:
    """In closed form, and in every space that the actions are stretched to."""
    p, q = torch.randn(20, 6, generator=generator()).clamp(max=2.0), torch.randn(20, 6, generator=generator(1))
    expected = sum(
        reference.kl_divergence(
            reference.Normal(p[:, i], p[:, 3 + i].exp()), reference.Normal(q[:, i], q[:, 3 + i].exp())
        )
        for i in range(3)
    )
    for low, high in ((-1.0, 1.0), (-5.0, 0.0)):
        ours, theirs = (SquashedGaussian(inputs, low=low, high=high) for inputs in (p, q))
        assert_close(ours.kl(theirs), expected)


def test_the_best_action_is_tanh_of_the_mean_stretched() -> None:
    dist = SquashedGaussian(torch.tensor([[0.5, 3.0]]), low=0.0, high=10.0)
    assert float(dist.deterministic_sample()) == pytest.approx(5.0 + 5.0 * math.tanh(0.5))


@pytest.mark.parametrize("name", ["SquashedGaussian", "Beta"])
@pytest.mark.parametrize(
    "space", [spaces.Box(-np.inf, np.inf, (2,)), spaces.Discrete(3), spaces.Box(0, 5, (2,), dtype=np.int32)], ids=str
)
def test_spaces_without_bounds_are_refused(name: str, space: spaces.Space) -> None:
    for refused in (space, spaces.Tuple([spaces.Box(-1, 1, (1,)), spaces.Box(-np.inf, np.inf, (2,))])):
        with pytest.raises(UnsupportedSpaceError, match=f"{name}"):
            ModelCatalog.get_action_dist(refused, {"custom_action_dist": name})


def test_log_deviations_can_be_free_parameters() -> None:
    """`free_log_std` knows the columns of this Gaussian too, also inside a Dict."""
    box = spaces.Box(-1, 1, (2,))
    for space, width in ((box, 4), (spaces.Tuple([spaces.Discrete(3), box]), 7)):
        config = {"custom_action_dist": "SquashedGaussian", "free_log_std": True, "log_std_init": -1.5}
        model = ModelCatalog.get_model(box, space, width, config)
        outputs = model({"obs_flat": torch.randn(5, 2)})[0]
        assert_close(outputs[:, -2:], torch.full((5, 2), -1.5))
