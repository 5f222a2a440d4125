"""Checks one environment against the Gymnasium API before training starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from lightning_rl.envs.action_masks import ActionMasks, sample_allowed
from lightning_rl.errors import EnvError

__all__ = ["call_reset", "check_env", "check_obs", "check_scalars", "equal", "sample_allowed_action"]


def check_env(env: gym.Env[Any, Any], name: str, steps: int = 20) -> None:
    """Check two resets with equal seeds and a few random steps; the first violation raises an error.

    Raises:
        EnvError: names the environment, what it returned, what is expected and what to change.
    """
    for attribute in ("observation_space", "action_space"):
        if not isinstance(getattr(env, attribute, None), gym.Space):
            found = getattr(env, attribute, None)
            raise EnvError(
                f"environment {name!r} has {attribute}={found!r}; expected a gymnasium.spaces.Space set in __init__"
            )
    (first, _), (obs, info) = _reset(env, name), _reset(env, name)
    if not equal(first, obs):
        raise EnvError(
            f"environment {name!r} gives different observations for reset(seed=0) twice: draw from self.np_random only"
        )
    env.action_space.seed(0)
    for step in range(steps):
        action = sample_allowed_action(env.action_space, name, obs, info)
        try:
            result = env.step(action)
        except Exception as error:
            raise EnvError(
                f"environment {name!r} raised {type(error).__name__} in step {step} after action {action!r}: {error}"
            ) from error
        if not isinstance(result, tuple) or len(result) != 5:
            size = len(result) if isinstance(result, tuple) else type(result).__name__
            raise EnvError(
                f"environment {name!r}: step returned {size}; "
                "expected 5 values (obs, reward, terminated, truncated, info); "
                "the old `done` is now `terminated` (the task ended) or `truncated` (a time limit)"
            )
        obs, reward, terminated, truncated, info = *result[:4], result[4] or {}
        check_obs(env.observation_space, name, obs, f"step {step}")
        check_scalars(name, step, reward, terminated, truncated, info)
        if terminated or truncated:
            obs, info = _reset(env, name)


def sample_allowed_action(space: gym.Space[Any], name: str, obs: Any, info: Any) -> Any:
    """A random action that the mask in the info or in a Dict observation allows; of a group, that of each member.

    Raises:
        EnvApiError: a mask does not fit the action space.
    """
    if isinstance(space, gym.spaces.Tuple) and isinstance(obs, Mapping | tuple):  # a group of agents
        agents = obs.get("agents") if isinstance(obs, Mapping) else obs
        masks = obs.get("action_masks") if isinstance(obs, Mapping) else None
        if masks is None and isinstance(agents, tuple):
            masks = [agent.get("action_mask") if isinstance(agent, Mapping) else None for agent in agents]
        if masks is not None and len(masks) == len(space.spaces):
            own = zip(space.spaces, masks, strict=True)
            return tuple(sample_allowed_action(part, name, None, {"action_mask": mask}) for part, mask in own)
    allowed = ActionMasks(space, name).find(obs, info)
    return space.sample() if allowed is None else sample_allowed(space, allowed, space.np_random)


def call_reset(env: Any, name: str) -> Any:
    """What `reset(seed=0)` of an environment of one or several agents returned.

    Raises:
        EnvError: it does not take a seed, or raised.
    """
    try:
        return env.reset(seed=0)
    except TypeError as error:
        raise EnvError(
            f"environment {name!r}: reset(seed=0) raised {error}; expected reset(self, *, seed=None, options=None)"
        ) from error
    except Exception as error:
        raise EnvError(f"environment {name!r} raised {type(error).__name__} in reset: {error}") from error


def _reset(env: gym.Env[Any, Any], name: str) -> Any:
    result = call_reset(env, name)
    if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[1], Mapping | None):
        raise EnvError(f"environment {name!r}: reset returned {type(result).__name__}; expected the tuple (obs, info)")
    check_obs(env.observation_space, name, result[0], "reset")
    return result[0], result[1] or {}


def check_obs(space: gym.Space[Any], name: str, obs: Any, where: str) -> None:
    """Check that an observation is finite and in its space.

    Args:
        space: the observation space.
        name: of the environment.
        obs: the observation.
        where: in which call it was found.

    Raises:
        EnvError: names what is wrong with it.
    """
    if isinstance(space, gym.spaces.Box) and not isinstance(obs, np.ndarray | np.generic):
        raise EnvError(
            f"environment {name!r}: observation of {where} is {_describe(obs)}; expected a numpy array of {space}"
        )
    if space.contains(obs):
        problem = _not_finite(obs)
        if problem:
            raise EnvError(
                f"environment {name!r}: observation of {where} holds {problem}: fix the environment or wrap it"
            )
        return
    problem = _not_finite(obs)
    described = problem or _describe(obs)
    raise EnvError(
        f"environment {name!r}: observation of {where} is outside its observation_space: "
        f"got {described}, expected {space}"
    )


def check_scalars(name: str, step: int, reward: Any, terminated: Any, truncated: Any, info: Any) -> None:
    """Check the types of what a step returns beside the observation, and that the reward is finite.

    Raises:
        EnvError: names the first that is wrong.
    """
    if not np.isscalar(reward) and np.shape(reward) != ():
        raise EnvError(f"environment {name!r}: reward of step {step} has shape {np.shape(reward)}; expected one number")
    if not isinstance(reward, int | float | np.number | np.bool_ | np.ndarray) or not np.isfinite(reward):
        raise EnvError(f"environment {name!r}: reward of step {step} is {reward!r}; expected one finite number")
    for field, value in (("terminated", terminated), ("truncated", truncated)):
        if not isinstance(value, bool | np.bool_):
            raise EnvError(f"environment {name!r}: {field} of step {step} is {value!r}; expected a bool")
    if not isinstance(info, Mapping):
        raise EnvError(f"environment {name!r}: info of step {step} is {type(info).__name__}; expected a dict")


def _not_finite(obs: Any) -> str:
    if isinstance(obs, Mapping):
        return next((f"{key!r}: {found}" for key, child in obs.items() if (found := _not_finite(child))), "")
    if isinstance(obs, tuple):
        return next((f"entry {i}: {found}" for i, child in enumerate(obs) if (found := _not_finite(child))), "")
    values = np.asarray(obs)
    if values.dtype.kind != "f":
        return ""
    bad = np.argwhere(~np.isfinite(values))
    return f"{values[tuple(bad[0])]} at index {bad[0].tolist()}" if len(bad) else ""


def _describe(obs: Any) -> str:
    if isinstance(obs, np.ndarray):
        limits = f", values in [{obs.min()}, {obs.max()}]" if obs.size else ""
        return f"array of shape {obs.shape}, {obs.dtype}{limits}"
    return f"{type(obs).__name__} {obs!r}"[:200]


def equal(first: Any, second: Any) -> bool:
    """Whether two (nested) observations are equal."""
    if isinstance(first, Mapping):
        return first.keys() == second.keys() and all(equal(first[key], second[key]) for key in first)
    if isinstance(first, tuple):
        return len(first) == len(second) and all(equal(a, b) for a, b in zip(first, second, strict=True))
    return np.array_equal(np.asarray(first), np.asarray(second))
