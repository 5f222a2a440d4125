"""Running statistics: exact, mergeable, frozen in evaluation, and equal on all ranks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st
from torch import multiprocessing
from torch.testing import assert_close

from lightning_rl.errors import NonFiniteError, UnsupportedSpaceError
from lightning_rl.models.filters import (
    MeanStdFilter,
    NoFilter,
    ReturnNormalizer,
    RunningMoments,
    make_observation_filter,
)
from lightning_rl.models.preprocessors import make_preprocessor


def test_moments_are_exact_around_a_huge_offset():
    """1e9 + {0, 1, 2}: mean 1e9 + 1, variance 2/3; E[x²] − E[x]² would have no digit left."""
    moments = RunningMoments(1)
    for value in (0.0, 1.0, 2.0):
        moments.update(torch.tensor([[1e9 + value]], dtype=torch.float64))
    assert float(moments.mean) == 1e9 + 1
    assert float(moments.variance) == pytest.approx(2 / 3, rel=1e-9)


@given(st.lists(st.lists(st.floats(-1e3, 1e3), max_size=5), min_size=1, max_size=5), st.sampled_from([0.0, 1e6]))
def test_merging_parts_equals_one_pass(parts, offset):
    tensors = [torch.tensor(part, dtype=torch.float64).reshape(-1, 1) + offset for part in parts]
    one, merged = torch.cat(tensors), RunningMoments(1)
    for part in tensors:
        other = RunningMoments(1)
        other.update(part)
        merged.merge(other.count, other.mean, other.m2)
    assert float(merged.count) == len(one)
    if len(one) > 1:
        assert_close(merged.mean, one.mean(0), rtol=1e-9, atol=1e-9)
        assert_close(merged.variance, one.var(0, unbiased=False), rtol=1e-6, atol=1e-6)


def test_a_non_finite_row_is_refused_and_changes_nothing():
    filter = MeanStdFilter(2)
    filter.update(torch.randn(5, 2))
    before = {name: value.clone() for name, value in filter.state_dict().items()}
    for bad in (float("nan"), float("inf")):
        with pytest.raises(NonFiniteError, match="row 1 of 2"):
            filter.update(torch.tensor([[0.0, 1.0], [2.0, bad]]))
    assert all(torch.equal(before[name], value) for name, value in filter.state_dict().items())


def test_statistics_stay_float64_in_a_half_precision_policy():
    filter = MeanStdFilter(2).half()
    assert filter.moments.mean.dtype == torch.float64 and filter.shift.dtype == torch.float16


def test_filter_normalizes_and_leaves_its_input_alone_and_saved_equals_loaded():
    torch.manual_seed(0)
    x = torch.randn(1000, 3) * torch.tensor([1.0, 10.0, 0.1]) + 5
    kept, filter, loaded = x.clone(), MeanStdFilter(3), MeanStdFilter(3)
    filter.update(x)
    y = filter(x)
    assert torch.equal(x, kept)
    assert_close(y.mean(0), torch.zeros(3), atol=1e-4, rtol=0)
    assert_close(y.std(0, unbiased=False), torch.ones(3), atol=1e-4, rtol=0)
    loaded.load_state_dict(filter.state_dict())
    assert torch.equal(loaded(x), y)


def test_first_observations_do_not_blow_up():
    """Before an update they stay; after one row, or where an entry never varied, values stay within ±10."""
    filter, x = MeanStdFilter(2), torch.tensor([[1e6, -1e6]])
    assert torch.equal(filter(x), x)
    filter.update(torch.tensor([[3.0, 3.0]]))
    assert_close(filter(torch.tensor([[4.0, 3.0]])), torch.tensor([[1.0, 0.0]]))
    filter.update(torch.tensor([[3.0, 5.0]] * 9))
    assert filter(torch.tensor([[4.0, 9.0]])).abs().max() <= 10


def test_masked_rows_do_not_count():
    masked, plain = MeanStdFilter(1), MeanStdFilter(1)
    masked.update(torch.tensor([[1.0], [float("nan")], [3.0]]), torch.tensor([True, False, True]))
    plain.update(torch.tensor([[1.0], [3.0]]))
    assert_close(masked.state_dict(), plain.state_dict())


def test_filter_names():
    box, image = spaces.Box(-1, 1, (3,)), spaces.Box(0, 255, (84, 84, 3), dtype=np.uint8)
    assert isinstance(make_observation_filter("none", box, make_preprocessor(box)), NoFilter)
    assert isinstance(make_observation_filter("mean_std", box, make_preprocessor(box)), MeanStdFilter)
    with pytest.raises(UnsupportedSpaceError, match="images"):
        make_observation_filter("mean_std", image, make_preprocessor(image))


# -- rewards ----------------------------------------------------------------------------------------------------------
def sb3_returns(rewards, valid, t, gamma):
    """Stable-Baselines3's VecNormalize, one environment at a time: returns = returns·γ + r, zeroed at a start."""
    found = []
    for env in range(rewards.shape[1]):
        running = 0.0
        for row in range(len(rewards)):
            if not valid[row, env]:
                continue
            running = float(rewards[row, env]) + gamma * (0.0 if t[row, env] == 0 else running)
            found.append(running)
    return np.array(found)


