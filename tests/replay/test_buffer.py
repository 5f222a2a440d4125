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
from lightning_rl.replay.buffer import COLUMNS, ReplayBuffer, uniform
from lightning_rl.replay.ring import SAMPLEABLE
from lightning_rl.replay.storage import estimated_bytes
from lightning_rl.rollouts import RolloutWorker
from lightning_rl.sample_batch import SampleBatch
from tests.envs.classic_control import CARTPOLE
from tests.replay.streams import Stream, counted
from tests.rollouts.counting import Alternating, Counter


def in_order(buffer: ReplayBuffer) -> SampleBatch:
    """All rows that can be drawn, environment by environment, the oldest first."""
    assert buffer.ring is not None
    ids = buffer.ring.ids(np.flatnonzero(buffer.ring.flags >= SAMPLEABLE))
    env = ids % buffer.ring.num_envs
    return buffer.rows(ids[np.lexsort((ids, env))])


@pytest.mark.parametrize("cut", [False, True])
def test_no_n_step_sum_crosses_a_discontinuity(cut: bool) -> None:
    """Rewards 1 to 4 in two fragments, all observations equal, no `t`: three steps are summed, γ = 1.

    After `cut` the sums end at reward 2; without it the second fragment continues the episode.
    """
    buffer = ReplayBuffer(100, n_step=3, gamma=1.0)
    for start in (1, 3):
        buffer.add(counted(2, start, obs=torch.zeros(3, 1, 1)).without("t"))
        if cut:
            buffer.mark_discontinuity()
    assert in_order(buffer).rewards.tolist() == ([3.0, 2.0, 7.0, 4.0] if cut else [6.0, 9.0, 7.0, 4.0])


@pytest.mark.parametrize("end", [None, "terminated", "truncated"])
def test_n_step_sums_and_discounts_shorten_at_the_newest_row_and_at_ends(end: str | None) -> None:
    """1 + .9·2 + .81·3 = 5.23; the last rows sum two rewards and one.

    Random streams are compared with a plain list in test_properties.py.
    """
    fragment, buffer = counted(4, 1), ReplayBuffer(100, n_step=3, gamma=0.9)
    if end is not None:
        fragment[end][3] = True
    buffer.add(fragment)
    rows = in_order(buffer)
    assert_close(rows.rewards, torch.tensor([5.23, 7.94, 6.6, 4.0]))
    assert_close(rows.discounts, torch.tensor([0.729, 0.729, 0.81, 0.9]))
    assert rows.next_obs[:, 0].tolist() == [4, 5, 5, 5]
    assert rows.terminated.tolist() == [False, end == "terminated", end == "terminated", end == "terminated"]


def test_no_window_crosses_the_newest_row_of_a_ring_that_has_wrapped() -> None:
    """Ten slots for twelve rows: the row before the newest one sums two, though a third, ten steps older, is beside."""
    buffer = ReplayBuffer(10, n_step=3, gamma=0.99)
    buffer.add(counted(12))
    rows = in_order(buffer)
    assert len(rows) == 10
    assert_close(rows.discounts[-2].item(), 0.99**2, rtol=1e-6, atol=0)


# -- real workers -----------------------------------------------------------------------------------------------------
class Continuous(Alternating):
    """Acts in a box."""

    def compute_actions(self, obs: Any, state: Any, **_: Any) -> Any:
        return torch.from_numpy(np.sin(obs[:, :1] * 3).astype(np.float32)), [], {}

    def env_actions(self, actions: torch.Tensor) -> np.ndarray:
        return 2 * actions.numpy()


WORKERS = {
    "CartPole": (CARTPOLE, Alternating),
    "Pendulum": (EnvCreator("Pendulum-v1", max_episode_steps=17), Continuous),
    "Dict": (EnvCreator(Counter, {"length": 5, "nested": True, "terminates": False}), Alternating),
}


def worker_of(env: str, mode: AutoresetMode) -> RolloutWorker:
    creator, policy = WORKERS[env]
    return RolloutWorker(creator, policy(), num_envs=3, fragment_length=7, mode=mode, seed=5, vectorization="sync")


def leaves(value: Any) -> list[np.ndarray]:
    if isinstance(value, SampleBatch):
        return [leaf for _, child in value.items() for leaf in leaves(child)]
    return [value.numpy()]


STEP = ("actions", "rewards", "terminated")


