"""env_rendering_and_recording: an environment that draws itself, and videos of its evaluations."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete
from PIL import Image

from lightning_rl.rllib.agents.ppo import PPOTrainer


class CustomRenderedEnv(gym.Env):
    """A corridor, drawn as a gray strip in which the agent is white."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(self, config, render_mode=None):
        self.end_pos, self.max_steps = config.get("corridor_length", 10), config.get("max_steps", 100)
        self.render_mode = render_mode
        self.observation_space, self.action_space = Box(0.0, 999.0, (1,), dtype=np.float32), Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.cur_pos = self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        self.cur_pos = max(0, self.cur_pos + (1 if action == 1 else -1))
        done = self.cur_pos >= self.end_pos
        return np.array([self.cur_pos], np.float32), 10.0 if done else -0.1, done, self.steps >= self.max_steps, {}

    def render(self):
        picture = np.full((40, 40 * (self.end_pos + 1), 3), 128, np.uint8)
        picture[:, 40 * self.cur_pos : 40 * (self.cur_pos + 1)] = 255
        return picture


def test_each_evaluation_leaves_a_video(tmp_path: Path) -> None:
    config = {
        "env": CustomRenderedEnv,
        "env_config": {"corridor_length": 4, "max_steps": 20},
        "train_batch_size": 200,
        "evaluation_interval": 1,
        "evaluation_num_episodes": 2,
        "evaluation_num_workers": 0,
        "evaluation_config": {"record_env": str(tmp_path / "videos"), "render_env": True},
        "framework": "torch",
    }
    trainer = PPOTrainer(config=config)
    results = [trainer.train() for _ in range(2)]
    trainer.stop()
    videos = sorted((tmp_path / "videos").iterdir())
    assert len(videos) == 2 and all(result["evaluation"]["episodes_this_iter"] == 2 for result in results)
    if videos[0].suffix == ".gif":
        with Image.open(videos[0]) as video:
            assert video.n_frames > 1
