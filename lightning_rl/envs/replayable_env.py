"""Environments that can return to any step of an episode, because every episode begins with a seed that is known."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import gymnasium as gym

from lightning_rl.seeding import derive_seed

__all__ = ["ReplayableEnv", "SeededEpisodes", "episode_seed"]


class SeededEpisodes:
    """The seeds of an environment's resets.

    A reset with a seed begins episode 0; one without begins the next episode, with a seed derived from that one. So an
    episode is defined by two numbers and its actions, if the environment repeats itself.
    """

    def __init__(self) -> None:
        self._seed: int | None = None
        self._number = 0

    def seed_of_reset(self, seed: int | None) -> int | None:
        """The seed of the next reset, which was asked for with this one."""
        if seed is not None:
            self._seed, self._number = seed, 0
        elif self._seed is not None:
            self._number += 1
            seed = episode_seed(self._seed, self._number)
        return seed

    def replay(
        self, env: gym.Env[Any, Any], number: int, actions: Sequence[Any], deadline: float
    ) -> tuple[tuple[Any, ...], tuple[float, int]] | None:
        """Bring an environment, which was reset with a seed before, to the end of an episode's actions.

        Args:
            env: the environment.
            number: the number of the episode, since the reset with a seed.
            actions: since the episode began.
            deadline: time (`time.monotonic`) at which to give up.

        Returns:
            What the last step gave; the sum of the rewards and how many steps there were. `None`: the episode ended
            before, or the time is up.
        """
        first = self._seed
        assert first is not None
        obs, info = env.reset(seed=episode_seed(first, number) if number else first)
        self._seed, self._number = first, number
        answer: tuple[Any, ...] = (obs, 0.0, False, False, info)
        gained = 0.0
        for action in actions:
            if answer[2] or answer[3] or time.monotonic() > deadline:
                return None
            answer = env.step(action)
            gained += float(answer[1])
        return answer, (gained, len(actions))


class ReplayableEnv(gym.Wrapper[Any, Any, Any, Any]):
    """Seeds each reset, and replays the actions of an episode. A step costs nothing more.

    Args:
        env: one environment with its wrappers.

    Attributes:
        episodes: the seeds of its resets.
        replayed: (episode, actions) for `replay`, which a vector environment sets for each of its environments.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.replayed: tuple[int, Sequence[Any]] = (0, ())
        self.episodes = SeededEpisodes()
        self.step = env.step  # without a call in between

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin episode 0 of `seed`; or the next one."""
        return self.env.reset(seed=self.episodes.seed_of_reset(seed), options=options)

    def replay(self, deadline: float) -> tuple[float, int] | None:
        """Go to the end of the actions in `replayed`; the next `step` ignores its action and answers as the last did.

        So the vector environment learns by an ordinary step where its environment stands. As `SeededEpisodes.replay`.
        """
        found = self.episodes.replay(self.env, *self.replayed, deadline)
        self.replayed = (0, ())
        if found is None:
            return None
        answer, played = found

        def answer_again(action: Any) -> Any:
            self.step = self.env.step
            return answer

        self.step = answer_again
        return played


def episode_seed(seed: int, episode: int) -> int:
    """The seed of the reset that begins an episode, of an environment whose first reset had `seed`."""
    return derive_seed(seed, "rollout", episode) % 2**31
