"""ReplayBuffer: rows stored from real and synthetic fragments, and rows given back."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from torch.testing import assert_close

from lightning_rl.envs import EnvCreator
from lightning_rl.errors import CheckpointError, ConfigError
from lightning_rl.replay.buffer import COLUMNS, ReplayBuffer, uniform
from lightning_rl.replay.reservoir import ReservoirReplayBuffer
from lightning_rl.replay.ring import SAMPLEABLE
from lightning_rl.replay.storage import estimated_bytes
from lightning_rl.rollouts import RolloutWorker
from lightning_rl.sample_batch import SampleBatch
from tests.envs.classic_control import CARTPOLE
from tests.replay.streams import Stream
from tests.rollouts.counting import Alternating, Counter


def fragment_of(rewards: list[float], ends: dict[int, str] | None = None) -> SampleBatch:
    """One environment, NEXT_STEP form. An observation is the reward of its step; a final one that of the last step."""
    obs: list[float] = []
    rows: list[tuple[float, bool, bool, bool, int]] = []
    t = 0
    for index, reward in enumerate(rewards):
        end = (ends or {}).get(index, "")
        obs.append(reward)
        rows.append((reward, end == "terminated", end == "truncated", True, t))
        t += 1
        if end:
            obs.append(reward)
            rows.append((0.0, False, False, False, 0))
            t = 0
    if not rows[-1][3]:
        rows.pop()
    else:
        obs.append(-1.0)
    columns = zip(*rows, strict=True)
    names, types = ("rewards", "terminated", "truncated", "valid", "t"), (torch.float32, *[torch.bool] * 3, torch.int32)
    batch = SampleBatch(obs=torch.tensor(obs).view(-1, 1, 1), actions=torch.arange(len(rows)).view(-1, 1))
    for name, dtype, column in zip(names, types, columns, strict=True):
        batch[name] = torch.tensor(column, dtype=dtype).view(-1, 1)
    return batch


def in_order(buffer: ReplayBuffer) -> SampleBatch:
    """All rows that can be drawn, environment by environment, the oldest first."""
    assert buffer.ring is not None
    ids = buffer.ring.ids(np.flatnonzero(buffer.ring.flags >= SAMPLEABLE))
    env = ids % buffer.ring.num_envs
    return buffer.rows(ids[np.lexsort((ids, env))])


def rows_of(rewards: list[float], ends: dict[int, str] | None = None, **keywords: Any) -> SampleBatch:
    buffer = ReplayBuffer(keywords.pop("capacity", 100), **keywords)
    buffer.add(fragment_of(rewards, ends))
    return in_order(buffer)


@pytest.mark.parametrize("cut", [False, True])
def test_no_n_step_sum_crosses_a_discontinuity(cut: bool) -> None:
    """Rewards 1 to 4 in two fragments, all observations equal, no `t`: three steps are summed, γ = 1.

    After `cut` the sums end at reward 2; without it the second fragment continues the episode.
    """
    buffer = ReplayBuffer(100, n_step=3, gamma=1.0)
    for rewards in ([1.0, 2.0], [3.0, 4.0]):
        fragment = fragment_of(rewards).without("t")
        fragment["obs"] = torch.zeros_like(fragment.obs)
        buffer.add(fragment)
        if cut:
            buffer.mark_discontinuity()
    expected = [3.0, 2.0, 7.0, 4.0] if cut else [6.0, 9.0, 7.0, 4.0]
    assert in_order(buffer).rewards.tolist() == expected


# -- n-step golden numbers --------------------------------------------------------------------------------------------
def test_n_step_sums_and_discounts_shorten_at_the_newest_row() -> None:
    """1 + .9·2 + .81·3 = 5.23; the last rows sum two rewards and one."""
    rows = rows_of([1, 2, 3, 4], n_step=3, gamma=0.9)
    assert_close(rows.rewards, torch.tensor([5.23, 7.94, 6.6, 4.0]))
    assert_close(rows.discounts, torch.tensor([0.729, 0.729, 0.81, 0.9]))
    assert rows.next_obs[:, 0].tolist() == [4, -1, -1, -1] and not rows.terminated.any()


def test_n_step_sums_of_an_episode_that_terminates() -> None:
    """RLlib's test_postprocessing.py: γ .9, n 3."""
    rows = rows_of([10, 0, 100, 100, 100, 100, 100], {6: "terminated"}, n_step=3, gamma=0.9)
    assert_close(rows.rewards, torch.tensor([91.0, 171, 271, 271, 271, 190, 100]))
    assert rows.terminated.tolist() == [False] * 4 + [True] * 3
    assert_close(rows.discounts, 0.9 ** torch.tensor([3.0, 3, 3, 3, 3, 2, 1]))


