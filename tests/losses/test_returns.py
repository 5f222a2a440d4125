"""Returns and advantages against numbers worked by hand and against slow float64 references that follow the definitions."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from lightning_rl.losses import discounted_returns, gae, lambda_returns, n_step_returns, vtrace


def column(values: list[float]) -> Tensor:
    """One environment."""
    return torch.tensor(values).unsqueeze(1)


def ends(length: int, terminated: tuple[int, ...] = (), truncated: tuple[int, ...] = ()) -> dict[str, Tensor]:
    flags = {"terminated": terminated, "truncated": truncated}
    return {name: column([float(row in rows) for row in range(length)]).bool() for name, rows in flags.items()}


# -- worked by hand -------------------------------------------------------------------------------------------------------------------
def test_gae_cuts_at_both_ends_but_bootstraps_only_the_truncated_one() -> None:
    """γ = λ = 1: δ = r + V' − V unless terminated; the sum stops at either end."""
    rewards, values = torch.ones(3, 2), torch.full((4, 2), 5.0)
    ended = torch.tensor([[False, False], [True, False], [False, False]])
    advantages = gae(rewards, values, terminated=ended, truncated=torch.zeros_like(ended), gamma=1.0, lam=1.0)
    assert_close(advantages[:, 0], torch.tensor([-3.0, -4.0, 1.0]))
    advantages = gae(rewards, values, terminated=torch.zeros_like(ended), truncated=ended, gamma=1.0, lam=1.0)
    assert_close(advantages[:, 0], torch.tensor([2.0, 1.0, 1.0]))
    assert_close(advantages[:, 1], torch.tensor([3.0, 2.0, 1.0]))


def test_gae_of_rllib_s_golden_episode() -> None:
    """RLlib's PPO test: r = 1, −1, ½, V = ½, .6, .7, γ = .99, λ = 1, terminal."""
    advantages = gae(column([1, -1, 0.5]), column([0.5, 0.6, 0.7, 9.0]), **ends(3, (2,)), gamma=0.99, lam=1.0)
    assert_close(advantages, column([0.00005, -1.105, -0.2]), atol=1e-6, rtol=0)


def test_gae_bootstraps_a_fragment_that_goes_on() -> None:
    advantages = gae(column([1, -1, 0.5]), column([0.5, 0.6, 0.7, 0.8]), **ends(3), gamma=0.99, lam=0.95)
    assert_close(advantages, column([0.764614, -0.350224, 0.592]), atol=1e-6, rtol=0)


TIANSHOU_REWARDS = [101, 102, 103, 200, 104, 105, 106, 201, 107, 108, 109, 202]
TIANSHOU_NEXT_VALUES = [2, 3, 4, -1, 5, 6, 7, -2, 8, 9, 10, -3]


@pytest.mark.parametrize(
    ("terminated", "truncated", "known"),
    [
        (
            (3, 7, 11),
            (),
            [454.8344, 376.1143, 291.298, 200, 464.561, 383.1085, 295.387, 201, 474.2876, 390.1027, 299.476, 202],
        ),
        (
            (11,),
            (3, 7),
            [454.0109, 375.2386, 290.3669, 199.01, 462.9138, 381.3571, 293.5248, 199.02, 474.2876, 390.1027, 299.476, 202],
        ),
    ],
)
def test_gae_of_tianshou_s_golden_buffer(terminated: tuple[int, ...], truncated: tuple[int, ...], known: list[float]) -> None:
    """Three episodes of 4 steps, γ = .99, λ = .95. There V(s) is V(next) one row up, and 0 where a buffer begins."""
    rewards, following = column([float(r) for r in TIANSHOU_REWARDS]), column([float(v) for v in TIANSHOU_NEXT_VALUES])
    # The house form has one value row per row and the next row's as V(next): each episode in its own column, with its own last value.
    rewards, following = rewards.view(3, 4).T, following.view(3, 4).T
    values = torch.cat([torch.zeros(1, 3), following])
    values[0, 1:] = following[-1, :2]  # Tianshou takes V(s) of an episode's first row from the row above
    flags = {name: flag.view(3, 4).T for name, flag in ends(12, terminated, truncated).items()}
    advantages = gae(rewards, values, **flags, gamma=0.99, lam=0.95)
    returns = (advantages + values[:-1]).T.flatten()
    assert_close(returns, torch.tensor(known, dtype=torch.float32), atol=2e-3, rtol=0)


