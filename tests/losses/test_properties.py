"""Returns, advantages and V-trace on random fragments, compared with slow float64 sums of their definitions."""

from __future__ import annotations

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from lightning_rl.losses import discounted_returns, gae, lambda_returns, n_step_returns, standardize, vtrace

Fragment = dict[str, Tensor]
FLAGS = ("terminated", "truncated", "valid")
UNIT = st.floats(0, 1)
checked = settings(derandomize=True, max_examples=50, deadline=None)


@st.composite
def fragments(draw: st.DrawFn) -> Fragment:
    """Ends anywhere, a reset row after each, padding at the bottom of some columns, values of several sizes."""
    length, envs = draw(st.integers(1, 9)), draw(st.integers(1, 3))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    likely = draw(st.sampled_from([0.0, 0.1, 0.4]))
    terminated, truncated = (torch.rand(length, envs, generator=generator) < likely for _ in range(2))
    valid = torch.ones(length, envs, dtype=torch.bool)
    for env in range(envs):
        padding = draw(st.integers(0, length - 1))
        for row in range(length):
            reset = row > 0 and bool((terminated | truncated)[row - 1, env] & valid[row - 1, env])
            valid[row, env] = not reset and row < length - padding
    fragment = {"terminated": terminated & valid, "truncated": truncated & valid, "valid": valid}
    fragment |= {name: torch.randn(length, envs, generator=generator) for name in ("rewards", "log_rhos")}
    size = draw(st.sampled_from([0.0, 3.0, 100.0]))
    return fragment | {"values": torch.randn(length + 1, envs, generator=generator) * size}


def flags(f: Fragment) -> dict[str, Tensor]:
    """Without `valid` where every row is experience."""
    return {name: f[name] for name in FLAGS if name != "valid" or not f["valid"].all()}


def close(got: Tensor, expected: Tensor, f: Fragment) -> None:
    """To 1e-5 of the largest number that went in, the sum being over nine rows at most."""
    largest = 1.0 + float(f["values"].abs().max()) + float(f["rewards"].abs().max())
    assert_close(got.double(), expected.double(), rtol=1e-5, atol=2e-5 * largest)


def episode_rows(f: Fragment, env: int, row: int) -> list[int]:
    """The rows from `row` to the episode's end, or to where the fragment or its padding cuts it."""
    rows = []
    for t in range(row, len(f["rewards"])):
        if not f["valid"][t, env]:
            break
        rows.append(t)
        if f["terminated"][t, env] or f["truncated"][t, env]:
            break
    return rows


def next_value(f: Fragment, env: int, t: int) -> float:
    return 0.0 if f["terminated"][t, env] else float(f["values"][t + 1, env])


def every_row(f: Fragment) -> list[tuple[int, int]]:
    length, envs = f["rewards"].shape
    return [(row, env) for env in range(envs) for row in range(length)]


# -- GAE --------------------------------------------------------------------------------------------------------------
@checked
@given(fragments(), UNIT, UNIT)
def test_gae_is_the_sum_of_its_definition(f: Fragment, gamma: float, lam: float) -> None:
    """Eq. 16: Aₜ = Σₖ (γλ)ᵏ δₜ₊ₖ over the rest of the episode."""
    expected = torch.zeros_like(f["rewards"], dtype=torch.float64)
    for row, env in every_row(f):
        for power, t in enumerate(episode_rows(f, env, row)):
            delta = float(f["rewards"][t, env]) + gamma * next_value(f, env, t) - float(f["values"][t, env])
            expected[row, env] += (gamma * lam) ** power * delta
    close(gae(f["rewards"], f["values"], **flags(f), gamma=gamma, lam=lam), expected, f)


@checked
@given(fragments(), UNIT)
def test_lambda_0_is_the_one_step_error_and_lambda_1_the_return_to_the_end(f: Fragment, gamma: float) -> None:
    rewards, values = f["rewards"], f["values"]
    one_step = n_step_returns(rewards, values, **flags(f), gamma=gamma, n=1)
    close(lambda_returns(rewards, values, **flags(f), gamma=gamma, lam=0.0), one_step, f)
    whole = n_step_returns(rewards, values, **flags(f), gamma=gamma, n=len(rewards))
    close(lambda_returns(rewards, values, **flags(f), gamma=gamma, lam=1.0), whole, f)


# -- sums of rewards --------------------------------------------------------------------------------------------------
@checked
@given(fragments(), UNIT, st.integers(1, 7))
def test_discounted_and_n_step_returns_are_the_sums_of_their_definitions(f: Fragment, gamma: float, n: int) -> None:
    whole, expected = (torch.zeros_like(f["rewards"], dtype=torch.float64) for _ in range(2))
    for row, env in every_row(f):
        rows = episode_rows(f, env, row)
        weighted = [gamma**power * float(f["rewards"][t, env]) for power, t in enumerate(rows)]
        whole[row, env], expected[row, env] = sum(weighted), sum(weighted[:n])
        if rows := rows[:n]:
            expected[row, env] += gamma ** len(rows) * next_value(f, env, rows[-1])
    close(discounted_returns(f["rewards"], **flags(f), gamma=gamma), whole, f)
    close(n_step_returns(f["rewards"], f["values"], **flags(f), gamma=gamma, n=n), expected, f)


