"""Action distributions compared with torch.distributions, with hand-worked numbers, and with masks."""

from __future__ import annotations

import copy
import math
import pickle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import Space, spaces
from gymnasium.vector.utils import batch_space, iterate
from torch import distributions as reference
from torch.testing import assert_close

from lightning_rl.errors import UnsupportedSpaceError
from lightning_rl.models.catalog import ModelCatalog
from lightning_rl.models.distributions import (
    Bernoulli,
    Categorical,
    Deterministic,
    DiagGaussian,
    MultiActionDistribution,
    MultiCategorical,
    log_std_columns,
)
from lightning_rl.sample_batch import to_nested_batch
from lightning_rl.spaces import ActionTransform, leaf_values
from tests.space_cases import ACTIONS, BOX

ROWS = 6
NESTED_SPACE = spaces.Dict(
    {
        "move": BOX,
        "mode": spaces.Tuple([spaces.Discrete(3), spaces.MultiDiscrete([2, 4])]),
        "bits": spaces.MultiBinary(2),
    }
)


def random_distribution(space: Space[Any], seed: int = 0, mask: torch.Tensor | None = None) -> Any:
    """The catalog's distribution with random inputs `[ROWS, K]`."""
    factory, size = ModelCatalog.get_action_dist(space)
    inputs = torch.randn(ROWS, size, generator=torch.Generator().manual_seed(seed))
    return factory(inputs, None, mask)


# -- numbers ----------------------------------------------------------------------------------------------------------
def test_categorical_golden_numbers():
    """Logits [1,2,3] against [0,0,1]: KL .0538082, H .8323956, logp(2) = −.4076060."""
    p, q = Categorical(torch.tensor([[1.0, 2.0, 3.0]])), Categorical(torch.tensor([[0.0, 0.0, 1.0]]))
    assert_close(p.kl(q), torch.tensor([0.0538082]), atol=1e-6, rtol=0)
    assert_close(p.entropy(), torch.tensor([0.8323956]), atol=1e-6, rtol=0)
    assert_close(p.logp(torch.tensor([2])), torch.tensor([-0.4076060]), atol=1e-6, rtol=0)


def test_gaussian_golden_numbers():
    """KL(N(0,1)‖N(1,2²)) = ln 2 + 2/8 − 1/2 = .443147; H(N(·,2²)) = 2.112086."""
    p, q = DiagGaussian(torch.tensor([[0.0, 0.0]])), DiagGaussian(torch.tensor([[1.0, math.log(2.0)]]))
    assert_close(p.kl(q), torch.tensor([0.443147]), atol=1e-6, rtol=0)
    assert_close(q.entropy(), torch.tensor([2.112086]), atol=1e-6, rtol=0)


def test_gaussian_with_given_numbers_is_the_density():
    """N(x=1; μ=0, σ=1): −½ − ½ ln 2π = −1.418939."""
    assert_close(DiagGaussian(torch.zeros(1, 2)).logp(torch.ones(1, 1)), torch.tensor([-1.418939]), atol=1e-6, rtol=0)


# -- against torch.distributions --------------------------------------------------------------------------------------
def twin(dist: Any) -> Any:
    """The torch.distributions form of one of ours."""
    if isinstance(dist, DiagGaussian):
        mean, log_std = dist.inputs.chunk(2, 1)
        return reference.Independent(reference.Normal(mean, log_std.exp()), 1)
    if isinstance(dist, Bernoulli):
        return reference.Independent(reference.Bernoulli(logits=dist.inputs), 1)
    return reference.Categorical(logits=dist.inputs)


@pytest.mark.parametrize("space", [spaces.Discrete(5), spaces.Box(-1, 1, (3,)), spaces.MultiBinary(4)], ids=str)
def test_logp_entropy_and_kl_are_those_of_torch(space):
    p, q = random_distribution(space, 1), random_distribution(space, 2)
    actions = p.sample(torch.Generator().manual_seed(0))
    assert_close(p.logp(actions), twin(p).log_prob(actions.float()))
    assert_close(p.entropy(), twin(p).entropy())
    assert_close(p.kl(q), reference.kl_divergence(twin(p), twin(q)))


@pytest.mark.parametrize("choices", [[3, 3], [4, 1, 2]])
def test_multi_categorical_is_the_product_of_categoricals(choices):
    space = spaces.MultiDiscrete(choices)
    p, q = random_distribution(space, 1), random_distribution(space, 2)
    actions = p.sample(torch.Generator().manual_seed(0))
    parts = [[reference.Categorical(logits=piece) for piece in dist.inputs.split(choices, 1)] for dist in (p, q)]
    assert_close(p.logp(actions), sum(part.log_prob(actions[:, i]) for i, part in enumerate(parts[0])))
    assert_close(p.entropy(), sum(part.entropy() for part in parts[0]))
    assert_close(p.kl(q), sum(reference.kl_divergence(a, b) for a, b in zip(*parts, strict=True)))


