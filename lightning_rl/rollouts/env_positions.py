"""Where the environments of a worker stand, as a checkpoint holds it, and how they come back after a resume.

A native vector environment with plain attributes is copied. Others are replayed: every reset has a seed that is known,
and the actions since then are kept (`ReplayableEnv`). Where neither works (native Atari, environments that do not
repeat themselves, replays that take too long), episodes start from scratch after a resume, and a line says so. The run
that continues is never touched.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import create_empty_array, iterate
from torch import Tensor

from lightning_rl.envs.multi_agent.packed_vector_env import PackedVectorEnv
from lightning_rl.envs.native_state import load_native_state, native_state
from lightning_rl.sample_batch import map_leaves

__all__ = ["ActionLog", "NativePositions", "ReplayedPositions"]

OTHERS = "they are others, or another number of them, than the environments that were saved"
LONGEST_REPLAY_S = 60.0  # of all environments of a worker
MOST_BYTES = 64 * 2**20  # of the actions that a worker keeps
OBJECT_BYTES = 128  # of an array, beside its content
TRIMMED_EVERY = 1024  # steps
REMEMBERING = (gym.wrappers.NormalizeObservation, gym.wrappers.NormalizeReward)
SMALL = (np.int8, np.int16, np.int32, np.int64)

Env = VectorEnv[Any, Any, Any]
Restored = tuple[Any, dict[str, Any], list[tuple[float, int] | None]]


class ActionLog:
    """The actions since the resets of the running episodes of `B` environments.

    Attributes:
        seeds: the seeds of the last seeded reset.
        episodes: int64 `[B]`, which episode of its environment runs: 0 since the seeded reset.
        began: int64 `[B]`, how many of `actions` had been taken when that episode began.
        actions: (nested) arrays `[B, …]` of each step; those before the running episodes are dropped from time to time.
    """

    def __init__(self) -> None:
        self.restart([])

    def restart(self, seeds: Sequence[int]) -> None:
        """All environments were reset with these seeds."""
        self.seeds: list[int] = list(seeds)
        self.actions: list[Any] = []
        self.episodes, self.began = np.zeros((2, len(seeds)), np.int64)
        self._trimmed_at = TRIMMED_EVERY

    def append(self, actions: Any) -> None:
        """A step of all environments; the arrays are kept as they are, without a copy."""
        self.actions.append(actions)
        if len(self.actions) >= self._trimmed_at:
            self._trim()

    def begin(self, starting: np.ndarray) -> None:
        """The last step reset the environments `starting`, bool `[B]`."""
        self.began[starting] = len(self.actions)
        self.episodes[starting] += 1

    def _trim(self) -> None:
        """Drop the actions before the running episodes, and those of episodes that are too long to be kept."""
        step_bytes = sum(leaf.nbytes + OBJECT_BYTES for leaf in _leaves(self.actions[-1]))
        too_many = len(self.actions) * step_bytes > MOST_BYTES
        dropped = len(self.actions) if too_many else max(0, int(self.began.min()))
        del self.actions[:dropped]
        self.began -= dropped  # below 0 where the first actions of an episode are gone
        self._trimmed_at = len(self.actions) + TRIMMED_EVERY

    def state_dict(self) -> dict[str, Any] | None:
        """Plain data, integers in as few bytes as they need.

        `None` if actions of a running episode were dropped, or are not numbers.
        """
        first = int(self.began.min())
        kept = self.actions[max(0, first) :]
        if first < 0 or (kept and any(leaf.dtype.kind not in "biuf" for leaf in _leaves(kept[0]))):
            return None
        return {
            "seeds": self.seeds,
            "episodes": torch.from_numpy(self.episodes.copy()),
            "began": torch.from_numpy(self.began - first),
            "steps": len(kept),
            "actions": _stack(kept) if kept else None,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state`."""
        self.restart(state["seeds"])
        self.episodes, self.began = state["episodes"].numpy().copy(), state["began"].numpy().copy()
        self.actions = [
            map_leaves(lambda leaf, at=at: _read(leaf[at]), state["actions"]) for at in range(state["steps"])
        ]
        self._trimmed_at = len(self.actions) + TRIMMED_EVERY

    def of_each_env(self, space: Any) -> list[tuple[int, list[Any]]]:
        """Of each environment, the number of its episode and the actions since then; `space` is that of all actions."""
        steps = [list(iterate(space, actions)) for actions in self.actions]
        return [
            (int(episode), [actions[env] for actions in steps[began:]])
            for env, (episode, began) in enumerate(zip(self.episodes, self.began.tolist(), strict=True))
        ]


