"""The sum tree compared with a plain array, bitwise where sums are exact."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_rl.replay.sum_tree import TOP, SumTree, row_sums

VALUES = st.one_of(st.just(0.0), st.floats(1e-9, 1e9), st.sampled_from([5e-324, 5e-6, 1e-300, 1e8, 1e280]))
UPDATES = st.lists(st.lists(st.tuples(st.integers(0, 99), VALUES), min_size=1, max_size=40), min_size=1, max_size=6)


def tree_of(leaves: list[float] | np.ndarray, fanout: int = 32) -> SumTree:
    tree = SumTree(len(leaves), fanout)
    tree.put(np.arange(len(leaves)), np.asarray(leaves, float))
    return tree


def tall(size: int, fanout: int, monkeypatch: pytest.MonkeyPatch) -> SumTree:
    """A tree with as many levels as a huge one."""
    monkeypatch.setattr("lightning_rl.replay.sum_tree.TOP", 4)
    return SumTree(size, fanout)


@pytest.mark.parametrize("fanout", [2, 3, 32])
@given(updates=UPDATES)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_leaves_equal_a_plain_array_and_nodes_the_sums_of_their_children_bit_by_bit(
    fanout: int, updates: list[list[tuple[int, float]]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        tree, plain = tall(100, fanout, patch), np.zeros(100)
    for update in updates:
        tree.put(np.array([index for index, _ in update]), np.array([value for _, value in update]))
        for index, value in update:  # one by one, so where an index repeats the last one wins
            plain[index] = value
    assert (tree.leaves == plain).all()
    tree.settle()
    for level, above in zip(tree.levels, [*tree.levels[1:], tree.top], strict=True):
        for node, children in zip(above.ravel(), level, strict=False):
            assert node == row_sums(children[None])[0] == pytest.approx(math.fsum(children), rel=1e-14)
    assert math.isclose(tree.total, math.fsum(plain), rel_tol=1e-12)
    before = [level.tobytes() for level in [*tree.levels, tree.top]]
    tree.rebuild()
    assert [level.tobytes() for level in [*tree.levels, tree.top]] == before


@given(
    leaves=st.lists(VALUES, min_size=1, max_size=100).filter(lambda leaves: max(leaves) > 0),
    shares=st.lists(st.floats(0, 1), min_size=1, max_size=30),
    fanout=st.sampled_from([2, 3, 32]),
)
@settings(max_examples=200, deadline=None, derandomize=True)
def test_a_mass_never_finds_a_leaf_that_is_zero(leaves: list[float], shares: list[float], fanout: int) -> None:
    """0, the total, one below and one above it are among the masses, and all boundaries between leaves."""
    with pytest.MonkeyPatch.context() as patch:
        tree = tall(len(leaves), fanout, patch)
    tree.put(np.arange(len(leaves)), np.array(leaves))
    edges = [0.0, -1.0, tree.total, math.nextafter(tree.total, 0), 2 * tree.total, *np.cumsum(leaves)]
    masses = np.array([*edges, *(share * tree.total for share in shares)])
    found = tree.find(masses)
    assert (np.array(leaves)[found] > 0).all()
    positive = np.flatnonzero(leaves)
    assert found[0] == found[1] == positive[0]
    if min(leaves[i] for i in positive) > 1e-9 * tree.total:  # smaller ones can vanish in a float64 sum
        assert found[2] == found[3] == found[4] == positive[-1]


def test_rounding_on_the_way_down_never_leads_to_a_leaf_that_is_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of very different sizes, so that what is left of a mass falls below 0 or comes up to its node."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        tree = tall(64, 2, monkeypatch)
        leaves = rng.random(64) * 10.0 ** rng.integers(-8, 8, 64) * (rng.random(64) < 0.5)
        tree.put(np.arange(64), leaves)
        edges = np.cumsum(leaves)
        masses = np.concatenate(
            [edges, np.nextafter(edges, 0), np.nextafter(edges, np.inf), rng.random(64) * edges[-1]]
        )
        assert (leaves[tree.find(masses)] > 0).all()


@pytest.mark.parametrize("fanout", [2, 3, 32])
@pytest.mark.parametrize("scale", [5e-6 / 4950, 1.0, 1e8])
def test_a_mass_finds_the_leaf_between_whose_cumulative_sums_it_lies(
    scale: float, fanout: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leaf i is i + 1 in units of `scale`; masses lie a thousandth of a unit within either side of every leaf."""
    tree, leaves = tall(100, fanout, monkeypatch), scale * np.arange(1, 101)
    tree.put(np.arange(100), leaves)
    after = np.cumsum(leaves)
    inside = np.concatenate([after - leaves + scale / 1000, after - scale / 1000])
    assert tree.find(inside).tolist() == [*range(100)] * 2


def test_the_leaves_of_rllibs_own_test_and_those_behind_boundaries() -> None:
    for leaves, masses, found in (
        ([0, 0, 1, 3], [0.0, 0.99, 1.01, 4.0], [2, 2, 3, 3]),
        ([0.5, 1, 1, 3], [0, 0.55, 0.99, 1.51, 3, 5.5], [0, 1, 1, 2, 3, 3]),
        ([1, 2, 4], [1.0, 3.0], [1, 2]),
    ):
        assert tree_of(leaves).find(np.array(masses)).tolist() == found


def test_a_tree_with_every_level_finds_as_the_plain_array_does() -> None:
    """More leaves than `TOP · fanout`: two levels below the top without changing any constant."""
    rng = np.random.default_rng(0)
    leaves = rng.integers(0, 5, TOP * 50).astype(float)  # whole numbers: sums are exact, so must the places be
    tree = tree_of(leaves)
    assert len(tree.levels) == 2
    masses = rng.random(2000) * tree.total
    assert (tree.find(masses) == np.cumsum(leaves).searchsorted(masses, side="right")).all()


def test_a_restored_tree_finds_the_same_leaves_and_a_state_does_not_change_with_its_tree() -> None:
    rng = np.random.default_rng(0)
    tree, other = tree_of(rng.random(500), fanout=3), SumTree(500, 3)
    state, masses, total = tree.state_dict(), rng.random(100) * tree.total, tree.total
    found = tree.find(masses)
    tree.put(np.array([0]), np.array([5.0]))
    other.load_state_dict(state)
    assert other.total == total and (other.find(masses) == found).all()