def test_discounted_returns_restart_at_ends() -> None:
    """γ = .1, r = 0…7, ends after rows 0, 3, 5 and 7: (0) (1.23 2.3 3) (4.5 5) (6.7 7)."""
    rewards = column([float(r) for r in range(8)])
    returns = discounted_returns(rewards, **ends(8, (0, 3, 7), (5,)), gamma=0.1)
    assert_close(returns, column([0, 1.23, 2.3, 3, 4.5, 5, 6.7, 7]))


def test_n_step_returns_shorten_at_the_fragment_s_end() -> None:
    """r = 1 2 3 4, γ = .9, n = 3, V = 10 everywhere: 1 + 1.8 + 2.43 + .729·10, …, 3 + 3.6 + .81·10, 4 + .9·10."""
    returns = n_step_returns(column([1, 2, 3, 4]), torch.full((5, 1), 10.0), **ends(4), gamma=0.9, n=3)
    assert_close(returns, column([5.23 + 7.29, 7.94 + 7.29, 6.6 + 8.1, 4 + 9.0]))


def test_n_step_continues_through_truncation_with_the_value_and_not_through_termination() -> None:
    """Two steps of reward 1 with γ = ½, V = 8: truncated after row 0 → 1 + ½·8 = 5; terminated → 1."""
    ones, values = column([1, 1]), torch.full((3, 1), 8.0)
    assert_close(n_step_returns(ones, values, **ends(2, (), (0,)), gamma=0.5, n=2), column([5.0, 5.0]))
    assert_close(n_step_returns(ones, values, **ends(2, (0,)), gamma=0.5, n=2), column([1.0, 5.0]))


@pytest.mark.parametrize(
    ("terminated", "clip_rho", "targets", "advantages"),
    [
        ((), 1.0, [2.749714, 1.944126, 2.54], [2.449714, 1.544126, 2.04]),
        ((1,), 1.0, [1.065257, 0.072508, 2.54], [0.765257, -0.327492, 2.04]),
        ((), math.inf, [3.5796, 2.1022, 2.7545], [4.2735, 1.7022, 2.2545]),
    ],
)
def test_vtrace_of_the_golden_fragment(terminated: tuple[int, ...], clip_rho: float, targets: list[float], advantages: list[float]) -> None:
    """log ρ = ½, −.2, .1; r = 1, 0, 2; V = .3, .4, ½, then .6; γ = .9."""
    result = vtrace(
        column([0.5, -0.2, 0.1]), column([1, 0, 2]), column([0.3, 0.4, 0.5, 0.6]), **ends(3, terminated), gamma=0.9,
        clip_rho=clip_rho, clip_pg_rho=clip_rho,
    )  # fmt: skip
    assert_close(result[0], column(targets), atol=1e-4, rtol=0)
    assert_close(result[1], column(advantages), atol=1e-4, rtol=0)


# -- against the definitions ----------------------------------------------------------------------------------------------------------
@st.composite
def fragments(draw: st.DrawFn) -> dict[str, Any]:
    """Random house-form fragments: ends anywhere, a reset row after each, padding at the bottom of some columns."""
    length, envs = draw(st.integers(1, 9)), draw(st.integers(1, 3))
    seed = draw(st.integers(0, 2**31))
    generator = torch.Generator().manual_seed(seed)
    terminated, truncated = (torch.rand(length, envs, generator=generator) < 0.25 for _ in range(2))
    valid = torch.ones(length, envs, dtype=torch.bool)
    for env in range(envs):
        padding = draw(st.integers(0, length - 1))
        for row in range(length):
            before = row > 0 and bool((terminated | truncated)[row - 1, env] & valid[row - 1, env])
            valid[row, env] = not before and row < length - padding
    terminated, truncated = terminated & valid, truncated & valid
    rewards, log_rhos = (torch.randn(length, envs, generator=generator) for _ in range(2))
    values = torch.randn(length + 1, envs, generator=generator) * 3
    return {"rewards": rewards, "values": values, "terminated": terminated, "truncated": truncated, "valid": valid, "log_rhos": log_rhos}


