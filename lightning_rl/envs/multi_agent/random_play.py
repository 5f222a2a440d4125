"""Plays environments of one or several agents with random actions: the check before a run, and the search for masks."""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils.env_checker import data_equivalence

from lightning_rl.envs.action_masks import ActionMasks, choice_sizes, sample_allowed
from lightning_rl.envs.check import SKIP, check_reward, check_value
from lightning_rl.envs.multi_agent.multi_agent_env import ALL, MultiAgentEnv
from lightning_rl.errors import EnvApiError, EnvError, place_of, short_repr

__all__ = [
    "OLD_API",
    "ONE",
    "RandomPlayer",
    "agents_meet",
    "agents_without_mask",
    "check_env",
    "gives_masks",
    "refuse_masks",
]

log = logging.getLogger(__name__)

ONE = ""  # the name of the agent of a single-agent environment
SEEDS = (1, 2)  # of the resets of a check; some environments take 0 for no seed
STEP_PARTS = ("obs", "rewards", "terminated", "truncated", "infos")
SINGLE_PARTS = ("obs", "reward", "terminated", "truncated", "info")
OLD_API = (
    "An environment of the old API (gym) is converted by GymV21CompatibilityV0 or GymV26CompatibilityV0 of shimmy: "
    "env.id=my_module:make, where make() returns GymV21CompatibilityV0(env=…)"
)
# Attribute of a wrapper with running statistics → what does its work in a policy.
STATISTICS = {"obs_rms": "policy.observation_filter=mean_std", "return_rms": "policy.reward_filter=return_std"}


class OneAgent(MultiAgentEnv):
    """A single-agent environment as one whose only agent is `ONE`.

    Args:
        env: the environment.
        name: what messages call it.
    """

    def __init__(self, env: gym.Env[Any, Any], name: str) -> None:
        self.env, self.name, self.possible_agents = env, name, [ONE]
        self.observation_spaces = {ONE: getattr(env, "observation_space", None)}  # type: ignore[dict-item]  # pyright: ignore
        self.action_spaces = {ONE: getattr(env, "action_space", None)}  # type: ignore[dict-item]  # pyright: ignore

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> Any:
        """Begin an episode."""
        obs, info = parts_of(self.env.reset(seed=seed), self.name, "reset", ("obs", "info"))
        return {ONE: obs}, {ONE: {} if info is None else info}

    def step(self, actions: dict[str, Any]) -> Any:
        """Step the environment.

        Raises:
            EnvError: a flag is not a bool.
        """
        result = parts_of(self.env.step(actions[ONE]), self.name, "step", SINGLE_PARTS)
        obs, reward, terminated, truncated, info = result
        for field, value in (("terminated", terminated), ("truncated", truncated)):
            if not isinstance(value, bool | np.bool_):
                raise EnvError(f"environment {self.name!r}: {field} of step is {value!r}; expected a bool ({SKIP})")
        return {ONE: obs}, {ONE: reward}, {ALL: terminated}, {ALL: truncated}, {ONE: {} if info is None else info}


def parts_of(result: Any, name: str, call: str, parts: Sequence[str]) -> tuple[Any, ...]:
    """Return what `reset` or `step` returned.

    Raises:
        EnvError: it is not a tuple with these parts.
    """
    if not isinstance(result, tuple) or len(result) != len(parts):
        found = len(result) if isinstance(result, tuple) else type(result).__name__
        raise EnvError(
            f"environment {name!r}: {call} returned {found}; expected {len(parts)} values ({', '.join(parts)}). "
            f"{OLD_API}"
        )
    return result


