"""The replay ring compared with a plain list of steps, through random adding, cutting, saving and loading."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from lightning_rl.replay.buffer import ReplayBuffer
from lightning_rl.replay.ring import SAMPLEABLE
from tests.replay.contents import everything
from tests.replay.streams import Model, Stream, play


class Watched(ReplayBuffer):
    """Keeps the set of drawable slots from the calls of the hooks."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self.present: set[int] = set()

    def _on_drawable(self, slots: np.ndarray) -> None:
        assert len(set(slots.tolist())) == len(slots) and not self.present & set(slots.tolist())
        self.present |= set(slots.tolist())

    def _on_undrawable(self, slots: np.ndarray) -> None:
        assert self.present >= set(slots.tolist())
        self.present -= set(slots.tolist())

    def load_state_dict(self, state: Any) -> None:
        super().load_state_dict(state)
        self.present = drawable(self)


def drawable(buffer: ReplayBuffer) -> set[int]:
    return set() if buffer.ring is None else set(np.flatnonzero(buffer.ring.flags >= SAMPLEABLE).tolist())


def check(buffer: Watched, model: Model) -> None:
    expected = model.transitions(buffer.n_step, buffer.gamma)
    assert len(buffer) == len(expected) == len(buffer.present)
    if not expected:
        return
    assert buffer.present == drawable(buffer)
    rows = everything(buffer)
    wanted = [expected.pop(action) for action in rows.actions.tolist()]
    assert not expected
    for name in ("obs", "rewards", "next_obs", "terminated", "discounts", "action_mask", "next_action_mask"):
        if name in rows:
            assert_close(rows[name], torch.tensor(np.array([row[name] for row in wanted]), dtype=rows[name].dtype))


OPERATIONS = st.lists(st.one_of(st.integers(1, 9), st.sampled_from(["cut", "save"])), min_size=1, max_size=12)


@settings(max_examples=120, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    operations=OPERATIONS,
    num_envs=st.integers(1, 3),
    capacity=st.integers(1, 40),
    n_step=st.integers(1, 7),
    longest=st.sampled_from([1, 2, 6, 30]),
    masked=st.booleans(),
    with_t=st.booleans(),
    still=st.booleans(),
    seed=st.integers(0, 9),
)
def test_a_ring_holds_the_newest_steps_of_a_plain_list(
    operations: list[Any], num_envs: int, capacity: int, n_step: int, **of_the_stream: Any
) -> None:
    stream = Stream(num_envs, **of_the_stream)
    model = Model(num_envs, capacity)
    for buffer in play(operations, stream, model, lambda: Watched(capacity, n_step=n_step, gamma=0.9)):
        check(buffer, model)


@settings(max_examples=100, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    operations=OPERATIONS,
    num_envs=st.integers(1, 3),
    capacity=st.integers(1, 40),
    n_step=st.integers(1, 4),
    frames=st.integers(2, 4),
    padding=st.sampled_from(["zero", "repeat", "carry"]),
    seed=st.integers(0, 9),
)
@example(operations=[3] * 12, num_envs=1, capacity=31, n_step=1, frames=4, padding="zero", seed=9)  # blocks wrap
def test_frames_stored_once_give_the_stacks_of_whole_storage(
    operations: list[Any], num_envs: int, capacity: int, n_step: int, frames: int, padding: str, seed: int
) -> None:
    """What is drawable may be less (a new episode's older frames take slots), but is the newest, and the same."""
    stream = Stream(num_envs, seed, longest=12, frames=frames, padding=padding)
    model = Model(num_envs, 1000)
    *_, buffer = play(operations, stream, model, lambda: Watched(capacity, n_step=n_step, gamma=0.9))
    expected = model.transitions(n_step, 0.9)
    if not len(buffer):
        assert not expected
        return
    rows = everything(buffer)
    assert len(set(rows.actions.tolist())) == len(rows) == len(buffer.present)
    for name in ("obs", "rewards", "next_obs", "terminated", "discounts"):
        wanted = np.array([expected[action][name] for action in rows.actions.tolist()])
        assert_close(rows[name], torch.tensor(wanted, dtype=rows[name].dtype))
    stored = set(rows.actions.tolist())
    for items in model.items:  # of each environment the newest ones, without a gap
        own = [row.action for row in items if row is not None]
        assert stored & set(own) == set(own[len(own) - len(stored & set(own)) :])