def test_multi_action_is_the_sum_of_its_leaves():
    p, q = random_distribution(NESTED_SPACE, 1), random_distribution(NESTED_SPACE, 2)
    actions = p.sample(torch.Generator().manual_seed(0))
    leaves = leaf_values(NESTED_SPACE, actions)
    assert_close(p.logp(actions), sum(child.logp(leaf) for child, leaf in zip(p.children, leaves, strict=True)))
    assert_close(p.entropy(), sum(child.entropy() for child in p.children))
    assert_close(p.kl(q), sum(a.kl(b) for a, b in zip(p.children, q.children, strict=True)))
    assert torch.equal(p.logp(actions), p.logp(to_nested_batch(actions)))


@pytest.mark.parametrize("space", [spaces.Discrete(4), spaces.MultiDiscrete([3, 2]), spaces.MultiBinary(2)], ids=str)
def test_frequencies_of_samples_are_the_probabilities(space):
    factory, size = ModelCatalog.get_action_dist(space)
    inputs = torch.randn(1, size, generator=torch.Generator().manual_seed(3)).expand(40_000, size)
    dist = factory(inputs, None, None)
    rows, counts = dist.sample(torch.Generator().manual_seed(0)).reshape(40_000, -1).unique(dim=0, return_counts=True)
    every = rows.reshape(len(rows), *(space.shape or ())) if space.shape else rows.flatten()
    expected = factory(inputs[: len(rows)], None, None).logp(every).exp()
    assert_close(counts / 40_000, expected, atol=0.01, rtol=0)


def test_moments_of_gaussian_samples():
    factory, _ = ModelCatalog.get_action_dist(spaces.Box(-1, 1, (2,)))
    inputs = torch.tensor([[1.0, -2.0, 0.0, -1.0]]).expand(40_000, 4)
    actions = factory(inputs, None, None).sample(torch.Generator().manual_seed(0))
    assert_close(actions.mean(0), torch.tensor([1.0, -2.0]), atol=0.02, rtol=0)
    assert_close(actions.std(0), torch.tensor([1.0, np.exp(-1.0)], dtype=torch.float32), atol=0.02, rtol=0)


# -- every action space -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("space", [*ACTIONS, NESTED_SPACE], ids=str)
@pytest.mark.parametrize("deterministic", [False, True])
def test_every_action_space_is_sampled_inside_with_its_own_logp(space, deterministic):
    transform, dist = ActionTransform(space), random_distribution(space)
    actions = dist.deterministic_sample() if deterministic else dist.sample(torch.Generator().manual_seed(0))
    assert all(space.contains(single) for single in iterate(batch_space(space, ROWS), transform.to_env(actions)))
    assert dist.sampled_action_logp().shape == dist.entropy().shape == dist.kl(dist).shape == (ROWS,)
    assert_close(dist.logp(actions), dist.sampled_action_logp(), rtol=1e-4, atol=1e-4)
    assert_close(dist.kl(dist), torch.zeros(ROWS))


@pytest.mark.parametrize("space", [*ACTIONS, NESTED_SPACE], ids=str)
def test_inputs_are_never_changed_and_the_generator_decides(space):
    dist, kept = random_distribution(space), random_distribution(space).inputs.clone()
    first = leaf_values(space, dist.sample(torch.Generator().manual_seed(5)))
    second = leaf_values(space, random_distribution(space).sample(torch.Generator().manual_seed(5)))
    dist.entropy(), dist.kl(random_distribution(space, 9)), dist.deterministic_sample()
    assert torch.equal(dist.inputs, kept)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("space", [*ACTIONS, NESTED_SPACE], ids=str)
def test_gradients_are_finite(space):
    factory, size = ModelCatalog.get_action_dist(space)
    inputs = torch.randn(ROWS, size).requires_grad_()
    dist = factory(inputs, None, None)
    actions = dist.sample(torch.Generator().manual_seed(0))
    leaves = [leaf.detach() for leaf in leaf_values(space, actions)]
    detached = actions.detach() if len(leaves) == 1 and isinstance(actions, torch.Tensor) else actions
    (dist.logp(detached).sum() + dist.entropy().sum()).backward()
    assert inputs.grad is not None and inputs.grad.isfinite().all()


@pytest.mark.parametrize("space", ACTIONS, ids=str)
def test_the_catalog_s_distribution_factory_can_be_pickled_and_copied(space):
    factory, size = ModelCatalog.get_action_dist(space)
    inputs = torch.randn(2, size)
    for again in (pickle.loads(pickle.dumps(factory)), copy.deepcopy(factory)):
        assert torch.equal(again(inputs).entropy(), factory(inputs).entropy())


