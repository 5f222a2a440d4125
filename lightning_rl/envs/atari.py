"""Atari games with DeepMind's preprocessing, by Gymnasium's wrappers (one game) or `ale_py`'s threads (many games).

Mnih et al. 2015 (doi:10.1038/nature14236), "Methods": frames are skipped, the last two are joined by their maximum,
converted to gray, resized and stacked; a lost life ends the learner's episode while the game continues. The wrappers
for lives are here, because Gymnasium and `ale_py` both reset the game after a life: an agent would only see first
lives.

Rewards are the game's own points; the learner clips them (`policy.reward_filter=sign`).
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
"""Key of the info: bool, whether a lost life ended this episode while the game continues. Statistics count games."""
FRAMES = 108_000  # half an hour of play, ALE's own limit
NOOP, FIRE = 0, 1  # their indices in every action set that has them


def is_atari(name: Any) -> bool:
    """Whether a name is the id of an Atari game, such as "ALE/Pong-v5"."""
    return isinstance(name, str) and name.startswith("ALE/")


def register() -> bool:
    """Register the games with Gymnasium in this process; False if `ale_py` is not installed."""
    if find_spec("ale_py") is None:
        return False
    import ale_py  # GPL-2.0, an extra; importing it registers the games

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # no banner for every game
    gym.register_envs(ale_py)
    return True


@dataclass(frozen=True, slots=True)
class Atari:
    """An Atari game and its preprocessing; the arguments are the keys of `env.kwargs`.

    Args:
        id: "ALE/…-v5".
        framestack: frames per observation; True is 4, False is 1.
        dim: height and width of a frame; the whole screen is resized, nothing is cropped (games differ in height).
        grayscale: one channel a frame; else three.
        zero_mean: float32 in [−1, 1) instead of uint8 in 0 … 255. Costs four times the memory, and the built-in models
            scale pixels by themselves.
        frame_skip: number of frames for which an action is repeated.
        noop_max: a game starts after a random number of frames without action, about up to this.
        fire_reset: press FIRE at the start of a game or life, if the game has that action.
        terminal_on_life_loss: a lost life is `terminated`; the game continues in the next episode.
        repeat_action_probability: probability that the last action is repeated in a frame, in [0, 1]: 0.25 as Machado
            et al. 2018 recommend (arXiv:1709.06009), 0 in older results.
        full_action_space: all 18 actions instead of those with an effect in the game.
        mode, difficulty: the mode and difficulty of the game; `None` takes its first. (The native vector form supports
            only these.)
        max_episode_steps: longest game, in steps; `None`: half an hour of play.

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
        """Create the description of a game from the keywords of a config.

        Raises:
            ConfigError: a keyword is unknown, or its value is invalid.
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
        """Whether `ale_py`'s vector environment supports these settings."""
        return self.mode is None and self.difficulty is None

    @property
    def steps(self) -> int:
        """Length limit of a game, in steps."""
        return FRAMES // self.frame_skip if self.max_episode_steps is None else self.max_episode_steps

    def make(self, **extra: Any) -> gym.Env[Any, Any]:
        """Create one game; `extra` is passed to Gymnasium (render_mode)."""
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
        """Create `num_envs` games in `ale_py`'s threads; NEXT_STEP autoreset."""
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
        """Frames `[…, S, H, W]` or `[…, S, H, W, 3]` → channels first, `[…, C, H, W]`, scaled with `zero_mean`."""
        if not self.grayscale:
            frames = np.moveaxis(frames, -1, -3)
            frames = frames.reshape(*frames.shape[:-4], -1, *frames.shape[-2:])
        return (frames.astype(np.float32) - 128) / 128 if self.zero_mean else frames

    def picture_space(self, frames: gym.Space[Any]) -> gym.spaces.Box:
        """The space of `pictures`, for a space of frames."""
        assert isinstance(frames, gym.spaces.Box)
        low, high = self.pictures(frames.low), self.pictures(frames.high)
        return gym.spaces.Box(low, high, dtype=low.dtype.type)


class FireReset(gym.Wrapper[Any, Any, Any, Any]):
    """Presses FIRE at the first frame of a game, as `ale_py`'s vector environment does."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset, and press FIRE."""
        self.env.reset(seed=seed, options=options)
        obs, _, _, _, info = self.env.step(FIRE)
        return obs, info


class LifeEpisodes(gym.Wrapper[Any, Any, Any, Any]):
    """Ends an episode at a lost life; `reset` then continues the game, or starts a new one if it is over.

    Args:
        env: a preprocessed game.
        serve: the action of the step by which a reset continues a game.
    """

    def __init__(self, env: gym.Env[Any, Any], serve: int) -> None:
        super().__init__(env)
        self.serve, self.lives, self.goes_on = serve, 0, False
        self.owed = 0.0  # points of the step taken by a reset, added to the next reward

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Continue with the next life; start a new game if this one is over or a seed is given."""
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
        """Step the game; after a lost life, `terminated` is True and `LIFE_LOST` is in the info."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        reward, self.owed = float(reward) + self.owed, 0.0
        lives = info["lives"]
        # At 0 lives some games (Q*bert) continue for a few frames and then end by themselves.
        self.goes_on = 0 < lives < self.lives and not (terminated or truncated)
        self.lives = lives
        return obs, reward, terminated or self.goes_on, truncated, {**info, LIFE_LOST: self.goes_on}


class LifeEpisodesVector(VectorWrapper):
    """`LifeEpisodes` for `ale_py`'s vector environment: the row after a lost life ignores its action, and serves.

    Args:
        env: NEXT_STEP autoreset, lives in the info.
        serve: the action taken in that row.
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
        """Step the games; after a lost life, `terminated` is True and `LIFE_LOST` is in the info."""
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
    """Applies `Atari.pictures` to the observations of all games."""

    def __init__(self, env: VectorEnv[Any, Any, Any], atari: Atari) -> None:
        super().__init__(env)
        self.atari = atari
        self.single_observation_space = atari.picture_space(env.single_observation_space)
        self.observation_space = gym.vector.utils.batch_space(self.single_observation_space, self.num_envs)

    def observations(self, observations: Any) -> Any:
        """`[B, S, H, W(, 3)]` → `[B, C, H, W]`."""
        return self.atari.pictures(observations)