def test_n_step_sums_of_two_rows_that_go_on() -> None:
    """RLlib's test_postprocessing.py: γ 1, n 3."""
    rows = rows_of([10, 100], n_step=3, gamma=1.0)
    assert rows.rewards.tolist() == [110, 100] and not rows.terminated.any()
    assert rows.next_obs[:, 0].tolist() == [-1, -1]


@pytest.mark.parametrize("end", ["terminated", "truncated"])
@pytest.mark.parametrize("last", [1, 2])
@pytest.mark.parametrize("n_step", [3, 5])
def test_an_end_stops_the_sum_and_only_termination_stops_the_value(n_step: int, last: int, end: str) -> None:
    """Stable-Baselines3's test_n_step_replay.py: every reward 1, an end at row 1 or 2."""
    rows = rows_of([1] * 10, {last: end}, n_step=n_step, gamma=0.99)
    assert_close(rows.rewards[0].item(), sum(0.99**i for i in range(last + 1)), rtol=1e-6, atol=0)
    assert_close(rows.discounts[0].item(), 0.99 ** (last + 1), rtol=1e-6, atol=0)
    assert rows.terminated[0].item() == (end == "terminated")


def test_no_window_crosses_the_newest_row_of_a_ring_that_has_wrapped() -> None:
    """Ten slots for twelve rows: the row before the newest one sums two, though a third, ten steps older, is beside."""
    rows = rows_of([1] * 12, n_step=3, gamma=0.99, capacity=10)
    assert len(rows) == 10
    assert_close(rows.discounts[-2].item(), 0.99**2, rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    ("n_step", "third", "expected"),
    [
        (1, "terminated", [2.6, 4, 4.4, 5.3, 6.2, 8, 8, 8.9, 9.8, 12]),
        (2, "terminated", [3.4, 4, 5.53, 6.62, 7.8, 8, 9.89, 10.98, 12.2, 12]),
        (10, "terminated", [3.4, 4, 5.678, 6.78, 7.8, 8, 10.122, 11.22, 12.2, 12]),
        (1, "truncated", [2.6, 3.6, 4.4, 5.3, 6.2, 8, 8, 8.9, 9.8, 12]),
        (2, "truncated", [3.36, 3.6, 5.53, 6.62, 7.8, 8, 9.89, 10.98, 12.2, 12]),
    ],
)
def test_n_step_targets_with_the_next_reward_as_a_cost_to_come(n_step: int, third: str, expected: list[float]) -> None:
    """Tianshou's test_returns.py: rewards 1 … 12, ends at 4, 8 and 12, γ .1, value −(reward that follows)."""
    ends = {3: third, 7: "terminated", 11: "terminated"}
    rows = rows_of([float(i) for i in range(1, 13)], ends, n_step=n_step, gamma=0.1)
    targets = rows.rewards - rows.discounts * ~rows.terminated * rows.next_obs[:, 0]
    assert_close(targets[2:], torch.tensor(expected))


# -- real workers -----------------------------------------------------------------------------------------------------
class Continuous(Alternating):
    """Acts in a box."""

    def compute_actions(self, obs: Any, state: Any, **_: Any) -> Any:
        return torch.from_numpy(np.sin(obs[:, :1] * 3).astype(np.float32)), [], {}

    def env_actions(self, actions: torch.Tensor) -> np.ndarray:
        return 2 * actions.numpy()


def worker_of(env: str, mode: AutoresetMode) -> RolloutWorker:
    creator = {
        "CartPole": CARTPOLE,
        "Pendulum": EnvCreator("Pendulum-v1", max_episode_steps=17),
        "Dict": EnvCreator(Counter, {"length": 5, "nested": True, "terminates": False}),
    }[env]
    policy = Continuous() if env == "Pendulum" else Alternating()
    return RolloutWorker(creator, policy, num_envs=3, fragment_length=7, mode=mode, seed=5, vectorization="sync")


