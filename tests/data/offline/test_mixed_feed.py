"""Batches of recorded and of collected rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from lightning_rl.data.offline.data_set import read_episodes
from lightning_rl.data.offline.mixed_feed import MixedReplayFeed
from lightning_rl.errors import ConfigError
from tests.data.offline.recorded import record
from tests.data.small_runs import REPLAY, fit
from tests.envs.classic_control import CARTPOLE
from tests.run_comparison import assert_equal, everything


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("data")
    record(directory, CARTPOLE, seed=9)
    return directory


def test_each_gradient_step_has_its_shares_of_both(tmp_path: Path, data: Path) -> None:
    """Of 16 rows 12 are collected and 4 recorded, in each of the steps that are drawn at once."""
    given = f"data.input={{{data}: 0.25, sampler: 0.75}}"
    policy, datamodule = fit(tmp_path, *REPLAY, "data=mixed", given, "total_env_steps=64")
    assert policy.gradient_steps == policy.env_steps - 32
    feed = datamodule.source
    rows = feed.draw(steps=3).obs.reshape(3, 16, 4)
    recorded = feed._data[str(data)].buffer.ring.columns.array("obs")
    is_recorded = (rows[:, :, None] == torch.from_numpy(recorded)).all(-1).any(-1)
    assert is_recorded.tolist() == [[False] * 12 + [True] * 4] * 3


def test_the_share_of_the_sampler_follows_its_schedule(tmp_path: Path, data: Path) -> None:
    """From 0 to 1 in 64 env steps: of 16 rows, 4 are collected after 16 steps, and 15.5 ≈ 16 after 62."""
    given = [f"data.input={{{data}: 1.0}}", "data.sampler_share=[[0, 0.0], [100%, 1.0]]"]
    policy, datamodule = fit(tmp_path, *REPLAY, "data=mixed", *given, "total_env_steps=64")
    feed = datamodule.source
    recorded = feed._data[str(data)].buffer.ring.columns.array("obs")
    counts = {}
    for env_steps in (0, 16, 62, 80):
        policy.env_steps = env_steps
        rows = feed.draw(steps=2).obs.reshape(2, 16, 4)
        counts[env_steps] = (rows[:, :, None] != torch.from_numpy(recorded)).any(-1).all(-1).sum(1).tolist()
    assert counts == {0: [0, 0], 16: [4, 4], 62: [16, 16], 80: [16, 16]}


def test_n_steps_and_n_more_after_a_resume_equal_2n_steps(tmp_path: Path, data: Path) -> None:
    keys = [*REPLAY, "data=mixed", f"data.input={{{data}: 0.5, sampler: 0.5}}", "policy.lr=1e-3"]
    keys += ["exploration.epsilon_timesteps=100"]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    fit(whole, "total_env_steps=128", "checkpoint.every_env_steps=64", *keys)
    fit(parts, "total_env_steps=64", *keys)
    fit(parts, "total_env_steps=128", *keys, resume=True)
    assert_equal(everything(whole), everything(parts))


def test_actions_of_a_file_are_stored_as_they_are_if_they_are_in_the_policy_s_space(tmp_path: Path) -> None:
    """As RLlib writes them: without data.actions_normalized, ±1 of Pendulum's ±2 is stored as ±0.5."""
    actions = np.resize([-1.0, 1.0], 100).astype(np.float32)
    columns = {"obs": np.zeros((100, 3), np.float32), "actions": actions, "rewards": np.zeros(100)}
    np.savez(tmp_path / "log.npz", **columns, next_obs=columns["obs"])
    keys = ["policy=sac", "env=pendulum", "data=mixed", f"data.input={{{tmp_path / 'log.npz'}: 0.5, sampler: 0.5}}"]
    size = ["data.batch_size=16", "data.learning_starts=32", "total_env_steps=64"]
    policy, datamodule = fit(tmp_path / "run", *keys, *size, "data.actions_normalized=true")
    (recorded,) = datamodule.source._data.values()
    assert set(recorded.buffer.ring.columns.array("actions")[:100].ravel().tolist()) == {-1.0, 1.0}
    episodes = read_episodes(policy, str(tmp_path / "log.npz"), actions_normalized=True)
    assert set(episodes.actions[episodes.valid].ravel().tolist()) == {-1.0, 1.0}


@pytest.mark.parametrize("shares", [{}, {"a": 1.0}, {"a": 0.5, "sampler": 0.6}, {"a": 0.5, "b": 0.5}])
def test_shares_that_do_not_fit_are_refused(shares: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=r"expected shares that sum to 1, such as"):
        MixedReplayFeed(input=shares)


@pytest.mark.parametrize("shares", [{}, {"a": 0.5}, {"a": 0.5, "sampler": 0.5}])
def test_a_scheduled_share_leaves_the_rest_to_the_data(shares: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=r"or \{DIR: 1\.0\} with data\.sampler_share"):
        MixedReplayFeed(input=shares, sampler_share=0.5)


def test_a_share_of_a_batch_is_whole_rows(tmp_path: Path, data: Path) -> None:
    with pytest.raises(ConfigError, match=r"0\.3 of data\.batch_size=16 on 1 ranks are 4\.8 rows"):
        fit(tmp_path, *REPLAY, "data=mixed", f"data.input={{{data}: 0.3, sampler: 0.7}}", "total_env_steps=64")
