"""Action masks: a masked action is as an absent one."""

from __future__ import annotations

import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from lightning_rl.models.catalog import ModelCatalog
from lightning_rl.models.distributions import Categorical, MultiCategorical, parts_of
from lightning_rl.spaces import choices_of, leaf_spaces, leaf_values
from tests.models.distribution_cases import CASES, generator, parts, random_distribution

LOGITS = st.floats(-20, 20, width=32)
DISCRETE = [case for case in CASES if random_distribution(case).maskable]


def logits_and_mask(data: st.DataObject, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Two rows of logits and a mask that allows at least one of `size` actions."""
    p, q = (torch.tensor([data.draw(st.lists(LOGITS, min_size=size, max_size=size))]) for _ in range(2))
    allowed = data.draw(st.lists(st.booleans(), min_size=size, max_size=size).filter(any))
    return p, q, torch.tensor([allowed])


def gradient(value: Tensor, inputs: Tensor) -> Tensor:
    return torch.autograd.grad(value.sum(), inputs, retain_graph=True)[0]


# -- masked equals absent ---------------------------------------------------------------------------------------------
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_masked_categorical_equals_one_without_the_masked_actions(data: st.DataObject) -> None:
    """logp, entropy, KL and gradients are equal, and masked logits get exactly no gradient."""
    p, q, mask = logits_and_mask(data, data.draw(st.integers(1, 7)))
    kept = mask[0].nonzero().flatten()
    inputs, fewer = p.clone().requires_grad_(), p[:, kept].clone().requires_grad_()
    masked, absent = Categorical(inputs, mask=mask), Categorical(fewer)
    masked_q, absent_q = Categorical(q, mask=mask), Categorical(q[:, kept])
    for place, action in enumerate(kept.tolist()):
        assert_close(masked.logp(torch.tensor([action])), absent.logp(torch.tensor([place])))
    for ours, theirs in (
        (masked.entropy(), absent.entropy()),
        (masked.kl(masked_q), absent.kl(absent_q)),
        (masked_q.kl(masked), absent_q.kl(absent)),
        (masked.logp(kept[:1]), absent.logp(torch.tensor([0]))),
    ):
        assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
        found = gradient(ours, inputs)
        assert_close(found[:, kept], gradient(theirs, fewer), atol=1e-5, rtol=1e-5)
        assert not found[~mask].any()
    assert int(masked.deterministic_sample()) == int(kept[int(absent.deterministic_sample())])


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_a_masked_multi_categorical_equals_one_without_the_masked_values(data: st.DataObject) -> None:
    choices = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    drawn = [logits_and_mask(data, count) for count in choices]
    p, q, mask = (torch.cat([entry[i] for entry in drawn], dim=1) for i in range(3))
    inputs, fewer = p.clone().requires_grad_(), p[mask][None].clone().requires_grad_()
    left = [int(entry[2].sum()) for entry in drawn]
    masked, absent = MultiCategorical(inputs, mask=mask, choices=choices), MultiCategorical(fewer, choices=left)
    masked_q = MultiCategorical(q, mask=mask, choices=choices)
    absent_q = MultiCategorical(q[mask][None], choices=left)
    firsts = torch.stack([entry[2][0].nonzero()[0, 0] for entry in drawn])[None]
    for ours, theirs in (
        (masked.logp(firsts), absent.logp(torch.zeros_like(firsts))),
        (masked.entropy(), absent.entropy()),
        (masked.kl(masked_q), absent.kl(absent_q)),
    ):
        assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
        found = gradient(ours, inputs)
        assert_close(found[mask][None], gradient(theirs, fewer), atol=1e-5, rtol=1e-5)
        assert not found[~mask].any()


@pytest.mark.parametrize(("bits", "mask"), [([1], [False, True]), ([0], [True, False])])
def test_a_bit_with_one_value_left_is_certain(bits: list[int], mask: list[bool]) -> None:
    """Its log-probability and entropy are 0, and so is its gradient."""
    factory, _ = ModelCatalog.get_action_dist(spaces.MultiBinary(1))
    inputs = torch.tensor([[0.7]], requires_grad=True)
    dist = factory(inputs, None, torch.tensor([mask]))
    logp = dist.logp(torch.tensor([bits]))
    assert float(logp.detach()) == float(dist.entropy().detach()) == 0.0 and dist.sample(generator()).tolist() == [bits]
    assert float(gradient(logp + dist.entropy(), inputs)) == 0.0


@pytest.mark.parametrize("case", DISCRETE)
@pytest.mark.parametrize("allowed", [True, False], ids=["everything", "nothing"])
def test_a_mask_that_allows_everything_or_nothing_changes_nothing(case: str, allowed: bool) -> None:
    """Rows after an episode's end have no mask; an entry of few choices may not get one of another's then."""
    mask = torch.full((200, sum(choices(case))), allowed)
    masked, free = random_distribution(case, rows=200, mask=mask), random_distribution(case, rows=200)
    actions = masked.sample(generator())
    assert_close(masked.logp(actions), free.logp(actions))
    assert_close(masked.sampled_action_logp(), free.logp(actions))
    torch.manual_seed(0)
    entropy = masked.entropy()
    torch.manual_seed(0)
    assert_close(entropy, free.entropy())


@pytest.mark.parametrize("case", DISCRETE)
def test_a_mask_of_another_width_is_refused_with_the_right_one(case: str) -> None:
    """[N, 1] would be spread over all actions without a word."""
    with pytest.raises(ValueError, match=rf"action_mask has shape \[6, 1\]; expected \[6, {sum(choices(case))}\]"):
        random_distribution(case, mask=torch.ones(6, 1, dtype=torch.bool)).sample(generator())


def test_logits_of_minus_infinity_from_a_model_are_masks_too() -> None:
    """−∞ would make 0 · log 0 = NaN in entropy and KL."""
    inputs = torch.tensor([[1.0, -torch.inf, 3.0]], requires_grad=True)
    dist, absent = Categorical(inputs), Categorical(torch.tensor([[1.0, 3.0]]))
    assert_close(dist.entropy(), absent.entropy())
    assert_close(
        dist.kl(Categorical(torch.tensor([[0.0, -torch.inf, 0.0]]))), absent.kl(Categorical(torch.zeros(1, 2)))
    )
    assert gradient(dist.entropy(), inputs).isfinite().all()


def test_masked_logits_next_to_huge_ones_stay_finite() -> None:
    """The smallest float minus 10³⁷ would be −∞."""
    dist = Categorical(torch.tensor([[1e37, 0.0, 3e38]]), mask=torch.tensor([[True, False, True]]))
    assert dist.entropy().isfinite().all() and dist.kl(dist).isfinite().all()


def choices(case: str) -> list[int]:
    """How many alternatives each discrete choice of an action has."""
    space = parts(case)[0].policy_space
    leaves = zip(leaf_spaces(space), parts_of(space), strict=True)
    return [count for (_, leaf), part in leaves if part.mask for count in choices_of(leaf).tolist()]


@pytest.mark.parametrize("case", DISCRETE)
def test_forbidden_actions_are_never_taken_and_gradients_stay_finite(case: str) -> None:
    """The first alternative of every choice is forbidden; entropy and KL have no NaN, nor have their gradients."""
    _, factory, size, model = parts(case)
    mask = torch.cat([torch.arange(count) > 0 for count in choices(case)]).expand(500, -1)
    inputs = torch.randn(500, size).requires_grad_()
    p, q = factory(inputs, model, mask), factory(torch.randn(500, size), model, mask)
    for actions in (p.sample(generator()), p.deterministic_sample()):
        assert all(leaf.is_floating_point() or (leaf >= 1).all() for leaf in leaf_values(CASES[case][0], actions))
    (p.sampled_action_logp().sum() + p.entropy().sum() + p.kl(q).sum()).backward()
    assert inputs.grad is not None and inputs.grad.isfinite().all()