def episode_rows(f: dict[str, Any], env: int, row: int) -> list[int]:
    """The rows from `row` to the episode's end, or to where the fragment or its padding cuts it."""
    rows = []
    for t in range(row, len(f["rewards"])):
        if not f["valid"][t, env]:
            break
        rows.append(t)
        if f["terminated"][t, env] or f["truncated"][t, env]:
            break
    return rows


def slow_gae(f: dict[str, Any], gamma: float, lam: float) -> Tensor:
    """The double sum of eq. 16, in float64: Σₖ (γλ)ᵏ δₜ₊ₖ over the rest of the episode."""
    out = torch.zeros_like(f["rewards"], dtype=torch.float64)
    values, rewards = f["values"].double(), f["rewards"].double()
    for env in range(out.shape[1]):
        for row in range(len(out)):
            for power, t in enumerate(episode_rows(f, env, row)):
                following = 0.0 if f["terminated"][t, env] else values[t + 1, env]
                out[row, env] += (gamma * lam) ** power * (rewards[t, env] + gamma * following - values[t, env])
    return out


FLAGS = ("terminated", "truncated", "valid")
UNIT = st.floats(0, 1)


@settings(derandomize=True, max_examples=60, deadline=None)
@given(fragments(), UNIT, UNIT)
def test_gae_is_the_double_sum_of_its_definition(f: dict[str, Any], gamma: float, lam: float) -> None:
    flags = {name: f[name] for name in FLAGS}
    assert_close(gae(f["rewards"], f["values"], **flags, gamma=gamma, lam=lam).double(), slow_gae(f, gamma, lam), atol=1e-4, rtol=1e-4)


@settings(derandomize=True, max_examples=40, deadline=None)
@given(fragments(), UNIT)
def test_lambda_0_is_the_one_step_error_and_lambda_1_the_return(f: dict[str, Any], gamma: float) -> None:
    flags = {name: f[name] for name in FLAGS}
    values = f["values"][:-1]
    one_step = n_step_returns(f["rewards"], f["values"], **flags, gamma=gamma, n=1)
    assert_close(lambda_returns(f["rewards"], f["values"], **flags, gamma=gamma, lam=0.0), one_step, atol=1e-4, rtol=1e-4)
    whole = n_step_returns(f["rewards"], f["values"], **flags, gamma=gamma, n=len(values))
    assert_close(lambda_returns(f["rewards"], f["values"], **flags, gamma=gamma, lam=1.0), whole, atol=1e-4, rtol=1e-4)


@settings(derandomize=True, max_examples=60, deadline=None)
@given(fragments(), UNIT, st.integers(1, 7))
def test_n_step_returns_are_the_sum_over_the_next_n_rows(f: dict[str, Any], gamma: float, n: int) -> None:
    expected = torch.zeros_like(f["rewards"], dtype=torch.float64)
    for env in range(expected.shape[1]):
        for row in range(len(expected)):
            rows = episode_rows(f, env, row)[:n]
            for power, t in enumerate(rows):
                expected[row, env] += gamma**power * f["rewards"][t, env].double()
            if rows and not f["terminated"][rows[-1], env]:
                expected[row, env] += gamma ** len(rows) * f["values"][rows[-1] + 1, env].double()
    got = n_step_returns(f["rewards"], f["values"], **{name: f[name] for name in FLAGS}, gamma=gamma, n=n)
    assert_close(got.double(), expected, atol=1e-4, rtol=1e-4)


@settings(derandomize=True, max_examples=60, deadline=None)
@given(fragments(), UNIT, st.floats(0.1, 3), st.floats(0.1, 3))
def test_vtrace_is_the_sum_of_its_definition(f: dict[str, Any], gamma: float, clip_rho: float, clip_c: float) -> None:
    """Eq. 1: vₜ = V(sₜ) + Σₖ γᵏ (Πᵢ cᵢ) ρₖ δₖ."""
    targets = f["values"][:-1].double().clone()
    rhos = f["log_rhos"].double().exp()
    for env in range(targets.shape[1]):
        for row in range(len(targets)):
            product = 1.0
            for power, t in enumerate(episode_rows(f, env, row)):
                following = 0.0 if f["terminated"][t, env] else f["values"][t + 1, env].double()
                delta = f["rewards"][t, env] + gamma * following - f["values"][t, env]
                targets[row, env] += gamma**power * product * min(clip_rho, float(rhos[t, env])) * delta
                product *= min(clip_c, float(rhos[t, env]))
    flags = {name: f[name] for name in FLAGS}
    got, _ = vtrace(f["log_rhos"], f["rewards"], f["values"], **flags, gamma=gamma, clip_rho=clip_rho, clip_c=clip_c)
    assert_close(got.double(), targets, atol=1e-3, rtol=1e-4)


