"""Checks one environment against the Gymnasium API before training starts."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from lightning_rl.envs.action_masks import ActionMasks, sample_allowed
from lightning_rl.errors import EnvError, place_of

__all__ = [
    "OLD_API",
    "SEEDS",
    "call_reset",
    "check_env",
    "check_obs",
    "check_scalars",
    "contains",
    "equal",
    "reset_twice",
    "sample_allowed_action",
    "within_rounding",
]

log = logging.getLogger(__name__)

SEEDS = (1, 2)  # of the resets of a check; some environments take 0 for no seed
ROUNDING = 1e-5  # how far floats may be outside of their bounds: this, and this share of the bound
LONGEST_SPACE = 200  # characters of a space in a message
SKIP = "env.check=false skips this check"
OLD_API = (
    "An environment of the old API (gym) is converted by GymV21CompatibilityV0 or GymV26CompatibilityV0 of shimmy: "
    "env.id=my_module:make, where make() returns GymV21CompatibilityV0(env=…)"
)
# Attribute of a wrapper with running statistics → what does its work in a policy.
STATISTICS = {"obs_rms": "policy.observation_filter=mean_std", "return_rms": "policy.reward_filter=return_std"}


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
    obs, info = reset_twice(lambda seed: _reset(env, name, seed), env, name)
    env.action_space.seed(0)
    for step in range(steps):
        action = sample_allowed_action(env.action_space, name, obs, info)
        try:
            result = env.step(action)
        except Exception as error:
            raise EnvError(
                f"environment {name!r} raised {type(error).__name__} in step {step} after action {action!r}: {error}"
                f"{place_of(error)}"
            ) from error
        if not isinstance(result, tuple) or len(result) != 5:
            size = len(result) if isinstance(result, tuple) else type(result).__name__
            raise EnvError(
                f"environment {name!r}: step returned {size}; "
                "expected 5 values (obs, reward, terminated, truncated, info); "
                f"the old `done` is now `terminated` (the task ended) or `truncated` (a time limit). {OLD_API}"
            )
        obs, reward, terminated, truncated, info = *result[:4], result[4] or {}
        check_obs(env.observation_space, name, obs, f"step {step}")
        check_scalars(name, step, reward, terminated, truncated, info)
        if terminated or truncated:
            obs, info = _reset(env, name)


def reset_twice(reset: Callable[[int], Any], env: Any, name: str) -> Any:
    """Reset twice with each of two seeds; warn if equal seeds give different observations.

    Args:
        reset: resets with a seed; returns observation and info.
        env: the environment.
        name: of the environment.

    Returns:
        What the last reset returned.
    """
    if normaliser := _running_statistics(env):
        log.warning("environment %r: %s (%s)", name, normaliser, SKIP)
    result: Any = None
    for seed in SEEDS:
        first = copy.deepcopy(reset(seed)[0])  # environments may write all observations into one array
        result = reset(seed)
        if not equal(first, result[0]) and not normaliser:
            log.warning(
                "environment %r gives different observations for reset(seed=%s) twice: its runs cannot be repeated "
                "or resumed exactly; draw from the generator that reset(seed) makes (self.np_random) only, and keep no "
                "state from before a reset (%s)",
                name,
                seed,
                SKIP,
            )
            break
    return result


def _running_statistics(env: Any) -> str:
    """Names a wrapper that normalises by statistics of its own, such as Gymnasium's; "" without one."""
    while env is not None:
        for attribute, instead in STATISTICS.items():
            if attribute in vars(env):
                return (
                    f"{type(env).__name__} keeps statistics of its own in each environment, which neither evaluations "
                    f"nor checkpoints share: use {instead} instead"
                )
        env = vars(env).get("env")
    return ""


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


def call_reset(env: Any, name: str, seed: int = SEEDS[0]) -> Any:
    """What `reset(seed=…)` of an environment of one or several agents returned.

    Raises:
        EnvError: it does not take a seed, or raised.
    """
    try:
        return env.reset(seed=seed)
    except TypeError as error:
        raise EnvError(
            f"environment {name!r}: reset(seed={seed}) raised {error}; expected reset(self, *, seed=None, "
            f"options=None). {OLD_API}"
        ) from error
    except Exception as error:
        raise EnvError(
            f"environment {name!r} raised {type(error).__name__} in reset: {error}{place_of(error)}"
        ) from error


def _reset(env: gym.Env[Any, Any], name: str, seed: int = SEEDS[0]) -> Any:
    result = call_reset(env, name, seed)
    if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[1], Mapping | None):
        raise EnvError(
            f"environment {name!r}: reset returned {type(result).__name__}; expected the tuple (obs, info). {OLD_API}"
        )
    check_obs(env.observation_space, name, result[0], "reset")
    return result[0], result[1] or {}


