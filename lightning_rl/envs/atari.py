"""Atari games as DeepMind's agents see them: Gymnasium's wrappers for one, `ale_py`'s threads for many, same steps.

Mnih et al. 2015 (doi:10.1038/nature14236), "Methods": frames are skipped, the last two joined by their maximum, made
grey, resized and stacked; a lost life ends the task for the learner while the game goes on. What neither Gymnasium
nor `ale_py` does in that way is here: both reset the game after a life, so an agent would only ever see first lives.

Rewards are the game's own points: clipping them is the learner's (`policy.reward_filter=sign`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from importlib.util import find_spec
from typing import Any, Self

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv, VectorObservationWrapper, VectorWrapper

from lightning_rl.errors import ConfigError, EnvError, did_you_mean

__all__ = ["LIFE_LOST", "Atari", "is_atari", "register"]

LIFE_LOST = "life_lost"
"""Key of the info: bool, the end of this step is a life's and the game goes on. Statistics count whole games."""
FRAMES = 108_000  # half an hour of play, ALE's own limit
NOOP, FIRE = 0, 1  # their places in every action set that has them


def is_atari(name: Any) -> bool:
    """Whether this is the id of an Atari game, such as "ALE/Pong-v5"."""
    return isinstance(name, str) and name.startswith("ALE/")


def register() -> bool:
    """Make the games known to Gymnasium in this process; False where `ale_py` is not installed."""
    if find_spec("ale_py") is None:
        return False
    import ale_py  # GPL-2.0, an extra; importing it registers the games

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # no banner for every game
    gym.register_envs(ale_py)
    return True


