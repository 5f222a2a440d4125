"""SampleBatch: fields, rows, sequences, minibatches and joining."""

from __future__ import annotations

import pickle
from itertools import pairwise

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from lightning_rl.sample_batch import (
    Fragment,
    MultiAgentBatch,
    SampleBatch,
    concat_samples,
    flatten_fragment,
    from_nested_batch,
    pad_time,
    to_nested_batch,
    transition_rows,
    typed,
)


def rows(count: int, start: int = 0) -> SampleBatch:
    ids = torch.arange(start, start + count)
    return SampleBatch(obs=SampleBatch(image=ids.float()[:, None], tag=ids), actions=ids, rewards=ids.float())


def test_every_operation_on_a_fragment_keeps_its_type_and_flattening_gives_rows() -> None:
    made = SampleBatch(obs=torch.zeros(3, 2, 4), valid=torch.ones(2, 2, dtype=torch.bool), rewards=torch.zeros(2, 2))
    fragment = typed(made)
    assert isinstance(fragment, Fragment) and typed(fragment) is fragment and fragment.columns == made.columns
    kept = [fragment.to("cpu"), fragment.numpy(), fragment.copy(), fragment.without("rewards"), pad_time(fragment, 3)]
    kept += [
        pickle.loads(pickle.dumps(fragment)),
        concat_samples([fragment, fragment]),
        concat_samples([made, fragment]),
    ]
    assert all(type(each) is Fragment for each in kept[:-1]) and kept[-1].valid.shape == (2, 4)
    for flat in (flatten_fragment(fragment), transition_rows(fragment)):
        assert type(flat) is SampleBatch and typed(flat) is flat


def test_columns_are_named_by_attribute_and_by_key() -> None:
    batch = rows(3)
    assert batch.rewards is batch["rewards"]
    assert batch.columns == ["obs", "actions", "rewards"]
    assert batch.count == len(batch) == 3
    assert "rewards" in batch and "advantages" not in batch
    assert batch.get("advantages") is None


def test_a_missing_column_names_the_nearest_and_the_present_ones() -> None:
    with pytest.raises(KeyError, match=r"'reward'.*'rewards'"):
        rows(2)["reward"]
    with pytest.raises(AttributeError, match="no column 'advantages'"):
        _ = rows(2).advantages


def test_an_index_takes_rows_of_nested_columns_too() -> None:
    taken = rows(5)[torch.tensor([4, 0])]
    assert taken.actions.tolist() == [4, 0]
    assert taken.obs.image.squeeze(1).tolist() == [4.0, 0.0]


@given(st.lists(st.integers(1, 5), min_size=1, max_size=5))
def test_concat_of_the_parts_is_the_whole(sizes: list[int]) -> None:
    whole = rows(sum(sizes))
    edges = np.cumsum([0, *sizes])
    joined = concat_samples([whole[int(a) : int(b)] for a, b in pairwise(edges)])
    assert joined.columns == whole.columns
    assert torch.equal(joined.actions, whole.actions)
    assert torch.equal(joined.obs.tag, whole.obs.tag)


def test_concat_samples_lets_rows_without_masks_do_anything_beside_rows_with_masks() -> None:
    """Fragments from before an environment's first mask have none."""
    masked = rows(2)
    masked["action_mask"] = torch.tensor([[True, False], [False, True]])
    joined = concat_samples([rows(1), masked])
    assert joined.action_mask.tolist() == [[True, True], [True, False], [False, True]]


def test_concat_refuses_batches_with_other_columns() -> None:
    with pytest.raises(ValueError, match=r"\['rewards'\]"):
        concat_samples([rows(2), rows(2).without("rewards")])
    with pytest.raises(ValueError, match="no batches"):
        SampleBatch.concat_samples([])


@given(st.integers(1, 40), st.integers(1, 8))
def test_minibatches_hold_every_row_once_and_differ_by_at_most_one_row(count: int, parts: int) -> None:
    batch = rows(count)
    if count < parts:
        with pytest.raises(ValueError, match="minibatches="):
            batch.minibatches(parts)
        return
    cut = batch.minibatches(parts, torch.Generator().manual_seed(0))
    assert sorted(torch.cat([part.actions for part in cut]).tolist()) == list(range(count))
    assert max(part.count for part in cut) - min(part.count for part in cut) <= 1
    for part in cut:  # columns stay aligned
        assert torch.equal(part.actions, part.obs.tag)


def test_the_generator_decides_the_shuffle() -> None:
    first, again, other = (
        rows(50).minibatches(2, torch.Generator().manual_seed(seed))[0].actions for seed in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_flattened_drops_reset_rows_and_the_last_observation() -> None:
    """T = 3, B = 2; environment 1 was reset in row 1: rows (0,0) (0,1) (1,0) (2,0) (2,1) remain, in time order."""
    fragment = SampleBatch(
        obs=torch.arange(8).view(4, 2),
        actions=torch.arange(6).view(3, 2),
        valid=torch.tensor([[True, True], [True, False], [True, True]]),
    )
    flat = flatten_fragment(fragment)
    assert flat.obs.tolist() == flat.actions.tolist() == [0, 1, 2, 4, 5]
    assert "valid" not in flat


def test_numpy_and_back_keeps_values_and_dtypes() -> None:
    there = rows(4).numpy()
    assert isinstance(there.obs.tag, np.ndarray) and there.obs.tag.dtype == np.int64
    back = pickle.loads(pickle.dumps(there)).torch()
    assert torch.equal(back.obs.image, rows(4).obs.image)


def test_dicts_and_tuples_nest_and_are_restored_in_the_space_s_order() -> None:
    space = spaces.Dict({"b": spaces.Discrete(2), "a": spaces.Tuple((spaces.Discrete(3), spaces.Box(0, 1, (2,))))})
    value = {"a": (torch.tensor([1]), torch.ones(1, 2)), "b": torch.tensor([0])}
    batch = to_nested_batch(value)
    assert batch.a.columns == ["0", "1"]
    again = from_nested_batch(space, batch)
    assert list(again) == list(space.spaces) and isinstance(again["a"], tuple)
    assert torch.equal(again["a"][1], value["a"][1])


def test_agent_steps_are_the_sum_of_the_policies_rows() -> None:
    batch = MultiAgentBatch({"a": rows(3), "b": rows(2)}, env_steps=3)
    assert (batch.agent_steps, batch.env_steps) == (5, 3)
