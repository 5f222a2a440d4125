"""Returns and advantages, compared with numbers worked by hand, and at the limits of float32."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from lightning_rl.losses import gae, lambda_returns, n_step_returns, vtrace
from tests.refusals import not_refused


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
    advantages = gae(rewards, values, terminated=ended, truncated=ended.flip(1), gamma=1.0, lam=1.0)
    assert_close(advantages, torch.tensor([[-3.0, 2.0], [-4.0, 1.0], [1.0, 1.0]]))


def test_gae_of_rllib_s_golden_episode() -> None:
    """RLlib's PPO test: r = 1, −1, ½, V = ½, .6, .7, γ = .99, λ = 1, terminal."""
    advantages = gae(column([1, -1, 0.5]), column([0.5, 0.6, 0.7, 9.0]), **ends(3, (2,)), gamma=0.99, lam=1.0)
    assert_close(advantages, column([0.00005, -1.105, -0.2]), atol=1e-6, rtol=0)


def test_n_step_continues_through_truncation_with_the_value_and_not_through_termination() -> None:
    """Two steps of reward 1 with γ = ½, V = 8: truncated after row 0 → 1 + ½·8 = 5; terminated → 1."""
    ones, values = column([1, 1]), torch.full((3, 1), 8.0)
    assert_close(n_step_returns(ones, values, **ends(2, (), (0,)), gamma=0.5, n=2), column([5.0, 5.0]))
    assert_close(n_step_returns(ones, values, **ends(2, (0,)), gamma=0.5, n=2), column([1.0, 5.0]))


UNCLIPPED = {"clip_rho": math.inf, "clip_pg_rho": math.inf}


@pytest.mark.parametrize(
    ("terminated", "clips", "targets", "advantages"),
    [
        ((), {}, [2.749714, 1.944126, 2.54], [2.449714, 1.544126, 2.04]),
        ((1,), {}, [1.065257, 0.072508, 2.54], [0.765257, -0.327492, 2.04]),
        ((), UNCLIPPED, [3.5796, 2.1022, 2.7545], [4.2735, 1.7022, 2.2545]),
    ],
)
def test_vtrace_of_the_golden_fragment(
    terminated: tuple[int, ...], clips: dict[str, float], targets: list[float], advantages: list[float]
) -> None:
    """log ρ = ½, −.2, .1; r = 1, 0, 2; V = .3, .4, ½, then .6; γ = .9; ratios are clipped at 1 by default."""
    log_rhos, rewards, values = column([0.5, -0.2, 0.1]), column([1, 0, 2]), column([0.3, 0.4, 0.5, 0.6])
    found = vtrace(log_rhos, rewards, values, **ends(3, terminated), gamma=0.9, **clips)
    assert_close(found, (column(targets), column(advantages)), atol=1e-4, rtol=0)


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


CHANGES: list[tuple[dict[str, Tensor], str]] = [
    ({"values": torch.zeros(3, 1)}, r"\[3, 1\].*\[3, 1\]"),
    ({"terminated": torch.zeros(3, dtype=torch.bool)}, r"terminated is torch.bool \[3\]"),
    ({"truncated": torch.zeros(3, 1)}, r"truncated is torch.float32"),
    ({"valid": torch.ones(3, 2, dtype=torch.bool)}, r"valid is torch.bool \[3, 2\]"),
]


def test_shapes_that_would_broadcast_are_refused() -> None:
    given = {"rewards": torch.zeros(3, 1), "values": torch.zeros(4, 1), **ends(3), "gamma": 0.9}
    functions = partial(gae, lam=0.9), partial(lambda_returns, lam=0.9), partial(n_step_returns, n=2)
    for function in (*functions, partial(vtrace, torch.zeros(3, 1))):
        cases = [({**given, **change}, message) for change, message in CHANGES]
        assert not_refused(lambda changed, function=function: function(**changed), cases, ValueError) == []


def test_log_rhos_of_another_shape_and_n_below_1_are_refused() -> None:
    with pytest.raises(ValueError, match=r"log_rhos \[3\] and rewards \[3, 1\] differ"):
        vtrace(torch.zeros(3), torch.zeros(3, 1), torch.zeros(4, 1), **ends(3), gamma=0.9)
    with pytest.raises(ValueError, match="n=0"):
        n_step_returns(torch.zeros(3, 1), torch.zeros(4, 1), **ends(3), gamma=0.9, n=0)