@dataclass(frozen=True, slots=True)
class Atari:
    """A game and its preprocessing; the keywords are `env.kwargs`.

    Args:
        id: "ALE/…-v5".
        framestack: frames per observation; True is 4, False is 1.
        dim: height and width of a frame; the whole screen is resized, nothing is cropped (games differ in height).
        grayscale: one channel a frame; else three.
        zero_mean: float32 in [−1, 1) instead of uint8 in 0 … 255. Costs four times the memory, and the built-in models
            scale pixels by themselves.
        frame_skip: frames that an action is held.
        noop_max: a game starts after a random number of frames without action, about up to this.
        fire_reset: press FIRE where a game or a life starts, if the game has that button.
        terminal_on_life_loss: a lost life is `terminated`; the game goes on in the next episode.
        repeat_action_probability: that the last action is repeated in a frame, in [0, 1]: 0.25 as Machado et al. 2018
            advise (arXiv:1709.06009), 0 in older results.
        full_action_space: all 18 actions instead of those that matter in the game.
        mode, difficulty: of the game; `None` takes its first. (The native vector form has no others.)
        max_episode_steps: of a game; `None`: half an hour of play.

    Observations are `[C, dim, dim]` with `framestack` × 1 or 3 channels, oldest frame first.
    """

    id: str
    framestack: int = 4
    dim: int = 84
    grayscale: bool = True
    zero_mean: bool = False
    frame_skip: int = 4
    noop_max: int = 30
    fire_reset: bool = True
    terminal_on_life_loss: bool = True
    repeat_action_probability: float = 0.0
    full_action_space: bool = False
    mode: int | None = None
    difficulty: int | None = None
    max_episode_steps: int | None = None

    @classmethod
    def from_config(cls, id: str, kwargs: Mapping[str, Any], max_episode_steps: int | None = None) -> Self:
        """The game with the keywords of a config.

        Raises:
            ConfigError: there is no such keyword, or its value cannot be.
            EnvError: the extra is not installed.
        """
        missing = [package for package in ("ale_py", "cv2") if find_spec(package) is None]
        if missing:
            raise EnvError(f'environment {id!r} needs {" and ".join(missing)}: pip install -e ".[atari]"')
        known = [field.name for field in fields(cls)][1:-1]
        for name in kwargs:
            if name not in known:
                raise ConfigError(f"env.kwargs has no {name!r}.{did_you_mean(name, known)} Known: {', '.join(known)}")
        register()
        found = cls(id, **kwargs, max_episode_steps=max_episode_steps)
        if isinstance(found.framestack, bool):
            found = replace(found, framestack=4 if found.framestack else 1)
        for name, least in (("framestack", 1), ("dim", 8), ("frame_skip", 1), ("noop_max", 0)):
            if not isinstance(value := getattr(found, name), int) or value < least:
                raise ConfigError(f"env.kwargs.{name}={value!r}; expected a whole number of at least {least}")
        return found

    @property
    def has_native(self) -> bool:
        """Whether `ale_py`'s vector environment can play it so."""
        return self.mode is None and self.difficulty is None

    @property
    def steps(self) -> int:
        """Longest game, in steps."""
        return FRAMES // self.frame_skip if self.max_episode_steps is None else self.max_episode_steps

    def make(self, **extra: Any) -> gym.Env[Any, Any]:
        """One game; `extra` goes to Gymnasium (render_mode)."""
        chosen = {"repeat_action_probability": self.repeat_action_probability, "mode": self.mode}
        chosen |= {"full_action_space": self.full_action_space, "difficulty": self.difficulty}
        env = gym.make(
            self.id, disable_env_checker=True, frameskip=1, max_num_frames_per_episode=None, **chosen, **extra
        )
        fire = self.fire_reset and env.unwrapped.get_action_meanings()[FIRE] == "FIRE"  # type: ignore[attr-defined]
        env = gym.wrappers.AtariPreprocessing(
            FireReset(env) if fire else env, self.noop_max, self.frame_skip, self.dim, grayscale_obs=self.grayscale
        )
        env = gym.wrappers.FrameStackObservation(env, self.framestack, padding_type="zero")
        if not self.grayscale or self.zero_mean:
            env = gym.wrappers.TransformObservation(env, self.pictures, self.picture_space(env.observation_space))
        env = gym.wrappers.TimeLimit(env, self.steps)
        return LifeEpisodes(env, FIRE if fire else NOOP) if self.terminal_on_life_loss else env

    def make_vector(self, num_envs: int) -> VectorEnv[Any, Any, Any]:
        """`num_envs` games in `ale_py`'s threads; NEXT_STEP autoreset."""
        from ale_py.vector_env import AtariVectorEnv

        env: VectorEnv[Any, Any, Any] = AtariVectorEnv(
            gym.spec(self.id).kwargs["game"],
            num_envs,
            max_num_frames_per_episode=self.steps * self.frame_skip,
            repeat_action_probability=self.repeat_action_probability,
            full_action_space=self.full_action_space,
            img_height=self.dim,
            img_width=self.dim,
            grayscale=self.grayscale,
            stack_num=self.framestack,
            frameskip=self.frame_skip,
            maxpool=self.frame_skip > 1,
            noop_max=self.noop_max,
            use_fire_reset=self.fire_reset,
            reward_clipping=False,
        )
        fire = self.fire_reset and env.unwrapped.ale.get_action_set()[FIRE].name == "FIRE"  # type: ignore[attr-defined]
        if self.terminal_on_life_loss:
            env = LifeEpisodesVector(env, FIRE if fire else NOOP)
        if not self.grayscale or self.zero_mean:
            env = PicturesVector(env, self)
        return env

    def pictures(self, frames: np.ndarray) -> np.ndarray:
        """Frames `[…, S, H, W]` or `[…, S, H, W, 3]` → channels first, `[…, C, H, W]`, scaled if asked for."""
        if not self.grayscale:
            frames = np.moveaxis(frames, -1, -3)
            frames = frames.reshape(*frames.shape[:-4], -1, *frames.shape[-2:])
        return (frames.astype(np.float32) - 128) / 128 if self.zero_mean else frames

    def picture_space(self, frames: gym.Space[Any]) -> gym.spaces.Box:
        """The space of `pictures`."""
        assert isinstance(frames, gym.spaces.Box)
        low, high = self.pictures(frames.low), self.pictures(frames.high)
        return gym.spaces.Box(low, high, dtype=low.dtype.type)


