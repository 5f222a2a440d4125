"""What holds for every built-in distribution, in every action space, and what its numbers are."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, iterate
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch import distributions as reference
from torch.testing import assert_close

from lightning_rl.errors import UnsupportedSpaceError
from lightning_rl.exploration import Random
from lightning_rl.models.catalog import ModelCatalog
from lightning_rl.models.distributions import (
    AutoregressiveDistribution,
    Bernoulli,
    Beta,
    Categorical,
    Deterministic,
    DiagGaussian,
    Dirichlet,
    MultiCategorical,
)
from lightning_rl.sample_batch import to_nested_batch
from lightning_rl.spaces import choices_of, leaf_values
from tests.models.distribution_cases import CASES, SPACES, generator, parts, random_distribution, repeated_distribution
from tests.refusals import not_refused

EVERY = pytest.mark.parametrize("case", CASES)
REPARAMETRISED = ["DiagGaussian", "SquashedGaussian", "SquashedGaussian on bounds", "Beta", "Dirichlet"]
INPUTS = st.floats(-1e4, 1e4, width=32) | st.sampled_from([0.0, -1e4, 1e4])


def leaves(case: str, actions: Any) -> list[Tensor]:
    return leaf_values(SPACES[case][0], actions)


def is_inside(case: str, actions: Any) -> bool:
    space = SPACES[case][0]
    sent = parts(case)[0].to_env(actions)
    rows = len(leaves(case, actions)[0])
    return all(space.contains(single) for single in iterate(batch_space(space, rows), sent))


def has_gaussian(case: str) -> bool:
    """A Gaussian's actions are clipped for the environment, so they do not come back."""
    return case in ("DiagGaussian", "nested", "nested GumbelSoftmax", "Autoregressive")


@EVERY
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_samples_are_inside_and_numbers_finite_for_extreme_inputs(case: str, data: st.DataObject) -> None:
    _, factory, size, model = parts(case)
    rows = [data.draw(st.lists(INPUTS, min_size=size, max_size=size)) for _ in range(3)]
    dist = factory(torch.tensor(rows), model, None)
    for actions in (dist.sample(generator()), dist.deterministic_sample()):
        assert is_inside(case, actions)
        assert dist.sampled_action_logp().isfinite().all()
    assert dist.entropy().isfinite().all() and dist.kl(dist).isfinite().all()


@pytest.mark.parametrize("case", SPACES)
def test_samples_of_every_action_space_are_inside_and_have_the_log_probability_of_the_action(case: str) -> None:
    """So has a greedy action behind a sample, and an action that was recorded and nested, as a loss gets it."""
    dist = random_distribution(case, rows=50)
    for take in (lambda: dist.sample(generator()), dist.deterministic_sample):
        actions = take()
        assert is_inside(case, actions) and dist.entropy().shape == dist.sampled_action_logp().shape == (50,)
        assert_close(dist.logp(actions), dist.sampled_action_logp(), rtol=1e-4, atol=1e-3)
        assert torch.equal(dist.logp(actions), dist.logp(to_nested_batch(actions)))


@pytest.mark.parametrize("case", [case for case in CASES if not has_gaussian(case)])
def test_actions_of_the_environment_have_the_log_probability_of_the_policys(case: str) -> None:
    """There and back through the action transform: offsets of integers and stretched bounds are undone."""
    transform, dist = parts(case)[0], random_distribution(case, scale=0.3)
    actions = dist.sample(generator())
    again = transform.from_env(transform.to_env(actions))
    assert_close(dist.logp(again), dist.logp(actions), rtol=1e-3, atol=2e-3)


@EVERY
def test_inputs_and_masks_are_never_changed(case: str) -> None:
    dist, other = random_distribution(case), random_distribution(case, seed=9)
    kept = dist.inputs.clone()
    dist.logp(dist.sample(generator())), dist.entropy(), dist.kl(other), dist.deterministic_sample()
    dist.sampled_action_logp(), dist.uniform_sample(generator())
    assert torch.equal(dist.inputs, kept)


