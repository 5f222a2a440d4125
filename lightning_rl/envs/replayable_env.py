"""An environment that can return to any step of an episode, because every episode begins with a seed that is known."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import gymnasium as gym

from lightning_rl.seeding import derive_seed

__all__ = ["ReplayableEnv", "episode_seed"]


class ReplayableEnv(gym.Wrapper[Any, Any, Any, Any]):
    """Seeds each reset, and replays the actions of an episode.

    `reset(seed=…)` begins episode 0; a reset without a seed begins the next one, with a seed derived from that one. So
    an episode is defined by two numbers and its actions, if the environment repeats itself. A step costs nothing more.

    Args:
        env: one environment with its wrappers.

    Attributes:
        replayed: (episode, actions) for `replay`, which a vector environment sets for each of its environments.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.replayed: tuple[int, Sequence[Any]] = (0, ())
        self._seed: int | None = None
        self._episode = 0
        self.step = env.step  # without a call in between

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin episode 0 of `seed`; or the next one."""
        if seed is not None:
            self._seed, self._episode = seed, 0
        elif self._seed is not None:
            self._episode += 1
            seed = episode_seed(self._seed, self._episode)
        return self.env.reset(seed=seed, options=options)

    def replay(self, deadline: float) -> tuple[float, int] | None:
        """Go to the end of the actions in `replayed`; the next `step` ignores its action and answers as the last did.

        So the vector environment learns by an ordinary step where its environment stands. A reset has come before.

        Args:
            deadline: time (`time.monotonic`) at which to give up.

        Returns:
            The sum of the rewards, and how many steps there were; `None`: the episode ended before, or the time is up.
        """
        assert self._seed is not None
        self._episode, actions = self.replayed
        self.replayed = (0, ())
        seed = episode_seed(self._seed, self._episode) if self._episode else self._seed
        obs, info = self.env.reset(seed=seed)
        answer: tuple[Any, ...] = (obs, 0.0, False, False, info)
        gained = 0.0
        for action in actions:
            if answer[2] or answer[3] or time.monotonic() > deadline:
                return None
            answer = self.env.step(action)
            gained += float(answer[1])

        def answer_again(action: Any) -> Any:
            self.step = self.env.step
            return answer

        self.step = answer_again
        return gained, len(actions)


def episode_seed(seed: int, episode: int) -> int:
    """The seed of the reset that begins an episode, of an environment whose first reset had `seed`."""
    return derive_seed(seed, "rollout", episode) % 2**31