class RandomPlayer:
    """Plays an environment with random allowed actions, and checks all that it returns.

    Args:
        env: the environment; one with several agents as it is inside a `PackedEnv`.
        name: what messages call it.
        seed: the seed of the actions.

    Attributes:
        several: whether the environment has several agents.
        spaces: agent → (observation space, action space); the only agent of a single-agent environment is `ONE`.
        obs, infos: the observation and infos of the latest reset or step, by agent.
        ended: agents whose episode has ended.
        masked: whether an observation or an info held an action mask.
        steps: number of steps so far.
        seconds: that the environment took for the latest reset or step.

    Raises:
        EnvError: an agent lacks a space.
    """

    def __init__(self, env: gym.Env[Any, Any] | MultiAgentEnv, name: str, seed: int = 0) -> None:
        self.name, self.several = name, not isinstance(env, gym.Env)
        self.env: Any = OneAgent(env, name) if isinstance(env, gym.Env) else env
        self.spaces = spaces_by_agent(self.env, name)
        # Copies: some environments seed their own action space in each reset, and actions must not depend on it.
        self._action_spaces = {agent: copy.deepcopy(space) for agent, (_, space) in self.spaces.items()}
        for number, space in enumerate(self._action_spaces.values()):
            space.seed(seed + number)
        self.obs: Mapping[str, Any] = {}
        self.infos: Mapping[str, Any] = {}
        self.ended: set[str] = set()
        self.masked, self.steps, self.seconds = False, 0, 0.0

    @property
    def acting(self) -> list[str]:
        """The agents that act next."""
        return [agent for agent in self.spaces if agent in self.obs and agent not in self.ended]

    def reset(self, seed: int | None = None) -> Mapping[str, Any]:
        """Begin an episode; returns the observations by agent.

        Raises:
            EnvError: the environment raised, or returned what its spaces and the API do not allow.
        """
        obs, infos = self.call_reset(seed)
        self.ended = set()
        for part, values in (("obs", obs), ("infos", infos)):
            self._check_keys(part, "reset", values)
        self._take("reset", obs, infos)
        return self.obs

    def call_reset(self, seed: int | None) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Reset; returns observations and infos by agent, which are not checked.

        Raises:
            EnvError: the environment takes no seed, raised, or returned something else than observations and infos.
        """
        start = time.perf_counter()
        try:
            result = self.env.reset(seed=seed)
        except EnvError:
            raise
        except TypeError as error:
            raise EnvError(
                f"environment {self.name!r}: reset(seed={seed}) raised {error}; expected reset(self, *, seed=None, "
                f"options=None). {OLD_API}"
            ) from error
        except Exception as error:
            raise EnvError(
                f"environment {self.name!r} raised {type(error).__name__} in reset: {error}{place_of(error)}"
            ) from error
        self.seconds = time.perf_counter() - start
        obs, infos = parts_of(result, self.name, "reset", ("obs", "infos"))
        return obs, infos

    def step(self) -> tuple[dict[str, float], bool, bool]:
        """Take a random allowed action of each agent that acts.

        Returns:
            Rewards by agent, and whether the whole episode has terminated and was truncated.

        Raises:
            EnvError: see `reset`.
        """
        where = f"step {self.steps}"
        actions: Any = {agent: self._sample(agent) for agent in self.acting}
        start = time.perf_counter()
        try:
            result = self.env.step(actions)
        except EnvError:
            raise
        except Exception as error:
            raise EnvError(
                f"environment {self.name!r} raised {type(error).__name__} in {where} after the actions "
                f"{short_repr(actions if self.several else actions[ONE])}: {error}{place_of(error)}"
                f"{f'. {OLD_API}' if 'expected 5, got 4' in str(error) else ''}"
            ) from error
        self.seconds = time.perf_counter() - start
        parts = parts_of(result, self.name, "step", STEP_PARTS)
        for part, values in zip(STEP_PARTS, parts, strict=True):
            self._check_keys(part, where, values)
        obs, rewards, terminated, truncated, infos = parts
        for agent, reward in rewards.items():
            check_reward(self.name, reward, f"{where}, agent {agent!r}" if agent else where)
        self.ended |= {agent for flags in (terminated, truncated) for agent, value in flags.items() if value}
        self._take(where, obs, infos)
        self.steps += 1
        return {agent: float(reward) for agent, reward in rewards.items()}, bool(terminated[ALL]), bool(truncated[ALL])

    def walk(self, steps: int) -> Iterator[None]:
        """Take random steps, and pause after each; each new episode begins with the same seed."""
        for _ in range(steps):
            self.step()
            if ALL in self.ended:
                self.reset(SEEDS[0])
            yield

    def _sample(self, agent: str) -> Any:
        """A random action that the mask in the info or in a Dict observation allows; of a group, that of each member.

        Raises:
            EnvApiError: a mask does not fit the action space.
        """
        space, obs, info = self._action_spaces[agent], self.obs[agent], self.infos.get(agent)
        if isinstance(space, gym.spaces.Tuple) and isinstance(obs, Mapping | tuple):  # a group of agents
            members = obs.get("agents") if isinstance(obs, Mapping) else obs
            masks = obs.get("action_masks") if isinstance(obs, Mapping) else None
            if masks is None and isinstance(members, tuple):
                masks = tuple(member.get("action_mask") if isinstance(member, Mapping) else None for member in members)
            if masks is not None and len(masks) == len(space.spaces):
                info = {"action_mask": masks}
        allowed = ActionMasks(space, self.name).find(obs, info)
        return space.sample() if allowed is None else sample_allowed(space, allowed, space.np_random)

    def _check_keys(self, part: str, where: str, values: Any) -> None:
        """Check that a part is a dict keyed by agents that have not ended; flags have the key "__all__" as well."""
        what, is_flag = f"environment {self.name!r}: {part} of {where}", part in ("terminated", "truncated")
        if not isinstance(values, Mapping) or (is_flag and ALL not in values):
            more = f', and "{ALL}": whether the episode of all agents is over' if is_flag else ""
            raise EnvError(f"{what} is {short_repr(values)}; expected a dict with a value for each agent{more}")
        for agent, value in values.items():
            if agent not in self.spaces and agent not in (ALL, "__common__"):
                raise EnvError(
                    f"{what} has the agent {short_repr(agent)}, which is not in "
                    f"possible_agents={short_repr([*self.spaces])}"
                )
            if agent in self.ended and (value if is_flag else part == "obs"):
                raise EnvError(f"{what} has {agent!r}, whose episode has ended; it may come back after the next reset")

    def _take(self, where: str, obs: Mapping[str, Any], infos: Mapping[str, Any]) -> None:
        """Check and keep observations and infos, and check the state and that the spaces are still the same."""
        self.obs, self.infos = obs, infos
        held = [*obs.values(), *infos.values()]
        self.masked = self.masked or any(isinstance(each, Mapping) and "action_mask" in each for each in held)
        for agent, value in obs.items():
            what = f"observation of {where}, agent {agent!r}" if agent else f"observation of {where}"
            check_value(self.spaces[agent][0], self.name, value, what)
        if self.env.state_space is not None:
            check_value(self.env.state_space, self.name, self.env.state(), f"state() after {where}", "state_space")
        for agent, pair in self.spaces.items():
            if (self.env.observation_spaces[agent], self.env.action_spaces[agent]) != pair:
                raise EnvError(f"environment {self.name!r} changed the spaces of {agent!r}; they are fixed in __init__")


def spaces_by_agent(env: MultiAgentEnv, name: str) -> dict[str, tuple[Any, Any]]:
    """Agent → (observation space, action space).

    Raises:
        EnvError: there are no agents, an agent has no name, or lacks a space.
    """
    agents = getattr(env, "possible_agents", None)
    if not isinstance(agents, list | tuple) or not agents or not all(isinstance(agent, str) for agent in agents):
        raise EnvError(
            f"environment {name!r} has possible_agents={short_repr(agents)}; expected a list of names, set in __init__ "
            "beside observation_spaces and action_spaces (dicts, agent → space)"
        )
    found = []
    for attribute in ("observation_space", "action_space"):
        held = getattr(env, f"{attribute}s", None)
        if not isinstance(held, Mapping):
            raise EnvError(
                f"environment {name!r} has {attribute}s={short_repr(held)}; expected a dict with a space for each agent"
            )
        for agent in agents:
            if not isinstance(held.get(agent), gym.Space):
                raise EnvError(
                    f"environment {name!r} has {f'{attribute}s[{agent!r}]' if agent else attribute}="
                    f"{short_repr(held.get(agent))}; expected a gymnasium.spaces.Space, set in __init__"
                )
        found.append(held)
    return {agent: (found[0][agent], found[1][agent]) for agent in agents}


def check_env(env: gym.Env[Any, Any] | MultiAgentEnv, name: str, steps: int = 20) -> None:
    """Check two resets with equal seeds and a few random steps; the first violation raises an error.

    Equal seeds that give different observations, and wrappers with their own statistics, are warned about.

    Args:
        env: the environment; one with several agents as it is inside a `PackedEnv`.
        name: the name of the environment.
        steps: number of random steps.

    Raises:
        EnvError: names the environment, what it returned, what is expected and what to change.
    """
    player = RandomPlayer(env, name)
    if normalizer := _running_statistics(env):
        log.warning("environment %r: %s (%s)", name, normalizer, SKIP)
    for seed in SEEDS:
        first = copy.deepcopy(player.reset(seed))  # environments may write all observations into one array
        if not data_equivalence(first, player.reset(seed), exact=True) and not normalizer:
            log.warning(
                "environment %r gives different observations for reset(seed=%s) twice: its runs cannot be repeated "
                "or resumed exactly; draw from the generator that reset(seed) makes (self.np_random) only, and keep no "
                "state from before a reset (%s)",
                name,
                seed,
                SKIP,
            )
            break
    acted = bool(player.acting)
    for _ in player.walk(steps):
        acted = acted or bool(player.acting)
    if not acted:
        raise EnvError(
            f"environment {name!r} gives no agent an observation to act on, at its reset or in {steps} steps: "
            "return those of the agents that act next, or set env.check=false if they come later"
        )


def _running_statistics(env: Any) -> str:
    """Names a wrapper that normalizes by its own statistics, such as Gymnasium's; "" without one."""
    while env is not None:
        for attribute, instead in STATISTICS.items():
            if attribute in vars(env):
                return (
                    f"{type(env).__name__} keeps statistics of its own in each environment, which neither evaluations "
                    f"nor checkpoints share: use {instead} instead"
                )
        env = vars(env).get("env")
    return ""


