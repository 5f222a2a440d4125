"""Derived seeds: fixed for ever, different for different names, well spread."""

from __future__ import annotations

import itertools

import pytest

from lightning_rl.seeding import STREAMS, derive_seed


def test_seeds_never_change_between_versions() -> None:
    """A resumed run must continue its streams, so these numbers are part of the checkpoint's format."""
    assert derive_seed(0, "learner") == 4334430513956379144
    assert derive_seed(7, "rollout", 3, 12) == 930873283268296209


def test_different_names_give_different_seeds() -> None:
    """3 runs × 6 streams × 40 workers × 100 fragments: 72 000 seeds of 63 bits collide with probability 3·10⁻¹⁰."""
    names = itertools.product(range(3), STREAMS, range(40), range(100))
    seeds = {derive_seed(seed, stream, worker, fragment) for seed, stream, worker, fragment in names}
    assert len(seeds) == 72_000


def test_a_shorter_name_is_another_name() -> None:
    assert len({derive_seed(0, "rollout"), derive_seed(0, "rollout", 0), derive_seed(0, "rollout", 0, 0)}) == 3


def test_every_bit_of_the_63_is_set_half_the_time() -> None:
    """2000 seeds: each bit 1000 ± 112, five standard deviations."""
    seeds = [derive_seed(0, "rollout", worker) for worker in range(2000)]
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert all(abs(sum(seed >> bit & 1 for seed in seeds) - 1000) < 112 for bit in range(63))


def test_an_unknown_stream_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="stream='rolout'"):
        derive_seed(0, "rolout")


@pytest.mark.parametrize(("seed", "index"), [(-1, 0), (0, -1)])
def test_negative_numbers_are_refused(seed: int, index: int) -> None:
    with pytest.raises(ValueError, match="below 0"):
        derive_seed(seed, "rollout", index)