@EVERY
def test_the_generator_alone_decides_a_sample(case: str) -> None:
    """Acting may not touch torch's global generator, nor depend on it."""
    before = torch.get_rng_state()
    first = leaves(case, random_distribution(case, rows=50).sample(generator(1)))
    torch.rand(3)
    again, other = (leaves(case, random_distribution(case, rows=50).sample(generator(seed))) for seed in (1, 2))
    torch.set_rng_state(before)
    random_distribution(case).sample(generator(1))
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert any(not torch.equal(a, b) for a, b in zip(first, other, strict=True))


@EVERY
def test_entropy_is_minus_the_mean_log_probability(case: str) -> None:
    """Monte Carlo over 10 000 samples, within five standard errors."""
    dist = repeated_distribution(case, 10_000)
    logp = dist.logp(dist.sample(generator())).detach()
    error = 5.0 * float(logp.std()) / 100.0 + 1e-4
    torch.manual_seed(0)
    assert float(dist.entropy().detach().mean()) == pytest.approx(-float(logp.mean()), abs=error)


@EVERY
def test_kl_is_the_mean_log_ratio(case: str) -> None:
    """Monte Carlo over 10 000 samples, within five standard errors; and it is not symmetric by accident."""
    p, q = repeated_distribution(case, 10_000, seed=1), repeated_distribution(case, 10_000, seed=2)
    actions = p.sample(generator())
    ratio = (p.logp(actions) - q.logp(actions)).detach()
    error = 5.0 * float(ratio.std()) / 100.0 + 1e-4
    torch.manual_seed(0)
    kl = p.kl(q).detach()
    assert float(kl.mean()) == pytest.approx(float(ratio.mean()), abs=error)
    assert float(kl.mean()) > 0.0


@EVERY
def test_kl_of_a_distribution_to_itself_is_zero_with_zero_gradient(case: str) -> None:
    """Zero is the minimum, so a penalty on it cannot pull at the first step."""
    _, factory, size, model = parts(case)
    inputs = torch.randn(6, size, generator=generator()).requires_grad_()
    kl = factory(inputs.detach(), model, None).kl(factory(inputs, model, None))
    kl.sum().backward()
    assert inputs.grad is not None
    assert_close(kl, torch.zeros(6), atol=1e-6, rtol=0)
    assert_close(inputs.grad, torch.zeros_like(inputs), atol=1e-5, rtol=0)


@EVERY
def test_gradients_of_logp_and_entropy_are_finite_and_not_zero(case: str) -> None:
    _, factory, size, model = parts(case)
    inputs = torch.randn(6, size, generator=generator()).requires_grad_()
    dist = factory(inputs, model, None)
    actions = to_nested_batch(factory(inputs.detach(), model, None).sample(generator()))
    for value in (dist.logp(actions), dist.entropy()):
        gradient = torch.autograd.grad(value.sum(), inputs, retain_graph=True)[0]
        assert gradient.isfinite().all() and bool(gradient.abs().sum() > 0)


@pytest.mark.parametrize("case", REPARAMETRISED)
def test_reparametrized_samples_carry_the_gradient_of_the_mean(case: str) -> None:
    """d E[a] / d inputs by samples (pathwise) against by probabilities (score function)."""
    _, factory, size, _ = parts(case)
    inputs = torch.randn(1, size, generator=generator(4)).mul_(0.3).requires_grad_()
    first, second = (factory(inputs.expand(100_000, size), None, None) for _ in range(2))
    pathwise = torch.autograd.grad(first.rsample(generator()).flatten(1)[:, 0].mean(), inputs)[0]
    actions = second.sample(generator(1)).detach()
    centered = actions.flatten(1)[:, 0] - actions.flatten(1)[:, 0].mean()
    score = torch.autograd.grad((second.logp(actions) * centered).mean(), inputs)[0]
    assert_close(pathwise, score, atol=0.03, rtol=0.03)
    assert bool(pathwise.abs().max() > 0.05)


