"""Checks one environment against the multi-agent API before training starts."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Any

import gymnasium as gym

from lightning_rl.envs.action_masks import choice_sizes
from lightning_rl.envs.check import (
    SEEDS,
    call_reset,
    check_obs,
    check_scalars,
    contains,
    reset_twice,
    sample_allowed_action,
)
from lightning_rl.envs.multi_agent.multi_agent_env import ALL, MultiAgentEnv
from lightning_rl.errors import EnvApiError, EnvError, place_of, short_repr

__all__ = [
    "agents_meet",
    "agents_without_mask",
    "check_agents",
    "check_multi_agent_env",
    "gives_masks",
    "refuse_masks",
    "reset_with_seed",
]

STEP_PARTS = ("obs", "rewards", "terminated", "truncated", "infos")


def check_agents(env: MultiAgentEnv, name: str) -> None:
    """Check the names of the agents and that each has its spaces.

    Raises:
        EnvError: names what is missing.
    """
    agents = getattr(env, "possible_agents", None)
    if not isinstance(agents, list | tuple) or not agents:
        raise EnvError(
            f"environment {name!r} has possible_agents={agents!r}; expected a list of names, set in __init__ beside "
            "observation_spaces and action_spaces (dicts, agent → space)"
        )
    if wrong := [agent for agent in agents if not isinstance(agent, str) or agent == ALL]:
        raise EnvError(f"environment {name!r} has the agent {wrong[0]!r} in possible_agents; expected names (str)")
    if len(set(agents)) < len(agents):
        raise EnvError(f"environment {name!r} has an agent twice in possible_agents={short_repr(agents)}")
    for attribute in ("observation_spaces", "action_spaces"):
        found = getattr(env, attribute, None)
        if not isinstance(found, Mapping):
            raise EnvError(
                f"environment {name!r} has {attribute}={short_repr(found)}; expected a dict with a space for each agent"
            )
        for agent in agents:
            if not isinstance(found.get(agent), gym.Space):
                raise EnvError(
                    f"environment {name!r} has {attribute}[{agent!r}]={short_repr(found.get(agent))}; "
                    "expected a gymnasium.spaces.Space for each of possible_agents"
                )


def check_multi_agent_env(env: MultiAgentEnv, name: str, steps: int = 20) -> None:
    """Check two resets with equal seeds and a few random steps; the first violation raises an error.

    Raises:
        EnvError: names the environment, what it returned, what is expected and what to change.
    """
    check_agents(env, name)
    obs, infos = reset_twice(lambda seed: _reset(env, name, seed), env, name)
    acted = [bool(obs), *(bool(acting) for acting, _ in _random_steps(env, name, obs, infos, steps))]
    if not any(acted):
        raise EnvError(
            f"environment {name!r} gives no agent an observation to act on, neither at its reset nor in {steps} steps: "
            "return those of the agents that act next, or set env.check=false if they come later"
        )


def agents_meet(env: MultiAgentEnv, name: str, steps: int = 50) -> bool:
    """Whether two agents were to act at the same time anywhere in some random steps.

    Raises:
        EnvError: as `check_multi_agent_env`.
    """
    obs, infos = _reset(env, name)
    return len(obs) > 1 or any(len(acting) > 1 for acting, _ in _random_steps(env, name, obs, infos, steps))


def gives_masks(env: MultiAgentEnv, name: str, check: bool = True, steps: int = 20) -> bool:
    """Whether infos hold action masks of agents with Discrete actions.

    Infos of the first reset may hold none: random steps are taken until each of these agents was to act after one.

    Args:
        env: the environment.
        name: of the environment, for messages.
        check: whether random steps may be taken.
        steps: the most of them.

    Raises:
        EnvError: as `check_multi_agent_env`.
    """
    obs, infos = _reset(env, name) if check else reset_with_seed(env, name)
    maskable = {agent for agent, space in env.action_spaces.items() if choice_sizes(space)}
    unseen = agents_without_mask(env)
    if any(_has_mask(infos.get(agent)) for agent in maskable):
        return True
    if check and unseen:
        for acting, given in _random_steps(env, name, obs, infos, steps):
            if any(_has_mask(given.get(agent)) for agent in maskable):
                return True
            unseen -= acting
            if not unseen:
                break
    return False


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


def _random_steps(
    env: MultiAgentEnv, name: str, obs: Mapping[str, Any], infos: Mapping[str, Any], steps: int
) -> Iterator[tuple[set[str], Mapping[str, Any]]]:
    """Take random steps after a reset, the same ones each time; after each, who is to act next, and the infos."""
    action_spaces = {agent: env.action_spaces[agent] for agent in env.possible_agents}
    spaces = {agent: (env.observation_spaces[agent], space) for agent, space in action_spaces.items()}
    for space in action_spaces.values():
        space.seed(0)
    acting, ended = set(obs), set[str]()
    for step in range(steps):
        actions = {
            agent: sample_allowed_action(space, name, obs[agent], infos.get(agent, {}))
            for agent, space in action_spaces.items()
            if agent in acting
        }
        obs, terminated, truncated, infos = _step(env, name, step, actions, ended)
        ended |= {agent for part in (terminated, truncated) for agent, value in part.items() if value}
        if ALL in ended:
            (obs, infos), ended = _reset(env, name), set[str]()
        for agent, pair in spaces.items():
            if (env.observation_spaces[agent], env.action_spaces[agent]) != pair:
                raise EnvError(f"environment {name!r} changed the spaces of {agent!r}; they are fixed in __init__")
        acting = set(obs) - ended
        yield acting, infos


def _step(env: MultiAgentEnv, name: str, step: int, actions: dict[str, Any], ended: set[str]) -> Any:
    where = f"step {step}"
    try:
        result: Any = env.step(actions)
    except Exception as error:
        raise EnvError(
            f"environment {name!r} raised {type(error).__name__} in {where} after actions {short_repr(actions)}: "
            f"{error}{place_of(error)}"
        ) from error
    if not isinstance(result, tuple) or len(result) != 5:
        size = len(result) if isinstance(result, tuple) else type(result).__name__
        raise EnvError(
            f"environment {name!r}: step returned {size}; expected 5 dicts keyed by agent ({', '.join(STEP_PARTS)})"
        )
    for part, values in zip(STEP_PARTS, result, strict=True):
        _check_keys(env, name, f"{part} of {where}", values, ended, flags=part in ("terminated", "truncated"))
    obs, rewards, terminated, truncated, infos = result
    for agent in {**obs, **rewards, **terminated, **truncated}:
        flags = bool(terminated.get(agent, False)), bool(truncated.get(agent, False))
        try:
            if agent != ALL:
                check_scalars(name, step, rewards.get(agent, 0.0), *flags, {})
        except EnvError as error:
            raise EnvError(f"{error} (agent {agent!r})") from error
    _check_observations(env, name, obs, where)
    return obs, terminated, truncated, infos


def _check_keys(env: MultiAgentEnv, name: str, what: str, values: Any, ended: set[str], flags: bool = False) -> None:
    """Check that a dict is keyed by agents that have not ended; `terminated` and `truncated` have "__all__", too."""
    if not isinstance(values, Mapping):
        raise EnvError(f"environment {name!r}: {what} is {type(values).__name__}; expected a dict keyed by agent")
    if flags and ALL not in values:
        raise EnvError(
            f'environment {name!r}: {what} has no "{ALL}"; add {{"{ALL}": whether the episode of all agents is over}}'
        )
    for agent, value in values.items():
        if agent not in env.possible_agents and agent not in (ALL, "__common__"):
            raise EnvError(
                f"environment {name!r}: {what} has the agent {short_repr(agent)}, which is not in possible_agents="
                f"{short_repr(env.possible_agents)}"
            )
        is_news = bool(value) if flags else what.startswith("obs")
        if agent in ended and is_news:
            raise EnvError(
                f"environment {name!r}: {what} has {agent!r}, whose episode has ended; it may come back after the "
                "next reset"
            )


def _check_observations(env: MultiAgentEnv, name: str, obs: Mapping[str, Any], where: str) -> None:
    for agent, value in obs.items():
        check_obs(env.observation_spaces[agent], name, value, f"{where}, agent {agent!r}")
    if env.state_space is not None:
        state = env.state()
        if not contains(env.state_space, state):
            raise EnvError(
                f"environment {name!r}: state() after {where} is outside its state_space: got "
                f"{short_repr(state)}, expected {env.state_space}"
            )


def _reset(env: MultiAgentEnv, name: str, seed: int = SEEDS[0]) -> Any:
    obs, infos = reset_with_seed(env, name, seed)
    for part, values in (("obs", obs), ("infos", infos)):
        _check_keys(env, name, f"{part} of reset", values, set())
    _check_observations(env, name, obs, "reset")
    return obs, infos


def reset_with_seed(env: MultiAgentEnv, name: str, seed: int = SEEDS[0]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Reset with a seed, and check that two dicts come back.

    Raises:
        EnvError: names what came back, or what the environment raised.
    """
    result: Any = call_reset(env, name, seed)
    if not isinstance(result, tuple) or len(result) != 2 or not all(isinstance(part, Mapping) for part in result):
        raise EnvError(
            f"environment {name!r}: reset returned {type(result).__name__}; expected two dicts keyed by agent: "
            "(obs, infos)"
        )
    return result
