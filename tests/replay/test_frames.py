"""Frame stacks: each frame is stored once, and stacks come back as they were."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode

from lightning_rl.envs import EnvCreator
from lightning_rl.policies import RandomPolicy
from lightning_rl.replay.buffer import ReplayBuffer
from lightning_rl.replay.columns import FramesColumn, Layout
from lightning_rl.replay.frames import Stack, find_stack
from lightning_rl.rollouts import RolloutWorker
from lightning_rl.sample_batch import SampleBatch
from tests.refusals import not_refused
from tests.replay.contents import everything
from tests.replay.streams import Stream


class Clock(gym.Env[Any, int]):
    """A screen that changes with every step, for episodes of 9 steps; the last axis of a Dict's image counts frames."""

    def __init__(self, last: bool = True) -> None:
        self.last = last
        shape = (5, 6, 3) if last else (3, 5, 6)
        image = gym.spaces.Box(0, 255, shape, np.uint8)
        self.observation_space = gym.spaces.Dict({"image": image, "t": gym.spaces.Box(0, 99, (1,), np.float32)})
        self.action_space = gym.spaces.Discrete(2)

    def _obs(self) -> dict[str, Any]:
        frames = np.stack(self.frames[-3:], axis=-1 if self.last else 0)
        return {"image": frames, "t": np.array([len(self.frames)], np.float32)}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.frames = [self.np_random.integers(0, 256, (5, 6), dtype=np.uint8)] * 3
        return self._obs(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.frames.append(self.np_random.integers(0, 256, (5, 6), dtype=np.uint8))
        return self._obs(), 1.0, len(self.frames) == 12, False, {}


def both(worker: RolloutWorker, fragments: int, cuts: tuple[int, ...] = (), **keywords: Any) -> list[SampleBatch]:
    """All rows that a buffer of frames and one of whole images have in common, of each."""
    columns = ("obs", "actions", "action_logp")
    buffers = [ReplayBuffer(stack_frames=stacks, columns=columns, **keywords) for stacks in (True, False)]
    for index in range(fragments):
        if index in cuts:
            worker.force_reset()
        fragment = worker.sample()
        fragment["action_logp"] = torch.arange(fragment.valid.numel()).view_as(fragment.valid) + index * 1000.0
        for buffer in buffers:
            buffer.add(fragment)
    assert buffers[0].nbytes < 0.7 * buffers[1].nbytes
    rows = [batch[batch.action_logp.argsort()] for batch in map(everything, buffers)]
    common = np.intersect1d(*(batch.action_logp.numpy() for batch in rows))
    assert len(common) > 0.8 * len(rows[1])
    return [batch[np.searchsorted(batch.action_logp.numpy(), common)] for batch in rows]


def equal(one: Any, two: Any) -> bool:
    if isinstance(one, SampleBatch):
        return all(equal(child, two[name]) for name, child in one.items())
    return torch.equal(one, two)


GAMES = {  # environment, settings of the worker, and of both buffers; all rings wrap
    **{
        f"nested, last={last}, {mode.name}": (
            *(EnvCreator(Clock, {"last": last}), {"fragment_length": 5, "vectorization": "sync", "mode": mode}),
            {"fragments": 20, "cuts": (3, 9), "capacity": 100, "n_step": 2},
        )
        for last in (False, True)
        for mode in AutoresetMode
    },
    **{
        f"pong, {vectorization}, {n_step}": (
            *(EnvCreator("ALE/Pong-v5", {"noop_max": 5}), {"fragment_length": 16, "vectorization": vectorization}),
            {"fragments": 8, "cuts": (3,), "capacity": 150, "n_step": n_step},
        )
        for vectorization in ("sync", "native")
        for n_step in (1, 3)
    },
    **{
        f"breakout, {mode.name}": (  # where a life ends an episode and the picture goes on
            EnvCreator("ALE/Breakout-v5", {"noop_max": 5, "dim": 36}),
            {"fragment_length": 20, "vectorization": "sync", "mode": mode},
            {"fragments": 14, "capacity": 400},
        )
        for mode in (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP)
    },
}


@pytest.mark.parametrize("game", GAMES)
def test_frames_come_back_as_whole_images_do(game: str) -> None:
    """Nested ones, in either layout; cut in the middle of an episode."""
    env, settings, given = GAMES[game]
    if "nested" not in game:
        pytest.importorskip("ale_py")
        pytest.importorskip("cv2")
    framed, whole = both(RolloutWorker(env, RandomPolicy(*env.spaces()), num_envs=2, **settings), **given)
    for name in ("obs", "next_obs", "rewards", "discounts", "actions", "terminated"):
        assert equal(framed[name], whole[name])
    assert "breakout" not in game or whole.terminated.sum() > 1
    assert "pong" not in game or (framed.obs.shape[1:] == (4, 84, 84) and framed.obs.float().std() > 1)


def test_a_row_of_stacked_frames_costs_one_frame() -> None:
    """Within 5 % of 84 · 84 bytes and the small columns, for episodes of some hundred steps."""
    stream, frame = Stream(1, longest=400, frames=4), 2 * 4
    buffer = ReplayBuffer(2000)
    for _ in range(50):
        buffer.add(stream.fragment(50))
    assert buffer.nbytes / len(buffer) < 1.05 * (frame + 8 + 4 + 1)


def test_images_that_do_not_move_on_are_kept_whole() -> None:
    obs = torch.randint(0, 256, (7, 2, 4, 5, 8), dtype=torch.uint8)
    fragment = Stream(2, longest=50).fragment(6)
    fragment["obs"] = obs
    buffer = ReplayBuffer(20)
    buffer.add(fragment)
    assert buffer.ring is not None and not buffer.ring.columns.frames
    assert equal(everything(buffer).next_obs, obs[1:].flatten(0, 1))


def test_blank_screens_do_not_decide_whether_images_are_frame_stacks() -> None:
    """Four equal channels would be a stack of frames that stands still; then it turns out that they are none."""
    stream, buffer = Stream(1, longest=50), ReplayBuffer(30)
    first, second = stream.fragment(3), stream.fragment(3)
    first["obs"] = torch.zeros(4, 1, 4, 5, 8, dtype=torch.uint8)
    second["obs"] = torch.randint(1, 256, (4, 1, 4, 5, 8), dtype=torch.uint8)
    second["obs"][0] = 0
    buffer.add(first)
    assert buffer.ring is not None and buffer.ring.columns.frames
    buffer.add(second)
    assert not buffer.ring.columns.frames
    assert equal(everything(buffer).obs, torch.cat([first.obs[:3, 0], second.obs[:3, 0]]))


def test_stacks_that_stop_moving_on_and_a_wrong_number_of_frames_are_refused() -> None:
    stream, buffer = Stream(1, longest=50, frames=4), ReplayBuffer(30)
    fragment, other = stream.fragment(5), stream.fragment(5)
    buffer.add(fragment)
    other["obs"][3] += 1
    cases = [(buffer, other, "'obs'.*stack_frames=False")]
    assert not_refused(ReplayBuffer.add, cases) == [] and len(buffer) == 5


def test_stacks_of_color_frames_are_counted_in_frames_not_channels() -> None:
    """Twelve channels are four frames of three colors, not twelve frames."""
    colors = torch.randint(0, 256, (20, 3, 5, 6), dtype=torch.uint8)
    obs = torch.stack([colors[i : i + 4].flatten(0, 1) for i in range(16)])
    stack = find_stack(obs[:, None].numpy(), np.ones((15, 1), bool))
    assert stack == Stack(4, (12, 5, 6))


def test_a_pair_of_stacks_shares_its_frames() -> None:
    """K + 1 frames are gathered for both, and the next one is the later view."""
    layout = Layout(("obs",), (4, 2, 2), np.dtype(np.uint8), Stack(4, (4, 2, 2)))
    column = FramesColumn(layout, 10, 1, np.zeros)
    column.array[:] = np.arange(10, dtype=np.uint8)[:, None, None, None]
    obs, next_obs = column.read_pair(np.array([3, 1]))
    assert obs[:, :, 0, 0].tolist() == [[0, 1, 2, 3], [8, 9, 0, 1]]
    assert next_obs[:, :, 0, 0].tolist() == [[1, 2, 3, 4], [9, 0, 1, 2]]
    assert np.shares_memory(obs, next_obs)
