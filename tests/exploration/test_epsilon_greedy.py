"""ε-greedy and soft Q: schedules, probabilities and masks."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from gymnasium import Space, spaces
from torch.testing import assert_close

from lightning_rl.exploration import Actor, EpsilonGreedy, PerWorkerEpsilonGreedy, SoftQ
from lightning_rl.exploration.per_worker import per_worker_scale
from lightning_rl.models.catalog import ModelCatalog
from lightning_rl.spaces import ActionTransform, leaf_spaces, leaf_values
from tests.exploration.spaces import DISCRETE, build_strategy, choose_actions, distribution, flat_actions

FOUR = spaces.Discrete(4)


def _over(space: Space[Any], inputs: torch.Tensor) -> Any:
    return ModelCatalog.get_action_dist(space)[0](inputs, None, None)


def test_epsilon_falls_after_the_warm_up() -> None:
    """1 until step 100, 0 from 300."""
    exploration = EpsilonGreedy(FOUR, 1.0, 0.0, warmup_timesteps=100, epsilon_timesteps=200)
    expected = {0: 1.0, 100: 1.0, 150: 0.75, 200: 0.5, 300: 0.0, 10**9: 0.0}
    assert {step: exploration.info(step)["epsilon"] for step in expected} == pytest.approx(expected)


def test_any_schedule_can_be_epsilon() -> None:
    falling = {"type": "exponential", "initial": 1, "final": 0.01, "steps": 100}
    assert EpsilonGreedy(FOUR, epsilon_schedule=falling).epsilon(50) == pytest.approx(0.1)


def test_a_fourth_of_the_random_actions_is_the_best_one() -> None:
    """ε = 0.4 over 4 actions: the best with 0.6 + 0.1, the others with 0.1 each; the log-probabilities agree."""
    dist = distribution(FOUR, 1).inputs.expand(20_000, 4)
    actions, logp = choose_actions(EpsilonGreedy(FOUR, epsilon_schedule=0.4), _over(FOUR, dist))
    best = int(dist[0].argmax())
    shares = torch.bincount(actions, minlength=4) / len(actions)
    expected = torch.full((4,), 0.1)
    expected[best] = 0.7
    assert_close(shares, expected, atol=0.01, rtol=0)
    assert_close(logp.exp(), expected[actions])


@pytest.mark.parametrize("space", DISCRETE, ids=str)
def test_the_probabilities_are_those_of_the_draws(space: Space[Any]) -> None:
    """E[1/p] over the draws of one row is the number of actions that can be drawn: exact only if every p is."""
    many = distribution(space, 1).inputs.expand(20_000, -1)
    policy_space = ActionTransform(space).policy_space
    exploration = build_strategy("epsilon_greedy", space, epsilon_schedule=0.7)
    actions, logp = choose_actions(exploration, _over(space, many))
    drawn = len(torch.unique(flat_actions(policy_space, actions), dim=0))
    assert (-logp).exp().mean().item() == pytest.approx(drawn, rel=0.1)


def test_the_probability_of_a_step_without_a_random_action_is_the_mixtures_too() -> None:
    """ε = 0.04 over 2 · 2 actions: the best one has 0.96 + 0.01, whether a random one was drawn beside it or not."""
    space = spaces.MultiDiscrete([2, 2])
    exploration = build_strategy("epsilon_greedy", space, epsilon_schedule=0.04)
    seen = set()
    for seed in range(40):
        dist = distribution(space, 4)
        actions, logp = choose_actions(exploration, dist, seed=seed)
        best = (actions == dist.deterministic_sample()).all(1)
        assert_close(logp.exp(), torch.where(best, 0.97, 0.01))
        seen.add(bool(best.all()))
    assert seen == {True, False}


@pytest.mark.parametrize("name", ["epsilon_greedy", "soft_q", "per_worker_epsilon_greedy", "random"])
def test_rllib_defect_nested_random_actions_ignored_the_mask(name: str) -> None:
    """Three actions with 3, 2 and 4 choices; only 0 and 2, 1, and 3 are allowed."""
    space = spaces.Tuple([FOUR, spaces.MultiDiscrete([3, 2, 4])])
    allowed = [False, True, False, True, True, False, True, False, True, False, False, False, True]
    mask = torch.tensor([allowed]).expand(1000, 13)
    keywords = {"epsilon_schedule": 0.9} if name == "epsilon_greedy" else {}
    actions, logp = choose_actions(build_strategy(name, space, **keywords), distribution(space, 1000, mask))
    taken = flat_actions(space, actions).long()
    assert {column: set(taken[:, column].tolist()) for column in range(4)} == {0: {1, 3}, 1: {0, 2}, 2: {1}, 3: {3}}
    assert bool(logp.isfinite().all())


def test_rllib_defect_a_small_q_value_was_taken_for_a_masked_one() -> None:
    """Values of −1e30 are values: without a mask every action is drawn."""
    inputs = torch.full((1000, 4), -1e30)
    actions, _ = choose_actions(EpsilonGreedy(FOUR, epsilon_schedule=1.0), _over(FOUR, inputs))
    assert set(actions.tolist()) == {0, 1, 2, 3}


# -- soft Q -----------------------------------------------------------------------------------------------------------
def test_soft_q_divides_by_the_temperature() -> None:
    """Q = (0, ln 9 / 2) at temperature ½: softmax(0, ln 9) = (0.1, 0.9)."""
    inputs = torch.tensor([[0.0, torch.log(torch.tensor(9.0)).item() / 2]]).expand(10_000, 2)
    two = spaces.Discrete(2)
    actions, logp = choose_actions(SoftQ(two, temperature=0.5), _over(two, inputs))
    assert actions.float().mean().item() == pytest.approx(0.9, abs=0.01)
    assert_close(logp.exp(), torch.where(actions == 1, 0.9, 0.1))


def test_the_temperature_may_be_a_schedule() -> None:
    exploration = SoftQ(FOUR, temperature=[[0, 2.0], [100, 1.0]])
    assert exploration.info(50) == {"temperature": 1.5}


# -- per worker -------------------------------------------------------------------------------------------------------
def test_four_workers_explore_as_in_ape_x() -> None:
    """0.4^(1 + 7 i / 3): 0.4, 0.4^(10/3), 0.4^(17/3), 0.4^8."""
    epsilons = [per_worker_scale(Actor(index, 4)) for index in range(4)]
    assert epsilons == pytest.approx([0.4, 0.0471556, 0.0055591, 0.00065536], rel=1e-5)
    assert per_worker_scale(Actor(0, 1)) == pytest.approx(0.4)  # alone


def test_rllib_defect_noise_and_epsilon_had_two_formulas() -> None:
    """One took the worker's index, the other the index less one."""
    greedy = PerWorkerEpsilonGreedy(FOUR)
    noise = build_strategy("per_worker_gaussian_noise", spaces.Box(-1.0, 1.0, (1,)))
    for index in range(4):
        for exploration in (greedy, noise):
            exploration.begin_fragment(Actor(index, 4))
        assert greedy.epsilon(0) == noise.scale(0) == greedy.epsilon(10**9)  # type: ignore[operator]


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 0.9, 1.0])
def test_few_rows_and_many_are_treated_alike(epsilon: float) -> None:
    """Few numbers are compared in Python, many by torch: the same draws give the same actions and probabilities."""
    exploration = EpsilonGreedy(FOUR, epsilon_schedule=epsilon)
    for seed in range(40):
        dist = distribution(FOUR, 8, seed=seed)
        few = choose_actions(exploration, dist, seed=seed)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("lightning_rl.exploration.epsilon_greedy.FEW", 0)
            many = choose_actions(exploration, dist, seed=seed)
        assert torch.equal(few[0], many[0]) and few[0].dtype == many[0].dtype
        assert_close(*[logp for _, logp in (few, many)])


