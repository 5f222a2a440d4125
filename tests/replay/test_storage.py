"""Estimates of a buffer's memory, and refusals before the buffer is filled."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
from lightning.pytorch import Trainer

from lightning_rl.data import RolloutDataModule
from lightning_rl.errors import ConfigError
from lightning_rl.policies import PPO
from lightning_rl.replay import storage
from lightning_rl.replay.buffer import ReplayBuffer
from lightning_rl.replay.storage import available_bytes, check_fits_memory, estimated_bytes
from tests.envs.classic_control import CARTPOLE
from tests.replay.streams import counted

PIXELS = gym.spaces.Box(0, 255, (4, 84, 84), np.uint8)


def test_a_million_stacked_frames_cost_seven_gigabytes_and_whole_ones_four_times_that() -> None:
    """84 · 84 bytes a frame, and 8 + 4 + 1 bytes for action, reward and flags."""
    actions = gym.spaces.Discrete(6)
    assert estimated_bytes(PIXELS, actions, 10**6) == pytest.approx((84 * 84 + 13) * 10**6, rel=1e-4)
    assert estimated_bytes(PIXELS, actions, 10**6, stack_frames=False) == pytest.approx(
        (4 * 84 * 84 + 13) * 10**6, rel=1e-4
    )


def test_color_channels_are_no_stack_of_frames() -> None:
    colors = gym.spaces.Box(0, 255, (64, 64, 3), np.uint8)
    assert estimated_bytes(colors, gym.spaces.Discrete(2), 1000) > 1000 * 64 * 64 * 3


def test_leaves_of_nested_spaces_add_up() -> None:
    box = gym.spaces.Box(-1, 1, (3,), np.float32)
    obs = gym.spaces.Dict({"a": box, "b": gym.spaces.Tuple([gym.spaces.Discrete(4), gym.spaces.MultiBinary(5)])})
    assert estimated_bytes(obs, box, 99) == 100 * (12 + 8 + 5 + 12 + 4 + 1)


def test_a_buffer_that_cannot_fit_is_refused_with_numbers_and_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "available_bytes", lambda place="memory": 10 * 2**30)
    with pytest.raises(ConfigError) as refused:
        check_fits_memory(18 * 2**30, capacity=1_000_000)
    for part in ("18.00 GiB", "10.00 GiB of memory", "data.capacity to 500000", "data.storage=<directory>"):
        assert part in str(refused.value)
    check_fits_memory(9 * 2**30, capacity=1_000_000)


def test_a_full_disk_is_refused_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(storage, "available_bytes", lambda place="memory": 1000)
    with pytest.raises(ConfigError, match=r"disk of .*data\.capacity$"):
        storage.Allocator(str(tmp_path))((1000,), np.float32)


def test_a_directory_that_cannot_be_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    under_a_file, too_long = str(tmp_path / "file" / "buffer"), str(tmp_path / (300 * "x"))
    for place, ask in (
        (under_a_file, lambda: storage.Allocator(under_a_file)((4,), np.float32)),
        (too_long, lambda: storage.Allocator(too_long)((4,), np.float32)),
        (too_long, lambda: available_bytes(too_long)),
    ):
        with pytest.raises(ConfigError, match="'memory'") as refusal:
            ask()
        assert str(refusal.value).startswith(f"data.storage='{place[:40]}") and "\n" not in str(refusal.value)


@pytest.mark.parametrize("moves", [False, True], ids=["from the first fragment on", "later"])
def test_images_that_are_no_stacks_after_all_are_refused_when_that_shows(
    monkeypatch: pytest.MonkeyPatch, moves: bool
) -> None:
    """1000 rows of 64 x 64 with 8 channels are 31 MiB, as stacks 4 MiB; 16 are there, and 8 of two such buffers."""
    monkeypatch.setattr(storage, "available_bytes", lambda place="memory": 16 * 2**20)
    noise = np.random.default_rng(0).integers(0, 256, (9, 1, 8, 64, 64), np.uint8)
    still = np.zeros_like(noise)
    buffer = ReplayBuffer(1000, parts=2)
    with pytest.raises(ConfigError, match=r"0\.06 GiB.*data\.capacity to \d+"):
        if moves:
            buffer.add(counted(8, obs=torch.from_numpy(still)))  # which may be a stack of what never changes
            assert buffer.nbytes < 5 * 2**20
        buffer.add(counted(8, obs=torch.from_numpy(noise)))


def test_available_memory_is_at_most_the_total_memory(tmp_path: Path) -> None:
    assert 2**20 < available_bytes() < 2**45
    assert available_bytes(str(tmp_path / "not" / "yet")) > 0


def test_fragments_that_the_memory_cannot_hold_are_refused_before_they_are_filled() -> None:
    """100,000 environments × 100,000 steps: 10¹⁰ rows of 29 bytes at least."""
    env = CARTPOLE
    data = RolloutDataModule(env, {"envs_per_worker": 100_000, "fragment_length": 100_000})
    trainer = Trainer(accelerator="cpu", logger=False, enable_progress_bar=False, enable_checkpointing=False)
    with pytest.raises(ConfigError, match=r"need 2\d\d\.\d GiB of memory; .* lower workers\.fragment_length"):
        trainer.fit(PPO(*env.spaces()), data)
