"""What holds for every kind of replay buffer: draws, indexes, saving, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lightning_rl.errors import CheckpointError
from lightning_rl.replay.buffer import COLUMNS, ReplayBuffer
from lightning_rl.replay.hindsight import HindsightReplayBuffer
from lightning_rl.replay.prioritized import PrioritizedReplayBuffer
from lightning_rl.replay.sequences import PrioritizedSequenceReplayBuffer, SequenceReplayBuffer
from lightning_rl.sample_batch import SampleBatch
from tests.refusals import not_refused
from tests.replay.streams import Stream, compute_reward, counted, saved_and_loaded
from tests.run_comparison import assert_equal

KINDS: dict[str, Callable[..., Any]] = {
    "uniform": lambda **more: ReplayBuffer(60, n_step=2, **more),
    "prioritized": lambda **more: PrioritizedReplayBuffer(60, n_step=2, **more),
    "ranked": lambda **more: PrioritizedReplayBuffer(60, n_step=2, ranked=True, **more),
    "sequences": lambda **more: SequenceReplayBuffer(200, burn_in=1, length=4, **more),
    "prioritized sequences": lambda **more: PrioritizedSequenceReplayBuffer(200, burn_in=1, length=4, **more),
    **{
        f"hindsight, {strategy}": lambda strategy=strategy, **more: HindsightReplayBuffer(
            150, compute_reward=compute_reward, strategy=strategy, **more
        )
        for strategy in ("future", "final", "episode")
    },
}
DRAWN_UNIFORMLY = ("uniform", "sequences")


def stream_for(kind: str, fragments: int, steps: int = 9) -> Iterator[SampleBatch]:
    """Fragments of two environments that are cut once; observations with goals for hindsight."""
    stream = Stream(2, seed=3, longest=9)
    for index in range(fragments):
        if index == 4:
            stream.cut()
        fragment = stream.fragment(steps)
        if "hindsight" in kind:
            obs = fragment.obs
            fragment["obs"] = SampleBatch(observation=obs, achieved_goal=obs, desired_goal=torch.full_like(obs, -5))
        yield fragment


def filled(kind: str, fragments: int = 20) -> Any:
    buffer = KINDS[kind]()
    for fragment in stream_for(kind, fragments):
        buffer.add(fragment)
    return buffer


@pytest.mark.parametrize("kind", KINDS)
def test_a_loaded_buffer_goes_on_bit_by_bit(kind: str, tmp_path: Path) -> None:
    """Into another storage, in the middle of episodes, after the ring has wrapped; files leave nothing behind."""
    buffer, rng = KINDS[kind](), np.random.default_rng(0)
    source = stream_for(kind, 24)
    for number in range(12):
        buffer.add(next(source))
        if number > 3:  # by then there are enough rows
            draw_and_update(buffer, rng)
    other = saved_and_loaded(buffer, KINDS[kind](storage=str(tmp_path / "replay")))
    for seed, fragment in enumerate(source):
        draws = []
        for each in (buffer, other):
            each.add(fragment)
            draws.append([draw_and_update(each, np.random.default_rng(seed)), flat(each.sample(8))])
        assert_equal(*draws)
    assert buffer.stats() == other.stats()
    assert list((tmp_path / "replay").glob("*")) == []


def draw_and_update(buffer: Any, rng: np.random.Generator) -> dict[str, Any]:
    batch = buffer.sample(8, rng)
    if isinstance(buffer, PrioritizedReplayBuffer):
        buffer.update_priorities(batch.batch_indexes, torch.from_numpy(rng.random(8)))
    return flat(batch)


def flat(batch: SampleBatch, prefix: str = "") -> dict[str, Any]:
    """The columns, nested ones by their path."""
    found: dict[str, Any] = {}
    for name, column in batch.items():
        nested = isinstance(column, SampleBatch)
        found |= flat(column, f"{prefix}{name}/") if nested else {f"{prefix}{name}": column}
    return found


@pytest.mark.parametrize("kind", DRAWN_UNIFORMLY)
def test_draws_are_uniform_over_what_can_be_drawn_and_follow_the_generator(kind: str) -> None:
    """χ² of 200 draws each, of a ring some of whose slots are none; five standard deviations."""
    buffer, generator = filled(kind), np.random.default_rng(0)
    drawn = np.concatenate([buffer.sample(len(buffer), generator).batch_indexes for _ in range(200)])
    _, counts = np.unique(drawn, return_counts=True)
    assert len(counts) == len(buffer) > 20
    chi, freedom = ((counts - 200) ** 2 / 200).sum(), len(buffer) - 1
    assert abs(chi - freedom) < 5 * np.sqrt(2 * freedom)
    first, again, other = (buffer.sample(20, np.random.default_rng(seed)).batch_indexes for seed in (9, 9, 10))
    assert torch.equal(first, again) and not torch.equal(first, other)


@pytest.mark.parametrize("kind", ["uniform", "prioritized"])
def test_indexes_name_rows_until_these_are_overwritten(kind: str) -> None:
    buffer = filled(kind)
    batch = buffer.sample(8, np.random.default_rng(0))
    assert torch.equal(buffer.rows(batch.batch_indexes).actions, batch.actions)
    for _ in range(50):
        buffer.add(Stream(2).fragment(20))
    with pytest.raises(ValueError, match=r"of these|such as \d+"):
        buffer.rows(batch.batch_indexes)


def test_priorities_are_those_of_sequences() -> None:
    """One sequence gets all the weight."""
    buffer = filled("prioritized sequences")
    ids = buffer.ring.ids(np.flatnonzero(buffer._starts))
    assert buffer.update_priorities(ids, 1000.0 * (np.arange(len(ids)) == 3)) == 0
    batch = buffer.sample(20, np.random.default_rng(1))
    assert (batch.batch_indexes == ids[3]).sum() > 18 and batch.weights.max() == 1


# -- refusals ---------------------------------------------------------------------------------------------------------
def test_numbers_out_of_range_are_refused() -> None:
    def build(kind: Any, **keywords: Any) -> None:
        kind(**{"capacity": 10, **keywords})

    sizes = {"burn_in": 1, "length": 8}
    cases = [
        *((ReplayBuffer, wrong) for wrong in ({"capacity": 0}, {"n_step": 0}, {"gamma": 1.1}, {"stack_frames": "all"})),
        *((PrioritizedReplayBuffer, {name: value}) for name, value in (("alpha", 1.5), ("alpha", np.nan))),
        *((PrioritizedReplayBuffer, wrong) for wrong in ({"beta": 2.0}, {"eps": 0.0})),
        *((SequenceReplayBuffer, {"burn_in": -1, "length": 8}), (SequenceReplayBuffer, {"length": 0, "burn_in": 1})),
        *((SequenceReplayBuffer, {"stride": stride, **sizes}) for stride in (0, 9)),
    ]
    named = [(kind, keywords, f"{next(iter(keywords))}=") for kind, keywords in cases]
    assert not_refused(lambda kind, keywords: build(kind, **keywords), named) == []


def test_batches_that_are_no_fragments_of_the_same_environments_are_refused() -> None:
    buffer, stream = ReplayBuffer(50, columns=(*COLUMNS, "weights")), Stream(2)
    buffer.add(stream.fragment(4))
    count, other, ended = buffer.added, Stream(2).fragment(4), counted(3)
    ended["terminated"][1] = True
    changes = {"obs": (other.obs[..., :1], other.obs.double()), "weights": (torch.ones(4, 2),)}
    wrong = [SampleBatch({**dict(other.items()), name: value}) for name, values in changes.items() for value in values]
    cases = [
        *((buffer, fragment, r"2 environments with obs float32\[2\]") for fragment in (Stream(3).fragment(4), *wrong)),
        (saved_and_loaded(buffer, ReplayBuffer(50, columns=(*COLUMNS, "weights"))), wrong[1], "this fragment"),
        (ReplayBuffer(10), SampleBatch(obs=torch.zeros(3, 2), actions=torch.zeros(3)), r"\[T, B, …\]"),
        (ReplayBuffer(10), ended, "episode's end"),
        (SequenceReplayBuffer(50), Stream(1, with_t=False).fragment(5), "no column 't'"),
    ]
    assert not_refused(lambda buffer, fragment: buffer.add(fragment), cases) == [] and buffer.added == count


def test_more_rows_than_there_are_cannot_be_drawn() -> None:
    cases = [(ReplayBuffer(10), 1, "learning_starts"), (filled("uniform", fragments=2), 61, "cannot draw 61 ")]
    assert not_refused(lambda buffer, count: buffer.sample(count), cases) == []


def test_a_state_of_another_buffer_is_refused_and_that_of_an_empty_one_taken() -> None:
    uniform, prioritized, double = filled("uniform"), filled("prioritized"), ReplayBuffer(60)
    double.add(counted(4, obs=torch.zeros(5, 1, 2, dtype=torch.float64)))
    priorities = r"has {0}=.*this one {1}: set data.priority_{0}"
    cases = [
        (ReplayBuffer(61), uniform, "capacity=60, this one 61"),
        (double, uniform, r"obs float32\[2\].*this one.*obs float64\[2\]"),
        (PrioritizedReplayBuffer(60, alpha=0.7), prioritized, priorities.format("alpha", "0.7")),
        (PrioritizedReplayBuffer(60, ranked=True), prioritized, priorities.format("ranked", "True")),
        (PrioritizedReplayBuffer(60), uniform, r"data\.prioritized=false"),
    ]
    assert not_refused(lambda other, buffer: other.load_state_dict(buffer.state_dict()), cases, CheckpointError) == []
    empty = saved_and_loaded(PrioritizedReplayBuffer(10), PrioritizedReplayBuffer(10))
    empty.add(counted(3))
    assert len(empty) == 3