def transitions_of(fragments: list[SampleBatch]) -> list[list[tuple[Any, ...]]]:
    """(obs, action, reward, terminated, next obs) of each step, by environment, straight out of the fragments."""
    envs: list[list[tuple[Any, ...]]] = [[] for _ in range(fragments[0].valid.shape[1])]
    for fragment in fragments:
        obs = leaves(fragment.obs)
        for step, env in fragment.valid.nonzero().tolist():
            before, after = ([leaf[at, env].tolist() for leaf in obs] for at in (step, step + 1))
            envs[env].append((before, *(fragment[name][step, env].tolist() for name in STEP), after))
    return envs


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("env", WORKERS)
def test_the_transitions_of_real_workers_come_back_whole(env: str, mode: AutoresetMode) -> None:
    """With cuts in between, no transition is lost, doubled or mixed with another."""
    source, fragments, buffer = worker_of(env, mode), [], ReplayBuffer(1000)
    for index in range(12):
        if index in (4, 5, 9):
            source.force_reset()
        fragments.append(source.sample())
        buffer.add(fragments[-1])
    rows = in_order(buffer)
    obs, end = leaves(rows.obs), leaves(rows.next_obs)
    expected = [row for rows in transitions_of(fragments) for row in rows]
    assert len(rows) == len(expected) > 200
    for i, (before, *step, after) in enumerate(expected):
        assert ([leaf[i].tolist() for leaf in obs], [leaf[i].tolist() for leaf in end]) == (before, after)
        assert [rows[name][i].tolist() for name in STEP] == step


@pytest.mark.parametrize("env", WORKERS)
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
def test_few_rows_among_many_slots_are_drawn_uniformly() -> None:
    flags = np.zeros(5000, np.uint8)
    flags[[7, 1000, 4999]] = 200
    places = uniform(flags, 128, 3, 3000, np.random.default_rng(1))
    assert set(places.tolist()) == {7, 1000, 4999}
    assert np.abs(np.unique(places, return_counts=True)[1] - 1000).max() < 130  # 5 standard deviations


def test_further_columns_come_with_every_draw() -> None:
    fragment = Stream(2).fragment(6)
    fragment["action_logp"] = -fragment.actions.float()
    buffer = ReplayBuffer(50, columns=(*COLUMNS, "action_logp"))
    buffer.add(fragment)
    batch = buffer.sample(5, np.random.default_rng(0))
    assert torch.equal(batch.action_logp, -batch.actions.float())


# -- storage and state ------------------------------------------------------------------------------------------------
def test_columns_keep_their_dtypes_and_sizes() -> None:
    """4 float32, an int64 and a float32 are 28 bytes a row; ends and book-keeping take 1 more."""
    buffer, small = ReplayBuffer(10_000), ReplayBuffer(10)
    buffer.add(counted(10, obs=torch.zeros(11, 1, 4)))
    assert buffer.nbytes == 10_001 * (16 + 8 + 4 + 1)
    small.add(counted(10, obs=torch.zeros(11, 1, 4, dtype=torch.uint8)))
    assert small.sample(2).obs.dtype == torch.uint8


# -- refusals ---------------------------------------------------------------------------------------------------------
def test_fragments_without_masks_are_stored_as_if_masks_allowed_everything() -> None:
    """An environment may give its first mask after the first fragment, and none in later ones."""
    late, early = (ReplayBuffer(60, n_step=2, seed=1) for _ in range(2))
    stream = Stream(2, masked=True)
    for number in range(8):
        fragment, bare = stream.fragment(5), number in (0, 1, 5)
        if bare:
            fragment["action_mask"] = torch.ones_like(fragment.action_mask)
        early.add(fragment)
        late.add(fragment.without("action_mask") if bare else fragment)
    stored: list[dict[int, Any]] = []
    for buffer in (late, early):
        rows = buffer.sample(40, np.random.default_rng(0))
        masks = zip(rows.action_mask.tolist(), rows.next_action_mask.tolist(), strict=True)
        stored.append(dict(zip(rows.actions.tolist(), masks, strict=True)))
    both = stored[0].keys() & stored[1].keys()  # each action is a number used once
    assert len(both) > 15 and all(stored[0][action] == stored[1][action] for action in both)
    assert any(False in mask for action in both for mask in stored[0][action])


def test_box_spaces_of_gymnasium_are_estimated_to_the_byte() -> None:
    for capacity, num_envs in ((1000, 1), (1000, 3)):
        buffer = ReplayBuffer(capacity)
        fragment = Stream(num_envs, with_t=False).fragment(6)
        buffer.add(fragment)
        box, actions = gym.spaces.Box(-1, 1, (2,), np.float32), gym.spaces.Discrete(3)
        assert estimated_bytes(box, actions, capacity, num_envs=num_envs) == buffer.nbytes