def leaves(value: Any) -> list[np.ndarray]:
    if isinstance(value, SampleBatch):
        return [leaf for _, child in value.items() for leaf in leaves(child)]
    return [value.numpy()]


def transitions_of(fragments: list[SampleBatch]) -> list[list[tuple[Any, ...]]]:
    """(obs, action, reward, terminated, next obs) of each step, by environment, straight out of the fragments."""
    envs: list[list[tuple[Any, ...]]] = [[] for _ in range(fragments[0].valid.shape[1])]
    for fragment in fragments:
        obs = leaves(fragment.obs)
        for step, env in fragment.valid.nonzero().tolist():
            before, after = ([leaf[at, env].tolist() for leaf in obs] for at in (step, step + 1))
            row = [fragment[name][step, env].tolist() for name in ("actions", "rewards", "terminated")]
            envs[env].append((before, *row, after))
    return envs


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("env", ["CartPole", "Pendulum", "Dict"])
def test_the_transitions_of_real_workers_come_back_whole(env: str, mode: AutoresetMode) -> None:
    """With cuts in between, no transition is lost, doubled or mixed with another."""
    source, fragments, buffer = worker_of(env, mode), [], ReplayBuffer(1000)
    for index in range(12):
        if index in (4, 5, 9):
            source.force_reset()
        fragments.append(source.sample())
        buffer.add(fragments[-1])
    expected = [row for rows in transitions_of(fragments) for row in rows]
    rows = in_order(buffer)
    obs, after = leaves(rows.obs), leaves(rows.next_obs)
    found = [
        (
            [leaf[i].tolist() for leaf in obs],
            *(rows[name][i].tolist() for name in ("actions", "rewards", "terminated")),
            [leaf[i].tolist() for leaf in after],
        )
        for i in range(len(rows))
    ]
    assert len(found) > 200 and found == expected


@pytest.mark.parametrize("env", ["CartPole", "Pendulum", "Dict"])
def test_the_ring_is_the_same_whatever_the_autoreset_mode(env: str) -> None:
    """The 5-step returns of the first steps, too: a row of padding is no end."""
    taken = []
    for mode in AutoresetMode:
        source, buffer = worker_of(env, mode), ReplayBuffer(1000, n_step=5)
        for _ in range(12):
            buffer.add(source.sample())
        assert buffer.ring is not None
        ids = buffer.ring.ids(np.flatnonzero(buffer.ring.flags >= SAMPLEABLE))
        taken.append(buffer.rows(ids[ids % 3 == 1]))
    shortest = min(map(len, taken)) - 5
    assert shortest > 40
    for other in taken[1:]:
        for name in ("rewards", "discounts", "terminated"):
            assert_close(other[name][:shortest], taken[0][name][:shortest], rtol=0, atol=0)
        for one, two in zip(leaves(other.next_obs), leaves(taken[0].next_obs), strict=True):
            assert np.array_equal(one[:shortest], two[:shortest])


# -- drawing ----------------------------------------------------------------------------------------------------------
def buffer_of_a_stream(capacity: int = 60, fragments: int = 30, **keywords: Any) -> ReplayBuffer:
    stream, buffer = Stream(2, seed=3, longest=4), ReplayBuffer(capacity, **keywords)
    for _ in range(fragments):
        buffer.add(stream.fragment(5))
    return buffer


def test_draws_are_uniform_over_the_rows_that_can_be_drawn() -> None:
    """χ² of 200 draws a row, of a ring a third of whose slots are none; α = 10⁻⁶."""
    buffer = buffer_of_a_stream()
    assert len(buffer) < 0.9 * buffer.slots
    generator = np.random.default_rng(0)
    drawn = np.concatenate([buffer.sample(len(buffer), generator).actions.numpy() for _ in range(200)])
    _, counts = np.unique(drawn, return_counts=True)
    assert len(counts) == len(buffer)
    chi, freedom = ((counts - 200) ** 2 / 200).sum(), len(buffer) - 1
    assert abs(chi - freedom) < 5 * np.sqrt(2 * freedom)


def test_few_rows_among_many_slots_are_drawn_uniformly() -> None:
    flags = np.zeros(5000, np.uint8)
    flags[[7, 1000, 4999]] = 200
    places = uniform(flags, 128, 3, 3000, np.random.default_rng(1))
    assert set(places.tolist()) == {7, 1000, 4999}
    assert np.abs(np.unique(places, return_counts=True)[1] - 1000).max() < 130  # 5 standard deviations


