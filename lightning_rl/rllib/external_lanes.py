"""External environments in the form of environments that are stepped: each plays one episode after another."""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import Any

import gymnasium as gym

from lightning_rl.envs.multi_agent.multi_agent_env import ALL, MultiAgentEnv
from lightning_rl.envs.registry import EnvContext, call_creator
from lightning_rl.errors import ConfigError
from lightning_rl.rllib.external_env import ExternalEnv, ExternalEpisode, ExternalMultiAgentEnv, ExternalStep
from lightning_rl.rllib.old_gym import TIME_LIMIT, gymnasium_space

__all__ = ["ExternalCreator", "lane_env"]


class ExternalCreator:
    """In the place of a creator of external environments: makes environments with their spaces, which cannot be played.

    Args:
        creator: makes an `ExternalEnv` of an `EnvContext`.
        first: the one that it made of the first context.
    """

    def __init__(self, creator: Callable[..., Any], first: ExternalEnv) -> None:
        self.creator, self.first = creator, first
        self.__name__ = type(first).__name__

    @classmethod
    def of_spaces(cls, observation_space: Any, action_space: Any, several: bool) -> ExternalCreator:
        """Of an environment that only clients of a server know; with several agents, of spaces by agent."""
        kind = ExternalMultiAgentEnv if several else ExternalEnv
        return cls(kind, kind(action_space, observation_space))

    def __call__(self, context: Any = None) -> Any:
        """An environment that has the spaces."""
        return lane_env(self.first)

    def __deepcopy__(self, memo: Any) -> ExternalCreator:
        return self

    def make(self, context: EnvContext) -> ExternalEnv:
        """An environment that has not started."""
        unused = context.worker_index == 0 and self.first.ident is None
        return self.first if unused else call_creator(self.creator, context, {})


def lane_env(external: ExternalEnv, trains: bool = True) -> Any:
    """An environment that plays episodes of an external one, once it has a sampler."""
    several = isinstance(external, ExternalMultiAgentEnv)
    return MultiAgentLane(external, trains) if several else SingleAgentLane(external, trains)


class Lane:
    """Plays the episodes of an external environment one after another, as Gymnasium's environments do.

    Args:
        external: starts the episodes.
        trains: which episodes it plays.

    Attributes:
        sampler: the `ExternalSampler` that this belongs to; `None`: it only has the spaces.
        worker: the `LaneWorker` that steps this environment.
        logged: the action that is taken in place of the policy's next one.
    """

    worker: Any
    sampler: Any

    def __init__(self, external: ExternalEnv, trains: bool) -> None:
        self.external, self.trains, self.sampler = external, trains, None
        self.logged: Any = None
        self.episode: ExternalEpisode | None = None

    def begin(self) -> ExternalStep:
        """Wait for an episode, and the first observation of it; without a sampler, make one up."""
        if self.sampler is None:
            return self.example()
        while True:
            self.episode = episode = self._wait(self.sampler.waiting[self.trains])
            step: ExternalStep = self._wait(episode.steps)
            if not self.is_over(step):  # an episode without any action has nothing to record
                return step

    def go_on(self, action: Any) -> ExternalStep:
        """Give the environment its action, and wait for what it leads to.

        Raises:
            ConfigError: there is no sampler.
        """
        if self.sampler is None:
            raise ConfigError("an external environment cannot be played by others: give evaluation_config an env")
        assert self.episode is not None
        self.episode.actions.put(action)
        return self._wait(self.episode.steps)

    def example(self) -> ExternalStep:
        """A first step, by the spaces."""
        raise NotImplementedError

    def is_over(self, step: ExternalStep) -> bool:
        """Whether the episode has ended."""
        return step.done

    def wake(self) -> None:
        """End the wait for an episode or an observation, because the sampler has stopped."""
        self.sampler.waiting[self.trains].put(None)
        if self.episode is not None:
            self.episode.steps.put(None)

    def _wait(self, source: queue.SimpleQueue[Any]) -> Any:
        found = self.sampler.wait(source)
        self.worker.take_turn()
        if isinstance(found, ExternalStep):
            self.logged = found.logged
        return found


class SingleAgentLane(Lane, gym.Env[Any, Any]):
    """Episodes of one agent."""

    def __init__(self, external: ExternalEnv, trains: bool) -> None:
        super().__init__(external, trains)
        self.observation_space = gymnasium_space(external.observation_space)
        self.action_space = gymnasium_space(external.action_space)

    def example(self) -> ExternalStep:
        """A first step, by the spaces."""
        return ExternalStep(self.observation_space.sample(), 0.0, False, {}, None)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Wait for an episode to begin."""
        step = self.begin()
        return step.obs, step.infos

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Wait for what the action leads to."""
        step = self.go_on(action)
        cut = step.done and bool(step.infos.get(TIME_LIMIT, False))
        return step.obs, step.rewards, step.done and not cut, cut, step.infos


class MultiAgentLane(Lane, MultiAgentEnv):
    """Episodes of several agents."""

    def __init__(self, external: ExternalMultiAgentEnv, trains: bool) -> None:
        super().__init__(external, trains)
        self.possible_agents = [*external.observation_space]
        self.observation_spaces, self.action_spaces = (
            {agent: gymnasium_space(space) for agent, space in each.items()}
            for each in (external.observation_space, external.action_space)
        )

    def example(self) -> ExternalStep:
        """A first step, by the spaces."""
        obs = {agent: space.sample() for agent, space in self.observation_spaces.items()}
        return ExternalStep(obs, {}, {ALL: False}, {}, None)

    def is_over(self, step: ExternalStep) -> bool:
        """Whether the episode has ended for all agents."""
        return step.done[ALL]

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Wait for an episode to begin."""
        step = self.begin()
        return step.obs, step.infos

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:  # type: ignore[override]
        """Wait for what the actions lead to."""
        step = self.go_on(actions)
        cut = {agent: done and bool(step.infos.get(agent, {}).get(TIME_LIMIT)) for agent, done in step.done.items()}
        cut[ALL] = step.done[ALL] and any(cut.values())
        terminated = {agent: bool(done) and not cut[agent] for agent, done in step.done.items()}
        return step.obs, step.rewards, terminated, cut, step.infos
