"""Off-policy estimators: obp's numbers, unbiasedness on a known decision process, and coverage of the intervals."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.testing import assert_close

from lightning_rl.losses import (
    bootstrap_interval,
    doubly_robust,
    effective_sample_size,
    episode_ratios,
    importance_sampling,
    per_decision_importance_sampling,
)
from tests.losses.two_state_process import GAMMA, REWARDS, STEPS, TARGET, episodes, known_values


def terms_of(states: Tensor, actions: Tensor, q_scale: float = 1.0) -> dict[str, tuple[Tensor, Tensor | None]]:
    """Terms and weights of every estimator; the Q-function is the known one times `q_scale`."""
    before, step = states[:-1], torch.arange(STEPS).unsqueeze(1)
    log_ratios = (TARGET[before, actions] / 0.5).log()
    valid = torch.ones_like(log_ratios, dtype=torch.bool)
    terminated = (step == STEPS - 1).expand_as(valid)
    values, q_values = known_values()
    known = q_values[step, before, actions] * q_scale, values[torch.arange(STEPS + 1).unsqueeze(1), states] * q_scale
    plain = REWARDS[before, actions], log_ratios
    return {
        "is": (importance_sampling(*plain, valid, GAMMA), None),
        "pdis": (per_decision_importance_sampling(*plain, valid, GAMMA), None),
        "wis": (importance_sampling(*plain, valid, GAMMA), episode_ratios(log_ratios, valid)),
        "dr": (doubly_robust(*plain, *known, terminated=terminated, valid=valid, gamma=GAMMA), None),
    }


def test_estimates_of_a_bandit_equal_obp_s() -> None:
    """obp 0.4.1, InverseProbabilityWeighting, SelfNormalized…, DirectMethod and DoublyRobust `.estimate_policy_value`.

    reward=r, action=a, pscore=[.5, .3, .2, .3], action_dist=pi, estimated_rewards_by_reg_model=q.
    """
    r, a = torch.tensor([[1.0, 0.0, 2.0, -1.0]]).double(), torch.tensor([0, 1, 2, 1])
    pi = torch.tensor([[0.2, 0.3, 0.5], [0.6, 0.2, 0.2], [0.1, 0.1, 0.8], [0.3, 0.4, 0.3]]).double()
    q = torch.tensor([[0.9, 0.1, 1.0], [0.5, -0.2, 0.4], [0.0, 0.3, 1.5], [0.2, -0.5, 0.1]]).double()
    row = torch.arange(4)
    log_ratios = (pi[row, a] / torch.tensor([0.5, 0.3, 0.2, 0.3])).log().unsqueeze(0)
    valid = torch.ones(1, 4, dtype=torch.bool)
    ipw = importance_sampling(r, log_ratios, valid, 1.0)
    values = torch.stack([(pi * q).sum(1), torch.zeros(4).double()])
    dr = doubly_robust(r, log_ratios, q[row, a].unsqueeze(0), values, terminated=valid, valid=valid, gamma=1.0)
    snipw = ipw.sum() / episode_ratios(log_ratios, valid).sum()
    found = torch.stack([ipw.mean(), snipw, values[0].mean(), dr.mean()])
    assert_close(found, torch.tensor([1.76666667, 1.10416667, 0.5425, 0.91916667]).double(), atol=1e-6, rtol=0)


def test_episodes_of_different_length_by_hand() -> None:
    """γ = ½. First episode: r 1, 2, ratios 2, 3: 6 (1 + 1) = 12, per decision 2 + ½ · 6 · 2 = 8. Second: 4 · ½ = 2.

    What stands after an episode's end is ignored, NaN too.
    """
    nan = float("nan")
    rewards = torch.tensor([[1.0, 4.0], [2.0, nan]])
    log_ratios = torch.tensor([[2.0, 0.5], [3.0, nan]]).log()
    valid = torch.tensor([[True, True], [True, False]])
    assert_close(importance_sampling(rewards, log_ratios, valid, 0.5), torch.tensor([12.0, 2.0]))
    assert_close(per_decision_importance_sampling(rewards, log_ratios, valid, 0.5), torch.tensor([8.0, 2.0]))
    assert_close(episode_ratios(log_ratios, valid), torch.tensor([6.0, 0.5]))
    assert_close(effective_sample_size(torch.tensor([6.0, 0.5])), torch.tensor(6.5**2 / 36.25))


def test_doubly_robust_bootstraps_a_time_limit_and_not_a_termination() -> None:
    """Q̂ = 0, ratios 1, γ = ½, r = 1: 1 + ½ V̂(final) = 3 after a time limit, 1 after a termination."""
    one = torch.ones(1, 2)
    terminated = torch.tensor([[False, True]])
    values = torch.tensor([[0.0, 0.0], [4.0, 4.0]])
    found = doubly_robust(one, 0.0 * one, 0.0 * one, values, terminated=terminated, valid=one.bool(), gamma=0.5)
    assert_close(found, torch.tensor([3.0, 1.0]))


def test_estimates_are_unbiased_and_a_right_q_function_takes_the_variance() -> None:
    """20,000 episodes: within four standard errors of the known value, for doubly robust with a wrong Q̂ too."""
    states, actions = episodes(20_000, torch.Generator().manual_seed(0))
    known = float(known_values()[0][0].mean())
    half = terms_of(states, actions, 0.5)["dr"]
    every = {**terms_of(states, actions), "dr, wrong": half}
    errors = {}
    for name, (terms, weights) in every.items():
        value = terms.mean() if weights is None else terms.sum() / weights.sum()
        rest = terms - value * (1.0 if weights is None else weights)
        errors[name] = float(rest.std()) / 20_000**0.5
        assert abs(float(value) - known) < 4.0 * errors[name], name
    assert errors["dr"] < errors["dr, wrong"] < errors["pdis"] < errors["is"]


def test_intervals_cover_the_known_value() -> None:
    """90 % intervals of 100 episodes, 200 times: 85 to 95 % hold the known value."""
    generator = torch.Generator().manual_seed(0)
    known = float(known_values()[0][0].mean())
    covered: dict[str, int] = dict.fromkeys(("is", "pdis", "wis", "dr"), 0)
    for _ in range(200):
        for name, (terms, weights) in terms_of(*episodes(100, generator), 0.5).items():
            low, high = bootstrap_interval(terms, weights, resamples=400, generator=generator)
            covered[name] += bool(low <= known <= high)
    assert all(0.85 <= count / 200 <= 0.95 for count in covered.values()), covered


def test_an_interval_of_equal_terms_is_a_point() -> None:
    low, high = bootstrap_interval(torch.full((5,), 2.0))
    assert_close(torch.stack([low, high]), torch.tensor([2.0, 2.0]))


def test_intervals_of_many_episodes_need_little_memory() -> None:
    """2,000 resamples of 20,000 episodes at once are 305 MiB of each of several arrays."""
    terms = torch.arange(20_000.0).double()
    with torch.profiler.profile(profile_memory=True) as profile:
        low, high = bootstrap_interval(terms, resamples=2000, generator=torch.Generator().manual_seed(0))
    assert low < terms.mean() < high
    assert max(abs(event.cpu_memory_usage) for event in profile.events() or ()) < 64 * 2**20