class ReplayedPositions:
    """Brings environments back by their actions since the reset; they are `ReplayableEnv`s in a vector environment.

    Attributes:
        log: the worker notes resets and steps there.
    """

    def __init__(self) -> None:
        self.log = ActionLog()

    def describe_loss(self, env: Env) -> str:
        """Say what makes an episode more than its seed and actions; "" if nothing is known."""
        single = getattr(env.unwrapped, "envs", [None])[0]  # environments of an async one are elsewhere
        while isinstance(single, gym.Wrapper):
            if isinstance(single, REMEMBERING):
                return f"{type(single).__name__} has statistics of earlier episodes, which no checkpoint holds"
            single = single.env
        return ""

    def state_dict(self, env: Env, obs: Any, info: Mapping[str, Any]) -> dict[str, Any] | None:
        """Seeds, actions and a digest of the latest observations; `None` if an episode is too long to be replayed."""
        actions = self.log.state_dict()
        return None if actions is None else {"actions": actions, "digest": digest(obs)}

    def restore(self, env: Env, state: Mapping[str, Any]) -> Restored | str:
        """Bring the environments back.

        Returns:
            Observations, infos, and of each environment the return and length of its episode so far; or why it failed.
        """
        if "actions" not in state:
            return OTHERS
        self.log.load_state_dict(state["actions"])
        seeds: Any = self.log.seeds  # one of each environment
        if len(seeds) != env.num_envs:
            return OTHERS
        env.reset(seed=seeds)
        each: Any = env.unwrapped  # wrappers of vector environments have neither `set_attr` nor `call`
        episodes, deadline = self.log.of_each_env(env.action_space), time.monotonic() + LONGEST_REPLAY_S
        if isinstance(each, PackedVectorEnv):
            replayed: Sequence[Any] = each.replay(episodes, deadline)
        else:
            each.set_attr("replayed", episodes)
            replayed = each.call("replay", deadline)
        if any(episode is None for episode in replayed):
            return f"they do not repeat their episodes, or need more than {LONGEST_REPLAY_S:g} s for it"
        obs, _, _, _, info = env.step(create_empty_array(env.single_action_space, env.num_envs))
        if digest(obs) != state["digest"]:
            return "they do not repeat their observations when seeds and actions are repeated"
        return obs, info, list(replayed)


class NativePositions:
    """Copies the attributes of a native vector environment, if they are plain."""

    log = None  # no actions are kept

    def describe_loss(self, env: Env) -> str:
        """Say that the state cannot be copied; "" if it can."""
        if native_state(env) is not None:
            return ""
        return f"the state of {type(env.unwrapped).__name__} cannot be copied, so its episodes start from scratch"

    def state_dict(self, env: Env, obs: Any, info: Mapping[str, Any]) -> dict[str, Any] | None:
        """The attributes and what the last step gave; `None` if they cannot be copied."""
        state = native_state(env)
        if state is None:
            return None
        mask = info.get("action_mask")
        kept = {} if mask is None else {"action_mask": np.array(mask)}
        return {"env": _tensors(state), "obs": _tensors(obs), "info": _tensors(kept)}

    def restore(self, env: Env, state: Mapping[str, Any]) -> Restored | str:
        """Bring the environments back; as `ReplayedPositions.restore`."""
        env.reset(seed=0)
        if "env" not in state or not load_native_state(env, _arrays(state["env"])):
            return OTHERS
        return _arrays(state["obs"]), _arrays(state["info"]), [None] * env.num_envs


def digest(obs: Any) -> str:
    """A hash of (nested) observations `[B, *]`."""
    found = hashlib.blake2b(digest_size=16)
    for leaf in _leaves(obs):
        found.update(np.ascontiguousarray(leaf).data)
    return found.hexdigest()


def _leaves(value: Any) -> list[np.ndarray]:
    found: list[np.ndarray] = []
    map_leaves(lambda leaf: found.append(np.asarray(leaf)), value)
    return found


def _stack(steps: Sequence[Any]) -> Any:
    """`T` (nested) arrays of `[B, …]` as tensors `[T, B, …]`, integers in as few bytes as they need."""
    first = steps[0]
    if isinstance(first, Mapping):
        return {name: _stack([step[name] for step in steps]) for name in first}
    if isinstance(first, tuple):
        return tuple(_stack([step[place] for step in steps]) for place in range(len(first)))
    array = np.stack(steps)
    if array.dtype.kind in "iu":
        low, high = int(array.min()), int(array.max())
        array = array.astype(next(kind for kind in SMALL if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max))
    return torch.from_numpy(array)


def _read(kept: Tensor) -> np.ndarray:
    array = kept.numpy()
    return array.astype(np.int64) if array.dtype.kind == "i" else array


def _tensors(value: Any) -> Any:
    """Nested plain data with tensors in place of arrays."""
    return map_leaves(lambda leaf: torch.from_numpy(leaf.copy()) if isinstance(leaf, np.ndarray) else leaf, value)


def _arrays(value: Any) -> Any:
    """The inverse of `_tensors`."""
    return map_leaves(lambda leaf: leaf.numpy().copy() if isinstance(leaf, Tensor) else leaf, value)
