"""Frames of environments in which policies act: one agent and several, lives, and what cannot render."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from lightning_rl.callbacks.rendering.frames import (
    Frame,
    StopWatching,
    check_picture,
    render_modes,
    watched_workers,
    with_render_mode,
)
from lightning_rl.callbacks.rendering.pictures import as_rgb
from lightning_rl.envs.atari import LIFE_LOST
from lightning_rl.envs.creator import EnvCreator
from lightning_rl.envs.registry import register_env
from lightning_rl.errors import ConfigError, EnvError
from lightning_rl.policies import ScratchPolicy


class First(ScratchPolicy):
    """Takes the first action."""

    def compute_actions(self, obs_batch: Any, state_batches: Any, **kwargs: Any) -> tuple[list[int], list[Any], Any]:
        return [0 for _ in obs_batch], [], {}


class Counter(gym.Env[Any, Any]):
    """Shows the step it is at as a shade of 2 × 2 pixels; ends a life at step 2, and the game at step 4."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 7}  # noqa: RUF012
    observation_space, action_space = gym.spaces.Discrete(9), gym.spaces.Discrete(2)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode, self.step_count, self.shade = render_mode, 0, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        if self.step_count != 2:
            self.step_count = 0
        self.shade = 100 + self.step_count
        return 0, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.step_count += 1
        self.shade = self.step_count
        return 0, 1.0, self.step_count in (2, 4), False, {LIFE_LOST: self.step_count == 2}

    def render(self) -> np.ndarray:
        return np.full((2, 2, 3), self.shade, np.uint8)


def watch(env: Any, count: int = 1, **options: Any) -> tuple[list[list[Frame]], list[tuple[float, int]]]:
    seen: list[list[Frame]] = []
    workers = watched_workers(EnvCreator.from_spec(env), First, seen.append, render_mode="rgb_array", **options)
    try:
        return seen, workers.run_episodes(count)
    finally:
        workers.stop()


@pytest.mark.parametrize(("declared", "expected"), [(7, 7.0), (0, 30.0), ("fast", 30.0), (1e9, 30.0), (-5, 30.0)])
def test_frames_per_second_that_cannot_be_are_30(declared: Any, expected: float, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(Counter.metadata, "render_fps", declared)
    assert render_modes(EnvCreator.from_spec(Counter)) == (["rgb_array"], expected)


def test_every_state_is_shown_once_from_the_reset_to_the_end_of_the_game():
    """0, 1, 2 (a life), the reset 102, 3, 4: 4 steps; the next game begins with its reset."""
    seen, played = watch(Counter, count=2)
    assert played == [(4.0, 4), (4.0, 4)]
    shades = [int(frame.rendered[0, 0, 0]) for (frame,) in seen]
    assert shades == [100, 1, 2, 102, 3, 4, 100, 1, 2, 102, 3, 4]
    assert [frame.steps for (frame,) in seen] == [0, 1, 2, 2, 3, 4] * 2
    assert [frame.episode_return for (frame,) in seen] == [0, 1, 2, 2, 3, 4] * 2
    assert [frame.over for (frame,) in seen] == [False, False, False, False, False, True] * 2


def test_of_every_third_step_the_end_is_shown_too():
    seen, _ = watch(Counter, every=3)
    assert [(frame.steps, frame.over) for (frame,) in seen] == [(0, False), (2, False), (4, True)]


def test_environments_stepped_together_are_shown_together_as_an_evaluation_plays_them():
    seen, played = watch("CartPole-v1", count=3, num_envs=3, seed=4)
    assert {len(frames) for frames in seen} == {3}
    ends = [next((f.episode_return, f.steps) for frames in seen if (f := frames[env]).over) for env in range(3)]
    assert ends == played
    again = watch("CartPole-v1", count=3, num_envs=3, seed=5)[1]
    assert again != played or ends != again


def test_a_viewer_ends_the_episodes_at_once():
    def stop(frames: list[Frame]) -> None:
        if frames[0].steps == 3:
            raise StopWatching

    workers = watched_workers(EnvCreator(Counter), First, stop, render_mode="rgb_array")
    with pytest.raises(StopWatching):
        workers.run_episodes(5)
    workers.stop()


@pytest.mark.parametrize(
    ("spec", "shape"),
    [
        ({"id": "CartPole-v1"}, (400, 600, 3)),
        ({"id": "CartPole-v1", "agents": 2}, (400, 600, 3)),
        ({"id": "CartPole-v1", "kwargs": {"render_mode": "human"}, "max_episode_steps": 9}, (400, 600, 3)),
        ({"id": "lightning_rl.envs.toy_tasks:StatelessCartPole"}, (400, 600, 3)),
        ({"id": "lightning_rl.envs.toy_tasks:ParametricActionsCartPole", "kwargs": {"slots": 4}}, (400, 600, 3)),
        ({"id": "mpe2.simple_spread_v3"}, (700, 700, 3)),
        ({"id": "mpe2.simple_spread_v3", "group_agents": "all"}, (700, 700, 3)),
        ({"id": "pettingzoo.classic.connect_four_v3"}, None),  # as large as the screen allows
    ],
    ids=str,
)
def test_environments_with_one_agent_and_several_render(spec: dict[str, Any], shape: tuple[int, ...] | None):
    env = with_render_mode(EnvCreator(**spec), "rgb_array").make(2)
    env.reset(seed=0)
    rendered = env.render()
    assert rendered is not None
    found = [as_rgb(each).shape for each in rendered]
    assert found == [shape or found[0]] * 2
    env.close()


def test_the_picture_of_an_atari_game_is_the_screen_and_not_the_observation():
    pytest.importorskip("ale_py", reason='pip install -e ".[atari]"')
    pytest.importorskip("cv2", reason='pip install -e ".[atari]"')
    seen, _ = watch({"id": "ALE/Pong-v5", "max_episode_steps": 30})
    assert seen[0][0].rendered.shape == (210, 160, 3)
    assert [frame.steps for (frame,) in seen] == [*range(31)]
    assert not np.array_equal(seen[0][0].rendered, seen[-1][0].rendered)


def test_an_environment_without_pictures_is_named_with_what_it_has():
    with pytest.raises(ConfigError, match=r"'.*RepeatAfterMe'.*render_modes"):
        check_picture(EnvCreator("lightning_rl.envs.toy_tasks:RepeatAfterMe"), "a video")
    assert check_picture(EnvCreator(Counter), "a video") == 7


def test_a_creator_that_takes_no_render_mode_is_told_to():
    register_env("fixed_cartpole", lambda: gym.make("CartPole-v1"))
    with pytest.raises(EnvError, match=r"'fixed_cartpole'.*render_mode"):
        check_picture(EnvCreator("fixed_cartpole"), "a video")


class Blind(Counter):
    """Declares pictures, and gives none."""

    def render(self) -> Any:
        return [1, 2]


def test_an_environment_that_gives_no_picture_is_refused_before_it_plays():
    with pytest.raises(EnvError, match=r"'Blind': render\(\) gave \[1, 2\]"):
        check_picture(EnvCreator(Blind), "a video")
