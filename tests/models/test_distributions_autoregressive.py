"""Autoregressive distributions P(a₁) P(a₂|a₁): exact by enumeration, and the contract of `action_model`."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from gymnasium import Space, spaces
from torch import Tensor, nn
from torch.testing import assert_close

from lightning_rl.models import Model, ModelCatalog
from lightning_rl.models.distributions import AutoregressiveDistribution, AutoregressiveHeads, MultiActionDistribution
from tests.models.distribution_cases import generator
from tests.refusals import not_refused

SPACE = spaces.Tuple([spaces.Discrete(2), spaces.Discrete(3), spaces.Discrete(2)])
OBS = spaces.Box(-1, 1, (3,))
ROWS = 5


class Counting(nn.Module):
    """An action model that counts its forwards."""

    def __init__(self, heads: nn.Module) -> None:
        super().__init__()
        self.heads, self.calls = heads, 0

    def forward(self, context: Tensor, chosen: Tensor) -> Tensor:
        self.calls += 1
        return self.heads(context, chosen)


def heads(space: Space[Any] = SPACE, context: int = 4, seed: int = 0) -> AutoregressiveHeads:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        made_heads = AutoregressiveHeads(space, context)
        for parameter in made_heads.parameters():
            parameter.data.normal_(0.0, 0.5)
    return made_heads


def dist_of(action_model: Any, context: Tensor, mask: Tensor | None = None, space: Space[Any] = SPACE) -> Any:
    return AutoregressiveDistribution.for_space(space)(context, SimpleNamespace(action_model=action_model), mask)


def every_action(rows: int) -> list[tuple[Tensor, ...]]:
    """All 12 actions of SPACE, each for all rows."""
    ranges = [range(2), range(3), range(2)]
    return [tuple(torch.full((rows,), value) for value in action) for action in itertools.product(*ranges)]


def all_logp(dist: Any) -> Tensor:
    """Log π of all 12 actions, `[12, N]`."""
    return torch.stack([dist.logp(action) for action in every_action(len(dist.inputs))])


def context(seed: int = 1, rows: int = ROWS) -> Tensor:
    return torch.randn(rows, 4, generator=generator(seed))


# -- probabilities ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("allowed", [[1, 1, 1, 1, 1, 1, 1], [1, 1, 0, 1, 1, 1, 0]], ids=["all", "masked"])
def test_the_probabilities_of_the_allowed_actions_sum_to_one(allowed: list[int]) -> None:
    dist = dist_of(heads(), context(), torch.tensor(allowed).bool().expand(ROWS, 7))
    assert_close(all_logp(dist).exp().sum(0), torch.ones(ROWS))


def test_the_second_part_depends_on_the_first() -> None:
    """P(a₂=a₁ | a₁) = 1: two coins that always agree, which no product of independent heads can be."""

    def agree(given: Tensor, chosen: Tensor) -> list[Tensor]:
        return [torch.zeros(len(given), 2), 50.0 * chosen[:, :2]]

    dist = dist_of(agree, torch.zeros(2000, 1), space=spaces.Tuple([spaces.Discrete(2), spaces.Discrete(2)]))
    first, second = dist.sample(generator())
    assert torch.equal(first, second)
    assert float(first.float().mean()) == pytest.approx(0.5, abs=0.05)
    assert_close(dist.sampled_action_logp(), torch.full((2000,), 0.5).log())
    assert_close(dist.entropy(), torch.full((2000,), 2.0).log(), atol=1e-5, rtol=0)


def test_frequencies_of_samples_are_the_probabilities() -> None:
    dist = dist_of(heads(), context(rows=1).expand(40_000, 4))
    first, second, third = dist.sample(generator())
    counts = torch.bincount(first * 6 + second * 2 + third, minlength=12) / 40_000
    assert_close(counts, all_logp(dist_of(heads(), context(rows=1)))[:, 0].exp(), atol=0.01, rtol=0)


def test_the_best_of_each_part_follows_from_the_best_before() -> None:
    dist = dist_of(heads(), context())
    best = dist.deterministic_sample()
    expected = dist._conditionals(best)
    for child, taken in zip(expected, best, strict=True):
        assert torch.equal(child.deterministic_sample(), taken)


@pytest.mark.parametrize(
    ("question", "passes"),
    [(lambda dist: dist.sample(generator()), 3), (lambda dist: dist.logp(every_action(ROWS)[0]), 1)],
    ids=["sample", "logp"],
)
def test_sampling_takes_one_pass_per_part_and_scoring_one_pass(question: Callable[[Any], Any], passes: int) -> None:
    counting = Counting(heads())
    question(dist_of(counting, context()))
    assert counting.calls == passes


# -- entropy and KL ---------------------------------------------------------------------------------------------------
def exact_entropy(dist: Any) -> Tensor:
    logp = all_logp(dist)
    return -(logp.exp() * logp).sum(0)


def exact_kl(p: Any, q: Any) -> Tensor:
    logp = all_logp(p)
    return (logp.exp() * (logp - all_logp(q))).sum(0)


@pytest.mark.parametrize("question", ["entropy", "kl"])
def test_estimates_and_their_gradients_are_unbiased(question: str) -> None:
    """Means over 60 000 rows against sums over all 12 actions, for the value and the gradient of every weight."""
    model, rows = heads(), context(rows=1).requires_grad_()
    others = heads(seed=9)
    many = rows.expand(60_000, 4)
    if question == "entropy":
        estimate, exact = dist_of(model, many).entropy(generator()), exact_entropy(dist_of(model, rows))
    else:
        estimate = dist_of(model, many).kl(dist_of(others, many), generator())
        exact = exact_kl(dist_of(model, rows), dist_of(others, rows))
    assert float(estimate.detach().mean()) == pytest.approx(float(exact.detach()), abs=0.01)
    # The last network's weights move no choice that something else depends on; the first one's do.
    weights = [rows, *model.parameters()]
    ours = torch.autograd.grad(estimate.mean(), weights)
    theirs = torch.autograd.grad(exact.sum(), weights)
    for mine, true in zip(ours, theirs, strict=True):
        assert_close(mine, true, atol=0.02, rtol=0.05)


# -- with models ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("config", [{}, {"use_lstm": True, "lstm_cell_size": 8}], ids=["plain", "lstm"])
def test_a_built_in_model_gets_heads_that_learn(config: dict[str, Any]) -> None:
    config = {"custom_action_dist": "Autoregressive", "fcnet_hiddens": [16], **config}
    factory, size = ModelCatalog.get_action_dist(SPACE, config)
    model = ModelCatalog.get_model(OBS, SPACE, size, config)
    assert size == 16 and any("action_model" in name for name, _ in model.named_parameters())
    dist = factory(torch.randn(4, size), model, None)
    dist.logp(dist.sample(generator())).sum().backward()
    assert all(p.grad is not None for name, p in model.named_parameters() if "action_model" in name)


class Custom(Model):
    """A user's model whose `action_model` is a function."""

    def __init__(
        self, obs_space: Any, action_space: Any, num_outputs: int, *, how: Any = None, **keywords: Any
    ) -> None:
        super().__init__(obs_space, action_space, num_outputs, **keywords)
        self.hidden, self.how = nn.Linear(3, num_outputs), how

    def forward(self, input_dict: Any, state: Any = (), seq_lens: Any = None) -> tuple[Tensor, list[Tensor]]:
        return torch.tanh(self.hidden(input_dict["obs_flat"])), list(state)

    def action_model(self, given: Tensor, chosen: Tensor) -> Any:
        return self.how(given, chosen)


