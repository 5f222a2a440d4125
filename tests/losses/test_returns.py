"""Returns and advantages, compared with numbers worked by hand, and at the limits of float32."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from lightning_rl.losses import discounted_returns, gae, lambda_returns, n_step_returns, vtrace


def column(values: list[float]) -> Tensor:
    """One environment."""
    return torch.tensor(values).unsqueeze(1)


def ends(length: int, terminated: tuple[int, ...] = (), truncated: tuple[int, ...] = ()) -> dict[str, Tensor]:
    flags = {"terminated": terminated, "truncated": truncated}
    return {name: column([float(row in rows) for row in range(length)]).bool() for name, rows in flags.items()}


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


# fmt: off
TIANSHOU_REWARDS = [101, 102, 103, 200, 104, 105, 106, 201, 107, 108, 109, 202]
TIANSHOU_NEXT_VALUES = [2, 3, 4, -1, 5, 6, 7, -2, 8, 9, 10, -3]
TERMINATED_RETURNS = [
    454.8344, 376.1143, 291.298, 200, 464.561, 383.1085, 295.387, 201, 474.2876, 390.1027, 299.476, 202
]
TRUNCATED_RETURNS = [
    454.0109, 375.2386, 290.3669, 199.01, 462.9138, 381.3571, 293.5248, 199.02, 474.2876, 390.1027, 299.476, 202
]
# fmt: on


@pytest.mark.parametrize(
    ("terminated", "truncated", "known"), [((3, 7, 11), (), TERMINATED_RETURNS), ((11,), (3, 7), TRUNCATED_RETURNS)]
)
def test_gae_of_tianshou_s_golden_buffer(
    terminated: tuple[int, ...], truncated: tuple[int, ...], known: list[float]
) -> None:
    """Three episodes of 4 steps, γ = .99, λ = .95. There V(s) is V(next) one row up, and 0 where a buffer begins."""
    # The house form takes V(next) from the row below: each episode in its own column, with its own last value.
    rewards, following = (
        torch.tensor(row, dtype=torch.float32).view(3, 4).T for row in (TIANSHOU_REWARDS, TIANSHOU_NEXT_VALUES)
    )
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
def test_vtrace_of_the_golden_fragment(
    terminated: tuple[int, ...], clip_rho: float, targets: list[float], advantages: list[float]
) -> None:
    """log ρ = ½, −.2, .1; r = 1, 0, 2; V = .3, .4, ½, then .6; γ = .9."""
    result = vtrace(
        column([0.5, -0.2, 0.1]), column([1, 0, 2]), column([0.3, 0.4, 0.5, 0.6]), **ends(3, terminated), gamma=0.9,
        clip_rho=clip_rho, clip_pg_rho=clip_rho,
    )  # fmt: skip
    assert_close(result[0], column(targets), atol=1e-4, rtol=0)
    assert_close(result[1], column(advantages), atol=1e-4, rtol=0)


def test_a_step_that_is_both_terminated_and_truncated_is_terminated() -> None:
    """r = 1, V = 8 and γ = ½: the target is 1, not 1 + 4."""
    one, values = column([1.0]), column([3.0, 8.0])
    assert gae(one, values, **ends(1, (0,), (0,)), gamma=0.5, lam=1.0).item() == -2.0
    assert n_step_returns(one, values, **ends(1, (0,), (0,)), gamma=0.5, n=2).item() == 1.0
    assert vtrace(torch.zeros(1, 1), one, values, **ends(1, (0,), (0,)), gamma=0.5)[0].item() == 1.0


def test_the_reset_row_and_the_padding_stay_out() -> None:
    """γ = λ = 1, r = 1, V = row + 1. Truncated at row 1 (reset in row 2), padded from row 4 on:
    A₁ = 1 + 3 − 2, A₀ = 1 + 2 − 1 + A₁, A₃ = 1 + 5 − 4 (bootstrapped where padding begins), rows 2, 4 and 5 are 0."""
    valid = column([1, 1, 0, 1, 0, 0]).bool()
    values = torch.arange(1.0, 8.0).unsqueeze(1)
    advantages = gae(torch.ones(6, 1), values, **ends(6, (), (1,)), valid=valid, gamma=1.0, lam=1.0)
    assert_close(advantages, column([4.0, 2.0, 0.0, 2.0, 0.0, 0.0]))


def test_long_fragments_keep_their_precision() -> None:
    """3000 rewards of 1, V = 0, γ = .999: (1 − .999ᵏ)/.001 with k rows left.

    float32's .999 is .99900001287; of a sum near 1/(1 − γ) that alone moves 1.3e-5.
    """
    advantages = gae(torch.ones(3000, 1), torch.zeros(3001, 1), **ends(3000), gamma=0.999, lam=1.0)
    known = (1 - 0.999 ** torch.arange(3000, 0, -1, dtype=torch.float64)) / 0.001
    assert_close(advantages.squeeze(1).double(), known, rtol=3e-5, atol=0)


def test_the_advantage_of_a_truncated_step_takes_v_and_not_the_next_episode_s_target() -> None:
    """No reset row (`valid` is None): r = 1, V = 2, 4, 8 and γ = ½ give 1 + ½·4 − 2 = 1 though row 1's target is 5."""
    targets, advantages = vtrace(
        torch.zeros(2, 1), torch.ones(2, 1), column([2.0, 4.0, 8.0]), **ends(2, (), (0,)), gamma=0.5
    )
    assert targets[:, 0].tolist() == [3.0, 5.0]
    assert advantages[:, 0].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("log_rho", [80.0, -80.0, 300.0, -300.0])