@EVERY
def test_random_actions_of_a_warm_up_are_possible_ones(case: str) -> None:
    """Inside the space, and with a finite density under the policy (shares of a whole sum to it)."""
    dist = random_distribution(case, rows=100)
    exploration = Random(parts(case)[0].policy_space)
    actions, logp = exploration.get_exploration_action(dist, timestep=0, explore=True, generator=generator())
    assert is_inside(case, actions)
    assert logp.isfinite().all() and dist.logp(actions).isfinite().all()


@EVERY
def test_a_distribution_factory_can_be_pickled_and_copied(case: str) -> None:
    """Policies are pickled with their factory for workers."""
    _, factory, size, model = parts(case)
    inputs = torch.randn(3, size)
    for again in (pickle.loads(pickle.dumps(factory)), copy.deepcopy(factory)):
        first, second = (made(inputs, model, None).sample(generator()) for made in (factory, again))
        assert all(torch.equal(a, b) for a, b in zip(leaves(case, first), leaves(case, second), strict=True))


@EVERY
def test_evaluation_in_inference_mode_does_not_spoil_training(case: str) -> None:
    """Inference tensors cannot be saved for a later backward."""
    _, factory, size, model = parts(case)
    inputs = torch.randn(3, size)
    with torch.inference_mode():
        dist = factory(inputs, model, None)
        dist.logp(dist.sample(generator())), dist.entropy(), dist.kl(dist)
    learning = factory(inputs.clone().requires_grad_(), model, None)
    (
        learning.logp(to_nested_batch(factory(inputs, model, None).sample(generator()))) + learning.entropy()
    ).sum().backward()


def test_every_kind_of_distribution_is_among_the_cases() -> None:
    kinds = {type(random_distribution(case)) for case in CASES}
    assert {DiagGaussian, Beta, Dirichlet, AutoregressiveDistribution} <= kinds and len(kinds) == 10


# -- numbers ----------------------------------------------------------------------------------------------------------
def twins(space: Any, inputs: Tensor) -> list[Any]:
    """For each entry of an action, a distribution of torch."""
    if isinstance(space, spaces.Box):
        columns = zip(*(half.unbind(1) for half in inputs.chunk(2, 1)), strict=True)
        return [reference.Normal(mean, log_std.exp()) for mean, log_std in columns]
    if isinstance(space, spaces.MultiBinary):
        return [reference.Bernoulli(logits=logits) for logits in inputs.unbind(1)]
    return [reference.Categorical(logits=logits) for logits in inputs.split(choices_of(space).tolist(), 1)]


@pytest.mark.parametrize(
    ("space", "kind"),
    [
        (spaces.Discrete(5), Categorical),
        (spaces.MultiDiscrete([3, 3]), MultiCategorical),
        (spaces.MultiDiscrete([4, 1, 2]), MultiCategorical),
        (spaces.Box(-1, 1, (3,)), DiagGaussian),
        (spaces.MultiBinary(4), Bernoulli),
    ],
    ids=str,
)
def test_the_catalog_s_distributions_are_products_of_torch_s(space: Any, kind: type[Any]) -> None:
    factory, size = ModelCatalog.get_action_dist(space)
    p, q = (factory(torch.randn(6, size, generator=generator(seed)), None, None) for seed in (1, 2))
    actions, mine, others = p.sample(generator()), twins(space, p.inputs), twins(space, q.inputs)
    columns = actions.reshape(6, -1).float().unbind(1)
    logps = [twin.log_prob(column) for twin, column in zip(mine, columns, strict=True)]
    assert type(p) is kind
    assert_close(p.logp(actions), torch.stack(logps).sum(0))
    assert_close(p.entropy(), torch.stack([twin.entropy() for twin in mine]).sum(0))
    assert_close(p.kl(q), torch.stack([*map(reference.kl_divergence, mine, others)]).sum(0))