def test_the_same_generator_draws_the_same_rows() -> None:
    buffer = buffer_of_a_stream()
    first, second = (buffer.sample(40, np.random.default_rng(9)).actions for _ in range(2))
    assert torch.equal(first, second)
    assert not torch.equal(first, buffer.sample(40, np.random.default_rng(10)).actions)


def test_indexes_name_rows_until_these_are_overwritten() -> None:
    buffer, stream = ReplayBuffer(40), Stream(2, seed=1)
    buffer.add(stream.fragment(15))
    batch = buffer.sample(8, np.random.default_rng(0))
    assert torch.equal(buffer.rows(batch.batch_indexes).actions, batch.actions)
    for _ in range(5):
        buffer.add(stream.fragment(10))
    assert buffer.ring is not None and not buffer.ring.locate(batch.batch_indexes.numpy())[1].any()
    with pytest.raises(ValueError, match="8 of these"):
        buffer.rows(batch.batch_indexes)


def test_further_columns_come_with_every_draw() -> None:
    fragment = Stream(2).fragment(6)
    fragment["action_logp"] = -fragment.actions.float()
    buffer = ReplayBuffer(50, columns=(*COLUMNS, "action_logp"))
    buffer.add(fragment)
    batch = buffer.sample(5, np.random.default_rng(0))
    assert torch.equal(batch.action_logp, -batch.actions.float())


def test_a_row_can_be_drawn_once_the_next_mask_is_known() -> None:
    """One step: its next observation is there, its next mask is not. The next fragment brings it."""
    stream = Stream(1, seed=0, longest=50, masked=True)
    buffer = ReplayBuffer(50)
    first = stream.fragment(3)
    buffer.add(first)
    assert len(buffer) == 2
    second = stream.fragment(1)
    buffer.add(second)
    assert len(buffer) == 3
    assert torch.equal(in_order(buffer).next_action_mask[2], second.action_mask[0, 0])


# -- storage and state ------------------------------------------------------------------------------------------------
def test_columns_keep_their_dtypes_and_sizes() -> None:
    """4 float32, an int64 and a float32 are 28 bytes a row; ends and book-keeping take 1 more."""
    buffer = ReplayBuffer(10_000)
    fragment = fragment_of([1.0] * 10)
    fragment["obs"] = torch.zeros(11, 1, 4)
    buffer.add(fragment)
    assert buffer.nbytes == 10_001 * (16 + 8 + 4 + 1)
    fragment["obs"] = torch.zeros(11, 1, 4, dtype=torch.uint8)
    small = ReplayBuffer(10)
    small.add(fragment)
    assert small.sample(2).obs.dtype == torch.uint8


def test_a_buffer_in_files_samples_the_same_rows_as_one_in_memory(tmp_path: Any) -> None:
    in_memory, in_files = buffer_of_a_stream(n_step=3), buffer_of_a_stream(n_step=3, storage=str(tmp_path / "replay"))
    first, second = (buffer.sample(40, np.random.default_rng(4)) for buffer in (in_memory, in_files))
    for name in first:
        assert torch.equal(first[name], second[name])
    assert list((tmp_path / "replay").iterdir()) == []  # the files have no names, so none is left behind


def test_a_loaded_buffer_goes_on_bit_by_bit() -> None:
    """Into another storage, in the middle of an episode, after the ring has wrapped."""
    stream, buffer = Stream(2, seed=3), ReplayBuffer(31, n_step=2)
    for _ in range(9):
        buffer.add(stream.fragment(5))
    other = ReplayBuffer(31, n_step=2)
    other.load_state_dict(buffer.state_dict())
    for _ in range(3):
        fragment = stream.fragment(4)
        drawn = []
        for each in (buffer, other):
            each.add(fragment)
            drawn.append(each.sample(20))
        for name in drawn[0]:
            assert torch.equal(drawn[0][name], drawn[1][name])
    assert buffer.stats() == other.stats()


# -- refusals ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("keywords", [{"capacity": 0}, {"n_step": 0}, {"gamma": 1.1}, {"obs_frames": "all"}])
def test_numbers_out_of_range_are_refused(keywords: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"{next(iter(keywords))}="):
        ReplayBuffer(**{"capacity": 10, **keywords})