# -- masks ------------------------------------------------------------------------------------------------------------
def test_masked_equals_absent():
    """Logits [1, 9, 2, 3] without the second are the distribution [1, 2, 3]."""
    mask = torch.tensor([[True, False, True, True]])
    other = torch.tensor([[0.0, 5.0, 0.0, 1.0]])
    masked, absent = (
        Categorical(torch.tensor([[1.0, 9.0, 2.0, 3.0]]), mask=mask),
        Categorical(torch.tensor([[1.0, 2.0, 3.0]])),
    )
    masked_q, absent_q = Categorical(other, mask=mask), Categorical(torch.tensor([[0.0, 0.0, 1.0]]))
    assert torch.equal(masked.entropy(), absent.entropy())
    assert torch.equal(masked.kl(masked_q), absent.kl(absent_q))
    for ours, theirs in ((0, 0), (2, 1), (3, 2)):
        assert torch.equal(masked.logp(torch.tensor([ours])), absent.logp(torch.tensor([theirs])))
    assert float(masked.logp(torch.tensor([1])).exp()) == 0.0


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(6),
        spaces.MultiDiscrete([3, 2, 4]),
        spaces.MultiDiscrete([3, 3]),
        spaces.MultiBinary(3),
        NESTED_SPACE,
    ],
    ids=str,
)
def test_masked_actions_are_never_taken_and_gradients_stay_finite(space):
    """The first alternative of every choice is forbidden; entropy and KL have no NaN, nor have their gradients."""
    factory, size = ModelCatalog.get_action_dist(space)
    widths = {"Discrete(6)": [6], "MultiBinary(3)": [2, 2, 2]}.get(str(space))
    if widths is None:  # the parts of NESTED_SPACE come in the order of its sorted keys: bits, mode, move
        widths = [2, 2, 3, 2, 4] if space is NESTED_SPACE else space.nvec.tolist()
    first = torch.cat([torch.arange(width) > 0 for width in widths]).expand(500, -1)
    inputs = torch.randn(500, size).requires_grad_()
    p, q = factory(inputs, None, first), factory(torch.randn(500, size), None, first)
    for actions in (p.sample(torch.Generator().manual_seed(0)), p.deterministic_sample()):
        for (_, leaf), value in zip([(None, s) for s in _leaves(space)], leaf_values(space, actions), strict=True):
            assert isinstance(leaf, spaces.Box) or bool((value >= 1).all())
    (p.sampled_action_logp().sum() + p.entropy().sum() + p.kl(q).sum()).backward()
    assert inputs.grad is not None and inputs.grad.isfinite().all()


def _leaves(space):
    if isinstance(space, spaces.Dict):
        return [leaf for child in space.spaces.values() for leaf in _leaves(child)]
    return [leaf for child in space for leaf in _leaves(child)] if isinstance(space, spaces.Tuple) else [space]


def test_a_mask_for_real_numbers_is_refused():
    with pytest.raises(UnsupportedSpaceError, match="discrete actions"):
        DiagGaussian(torch.zeros(1, 2), mask=torch.ones(1, 1, dtype=torch.bool))


# -- details ----------------------------------------------------------------------------------------------------------
def test_log_std_is_clipped_at_the_model_s_log_std_clip():
    dist = DiagGaussian(torch.tensor([[0.0, 50.0]]), SimpleNamespace(log_std_clip=2.0))
    assert float(dist.log_std) == 2.0


def test_deterministic_gives_its_inputs_and_refuses_densities():
    dist = Deterministic(torch.tensor([[0.5, -0.5]]))
    assert dist.sample().tolist() == [[0.5, -0.5]]
    assert dist.sampled_action_logp().tolist() == [0.0]
    for question in (dist.entropy, lambda: dist.kl(dist), lambda: dist.logp(dist.sample())):
        with pytest.raises(UnsupportedSpaceError, match="DiagGaussian"):
            question()
    with pytest.raises(UnsupportedSpaceError, match="float Box"):
        Deterministic.required_model_output_shape(spaces.Discrete(2))


def test_sampled_action_logp_before_any_sample_is_refused():
    with pytest.raises(RuntimeError, match="sample"):
        Categorical(torch.zeros(1, 2)).sampled_action_logp()


def test_log_std_columns_are_found_in_nested_spaces():
    """Tuple of Box(2), Discrete(3), Box(1): μμσσ lll μσ → columns 2, 3 and 8."""
    assert log_std_columns(spaces.Tuple([BOX, spaces.Discrete(3), spaces.Box(-1, 1, (1,))])) == [2, 3, 8]


def test_evaluation_in_inference_mode_does_not_spoil_training():
    """Index tensors made there could not be saved for a later backward."""
    space = spaces.MultiDiscrete([5, 7, 2])
    with torch.inference_mode():
        random_distribution(space).entropy()
    factory, size = ModelCatalog.get_action_dist(space)
    factory(torch.randn(2, size).requires_grad_()).entropy().sum().backward()


def test_the_catalog_picks_by_space():
    picks = [
        random_distribution(space)
        for space in (spaces.Discrete(2), spaces.MultiDiscrete([2]), BOX, spaces.MultiBinary(2), NESTED_SPACE)
    ]
    assert [type(pick) for pick in picks] == [
        Categorical,
        MultiCategorical,
        DiagGaussian,
        Bernoulli,
        MultiActionDistribution,
    ]