def ahead(given: Tensor, chosen: Tensor) -> list[Tensor]:
    """The first part's parameters read the second part's action: sampled and scored probabilities would differ."""
    return [chosen[:, 2:4], torch.zeros(len(given), 3), torch.zeros(len(given), 2)]


def test_a_model_s_own_action_model_is_kept_and_refused_if_it_reads_ahead() -> None:
    def custom(how: Any) -> Any:
        config = {"custom_action_dist": "Autoregressive", "custom_model": Custom, "custom_model_config": {"how": how}}
        return ModelCatalog.get_model(OBS, SPACE, 4, config)

    assert custom(lambda given, chosen: torch.zeros(len(given), 7)).action_model.__func__ is Custom.action_model
    cases = [(ahead, r"part 0 .*part 1")]
    assert not_refused(custom, cases) == []


def test_heads_that_ignore_earlier_parts_give_the_independent_distribution() -> None:
    logits = torch.randn(ROWS, 7, generator=generator())
    ours = dist_of(lambda given, chosen: given, logits)
    independent = MultiActionDistribution.for_space(SPACE)(logits, None, None)
    other = torch.randn(ROWS, 7, generator=generator(1))
    actions = independent.sample(generator())
    assert_close(ours.logp(actions), independent.logp(actions))
    assert_close(ours.entropy(generator()), independent.entropy())
    theirs = MultiActionDistribution.for_space(SPACE)(other, None, None)
    assert_close(ours.kl(dist_of(lambda given, chosen: given, other), generator()), independent.kl(theirs))