def test_returns_are_those_of_a_plain_loop_and_carry_on_into_the_next_fragment():
    rng, gamma = np.random.default_rng(0), 0.9
    rewards = torch.from_numpy(rng.normal(size=(12, 3)).astype(np.float32))
    valid, t = torch.ones(12, 3, dtype=torch.bool), torch.arange(12, dtype=torch.int32).repeat(3, 1).T.clone()
    valid[5, 1] = False  # the reset row after an end
    t[5:, 1] = torch.tensor([0, 0, 1, 2, 3, 4, 5])
    normalizer = ReturnNormalizer(gamma)
    for part in (slice(0, 4), slice(4, 12)):
        normalizer.update(rewards[part], valid[part], t[part])
    expected = sb3_returns(rewards.numpy(), valid.numpy(), t.numpy(), gamma)
    assert float(normalizer.moments.count) == len(expected) == 35
    assert float(normalizer.moments.variance) == pytest.approx(expected.var(), rel=1e-9)
    assert_close(normalizer(rewards), (rewards / expected.std()).float())


def test_scaled_rewards_are_clipped_and_never_centered():
    """Returns 0, 2 (γ = 0): deviation 1, so rewards stay; 50 is cut to 10."""
    normalizer = ReturnNormalizer(gamma=0.0)
    rewards = torch.tensor([[0.0], [2.0]])
    normalizer.update(rewards, torch.ones(2, 1, dtype=torch.bool), torch.tensor([[0], [1]]))
    assert normalizer(torch.tensor([0.0, 2.0, 50.0])).tolist() == [0.0, 2.0, 10.0]


def merge_filters(rank: int, meeting_file: str, results) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{meeting_file}", rank=rank, world_size=2)
    filter = MeanStdFilter(1)
    filter.update(torch.tensor([[0.0], [1.0]]) if rank == 0 else torch.tensor([[5.0]]))
    results[rank] = [float(value) for value in (filter.moments.count, filter.moments.mean, filter.moments.m2)]
    torch.distributed.destroy_process_group()


@pytest.mark.process
def test_two_ranks_hold_the_statistics_of_all_rows(tmp_path):
    """Rows 0, 1 | 5: count 3, mean 2, Σ(x − 2)² = 4 + 1 + 9 = 14."""
    with multiprocessing.Manager() as manager:
        results = manager.dict()
        multiprocessing.spawn(merge_filters, (str(tmp_path / "meeting"), results), nprocs=2)
        assert results[0] == results[1] == pytest.approx([3.0, 2.0, 14.0])