def test_blind_action_gives_the_actions_that_the_model_s_run_would_give() -> None:
    """Where all rows are random the model does not run; later draws are the same as if it had."""
    exploration = EpsilonGreedy(FOUR, epsilon_schedule=0.6)
    blind = 0
    for seed in range(60):
        dist, generator = distribution(FOUR, 2, seed=seed), torch.Generator().manual_seed(seed)
        how: dict[str, Any] = {"timestep": 0, "explore": True, "generator": generator}
        actions = exploration.blind_action(2, **how)
        blind += actions is not None
        actions = exploration.get_action(dist, **how) if actions is None else actions
        assert torch.equal(actions, choose_actions(exploration, dist, seed=seed)[0])
    assert 10 < blind < 35  # 0.36 of them


def test_the_model_runs_without_exploration_and_in_nested_spaces() -> None:
    generator = torch.Generator()
    assert EpsilonGreedy(FOUR).blind_action(1, timestep=0, explore=False, generator=generator) is None
    nested = EpsilonGreedy(spaces.Dict(a=FOUR))
    assert nested.blind_action(1, timestep=0, explore=True, generator=generator) is None


@pytest.mark.parametrize(
    "space", [spaces.Tuple([FOUR, FOUR]), spaces.Tuple([FOUR, spaces.Discrete(3)]), spaces.Dict(a=FOUR, b=FOUR)]
)
def test_independent_components_are_random_by_themselves(space: Space[Any]) -> None:
    """ε = 0.4 over 4 actions, one of them forbidden in the first part: the best with 0.6 + 0.4 / 3 there.

    The log-probability of each pair is the log of its frequency.
    """
    names, count = [path for path, _ in leaf_spaces(space)], 40_000
    width = sum(int(leaf.n) for _, leaf in leaf_spaces(space))  # type: ignore[attr-defined]
    inputs = torch.tensor([0.0, 1.0, -torch.inf, 0.5, 2.0, 1.0, 0.0, -1.0][:width]).expand(count, width)
    exploration = EpsilonGreedy(space, epsilon_schedule=0.4, independent=True)
    generator = torch.Generator().manual_seed(0)
    how: dict[str, Any] = {"timestep": 0, "explore": True, "generator": generator}
    dist = _over(space, inputs)
    actions, logp = exploration.get_exploration_action(dist, **how)
    first, second = (leaf.tolist() for leaf in leaf_values(space, actions))
    frequencies = {pair: number / count for pair, number in Counter(zip(first, second, strict=True)).items()}
    assert len(names) == 2 and frequencies[1, 0] == pytest.approx(
        (0.6 + 0.4 / 3) * (0.6 + 0.4 / (width - 4)), abs=0.015
    )
    assert 2 not in first
    for pair, share in zip(zip(first[:200], second[:200], strict=True), logp[:200].exp().tolist(), strict=True):
        assert share == pytest.approx(frequencies[pair], abs=0.015)
    generator.manual_seed(0)
    again = exploration.get_action(dist, **how)
    for mine, theirs in zip(leaf_values(space, again), leaf_values(space, actions), strict=True):
        assert torch.equal(mine, theirs)


def test_components_are_independent_only_where_the_policy_acts_for_a_group_or_the_config_says_so() -> None:
    space = spaces.Tuple([FOUR, FOUR])
    for given, for_group, expected in ((None, True, True), (None, False, False), (False, True, False)):
        exploration = EpsilonGreedy(space, independent=given)
        exploration.prepare_policy(SimpleNamespace(acts_for_group=for_group))
        assert exploration.independent is expected