@settings(derandomize=True, max_examples=40, deadline=None)
@given(fragments(), UNIT)
def test_vtrace_of_the_acting_policy_itself_is_lambda_1(f: dict[str, Any], gamma: float) -> None:
    flags = {name: f[name] for name in FLAGS}
    targets, advantages = vtrace(torch.zeros_like(f["rewards"]), f["rewards"], f["values"], **flags, gamma=gamma)
    returns = lambda_returns(f["rewards"], f["values"], **flags, gamma=gamma, lam=1.0)
    assert_close(targets[f["valid"]], returns[f["valid"]], atol=1e-4, rtol=1e-4)
    assert (advantages[~f["valid"]] == 0).all()


@settings(derandomize=True, max_examples=40, deadline=None)
@given(fragments())
def test_rows_that_are_not_valid_lend_nothing(f: dict[str, Any]) -> None:
    """Their rewards may be NaN: every valid row stays as it was."""
    flags = {name: f[name] for name in FLAGS}
    poisoned = f["rewards"].masked_fill(~f["valid"], float("nan"))
    for function, keywords in ((gae, {"lam": 0.9}), (lambda_returns, {"lam": 0.9}), (n_step_returns, {"n": 3})):
        clean = function(f["rewards"], f["values"], **flags, gamma=0.9, **keywords)  # type: ignore[operator]
        assert_close(function(poisoned, f["values"], **flags, gamma=0.9, **keywords), clean)  # type: ignore[operator]
    assert torch.isfinite(discounted_returns(poisoned, **flags, gamma=0.9)).all()


def test_environments_are_independent() -> None:
    generator = torch.Generator().manual_seed(0)
    rewards, values = torch.randn(20, 5, generator=generator), torch.randn(21, 5, generator=generator)
    flags = {"terminated": torch.rand(20, 5, generator=generator) < 0.2, "truncated": torch.zeros(20, 5, dtype=torch.bool)}
    order = torch.tensor([3, 1, 4, 0, 2])
    shuffled = {name: flag[:, order] for name, flag in flags.items()}
    assert_close(
        gae(rewards, values, **flags, gamma=0.9, lam=0.9)[:, order], gae(rewards[:, order], values[:, order], **shuffled, gamma=0.9, lam=0.9)
    )


def test_long_fragments_keep_their_precision() -> None:
    f = {"rewards": torch.ones(3000, 1), "values": torch.zeros(3001, 1), **ends(3000), "valid": torch.ones(3000, 1, dtype=torch.bool)}
    known = (1 - 0.999 ** torch.arange(3000, 0, -1, dtype=torch.float64)) / 0.001
    flags = {name: f[name] for name in FLAGS}
    assert_close(gae(f["rewards"], f["values"], **flags, gamma=0.999, lam=1.0).squeeze(1).double(), known, rtol=1e-4, atol=0)


def test_extreme_ratios_stay_finite() -> None:
    targets, advantages = vtrace(
        column([80.0, -80.0, 300.0]), column([1, 1, 1]), torch.ones(4, 1), **ends(3), gamma=0.9, clip_rho=math.inf, clip_pg_rho=1.0
    )
    assert torch.isfinite(targets).all() and torch.isfinite(advantages).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"values": torch.zeros(3, 1)}, r"values \[3, 1\] do not fit rewards \[3, 1\]"),
        ({"terminated": torch.zeros(3, dtype=torch.bool)}, r"terminated is torch.bool \[3\]"),
        ({"truncated": torch.zeros(3, 1)}, r"truncated is torch.float32"),
    ],
)
def test_shapes_that_would_broadcast_are_refused(change: dict[str, Tensor], message: str) -> None:
    arguments = {"rewards": torch.zeros(3, 1), "values": torch.zeros(4, 1), **ends(3), "gamma": 0.9, "lam": 0.9, **change}
    with pytest.raises(ValueError, match=message):
        gae(**arguments)
    with pytest.raises(ValueError, match="n=0"):
        n_step_returns(torch.zeros(3, 1), torch.zeros(4, 1), **ends(3), gamma=0.9, n=0)
