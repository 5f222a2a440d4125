"""Policy-gradient losses, compared with numbers worked by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from lightning_rl.losses import approx_kl, clip_fraction, clipped_surrogate, policy_gradient, standardize
from lightning_rl.losses.policy_gradient import penalty_factor
from tests.refusals import not_refused

OLD, NEW = torch.tensor([-0.5, -1.2, -0.7, -2.0]), torch.tensor([-0.4, -1.6, -0.1, -2.3])
ADVANTAGES = torch.tensor([1.0, -2.0, 0.5, -0.3])


def test_the_clipped_surrogate_of_the_golden_batch() -> None:
    """Ratios 1.105171 .67032 1.822119 .740818, surrogates 1.105171 −1.4 (clipped at .7) .65 (at 1.3) −.222245.

    Their mean is .0332314; the loss is its negative.
    """
    assert_close(clipped_surrogate(NEW, OLD, ADVANTAGES, 0.3), torch.tensor(-0.0332314), atol=1e-6, rtol=0)


@settings(derandomize=True, max_examples=50, deadline=None)
@given(st.integers(0, 2**31), st.floats(0.01, 0.9))
def test_the_clipped_surrogate_and_its_gradient_are_those_of_the_published_form(seed: int, clip: float) -> None:
    """Eq. 7 as printed, in float64: −mean(min(r A, clip(r, 1 − ε, 1 + ε) A))."""
    generator = torch.Generator().manual_seed(seed)
    old, new, advantages = torch.randn(3, 32, generator=generator, dtype=torch.float64)
    logp = new.clone().requires_grad_()
    ratio = (logp - old).exp()
    published = -torch.min(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages).mean()
    loss = clipped_surrogate(logp, old, advantages, clip)
    assert_close(loss, published)
    assert_close(torch.autograd.grad(loss, logp), torch.autograd.grad(published, logp))


def test_descending_the_loss_raises_probabilities_with_positive_advantages() -> None:
    """−mean(logp · A) = −(−.4 + 3.2 − .05 + .69)/4; ∂/∂logp = −A/4."""
    logp = NEW.clone().requires_grad_()
    loss = policy_gradient(logp, ADVANTAGES)
    loss.backward()
    assert_close(loss.detach(), torch.tensor(-0.86))
    assert_close(logp.grad, -ADVANTAGES / 4)


def test_no_gradient_flows_into_the_advantages() -> None:
    advantages = ADVANTAGES.clone().requires_grad_()
    policy_gradient(NEW.clone().requires_grad_(), advantages).backward()
    assert advantages.grad is None


def test_approx_kl_is_zero_for_equal_policies_and_positive_else() -> None:
    """Mean of (r − 1) − log r: (.005171 + .07032 + .222119 + .040818)/4 = .084607."""
    assert approx_kl(OLD, OLD).item() == 0.0
    assert_close(approx_kl(NEW, OLD), torch.tensor(0.084607), atol=1e-6, rtol=0)


def test_measures_of_a_step_carry_no_gradient() -> None:
    logp = NEW.clone().requires_grad_()
    assert not approx_kl(logp, OLD).requires_grad and not clip_fraction(logp, OLD, 0.3).requires_grad


def test_approx_kl_estimates_the_divergence_of_the_distributions() -> None:
    """10⁵ draws from a categorical: within 2 % of Σ p log(p/q)."""
    p, q = torch.tensor([0.2, 0.3, 0.5]), torch.tensor([0.3, 0.3, 0.4])
    drawn = torch.multinomial(p, 100_000, replacement=True, generator=torch.Generator().manual_seed(0))
    estimate = approx_kl(q.log()[drawn], p.log()[drawn])
    assert_close(estimate, (p * (p / q).log()).sum(), rtol=0.02, atol=0)


@pytest.mark.parametrize(
    ("kl", "factor"), [(0.0, 0.5), (0.12, 0.5), (0.125, 1.0), (0.25, 1.0), (0.5, 1.0), (0.51, 1.5), (0.7, 1.5)]
)
def test_a_penalty_grows_above_twice_its_target_and_halves_below_half(kl: float, factor: float) -> None:
    """Target ¼: bounds ½ and ⅛, on which the coefficient stays."""
    assert penalty_factor(kl, 0.25) == factor


def test_clip_fraction_counts_the_ratios_outside() -> None:
    assert clip_fraction(NEW, OLD, 0.3).item() == 0.5
    assert clip_fraction(NEW, OLD, 1.0).item() == 0.0
    assert clip_fraction(OLD, OLD, 0.0).item() == 0.0  # on the edge is inside


def test_standardized_uses_the_population_deviation_and_survives_equal_advantages() -> None:
    assert_close(standardize(ADVANTAGES), torch.tensor([1.054499, -1.581749, 0.615125, -0.087875]), atol=1e-5, rtol=0)
    assert_close(standardize(torch.full((3,), 7.0)), torch.zeros(3))
    assert_close(standardize(torch.tensor([0.0, 2e-5])), torch.tensor([-0.1, 0.1]))  # 1e-5 over 1e-4, the least


def test_shapes_that_would_broadcast_are_refused() -> None:
    column = OLD.unsqueeze(1)
    cases: list[tuple[Any, tuple[Any, ...], str]] = [
        (policy_gradient, (NEW, column), r"\[\[4\], \[4, 1\]\]"),
        (approx_kl, (NEW, column), r"\[\[4\], \[4, 1\]\]"),
        (clipped_surrogate, (NEW, column, ADVANTAGES, 0.2), r"\[4, 1\]"),
        (clipped_surrogate, (NEW, OLD, ADVANTAGES.unsqueeze(1), 0.2), r"\[4, 1\]"),
        (clip_fraction, (NEW, column, 0.2), r"\[4, 1\]"),
    ]
    assert not_refused(lambda function, arguments: function(*arguments), cases, ValueError) == []
