"""Environments that give action masks in every form and at every time, and refuse what their masks forbid."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from lightning_rl.envs.multi_agent import MultiAgentEnv

ACTIONS: dict[str, spaces.Space[Any]] = {
    "discrete": spaces.Discrete(3),
    "from 5": spaces.Discrete(3, start=5),
    "multi discrete": spaces.MultiDiscrete([2, 3]),
    "grid": spaces.MultiDiscrete([[2, 3], [3, 2]]),
    "bits": spaces.MultiBinary(2),
    "nested": spaces.Dict(
        mode=spaces.Discrete(2), pair=spaces.Tuple((spaces.Discrete(3), spaces.MultiDiscrete([2, 2])))
    ),
}
VECTOR = spaces.Box(-1.0, 1.0, (2,), np.float32)
TIMES = ("always", "reset", "step", "third", "first env")


def random_mask(space: spaces.Space[Any], rng: np.random.Generator) -> Any:
    """A mask in the form of `space.sample(mask)` that forbids one alternative of each choice."""
    if isinstance(space, spaces.Dict):
        return {name: random_mask(part, rng) for name, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(random_mask(part, rng) for part in space.spaces)
    if isinstance(space, spaces.MultiBinary):
        return rng.integers(0, 3, space.shape).astype(np.int8)  # 2 leaves a bit free
    if isinstance(space, spaces.MultiDiscrete):
        return _mask_of(space.nvec, rng)
    return _mask_of(np.asarray(space.n), rng)


def _mask_of(nvec: np.ndarray, rng: np.random.Generator) -> Any:
    if nvec.ndim:
        return tuple(_mask_of(row, rng) for row in nvec)
    mask = np.ones(int(nvec), np.int8)
    mask[rng.integers(len(mask))] = 0
    return mask


def allows(space: spaces.Space[Any], mask: Any, action: Any) -> bool:
    """Whether a mask in the form of `space.sample(mask)` allows an action."""
    if isinstance(space, spaces.Dict):
        return all(allows(part, mask[name], action[name]) for name, part in space.spaces.items())
    if isinstance(space, spaces.Tuple):
        return all(allows(*each) for each in zip(space.spaces, mask, action, strict=True))
    if isinstance(space, spaces.MultiBinary):
        return bool(((mask == 2) | (mask == action)).all())
    if isinstance(space, spaces.MultiDiscrete):
        return _allows(mask, np.asarray(action))
    return bool(mask[int(action) - int(space.start)])


def _allows(mask: Any, action: np.ndarray) -> bool:
    return all(map(_allows, mask, action)) if action.ndim else bool(mask[int(action)])


def as_lists(mask: Any) -> Any:
    """The same mask as nested lists of bools."""
    if isinstance(mask, dict):
        return {name: as_lists(part) for name, part in mask.items()}
    if isinstance(mask, tuple):
        return [as_lists(part) for part in mask]
    return mask.tolist()


class Masked(gym.Env[Any, Any]):
    """Episodes of 5 steps; a forbidden action raises.

    Args:
        actions: key of `ACTIONS`.
        time: when infos hold a mask: "always", in "reset" or "step" only, each "third" time, "first env" only.
        form: "arrays" as `space.sample` takes them, "lists", or "mixed" from step to step.
        index: number of the environment in its vector.
    """

    def __init__(self, actions: str, time: str = "always", form: str = "arrays", index: int = 0) -> None:
        self.action_space, self.time, self.form, self.index = ACTIONS[actions], time, form, index
        self.observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.calls = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self._observe("reset")

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self.mask is not None and not allows(self.action_space, self.mask, action):
            raise AssertionError(f"{self.mask} forbids {action}")
        self.steps += 1
        obs, info = self._observe("step")
        return obs, 1.0, False, self.steps == 5, info

    def _observe(self, call: str) -> tuple[Any, dict[str, Any]]:
        self.calls += 1
        times = {"always": True, "third": self.steps % 3 == 2, "first env": self.index == 0}
        gives = times.get(self.time, self.time == call)
        self.mask = random_mask(self.action_space, self.np_random) if gives else None
        lists = self.form == "lists" or (self.form == "mixed" and self.calls % 2)
        info = {} if self.mask is None else {"action_mask": as_lists(self.mask) if lists else self.mask}
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), info


def make_masked(context: Any) -> Masked:
    """`Masked` with keywords of an `EnvContext`, and the index of the environment in its vector."""
    return Masked(**context, index=context.vector_index)


class MaskedVector(gym.vector.VectorEnv[Any, Any, Any]):
    """A native vector of `Masked`: one array of masks `[B, 3]`, without "_action_mask"; ends reset in the next step."""

    metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": gym.vector.AutoresetMode.NEXT_STEP}

    def __init__(self, num_envs: int = 1, **unused: Any) -> None:
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = VECTOR, ACTIONS["discrete"]
        self.observation_space = gym.vector.utils.batch_space(VECTOR, num_envs)
        self.action_space = gym.vector.utils.batch_space(ACTIONS["discrete"], num_envs)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed[0] if isinstance(seed, list) else seed)
        self.steps = np.arange(self.num_envs) % 5
        self.ended = np.zeros(self.num_envs, bool)
        return self._observe()

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        allowed = self.masks[np.arange(self.num_envs), actions].astype(bool) | self.ended
        if not allowed.all():
            raise AssertionError(f"{self.masks} forbid {actions}")
        self.steps = np.where(self.ended, 0, self.steps + 1)
        rewards = np.where(self.ended, 0.0, 1.0)
        self.ended = self.steps == 5
        obs, info = self._observe()
        return obs, rewards, np.zeros(self.num_envs, bool), self.ended.copy(), info

    def _observe(self) -> tuple[Any, dict[str, Any]]:
        self.masks = np.ones((self.num_envs, 3), np.int8)
        self.masks[np.arange(self.num_envs), self.np_random.integers(3, size=self.num_envs)] = 0
        return self.np_random.uniform(-1, 1, (self.num_envs, 2)).astype(np.float32), {"action_mask": self.masks.copy()}


class InTwoPlaces(MultiAgentEnv):
    """One agent's mask is in its info, another's in its Dict observation, both as lists; the third has none.

    Args:
        pairs: actions are MultiDiscrete, so that a mask has two parts.
    """

    def __init__(self, pairs: bool = False) -> None:
        self.possible_agents = ["by_info", "by_obs", "free"]
        self.masks = [[False, True], [True, False, True]] if pairs else [False, False, True]
        mask = spaces.Tuple([spaces.MultiBinary(2), spaces.MultiBinary(3)]) if pairs else spaces.MultiBinary(3)
        self.observation_spaces = dict.fromkeys(self.possible_agents, VECTOR)
        self.observation_spaces["by_obs"] = spaces.Dict(observation=VECTOR, action_mask=mask)
        one = spaces.MultiDiscrete([2, 3]) if pairs else spaces.Discrete(3)
        self.action_spaces = dict.fromkeys(self.possible_agents, one)

    def _observe(self) -> tuple[dict[str, Any], dict[str, Any]]:
        x = np.zeros(2, np.float32)
        masks = tuple(map(np.int8, self.masks)) if isinstance(self.masks[0], list) else np.int8(self.masks)
        return {"by_info": x, "by_obs": {"observation": x, "action_mask": masks}, "free": x}, {
            "by_info": {"action_mask": self.masks}
        }

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.steps = 0
        return self._observe()

    def step(self, actions: dict[str, Any]) -> Any:
        for agent in ("by_info", "by_obs"):
            flat = np.hstack(self.masks)
            chosen = actions[agent] + np.array([0, 2]) if np.ndim(actions[agent]) else actions[agent]
            assert flat[chosen].all(), f"{agent}: {actions[agent]} is forbidden"
        self.steps += 1
        obs, infos = self._observe()
        return obs, dict.fromkeys(obs, 1.0), {"__all__": self.steps == 5}, {"__all__": False}, infos
