"""Gumbel-softmax: differentiable samples of a categorical distribution."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from lightning_rl.errors import UnsupportedSpaceError
from lightning_rl.models.distributions import Categorical, GumbelSoftmax
from tests.models.distribution_cases import generator, random_distribution


class Relaxed(GumbelSoftmax):
    straight_through = False
    relaxation = 0.5


def test_a_gumbel_softmax_samples_like_a_categorical() -> None:
    inputs = torch.randn(8, 5, generator=generator())
    gumbel, plain = GumbelSoftmax(inputs), Categorical(inputs)
    assert torch.equal(gumbel.sample(generator(1)), plain.sample(generator(1)))
    assert torch.equal(gumbel.entropy(), plain.entropy())


@pytest.mark.parametrize("kind", [GumbelSoftmax, Relaxed])
def test_the_largest_entry_of_a_reparametrized_sample_has_the_probabilities(kind: type[GumbelSoftmax]) -> None:
    dist = kind(torch.tensor([[0.0, 1.0, 2.0]]).expand(40_000, 3))
    vectors = dist.rsample(generator())
    counts = torch.bincount(vectors.argmax(1), minlength=3) / 40_000
    assert_close(counts, dist.log_probs()[0].exp(), atol=0.01, rtol=0)
    assert_close(vectors.sum(1), torch.ones(40_000))


def test_straight_through_vectors_are_one_hot_and_the_log_probability_is_theirs() -> None:
    dist = GumbelSoftmax(torch.randn(50, 4, generator=generator()))
    vectors = dist.rsample(generator())
    assert_close(vectors.sort(1).values, torch.tensor([0.0, 0.0, 0.0, 1.0]).expand(50, 4))
    assert_close(dist.sampled_action_logp(), dist.logp(vectors.argmax(1)))


def test_the_gradient_is_that_of_the_relaxed_sample() -> None:
    """d(one-hot · c)/d logits equals d(relaxed · c)/d logits for the same noise."""
    gradients = []
    for kind in (GumbelSoftmax, type("Soft", (GumbelSoftmax,), {"straight_through": False})):
        inputs = torch.randn(6, 4, generator=generator()).requires_grad_()
        (kind(inputs).rsample(generator(1)) * torch.arange(4.0)).sum().backward()
        gradients.append(inputs.grad)
    assert_close(gradients[0], gradients[1])
    assert bool(gradients[0].abs().sum() > 0.1)


@pytest.mark.parametrize("kind", [GumbelSoftmax, Relaxed])
def test_masked_actions_are_exactly_zero_and_get_no_gradient(kind: type[GumbelSoftmax]) -> None:
    inputs = torch.randn(50, 4, generator=generator()).requires_grad_()
    mask = torch.tensor([True, False, True, False]).expand(50, 4)
    vectors = kind(inputs, mask=mask).rsample(generator())
    (vectors * torch.arange(4.0)).sum().backward()
    assert inputs.grad is not None
    assert not vectors[:, [1, 3]].any() and not inputs.grad[:, [1, 3]].any()
    assert inputs.grad.isfinite().all() and bool(inputs.grad[:, 0].abs().sum() > 0)


@pytest.mark.parametrize("case", ["Categorical", "nested", "Autoregressive"])
def test_an_error_for_rsample_names_distributions_that_have_it(case: str) -> None:
    with pytest.raises(UnsupportedSpaceError, match="GumbelSoftmax"):
        random_distribution(case).rsample(generator())