def agents_meet(env: MultiAgentEnv, name: str, steps: int = 50) -> bool:
    """Whether two agents were to act at the same time anywhere in some random steps.

    Raises:
        EnvError: see `check_env`.
    """
    player = RandomPlayer(env, name)
    player.reset(SEEDS[0])
    return len(player.acting) > 1 or any(len(player.acting) > 1 for _ in player.walk(steps))


def gives_masks(env: MultiAgentEnv, name: str, check: bool = True, steps: int = 20) -> bool:
    """Whether infos hold action masks of agents with Discrete actions.

    Infos of the first reset may hold none: random steps are taken until each of these agents was to act after one.

    Args:
        env: the environment.
        name: the name of the environment, for messages.
        check: whether random steps may be taken.
        steps: the most of them.

    Raises:
        EnvError: see `check_env`.
    """
    player, unseen = RandomPlayer(env, name), agents_without_mask(env)
    maskable = {agent for agent, space in env.action_spaces.items() if choice_sizes(space)}

    def masks_found(infos: Mapping[str, Any]) -> bool:
        return any(_has_mask(infos.get(agent)) for agent in maskable)

    if not check:
        return masks_found(player.call_reset(SEEDS[0])[1])
    player.reset(SEEDS[0])
    if masks_found(player.infos):
        return True
    for _ in player.walk(steps if unseen else 0):
        unseen -= {*player.acting}
        if masks_found(player.infos) or not unseen:
            break
    return masks_found(player.infos)


def agents_without_mask(env: MultiAgentEnv) -> set[str]:
    """The agents whose actions can be masked and whose observations hold no mask, so that their infos may."""
    return {
        agent
        for agent in env.possible_agents
        if choice_sizes(env.action_spaces[agent])
        and not (isinstance(space := env.observation_spaces[agent], gym.spaces.Dict) and "action_mask" in space.spaces)
    }


def refuse_masks(name: str, infos: Mapping[str, Any], agents: Container[str]) -> None:
    """Refuse an action mask where `gives_masks` found none.

    Raises:
        EnvApiError: names the agent.
    """
    for agent, info in infos.items():
        if agent in agents and _has_mask(info):
            raise EnvApiError(
                f"environment {name!r} gives agent {agent!r} an action mask now, and no agent had one in its first "
                'steps: put "action_mask" into the infos from the first reset on'
            )


def _has_mask(info: Any) -> bool:
    return isinstance(info, Mapping) and "action_mask" in info
