"""Frames of environments in which a policy acts.

The workers that evaluate also play for a viewer: a wrapper of their vector environment renders after each reset and
step, and hands the frames over. So whatever acts in an evaluation (memory, masks, filters, several agents) is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv, VectorWrapper

from lightning_rl.callbacks.rendering.pictures import as_rgb
from lightning_rl.envs.creator import EnvCreator
from lightning_rl.envs.registry import EnvContext
from lightning_rl.errors import ConfigError, EnvError, drawing_advice
from lightning_rl.rollouts.episodes import EpisodeTracker, episode_ends
from lightning_rl.rollouts.worker_set import WorkerSet

__all__ = [
    "FASTEST",
    "SLOWEST",
    "Frame",
    "StopWatching",
    "Watched",
    "check_picture",
    "render_modes",
    "render_picture",
    "watched_workers",
    "with_render_mode",
]

NO_HOOKS: dict[str, Sequence[Callable[..., None]]] = {"on_episode_start": (), "on_episode_end": ()}
DEFAULT_FPS = 30.0
SLOWEST, FASTEST = 0.01, 1000.0  # frames per second: GIF has no longer pause


class StopWatching(KeyboardInterrupt):
    """Raised by a viewer to end the episodes at once, as Ctrl-C would; no error of an environment."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One environment after a reset or a step.

    Attributes:
        rendered: what `render()` gave: a picture uint8 `[H, W, 3]`, a text, or `None` (the environment has a window).
        steps: the number of steps of the episode so far.
        episode_return: sum of the episode's raw rewards so far, over all agents.
        over: whether the episode has ended. The end of an Atari life is none.
    """

    rendered: Any
    steps: int
    episode_return: float
    over: bool


class Watched(VectorWrapper):
    """Renders after each reset and step, and hands over a frame of each environment.

    Args:
        env: synchronous, with a render mode, and autoreset in the step after an end.
        show: gets the frames of all environments.
        every: renders one step in this many, and when an episode is over.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], show: Callable[[list[Frame]], None], every: int = 1) -> None:
        super().__init__(env)
        self.show, self.every = show, every
        self._steps = 0  # since the last frames
        self._episodes = EpisodeTracker(self.num_envs, False, NO_HOOKS, None)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset all environments, and show them."""
        result = self.env.reset(seed=seed, options=options)
        self._episodes.restart()
        self._show(np.zeros(self.num_envs, dtype=bool))
        return result

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step all environments, and show them."""
        result = self.env.step(actions)
        _, rewards, terminated, truncated, info = result
        ended = terminated | truncated
        over = episode_ends(ended, info)
        self._episodes.count(np.asarray(rewards)[None], ended[None], over[None])
        self._steps += 1
        if self._steps >= self.every or np.count_nonzero(over):
            self._show(over)
        return result

    def _show(self, over: np.ndarray) -> None:
        self._steps = 0
        episodes, ended = self._episodes, dict(self._episodes.pop_finished())
        running = zip(episodes.returns.tolist(), episodes.lengths.tolist(), strict=True)
        counts = [ended.get(index, pair) for index, pair in enumerate(running)]
        rendered = self.env.render() or (None,) * self.num_envs
        parts = zip(rendered, counts, over.tolist(), strict=True)
        self.show([Frame(each, length, total, last) for each, (total, length), last in parts])


def render_modes(creator: EnvCreator) -> tuple[list[str], float]:
    """The render modes that an environment declares, and its frames per second (30 if it declares none that can be).

    Raises:
        EnvError: the environment cannot be made.
    """
    env = creator.make_single()
    metadata = dict(env.metadata or {})
    env.close()
    fps = metadata.get("render_fps")
    if not isinstance(fps, int | float) or not SLOWEST <= fps <= FASTEST:
        fps = DEFAULT_FPS
    return [*(metadata.get("render_modes") or ())], float(fps)


def with_render_mode(creator: EnvCreator, render_mode: str) -> EnvCreator:
    """The creator of the same environments, which render; always stepped in this process, one by one.

    Args:
        creator: the creator of the environments; their function or class has to take the keyword `render_mode`.
        render_mode: "human", "ansi" or "rgb_array".
    """

    def make(context: EnvContext) -> gym.Env[Any, Any]:
        place = context.worker_index, context.vector_index, context.num_workers
        try:
            return creator.make_single(EnvContext(creator.kwargs, *place), render_mode=render_mode)
        except EnvError as error:
            if "render_mode" not in str(error):
                raise
            raise EnvError(f"{error}: to be shown, it has to take the keyword render_mode") from error

    make.__name__ = creator.name
    return EnvCreator(make, check=False)


def check_picture(creator: EnvCreator, what: str) -> float:
    """Check that an environment renders pictures, by rendering one; returns its frames per second.

    Args:
        creator: the creator of the environment.
        what: what needs pictures, for the message.

    Raises:
        ConfigError: it has no such render mode.
        EnvError: see `render_picture`.
    """
    modes, fps = render_modes(creator)
    if "rgb_array" not in modes:
        declared = f"it declares {modes}" if modes else "its metadata declare no render_modes"
        raise ConfigError(
            f"{what} needs pictures (render mode rgb_array) of {creator.name!r}, and {declared}: "
            'add "rgb_array" to metadata["render_modes"], and return uint8 [H, W, 3] from render()'
        )
    render_picture(creator)
    return fps


def render_picture(creator: EnvCreator) -> np.ndarray:
    """The picture of an environment after a reset, uint8 `[H, W, 3]`.

    Raises:
        EnvError: it cannot render here, or gives no picture.
    """
    env = with_render_mode(creator, "rgb_array").make_single()
    try:
        env.reset(seed=0)
        return as_rgb(env.render())
    except EnvError as error:
        raise EnvError(f"environment {creator.name!r}: {error}") from error
    except Exception as error:  # whatever the drawing library raises
        advice = drawing_advice(error)
        hint = f": {advice}" if advice else ""
        raise EnvError(f"environment {creator.name!r} cannot render: {type(error).__name__}: {error}{hint}") from error
    finally:
        env.close()


def watched_workers(
    creator: EnvCreator,
    policy: Any,
    show: Callable[[list[Frame]], None],
    *,
    render_mode: str,
    num_envs: int = 1,
    seed: int = 0,
    explore: bool = False,
    max_episode_steps: int | None = None,
    every: int = 1,
) -> WorkerSet:
    """Workers whose `run_episodes` plays as in an evaluation, and shows frames.

    Args:
        creator, policy: the creator and policy of an evaluation.
        show: gets the frames of all `num_envs` environments.
        render_mode: "human", "ansi" or "rgb_array".
        num_envs: environments stepped together.
        seed, explore, max_episode_steps: see `RolloutWorker`.
        every: see `Watched`.
    """
    return WorkerSet(
        with_render_mode(creator, render_mode),
        policy,
        num_envs=num_envs,
        vectorization="sync",
        seed=seed,
        stream="evaluation",
        explore=explore,
        max_episode_steps=max_episode_steps,
        max_env_restarts=0,  # a second attempt would show an episode's beginning twice
        wrap_env=partial(Watched, show=show, every=every),
    )
