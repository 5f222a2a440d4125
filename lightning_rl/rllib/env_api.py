"""Environments as RLlib 1.x had them, made to Gymnasium's: `reset() -> obs`, `step() -> (obs, reward, done, info)`."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from lightning_rl.envs.multi_agent.multi_agent_env import ALL, MultiAgentEnv
from lightning_rl.envs.registry import CONTEXT_NAMES, EnvContext, call_creator, find_registered_env
from lightning_rl.errors import EnvError
from lightning_rl.rllib.external_env import ExternalEnv, ExternalMultiAgentEnv
from lightning_rl.rllib.external_lanes import ExternalCreator
from lightning_rl.rllib.old_gym import TIME_LIMIT, gymnasium_space
from lightning_rl.schema.signatures import call_with_accepted_args

__all__ = [
    "ClassicEnv",
    "ClassicMultiAgentEnv",
    "agent_number",
    "as_current",
    "current_api",
    "gymnasium_space",
    "make_current",
    "map_number",
]

STEPS = 20  # of random play, in which agents that come late are found


def current_api(
    env: Any, env_config: Mapping[str, Any], multiagent: Mapping[str, Any]
) -> tuple[Any, Mapping[str, Any], bool]:
    """The environment of a config, with Gymnasium's API if it has that of RLlib 1.x.

    Args:
        env: the value of the key `env`; ids of Gymnasium stay as they are.
        env_config: that of the config.
        multiagent: that of the config; its policies may hold the spaces of agents.

    Returns:
        `env`, or a function that makes and adapts its environments, of external ones an `ExternalCreator`;
        `multiagent`, in which a `policy_mapping_fn` of agents that are numbers keeps getting numbers; and whether they
        are. A class that needs one argument gets the `EnvContext`, whatever the argument's name is, unless it is a key
        of `env_config`.
    """
    creator = find_registered_env(env) or env
    if creator is None or isinstance(creator, str):
        return env, multiagent, False
    if needs_context(creator, env_config):
        env = creator = partial(make_of_context, env_class=creator)
    context = EnvContext(env_config)
    found: Any = creator
    if not isinstance(creator, type) or not hasattr(creator, "reset"):
        made = call_creator(creator, context, {})
        if isinstance(made, ExternalEnv):
            several = isinstance(made, ExternalMultiAgentEnv)
            return ExternalCreator(creator, made), *number_agents(multiagent, made.observation_space if several else ())
        found = type(made)
        if hasattr(made, "close"):
            made.close()
    if not _is_classic(found):
        return env, multiagent, False
    warnings.warn(
        f"environment {found.__name__} has the API of Gym before 0.26 and RLlib 1.x: it is adapted. Its reset takes no "
        "seed, so runs repeat only as far as it draws from what `seed()` sets; write reset(*, seed, options) -> (obs, "
        "info) and step(action) -> (obs, reward, terminated, truncated, info)",
        stacklevel=4,
    )
    policies, mapping = multiagent.get("policies") or {}, multiagent.get("policy_mapping_fn")
    observe = multiagent.get("observation_fn")
    multiagent = {key: value for key, value in multiagent.items() if key != "observation_fn"}
    adapted = partial(make_current, creator=creator, policies=policies, mapping=mapping, observe=observe)
    return adapted, *number_agents(multiagent, getattr(adapted(context), "possible_agents", ()))


def number_agents(multiagent: Mapping[str, Any], agents: Iterable[Any]) -> tuple[Mapping[str, Any], bool]:
    """The last two values of `current_api`, of such agents."""
    numbered, mapping = (
        any(isinstance(agent, int | np.integer) for agent in agents),
        multiagent.get("policy_mapping_fn"),
    )
    if mapping is not None and numbered:
        multiagent = {**multiagent, "policy_mapping_fn": partial(map_number, fn=mapping)}
    return multiagent, numbered


def needs_context(creator: Any, env_config: Mapping[str, Any]) -> bool:
    """Whether it is a class that needs one argument, of a name that says nothing to `call_creator`."""
    if not isinstance(creator, type):
        return False
    parameters = inspect.signature(creator).parameters.values()
    needed = [
        each.name for each in parameters if each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD
    ]
    return len(needed) == 1 and needed[0] not in {*CONTEXT_NAMES, *env_config}


def make_of_context(context: EnvContext, *, env_class: Callable[..., Any]) -> Any:
    """Make an environment of the whole context, its first argument."""
    return env_class(context)


def agent_number(agent_id: str) -> int:
    """3 of "agent_3"."""
    return int(agent_id.removeprefix("agent_"))


def map_number(agent_id: str, episode: Any = None, worker: Any = None, *, fn: Callable[..., str]) -> str:
    """The policy of "agent_3" by a function of 3."""
    return call_with_accepted_args(fn, agent_number(agent_id), episode, worker)


def make_current(context: EnvContext, *, creator: Callable[..., Any], policies: Any, mapping: Any, observe: Any) -> Any:
    """Make an environment of RLlib 1.x, with Gymnasium's API."""
    return as_current(call_creator(creator, context, {}), policies, mapping, observe)


