"""Episodes in TensorBoard's Images tab and in files: on a schedule, and without changing the training."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch.loggers import TensorBoardLogger as LightningTensorBoardLogger
from PIL import Image

from lightning_rl.callbacks import CSVLogger, LogHistograms, RecordVideo, TensorBoardLogger
from lightning_rl.callbacks.rendering.video_files import has_mp4
from lightning_rl.data import RolloutDataModule
from lightning_rl.envs.creator import EnvCreator
from lightning_rl.errors import ConfigError
from lightning_rl.policies import PPO
from lightning_rl.runs.algorithm import Algorithm
from tests.callbacks.log_files import curve, events_of
from tests.callbacks.small_run import small_trainer
from tests.refusals import not_refused
from tests.run_comparison import assert_equal

SMALL = {"fragment_length": 64}


def fit(directory: Path, *callbacks: Any, epochs: int = 3, logger: Any = None, env: Any = "CartPole-v1") -> PPO:
    """Train for `epochs` evaluations, 128 env steps apart."""
    policy = PPO(*EnvCreator.from_spec(env).spaces(), minibatches=2, passes=1, seed=0)
    data = RolloutDataModule(env, SMALL, {"every_env_steps": 128, "episodes": 1})
    logger = TensorBoardLogger(directory / "tb") if logger is None else logger
    options = {"max_epochs": epochs, "plugins": None, "num_sanity_val_steps": 2}
    small_trainer(directory, callbacks, logger, **options).fit(policy, datamodule=data)
    return policy


def images(directory: Path) -> list[Any]:
    events = events_of(directory, "images")
    return events.Images("episode") if "episode" in events.Tags()["images"] else []


def test_an_episode_moves_in_tensorboard_at_each_multiple(tmp_path: Path):
    fit(tmp_path, RecordVideo(every_env_steps=128, side=100, file="gif"))
    shown = images(tmp_path / "tb")
    assert [event.step // 128 for event in shown] == [1, 2, 3]  # the first iterations past the multiples
    for event in shown:
        gif = Image.open(io.BytesIO(event.encoded_image_string))
        assert gif.n_frames > 4 and gif.size == (event.width, event.height) == (100, 67 + 18)
        assert (tmp_path / "videos" / f"step_{event.step:09d}.gif").read_bytes() == event.encoded_image_string
    # A frame for each second of 50 steps per second, so 25 frames of 40 ms.
    assert Image.open(io.BytesIO(shown[0].encoded_image_string)).info["duration"] == 40


def test_recording_changes_neither_the_training_nor_its_speed(tmp_path: Path):
    """Episodes are recorded between iterations: the env steps of the measured speed are those of training alone."""
    plain = fit(tmp_path / "plain", epochs=2)
    recorded = fit(tmp_path / "recorded", RecordVideo(every_env_steps=64), epochs=2)
    assert_equal(plain.state_dict(), recorded.state_dict())
    for tag in ("rollout/ep_rew_mean", "rollout/episodes"):
        first, second = (curve(tmp_path / name / "tb", tag) for name in ("plain", "recorded"))
        assert first == second


def test_a_long_episode_is_cut(tmp_path: Path):
    fit(tmp_path, RecordVideo(every_env_steps=128, max_steps=4, fps=10), epochs=1)
    gif = Image.open(io.BytesIO(images(tmp_path / "tb")[0].encoded_image_string))
    assert (gif.n_frames, gif.info["duration"]) == (5, 100)


def test_lightnings_own_logger_shows_it_too(tmp_path: Path):
    fit(tmp_path, RecordVideo(every_env_steps=128), epochs=1, logger=LightningTensorBoardLogger(tmp_path, "tb", ""))
    # The first iteration past 128; rows of resets are no env steps.
    assert [event.step for event in images(tmp_path / "tb")] == [184]


def test_what_cannot_be_recorded_is_refused_before_training(tmp_path: Path):
    cases = [
        ({"every_env_steps": 0}, "CartPole-v1", "RecordVideo.every_env_steps=0"),
        ({"file": "avi"}, "CartPole-v1", r"RecordVideo.file='avi'.*mp4"),
        ({}, "lightning_rl.envs.toy_tasks:RepeatAfterMe", "RecordVideo needs pictures"),
    ]
    assert not_refused(lambda keywords, env: fit(tmp_path, RecordVideo(**keywords), env=env), cases) == []
    assert not (tmp_path / "videos").exists()


def test_without_tensorboard_a_file_is_needed(tmp_path: Path):
    logger = CSVLogger(tmp_path / "metrics.csv")
    with pytest.raises(ConfigError, match="RecordVideo"):
        fit(tmp_path, RecordVideo(), logger=logger)
    with pytest.raises(ConfigError, match="LogHistograms writes to TensorBoard"):
        fit(tmp_path, LogHistograms(), logger=logger)
    fit(tmp_path, RecordVideo(every_env_steps=128, file="gif"), logger=logger, epochs=1)
    assert [file.name for file in (tmp_path / "videos").iterdir()] == ["step_000000184.gif"]


@pytest.mark.skipif(not has_mp4(), reason='pip install -e ".[video]"')
def test_mp4_files_are_written_beside_the_gifs_in_tensorboard(tmp_path: Path):
    fit(tmp_path, RecordVideo(every_env_steps=128, file="mp4"), epochs=1)
    assert [file.name for file in (tmp_path / "videos").iterdir()] == ["step_000000184.mp4"]
    assert len(images(tmp_path / "tb")) == 1


def test_several_agents_are_recorded_and_have_histograms_of_each_policy(tmp_path: Path):
    """As entries of a config, with shares of the run."""
    entries = [
        {"callback": "lightning_rl.callbacks.RecordVideo", "every_env_steps": "50%", "side": 64},
        {"callback": "lightning_rl.callbacks.LogHistograms", "every_env_steps": "50%", "weights": False},
    ]
    config = {"total_env_steps": 200, "callbacks": entries, "workers": {**SMALL, "envs_per_worker": 1}}
    overrides = ["logger=tensorboard", f"run_dir={tmp_path / 'run'}"]
    algorithm = Algorithm("ppo", env="mpe2.simple_tag_v3", config=config, overrides=overrides)
    while algorithm.train()["env_steps"] < 200:
        pass
    algorithm.stop()
    assert [event.step // 100 for event in images(tmp_path / "run" / "tb")] == [1, 2]
    tags = events_of(tmp_path / "run" / "tb", "histograms").Tags()["histograms"]
    policies = {tag.split("/")[1] for tag in tags if tag.startswith("actions/")}
    assert len(policies) == 2  # hunters share spaces, the prey has its own
    assert not [tag for tag in tags if tag.startswith("weights/")]
    assert {tag.split("/")[2] for tag in tags if tag.startswith("gradients/policies/")} == policies