def check_obs(space: gym.Space[Any], name: str, obs: Any, where: str) -> None:
    """Check that an observation is finite and in its space, but for a rounding.

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
            f"environment {name!r}: observation of {where} is {_describe(obs)}; expected a numpy array of {space} "
            f"({SKIP})"
        )
    if contains(space, obs):
        problem = _not_finite(obs)
        if problem:
            raise EnvError(
                f"environment {name!r}: observation of {where} holds {problem}: fix the environment or wrap it"
            )
        return
    problem = _not_finite(obs) or _outside(space, obs)
    raise EnvError(
        f"environment {name!r}: observation of {where} is outside its observation_space: {problem}: mend the space or "
        f"the observation ({SKIP})"
    )


def contains(space: gym.Space[Any], obs: Any) -> bool:
    """Whether an observation is in its space, with bounds a rounding wider, and dtypes that NumPy casts by itself."""
    if isinstance(space, gym.spaces.Dict):
        return (
            isinstance(obs, Mapping)
            and obs.keys() == space.spaces.keys()
            and all(contains(part, obs[key]) for key, part in space.spaces.items())
        )
    if isinstance(space, gym.spaces.Tuple):
        return isinstance(obs, tuple) and len(obs) == len(space) and all(map(contains, space.spaces, obs))
    if not isinstance(space, gym.spaces.Box) or not isinstance(obs, np.ndarray | np.generic):
        return space.contains(obs)
    if obs.shape != space.shape or not np.can_cast(obs.dtype, np.dtype(space.dtype), "same_kind"):
        return False
    return bool(np.all(within_rounding(obs, space.low, space.high)))


def within_rounding(values: np.ndarray | np.generic, low: Any, high: Any) -> np.ndarray:
    """Which values are in their bounds; floats may be a rounding outside."""
    exact = np.asarray(values).dtype.kind != "f"
    return np.isclose(values, np.clip(values, low, high), *((0.0, 0.0) if exact else (ROUNDING, ROUNDING)))


def check_scalars(name: str, step: int, reward: Any, terminated: Any, truncated: Any, info: Any) -> None:
    """Check the types of what a step returns beside the observation, and that the reward is finite.

    Raises:
        EnvError: names the first that is wrong.
    """
    if not np.isscalar(reward) and np.shape(reward) != ():
        raise EnvError(
            f"environment {name!r}: reward of step {step} has shape {np.shape(reward)}; expected one number: weigh "
            "several objectives, as env.wrappers=[{wrapper: mo_gymnasium.wrappers.LinearReward, weight: [0.5, 0.5]}]"
        )
    if not isinstance(reward, int | float | np.number | np.bool_ | np.ndarray) or not np.isfinite(reward):
        raise EnvError(f"environment {name!r}: reward of step {step} is {reward!r}; expected one finite number")
    for field, value in (("terminated", terminated), ("truncated", truncated)):
        if not isinstance(value, bool | np.bool_):
            raise EnvError(f"environment {name!r}: {field} of step {step} is {value!r}; expected a bool ({SKIP})")
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


def _outside(space: gym.Space[Any], obs: Any, part: str = "") -> str:
    """The first part of an observation outside its space, what it holds, and what is expected there."""
    where = f"part {part!r}: " if part else ""
    if isinstance(space, gym.spaces.Dict) and isinstance(obs, Mapping):
        if obs.keys() != space.spaces.keys():
            return f"{where}got a dict with {[*obs]}, expected {[*space.spaces]}"
        children = [(key, obs[key], child) for key, child in space.spaces.items()]
    elif isinstance(space, gym.spaces.Tuple) and isinstance(obs, tuple) and len(obs) == len(space):
        children = [(index, *pair) for index, pair in enumerate(zip(obs, space.spaces, strict=True))]
    else:
        return f"{where}got {_describe(obs)}, expected {_on_one_line(space)}{_first_outside(space, obs)}"
    key, value, child = next(entry for entry in children if not contains(entry[2], entry[1]))
    return _outside(child, value, f"{part}/{key}" if part else str(key))


def _first_outside(space: gym.Space[Any], obs: Any) -> str:
    """The first entry of an array outside of its bounds; "" if the shape or the dtype is what does not fit."""
    if not isinstance(space, gym.spaces.Box) or not isinstance(obs, np.ndarray) or obs.shape != space.shape:
        return ""
    for index in np.argwhere(~within_rounding(obs, space.low, space.high))[:1]:
        at = tuple(index.tolist())
        return f": {obs[at]} at index {[*at]} is outside [{space.low[at]}, {space.high[at]}]"
    return ""


def _on_one_line(space: gym.Space[Any]) -> str:
    text = " ".join(str(space).split())
    return text if len(text) <= LONGEST_SPACE else f"{text[: LONGEST_SPACE - 1]}…"


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