def as_current(env: Any, policies: Any = None, mapping: Any = None, observe: Any = None) -> Any:
    """An environment of RLlib 1.x with Gymnasium's API; one that has it stays as it is.

    Args:
        env: the env of one agent or several.
        policies, mapping, observe: see `ClassicMultiAgentEnv`.
    """
    if not _is_classic(type(env)):
        return env
    several = any(parent.__name__ == "MultiAgentEnv" for parent in type(env).__mro__)
    return ClassicMultiAgentEnv(env, policies or {}, mapping, observe) if several else ClassicEnv(env)


def _is_classic(env_class: type) -> bool:
    """Whether `reset` takes no seed, as before Gym 0.26."""
    reset = getattr(env_class, "reset", None)
    if reset is None or reset in (gym.Env.reset, MultiAgentEnv.reset) or issubclass(env_class, gym.Wrapper):
        return False
    parameters = inspect.signature(reset).parameters.values()
    return not any(each.name == "seed" or each.kind is each.VAR_KEYWORD for each in parameters)


class ClassicEnv(gym.Env[Any, Any]):
    """An environment with one agent: `reset() -> obs`, `step(action) -> (obs, reward, done, info)`.

    Where the info of a step says so ("TimeLimit.truncated"), `done` is a truncation.

    Args:
        env: the environment, with spaces of Gymnasium or of Gym.
    """

    def __init__(self, env: Any) -> None:
        self.env = env
        self.observation_space = gymnasium_space(env.observation_space)
        self.action_space = gymnasium_space(env.action_space)
        self.metadata = dict(getattr(env, "metadata", None) or {})
        self.render_mode = getattr(env, "render_mode", None)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; the seed goes to the environment's method `seed`, if it has one."""
        super().reset(seed=seed)
        _seed(self.env, seed)
        obs, info = _with_info(self.env.reset(), isinstance(self.observation_space, spaces.Tuple))
        return self._to_space(obs), info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step the environment."""
        obs, reward, *ended, info = self.env.step(action)
        done, truncated = ended if len(ended) == 2 else (ended[0], bool(info.get(TIME_LIMIT, False)))
        terminated = bool(done) and not (len(ended) == 1 and truncated)
        return self._to_space(obs), reward, terminated, bool(truncated), info

    def render(self) -> Any:
        """A frame, if the environment draws some."""
        return self.env.render()

    def close(self) -> None:
        """Close the environment."""
        if hasattr(self.env, "close"):
            self.env.close()

    def __getattr__(self, name: str) -> Any:
        if name == "env":
            raise AttributeError(name)
        return getattr(self.env, name)

    def _to_space(self, obs: Any) -> Any:
        """The observation as an array of the space's dtype, which environments of that time often left to RLlib."""
        space = self.observation_space
        return np.asarray(obs, space.dtype) if isinstance(space, spaces.Box) else obs