@pytest.mark.parametrize("clip_rho", [1.0, math.inf])
def test_extreme_ratios_stay_finite(log_rho: float, clip_rho: float) -> None:
    log_rhos = column([log_rho, -log_rho, log_rho])
    targets, advantages = vtrace(log_rhos, torch.ones(3, 1), torch.ones(4, 1), **ends(3), gamma=0.9, clip_rho=clip_rho)
    assert targets.isfinite().all()
    assert advantages.isfinite().all()


CHANGES = [
    ({"values": torch.zeros(3, 1)}, r"\[3, 1\].*\[3, 1\]"),
    ({"terminated": torch.zeros(3, dtype=torch.bool)}, r"terminated is torch.bool \[3\]"),
    ({"truncated": torch.zeros(3, 1)}, r"truncated is torch.float32"),
    ({"valid": torch.ones(3, 2, dtype=torch.bool)}, r"valid is torch.bool \[3, 2\]"),
]


@pytest.mark.parametrize(("change", "message"), CHANGES)
def test_shapes_that_would_broadcast_are_refused(change: dict[str, Tensor], message: str) -> None:
    arguments = {"rewards": torch.zeros(3, 1), "values": torch.zeros(4, 1), **ends(3), "gamma": 0.9, **change}
    for function, keywords in ((gae, {"lam": 0.9}), (lambda_returns, {"lam": 0.9}), (n_step_returns, {"n": 2})):
        with pytest.raises(ValueError, match=message):
            function(**arguments, **keywords)  # type: ignore[operator]
    with pytest.raises(ValueError, match=message):
        vtrace(torch.zeros(3, 1), **arguments)


def test_log_rhos_of_another_shape_and_n_below_1_are_refused() -> None:
    with pytest.raises(ValueError, match=r"log_rhos \[3\] and rewards \[3, 1\] differ"):
        vtrace(torch.zeros(3), torch.zeros(3, 1), torch.zeros(4, 1), **ends(3), gamma=0.9)
    with pytest.raises(ValueError, match="n=0"):
        n_step_returns(torch.zeros(3, 1), torch.zeros(4, 1), **ends(3), gamma=0.9, n=0)