def test_more_rows_than_there_are_cannot_be_drawn() -> None:
    with pytest.raises(ConfigError, match="learning_starts"):
        ReplayBuffer(10).sample(1)
    with pytest.raises(ConfigError, match="cannot draw 61 "):
        buffer_of_a_stream(fragments=3).sample(61)


def test_a_batch_that_is_no_fragment_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"\[T, B, …\]"):
        ReplayBuffer(10).add(SampleBatch(obs=torch.zeros(3, 2), actions=torch.zeros(3)))


def test_an_end_without_its_final_observation_is_refused() -> None:
    fragment = fragment_of([1.0, 2.0, 3.0])
    fragment["terminated"][1] = True
    with pytest.raises(ConfigError, match="episode's end"):
        ReplayBuffer(10).add(fragment)


@pytest.mark.parametrize("buffer_class", [ReplayBuffer, ReservoirReplayBuffer])
def test_fragments_without_masks_are_stored_as_if_masks_allowed_everything(buffer_class: type[ReplayBuffer]) -> None:
    """An environment may give its first mask after the first fragment, and none in later ones."""
    late, early = (buffer_class(60, n_step=2, seed=1) for _ in range(2))
    stream = Stream(2, masked=True)
    for number in range(8):
        fragment = stream.fragment(5)
        if number in (0, 1, 5):
            fragment["action_mask"] = torch.ones_like(fragment.action_mask)
            early.add(fragment)
            late.add(fragment.without("action_mask"))
        else:
            early.add(fragment)
            late.add(fragment)
    stored: list[dict[int, Any]] = []
    for buffer in (late, early):
        rows = buffer.sample(40, np.random.default_rng(0))
        masks = zip(rows.action_mask.tolist(), rows.next_action_mask.tolist(), strict=True)
        stored.append(dict(zip(rows.actions.tolist(), masks, strict=True)))
    both = stored[0].keys() & stored[1].keys()  # each action is a number used once
    assert len(both) > 15 and all(stored[0][action] == stored[1][action] for action in both)
    assert any(False in mask for action in both for mask in stored[0][action])


@pytest.mark.parametrize("change", ["environments", "shape", "type", "column"])
def test_a_fragment_of_something_else_is_refused(change: str) -> None:
    buffer = ReplayBuffer(50, columns=(*COLUMNS, "weights"))
    buffer.add(Stream(2).fragment(4))
    other = Stream(3 if change == "environments" else 2).fragment(4)
    if change == "column":
        other["weights"] = torch.ones(4, 2)
    if change in ("shape", "type"):
        other["obs"] = other.obs[..., :1] if change == "shape" else other.obs.double()
    with pytest.raises(ConfigError, match=r"2 environments with obs float32\[2\]"):
        buffer.add(other)
    assert buffer.added == 8 - int((~Stream(2).fragment(4).valid).sum())


def test_a_state_of_another_capacity_or_of_other_spaces_is_refused() -> None:
    state = buffer_of_a_stream().state_dict()
    with pytest.raises(CheckpointError, match="capacity=60, this one 61"):
        ReplayBuffer(61).load_state_dict(state)
    other = ReplayBuffer(60)
    fragment = Stream(2).fragment(4)
    fragment["obs"] = fragment.obs.double()
    other.add(fragment)
    with pytest.raises(CheckpointError, match=r"obs float32\[2\].*this one.*obs float64\[2\]"):
        other.load_state_dict(state)


def test_a_fresh_buffer_takes_the_columns_of_the_checkpoint_and_refuses_other_fragments() -> None:
    fresh = ReplayBuffer(60)
    fresh.load_state_dict(buffer_of_a_stream().state_dict())
    fragment = Stream(2).fragment(4)
    fragment["obs"] = fragment.obs.double()
    with pytest.raises(ConfigError, match="this fragment"):
        fresh.add(fragment)


def test_box_spaces_of_gymnasium_are_estimated_to_the_byte() -> None:
    for capacity, num_envs in ((1000, 1), (1000, 3)):
        buffer = ReplayBuffer(capacity)
        fragment = Stream(num_envs, with_t=False).fragment(6)
        buffer.add(fragment)
        box, actions = gym.spaces.Box(-1, 1, (2,), np.float32), gym.spaces.Discrete(3)
        assert estimated_bytes(box, actions, capacity, num_envs=num_envs) == buffer.nbytes
