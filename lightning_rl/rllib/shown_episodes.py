"""Episodes that the policy of a trainer plays for a window, a video or a file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

from lightning_rl.callbacks.rendering.frames import check_picture, watched_workers
from lightning_rl.callbacks.rendering.video_files import VideoFile, has_mp4
from lightning_rl.data.evaluator import longest_evaluated
from lightning_rl.rllib.rollout_file import RolloutFile
from lightning_rl.rollouts.worker_set import WorkerSet
from lightning_rl.runs.watch import Recorder

__all__ = ["episodes_of"]


def episodes_of(
    trainer: Any, render: bool, video_dir: Path | None, written: RolloutFile | None = None, first: int = 1
) -> Iterator[tuple[float, int]]:
    """(reward, steps) of one episode after the other, without end.

    Args:
        trainer: whose evaluation it is.
        render: show them in a window.
        video_dir: write a video of each.
        written: gets their steps.
        first: number of the first one, in the name of its video, and its seed.

    Raises:
        ConfigError: the environment has no pictures for a video.
    """
    data = trainer.datamodule
    env = data.evaluation_env if written is None else written.recorded(data.evaluation_env)
    frames_per_second = 0.0 if video_dir is None else check_picture(env, "--video-dir")
    for number in count(first):
        if not render and video_dir is None and written is None:
            found = trainer.evaluate()["evaluation"]["hist_stats"]
            yield from zip(found["episode_reward"], found["episode_lengths"], strict=True)
            continue
        played: dict[str, Any] = {"seed": number, "explore": bool(trainer.run_config["evaluation"]["explore"])}
        played["max_episode_steps"] = longest_evaluated(data.evaluation["max_episode_steps"], data.evaluation_env)
        policy = data.acting_policy(trainer.policy)
        if video_dir is not None:
            file = video_dir / f"episode_{number:06d}{'.mp4' if has_mp4() else '.gif'}"
            with VideoFile(file, frames_per_second) as video:
                show = Recorder(video, 1, sys.maxsize).show
                episode = _play_one(watched_workers(env, policy, show, render_mode="rgb_array", **played))
            yield from episode
        elif render:
            yield from _play_one(watched_workers(env, policy, lambda _: None, render_mode="human", **played))
        else:
            yield from _play_one(WorkerSet(env, policy, num_envs=1, stream="evaluation", **played))


def _play_one(workers: Any) -> list[tuple[float, int]]:
    try:
        return workers.run_episodes(1)
    finally:
        workers.stop()
