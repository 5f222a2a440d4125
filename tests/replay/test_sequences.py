"""Replay of sequences for models with state: starts, burn-in and padding."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from lightning_rl.envs import EnvCreator
from lightning_rl.replay.sequences import SequenceReplayBuffer
from lightning_rl.rollouts import RolloutWorker
from lightning_rl.sample_batch import SampleBatch, padding
from tests.replay.streams import Model, Row, Stream, play, reward_of
from tests.rollouts.counting import Counter


def all_sequences(buffer: SequenceReplayBuffer) -> SampleBatch:
    """Every sequence that can be drawn, once."""
    assert buffer.ring is not None
    return buffer.rows(buffer.ring.ids(np.flatnonzero(buffer._starts)))


def split(batch: SampleBatch) -> list[SampleBatch]:
    """The rows of each sequence."""
    rows = batch.without("seq_lens", "state_in", "next_state_in", "batch_indexes")
    edges = [0, *batch.seq_lens.cumsum(0).tolist()]
    return [rows[start:stop] for start, stop in pairwise(edges)]


def episodes(model: Model) -> list[list[Row]]:
    """Stretches of steps without an end or a cut between them, and whether each will grow no more."""
    found: list[list[Row]] = []
    for items in model.stored():
        run: list[Row] = []
        for item in items:
            if item is not None:
                run.append(item)
            if run and (item is None or item.terminated or item.truncated):
                found.append(run)
                run = []
    return found


@settings(max_examples=80, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    operations=st.lists(st.one_of(st.integers(1, 15), st.sampled_from(["cut", "save"])), min_size=1, max_size=10),
    num_envs=st.integers(1, 3),
    capacity=st.integers(5, 80),
    burn_in=st.integers(0, 4),
    length=st.integers(1, 6),
    overlap=st.integers(0, 3),
    n_step=st.integers(1, 4),
    longest=st.sampled_from([1, 3, 9, 40]),
    seed=st.integers(0, 9),
)
def test_sequences_are_stretches_of_one_episode_with_the_state_recorded_there(
    operations: list[Any], num_envs: int, capacity: int, burn_in: int, overlap: int, longest: int, seed: int, **of: Any
) -> None:
    stream, model = Stream(num_envs, seed, longest), Model(num_envs, capacity)
    length, n_step, stride = of["length"], of["n_step"], max(1, of["length"] - overlap)
    *_, buffer = play(
        operations,
        stream,
        model,
        lambda: SequenceReplayBuffer(capacity, burn_in=burn_in, stride=stride, gamma=0.9, **of),
    )
    runs = {row.action: (run, place) for run in episodes(model) for place, row in enumerate(run)}
    if not len(buffer):
        return
    batch = all_sequences(buffer)
    assert len(batch.seq_lens) == len(buffer)
    trained: list[int] = []
    offset = 0
    for index, sequence in enumerate(split(batch)):
        actions = sequence.actions.tolist()
        run, place = runs[actions[0]]
        assert actions == [row.action for row in run[place : place + len(actions)]]
        burnt = int(sequence.burn_in.sum())
        assert sequence.burn_in.tolist() == [True] * burnt + [False] * (len(actions) - burnt)
        assert burnt == min(burn_in, place + burnt)  # as many as there are
        whole = len(actions) - burnt == length
        assert whole or (len(actions) - burnt < length and place + len(actions) == len(run))
        assert int(sequence.t[burnt]) % stride == 0
        first = run[place]
        assert batch.state_in["0"][index].tolist() == [*first.obs.tolist()] * 2
        assert batch.next_state_in["0"][index].tolist() == [*first.next_obs.tolist()] * 2
        for row, action in enumerate(actions):
            summed = actions[row : row + n_step]
            expected = sum(0.9**power * reward_of(one) for power, one in enumerate(summed))
            assert sequence.rewards[row].item() == pytest.approx(expected, abs=1e-5)
            assert sequence.discounts[row].item() == pytest.approx(0.9 ** len(summed))
            assert sequence.bootstrap_rows[row].item() == offset + row + len(summed) - 1
            assert np.array_equal(sequence.next_obs[row], runs[action][0][runs[action][1]].next_obs)
            assert sequence.terminated[row].item() == runs[summed[-1]][0][runs[summed[-1]][1]].terminated
        trained += actions[burnt:]
        offset += len(actions)
    if stride == length:
        assert len(set(trained)) == len(trained)


def test_every_row_of_whole_episodes_is_trained_once_and_more_often_where_sequences_overlap() -> None:
    """Episodes of 7 steps, sequences of 3: starts at 0, 3, 6; with stride 1 the rows at t = 2 … 6 come three times."""
    for stride, expected in ((3, [1] * 7), (1, [1, 2, 3, 3, 3, 3, 3])):
        worker = RolloutWorker(EnvCreator(Counter, {"length": 7}), Silent(), num_envs=2, fragment_length=5)
        buffer = SequenceReplayBuffer(500, burn_in=2, length=3, stride=stride)
        for _ in range(16):  # 80 rows are ten episodes with their resets, to the row
            buffer.add(worker.sample())
        batch = all_sequences(buffer)
        times = batch.t[~batch.burn_in]
        assert torch.bincount(times.long()).tolist() == [count * 20 for count in expected]


class Silent:
    """Always the same action; a state that counts steps."""

    env_steps, prev_actions, prev_rewards, agents = 0, 1, 1, ()

    @property
    def policies(self) -> dict[str, Silent]:
        return {"default_policy": self}

    def eval(self) -> None: ...

    def seed_exploration(self, seed: int) -> None: ...

    def get_initial_state(self, batch_size: int) -> list[torch.Tensor]:
        return [torch.zeros(batch_size, 1)]

    def initial_previous_step(self, batch_size: int) -> dict[str, Any]:
        return {"prev_actions": torch.full((batch_size,), -1), "prev_rewards": torch.zeros(batch_size)}

    def compute_actions(self, obs: Any, state: Any, **_: Any) -> Any:
        return torch.ones(len(obs), dtype=torch.int64), [state[0] + 1], {}

    def env_actions(self, actions: torch.Tensor) -> np.ndarray:
        return actions.numpy()


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_a_recurrent_worker_records_the_initial_states_of_sequences(mode: AutoresetMode) -> None:
    """The state counts steps, so before a row it is its `t`; the reward before row t of the counter is t."""
    env = EnvCreator(Counter, {"length": 8})
    worker = RolloutWorker(env, Silent(), num_envs=3, fragment_length=5, mode=mode, vectorization="sync")
    buffer = SequenceReplayBuffer(300, burn_in=2, length=4)
    for index in range(20):
        if index == 7:
            worker.force_reset()
        buffer.add(worker.sample())
    batch = buffer.sample(16, np.random.default_rng(0))
    first = batch.seq_lens.cumsum(0) - batch.seq_lens
    assert_close(batch.state_in["0"][:, 0], batch.t[first].float())
    assert_close(batch.next_state_in["0"], batch.state_in["0"] + 1)
    assert torch.equal(batch.prev_rewards, batch.t.float())
    assert torch.equal(batch.next_prev_rewards, batch.t.float() + 1)
    assert torch.equal(batch.prev_actions == -1, batch.t == 0) and (batch.next_prev_actions == 1).all()


def test_rows_are_flat_and_ready_for_the_padding_of_models() -> None:
    stream, buffer = Stream(2, seed=1, longest=9), SequenceReplayBuffer(200, burn_in=1, length=4)
    for _ in range(10):
        buffer.add(stream.fragment(9))
    batch = buffer.sample(12, np.random.default_rng(2))
    assert batch.seq_lens.sum() == len(batch.rewards) == batch.count
    layout = padding(batch.seq_lens)
    assert layout is not None and len(layout.kept) == batch.count
    assert torch.equal(batch.actions[layout.rows][layout.kept], batch.actions)


@pytest.mark.parametrize(("masked", "left"), [(False, 2), (True, 1)])
def test_a_sequence_can_be_drawn_only_once_it_is_complete(masked: bool, left: int) -> None:
    """Of a running episode of 6 rows, the first four; a cut completes the others, less the one without a next mask."""
    stream, buffer = Stream(1, seed=0, masked=masked), SequenceReplayBuffer(50, burn_in=0, length=4)
    stream.longest = 10**6
    stream.cut()
    buffer.add(stream.fragment(6))
    assert all_sequences(buffer).seq_lens.tolist() == [4]
    stream.cut()
    buffer.add(stream.fragment(1))
    assert all_sequences(buffer).seq_lens.tolist() == [4, left]