def test_multi_action_is_the_sum_of_its_leaves() -> None:
    p, q = random_distribution("nested", seed=1), random_distribution("nested", seed=2)
    actions = p.sample(generator())
    pairs = zip(p.children, leaves("nested", actions), strict=True)
    assert_close(p.logp(actions), sum(child.logp(leaf) for child, leaf in pairs))
    assert_close(p.entropy(), sum(child.entropy() for child in p.children))
    assert_close(p.kl(q), sum(a.kl(b) for a, b in zip(p.children, q.children, strict=True)))


@pytest.mark.parametrize("kind", [Categorical, MultiCategorical])
def test_categorical_with_temperature_mutates_no_logits(kind: Any) -> None:
    """RLlib divides the caller's tensor in place, so a second distribution of it is colder."""
    logits, keywords = torch.tensor([[1.0, 2.0, 3.0]]), {"choices": [3]} if kind is MultiCategorical else {}
    first, second = (kind(logits, temperature=0.5, **keywords) for _ in range(2))
    assert logits.tolist() == [[1.0, 2.0, 3.0]]
    assert torch.equal(first.entropy(), second.entropy())
    assert_close(first.entropy(), kind(2 * logits, **keywords).entropy())


def test_deterministic_gives_its_inputs_and_refuses_densities_and_real_numbers_refuse_masks() -> None:
    dist = Deterministic(torch.tensor([[0.5, -0.5]]))
    two = spaces.Box(-1, 1, (2,))
    assert ModelCatalog.get_action_dist(two, {"custom_action_dist": "Deterministic"}) == (Deterministic, 2)
    assert dist.sample().tolist() == [[0.5, -0.5]] and dist.sampled_action_logp().tolist() == [0.0]
    cases = [(dist.entropy, "DiagGaussian"), (lambda: dist.kl(dist), "Diag"), (lambda: dist.logp(dist.inputs), "Diag")]
    cases.append((lambda: DiagGaussian(torch.zeros(1, 2), mask=torch.ones(1, 1).bool()), "discrete actions"))
    assert not_refused(lambda question: question(), cases, UnsupportedSpaceError) == []


def test_sampled_action_logp_before_any_sample_is_refused() -> None:
    with pytest.raises(RuntimeError, match="sample"):
        Categorical(torch.zeros(1, 2)).sampled_action_logp()


# -- refusals ---------------------------------------------------------------------------------------------------------
UNBOUNDED, ONE = spaces.Box(-np.inf, np.inf, (2,)), spaces.Box(-1, 1, (1,))
NO_BOUNDS = [UNBOUNDED, spaces.Discrete(3), spaces.Box(0, 5, (2,), dtype=np.int32), spaces.Tuple([ONE, UNBOUNDED])]
NO_SHARES = [
    *(spaces.Box(-1, 1, (3,)), spaces.Box(0, 1, (1,)), spaces.Box(0, 1, (2, 2)), spaces.Box(0, np.inf, (3,))),
    *(spaces.Box(0, np.array([1, 2], np.float32)), spaces.Discrete(3)),
]
REFUSED = [
    *((name, space, name) for name in ("SquashedGaussian", "Beta") for space in NO_BOUNDS),
    *(("Dirichlet", space, r"Dirichlet.*Box\(0, 1, \(n,\)\)") for space in NO_SHARES),
    *(("Autoregressive", space, "Tuple, Dict or MultiDiscrete") for space in (spaces.Discrete(4), ONE)),
    ("Deterministic", spaces.Discrete(2), "custom_action_dist"),
]


def test_a_distribution_refuses_spaces_that_it_cannot_act_in() -> None:
    def act_in(name: str, space: Any) -> None:
        ModelCatalog.get_action_dist(space, {"custom_action_dist": name})

    assert not_refused(act_in, REFUSED, UnsupportedSpaceError) == []