class FireReset(gym.Wrapper[Any, Any, Any, Any]):
    """Presses FIRE for the first frame of a game, as `ale_py`'s vector environment does."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset and serve."""
        self.env.reset(seed=seed, options=options)
        obs, _, _, _, info = self.env.step(FIRE)
        return obs, info


class LifeEpisodes(gym.Wrapper[Any, Any, Any, Any]):
    """A lost life ends an episode; `reset` then serves the next ball, and starts a game only where one is over.

    Args:
        env: a preprocessed game.
        serve: the action of the step that a reset within a game takes.
    """

    def __init__(self, env: gym.Env[Any, Any], serve: int) -> None:
        super().__init__(env)
        self.serve, self.lives, self.goes_on = serve, 0, False
        self.owed = 0.0  # points of the step that a reset took: given with the next

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """The next life; the next game where this one is over, or where a seed asks for a known start."""
        goes_on, self.goes_on, self.owed = self.goes_on and seed is None, False, 0.0
        if goes_on:
            obs, reward, terminated, truncated, info = self.env.step(self.serve)
            if not (terminated or truncated):
                self.lives, self.owed = info["lives"], float(reward)
                return obs, info
        obs, info = self.env.reset(seed=seed, options=options)
        self.lives = info["lives"]
        return obs, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """As the game's, and `terminated` with `LIFE_LOST` in the info after a lost life."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        reward, self.owed = float(reward) + self.owed, 0.0
        lives = info["lives"]
        # At 0 lives some games (Q*bert) run a few frames more until they are over: that end is theirs.
        self.goes_on = 0 < lives < self.lives and not (terminated or truncated)
        self.lives = lives
        return obs, reward, terminated or self.goes_on, truncated, {**info, LIFE_LOST: self.goes_on}


class LifeEpisodesVector(VectorWrapper):
    """`LifeEpisodes` for `ale_py`'s vector environment: the row after a lost life is the serve, its action is ignored.

    Args:
        env: NEXT_STEP autoreset, lives in the info.
        serve: the action of that row.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], serve: int) -> None:
        super().__init__(env)
        self.serve = serve

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset all games."""
        obs, info = self.env.reset(seed=seed, options=options)
        self.lives, self.owed = info["lives"], np.zeros(self.num_envs)
        self.serving, self.over = np.zeros((2, self.num_envs), dtype=bool)
        return obs, info

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """As the games', and `terminated` with `LIFE_LOST` in the info after lost lives."""
        serving, starting = self.serving, self.over
        obs, rewards, terminated, truncated, info = self.env.step(np.where(serving, self.serve, actions))
        self.over = terminated | truncated
        self.serving = (info["lives"] > 0) & (info["lives"] < self.lives) & ~(self.over | serving | starting)
        self.lives = info["lives"]
        rewards = rewards + self.owed
        self.owed = np.where(serving, rewards, 0.0)
        info = {**info, LIFE_LOST: self.serving}
        return obs, np.where(serving, 0.0, rewards), terminated | self.serving, truncated, info


class PicturesVector(VectorObservationWrapper):
    """`Atari.pictures` of all games."""

    def __init__(self, env: VectorEnv[Any, Any, Any], atari: Atari) -> None:
        super().__init__(env)
        self.atari = atari
        self.single_observation_space = atari.picture_space(env.single_observation_space)
        self.observation_space = gym.vector.utils.batch_space(self.single_observation_space, self.num_envs)

    def observations(self, observations: Any) -> Any:
        """`[B, S, H, W(, 3)]` → `[B, C, H, W]`."""
        return self.atari.pictures(observations)