# -- V-trace ----------------------------------------------------------------------------------------------------------
@checked
@given(fragments(), UNIT, UNIT, st.floats(0.1, 3), st.floats(0, 3))
def test_vtrace_is_the_sum_of_its_definition(
    f: Fragment, gamma: float, lam: float, clip_rho: float, clip_c: float
) -> None:
    """Eq. 1: vₜ = V(sₜ) + Σₖ γᵏ (Πᵢ cᵢ) ρₖ δₖ; the advantage is ρₜ(rₜ + γ vₜ₊₁ − V(sₜ))."""
    targets, rhos = f["values"].double().clone(), f["log_rhos"].double().exp()
    advantages = torch.zeros_like(rhos)
    for row, env in every_row(f):
        weight = 1.0
        for power, t in enumerate(episode_rows(f, env, row)):
            delta = float(f["rewards"][t, env]) + gamma * next_value(f, env, t) - float(f["values"][t, env])
            targets[row, env] += gamma**power * weight * min(clip_rho, float(rhos[t, env])) * delta
            weight *= lam * min(clip_c, float(rhos[t, env]))
    for row, env in every_row(f):
        rows = episode_rows(f, env, row)
        following = targets[row + 1, env] if len(rows) > 1 else next_value(f, env, row)
        if rows:
            advantage = float(f["rewards"][row, env]) + gamma * following - float(f["values"][row, env])
            advantages[row, env] = min(2 * clip_rho, float(rhos[row, env])) * advantage
    clips = {"clip_rho": clip_rho, "clip_c": clip_c, "clip_pg_rho": 2 * clip_rho}
    got = vtrace(f["log_rhos"], f["rewards"], f["values"], **flags(f), gamma=gamma, lam=lam, **clips)
    largest = float(targets.abs().max()) + 1.0
    assert_close(got[0].double(), targets[:-1], rtol=1e-4, atol=1e-5 * largest)
    assert_close(got[1].double(), advantages, rtol=1e-4, atol=1e-4 * largest)


@checked
@given(fragments(), UNIT, UNIT)
def test_vtrace_of_the_acting_policy_itself_is_the_lambda_return(f: Fragment, gamma: float, lam: float) -> None:
    zeros, valid = torch.zeros_like(f["rewards"]), f["valid"]
    clips = {"clip_rho": math.inf, "clip_c": math.inf, "clip_pg_rho": math.inf}
    for keywords in ({}, clips):
        targets, advantages = vtrace(zeros, f["rewards"], f["values"], **flags(f), gamma=gamma, lam=lam, **keywords)
        returns = lambda_returns(f["rewards"], f["values"], **flags(f), gamma=gamma, lam=lam)
        close(targets[valid], returns[valid], f)
        assert_close(targets[~valid], f["values"][:-1][~valid])
        assert (advantages[~valid] == 0).all()


# -- all of them ------------------------------------------------------------------------------------------------------
def all_results(f: Fragment) -> list[Tensor]:
    rewards, values, ends = f["rewards"], f["values"], flags(f)
    return [
        discounted_returns(rewards, **ends, gamma=0.9),
        gae(rewards, values, **ends, gamma=0.9, lam=0.8),
        lambda_returns(rewards, values, **ends, gamma=0.9, lam=0.8),
        n_step_returns(rewards, values, **ends, gamma=0.9, n=3),
        *vtrace(f["log_rhos"], rewards, values, **ends, gamma=0.9, lam=0.8),
    ]


@checked
@given(fragments())
def test_rows_that_are_not_valid_have_no_effect(f: Fragment) -> None:
    """Their rewards and ratios are NaN, and so is every value that no valid row has or bootstraps from."""
    absent, nan = ~f["valid"], float("nan")
    needed = torch.zeros_like(f["values"], dtype=torch.bool)
    needed[:-1] |= f["valid"]
    needed[1:] |= f["valid"] & ~f["terminated"]
    poisoned = {name: f[name].masked_fill(absent, nan) for name in ("rewards", "log_rhos")}
    poisoned["values"] = f["values"].masked_fill(~needed, nan)
    for got, clean in zip(all_results(f | poisoned), all_results(f), strict=True):
        assert_close(got[f["valid"]], clean[f["valid"]])


@checked
@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=40))
def test_standardized_advantages_have_mean_0_and_deviation_at_most_1(advantages: list[float]) -> None:
    standard = standardize(torch.tensor(advantages, dtype=torch.float64))
    assert abs(standard.mean()) < 1e-6
    assert standard.std(correction=0) < 1 + 1e-6