class ClassicMultiAgentEnv(MultiAgentEnv):
    """An environment with several agents: `reset() -> obs`, `step(actions) -> (obs, rewards, dones, infos)`.

    Args:
        env: the environment. Agents that it does not name are those that its first steps show; spaces that it does not
            give are those of the agents' policies.
        policies: id → (class, observation space, action space, config).
        mapping: agent → id of its policy.
        observe: `multiagent.observation_fn`, called with the observations by agent as `agent_obs`; returns what the
            agents observe instead, in the spaces of their policies.

    Raises:
        EnvError: neither the environment nor the policies give an agent's spaces.
    """

    def __init__(self, env: Any, policies: Mapping[str, Any], mapping: Any, observe: Any = None) -> None:
        self.env, self.metadata = env, dict(getattr(env, "metadata", None) or {})
        self.observe = observe
        self.render_mode = getattr(env, "render_mode", None)
        given = [getattr(env, name, None) for name in ("possible_agents", "_agent_ids", "agents")]
        named = next((agents for agents in given if agents and not isinstance(agents, int)), None)
        self.possible_agents = sorted(named, key=str) if named else self._agents_seen(policies, mapping)
        self.observation_spaces, self.action_spaces = (
            {agent: self._space(index, agent, policies, mapping) for agent in self.possible_agents} for index in (1, 2)
        )

    @property
    def unwrapped(self) -> Any:
        """The environment itself."""
        return self.env

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin an episode."""
        _seed(self.env, seed)
        obs, infos = _with_info(self.env.reset(), False)
        return self._to_spaces(obs), infos

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:  # type: ignore[override]
        """Step the environment; `dones` are terminations, unless an agent's info says "TimeLimit.truncated"."""
        obs, rewards, *ended, infos = self.env.step(actions)
        if len(ended) == 2:
            return self._to_spaces(obs), rewards, *ended, infos
        cut = {agent: bool(infos.get(agent, {}).get(TIME_LIMIT, False)) for agent in ended[0]}
        cut[ALL] = bool(ended[0].get(ALL)) and any(cut.values())
        terminated = {agent: bool(done) and not cut[agent] for agent, done in ended[0].items()}
        return (
            self._to_spaces(obs),
            rewards,
            terminated,
            {agent: cut[agent] and ended[0][agent] for agent in cut},
            infos,
        )

    def close(self) -> None:
        """Close the environment."""
        if hasattr(self.env, "close"):
            self.env.close()

    def _to_spaces(self, obs: Mapping[str, Any]) -> dict[str, Any]:
        if self.observe is not None:
            found = self.observe(agent_obs=obs, worker=None, base_env=None, policies=None, episode=None)
            obs = {agent: found[agent] for agent in obs}
        return {
            agent: np.asarray(value, space.dtype)
            if isinstance(space := self.observation_spaces[agent], spaces.Box)
            else value
            for agent, value in obs.items()
        }

    def _agents_seen(self, policies: Mapping[str, Any], mapping: Any) -> list[Any]:
        """The agents that act in some random steps."""
        obs, _ = _with_info(self.env.reset(), False)
        seen = dict.fromkeys(obs)
        for _ in range(STEPS):
            result = self.env.step({agent: self._space(2, agent, policies, mapping).sample() for agent in obs})
            obs = {agent: value for agent, value in result[0].items() if not result[2].get(agent)}
            seen |= dict.fromkeys(result[0])
            if result[2].get(ALL):
                break
        return sorted(seen, key=str)

    def _space(self, index: int, agent: Any, policies: Mapping[str, Any], mapping: Any) -> gym.Space[Any]:
        name = ("observation_space", "action_space")[index - 1]
        by_agent = getattr(self.env, f"{name}s", None)
        found = by_agent.get(agent) if isinstance(by_agent, Mapping) else getattr(self.env, name, None)
        parts = getattr(found, "spaces", None)
        if isinstance(parts, Mapping) and agent in parts:
            found = parts[agent]
        if mapping is not None and (found is None or (index == 1 and self.observe is not None)):
            spec = policies.get(call_with_accepted_args(mapping, agent, None, None))
            found = spec[index] if isinstance(spec, tuple) else getattr(spec, name, None)
        if found is None:
            raise EnvError(
                f"environment {type(self.env).__name__} has no {name} of agent {agent!r}, and no policy gives it one: "
                f"set the attribute {name}, or multiagent.policies={{id: (None, observation space, action space, "
                "config)}"
            )
        return gymnasium_space(found)


def _seed(env: Any, seed: int | None) -> None:
    own = getattr(env, "seed", None)
    if seed is not None and callable(own):
        own(seed)


def _with_info(result: Any, obs_is_tuple: bool) -> tuple[Any, dict[str, Any]]:
    """What `reset` returned as (observation, info)."""
    pair = isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], Mapping)
    return result if pair and not obs_is_tuple else (result, {})
