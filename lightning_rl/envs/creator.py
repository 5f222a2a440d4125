"""Creates environments and vector environments from an id, an import path or a function.

Only this file and `rollout_worker.py` depend on autoreset modes. This file does not import torch, so that the processes
of an asynchronous vector environment start quickly.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Annotated, Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, VectorEnv

from lightning_rl.envs.atari import Atari, is_atari
from lightning_rl.envs.check import check_env
from lightning_rl.envs.registry import EnvContext, call_creator, find_registered_env, register_env, registered_envs
from lightning_rl.envs.sync_vector_env import SyncEnv
from lightning_rl.errors import ConfigError, EnvError, did_you_mean, import_object, note_name, short_repr
from lightning_rl.ranges import Count
from lightning_rl.signatures import ImportPath, check_fields, coerce

__all__ = ["EnvCreator", "ResetEnded", "autoreset_mode"]

VECTORIZATIONS = ("auto", "sync", "async", "native")


class WrapperEntry:
    """Hint for an entry of `wrappers`: an import path, a callable, or `{wrapper: path, **keywords}`."""

    def coerce(self, key: str, value: Any) -> Any:
        """Check the entry and return it unchanged.

        Raises:
            ConfigError: it names no wrapper.
        """
        named = value.get("wrapper") if isinstance(value, Mapping) else value
        if not isinstance(named, str) and not callable(named):
            raise ConfigError(f"{key}={short_repr(value)}; expected an import path, or {{wrapper: path, **keywords}}")
        coerce(key, named, ImportPath)
        return value


@check_fields("env")
@dataclass(frozen=True, slots=True)
class EnvCreator:
    """Describes how to create an environment; can be pickled, compared and written to a config.

    Args:
        id: a Gymnasium id ("CartPole-v1", "my_pkg:My-v0"), an import path ("my_pkg.envs:MyEnv"), a name given to
            `register_env`, an `Env` class or any function that returns an `Env` (it may take an `EnvContext`). "ALE/…"
            are Atari games with DeepMind's preprocessing (`atari.py`).
        kwargs: keywords for the environment; for an Atari game, those of `Atari`.
        wrappers: import paths or callables applied to each environment in order; a mapping `{wrapper: path,
            **keywords}` passes keywords.
        max_episode_steps: truncate episodes after this many steps; `None` keeps the environment's own limit.
        check: test the Gymnasium API before training (`check.py`); turn it off for hardware that cannot be reset
            freely.
    """

    id: str | Callable[..., gym.Env[Any, Any]]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    wrappers: Sequence[Annotated[Any, WrapperEntry()]] = ()
    max_episode_steps: Count | None = None
    check: bool = True

    @classmethod
    def from_spec(cls, env: Any) -> EnvCreator:
        """The creator for an argument `env`: an `EnvCreator`, its keywords, or only its `id`."""
        if isinstance(env, cls):
            return env
        return cls(**env) if isinstance(env, Mapping) else cls(env)

    @property
    def name(self) -> str:
        """Name of the environment in messages and file names."""
        return self.id if isinstance(self.id, str) else getattr(self.id, "__name__", repr(self.id))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle a registered name together with its creator function, which other processes have not registered."""
        return _unpickle, ({each.name: getattr(self, each.name) for each in fields(self)}, find_registered_env(self.id))

    def make_single(self, context: EnvContext | None = None, /, **extra: Any) -> gym.Env[Any, Any]:
        """Create one environment with its wrappers.

        Args:
            context: index of the environment and its worker, for creators that take it; `None`: the first ones.
            extra: more keywords, such as `render_mode`.

        Raises:
            EnvError: the id is unknown, or the environment cannot be imported or constructed (its own error is
                chained).
        """
        try:
            creator = self._creator()
            if is_atari(creator):
                env = self._atari().make(**extra)
            elif isinstance(creator, str):
                limit = {} if self.max_episode_steps is None else {"max_episode_steps": self.max_episode_steps}
                env = gym.make(creator, disable_env_checker=True, **limit, **self.kwargs, **extra)
            else:
                env = call_creator(creator, EnvContext(self.kwargs) if context is None else context, extra)
                if self.max_episode_steps is not None:
                    env = gym.wrappers.TimeLimit(env, self.max_episode_steps)
            for wrapper in self.wrappers:
                env = _wrapper(wrapper)(env)
        except (ConfigError, EnvError):
            raise  # a wrong import path, an unknown keyword, or a missing extra
        except gym.error.DependencyNotInstalled as error:
            raise EnvError(f"environment {self.name!r} needs a package that is not installed: {error}") from error
        except (gym.error.Error, ModuleNotFoundError) as error:
            raise EnvError(f"environment {self.name!r} cannot be made: {error}{_suggest(self.name)}") from error
        except Exception as error:
            raise EnvError(f"environment {self.name!r} failed to start with {type(error).__name__}: {error}") from error
        if not isinstance(env, gym.Env):
            raise EnvError(
                f"{self.name!r} made a {type(env).__name__}; expected a gymnasium.Env "
                "(observation_space, action_space, reset, step)"
            )
        return env

    def make(
        self,
        num_envs: int,
        vectorization: str = "auto",
        mode: AutoresetMode = AutoresetMode.NEXT_STEP,
        worker_index: int = 0,
        num_workers: int = 1,
    ) -> VectorEnv[Any, Any, Any]:
        """Create a vector environment of `num_envs` environments.

        Args:
            num_envs: number of environments, ≥ 1.
            vectorization: "sync" (one process), "async" (a process each), "native" (the environment's own
                `vector_entry_point`), or "auto": native if the environment has one, needs no wrappers, and there are
                enough environments for it to be faster; else sync.
            mode: autoreset mode of sync and async environments; native ones have their own.
            worker_index, num_workers: for the `EnvContext` of creators that take one.

        Raises:
            EnvError: as `make_single`; or `native` is chosen and the environment has none.
            ValueError: `vectorization` is unknown.
        """
        if vectorization not in VECTORIZATIONS:
            raise ValueError(f"vectorization={vectorization!r} is unknown; choose one of {', '.join(VECTORIZATIONS)}")
        native = self._has_native()
        if vectorization == "native" and not native:
            raise EnvError(
                f"environment {self.name!r} has no native vector form without wrappers: set workers.vectorization=sync"
            )
        if vectorization == "native" or (vectorization == "auto" and native and num_envs >= self._native_pays()):
            return self._native(num_envs)
        contexts = [EnvContext(self.kwargs, worker_index, index, num_workers) for index in range(num_envs)]
        creators = [partial(self.make_single, context) for context in contexts]
        if vectorization == "async":
            # forkserver: forking a process that already runs threads (torch, Ray) can deadlock the child. The server
            # imports this module once, instead of each child for itself.
            multiprocessing.get_context("forkserver").set_forkserver_preload(["__main__", __name__])
            env: VectorEnv[Any, Any, Any] = AsyncVectorEnv(
                creators, autoreset_mode=mode, context="forkserver", copy=False
            )
        else:
            env = SyncEnv(creators, mode)
        return ResetEnded(env) if mode == AutoresetMode.DISABLED else env

    def spaces(self) -> tuple[gym.Space[Any], gym.Space[Any]]:
        """Observation and action space of one environment, which is created, checked and closed again.

        Raises:
            EnvError: as `make_single`; or the environment breaks the Gymnasium API.
        """
        env = self.make_single()
        try:
            if self.check:
                check_env(env, self.name)
            return env.observation_space, env.action_space
        finally:
            env.close()

    @property
    def reward_threshold(self) -> float | None:
        """The return at which Gymnasium considers the environment solved; `None` if it has no threshold."""
        spec = self._spec()
        return spec.reward_threshold if spec is not None else None

    def _creator(self) -> str | Callable[..., gym.Env[Any, Any]]:
        """A Gymnasium id ("module:Name-v0" registers it first), or the class or function behind an import path."""
        if not isinstance(self.id, str):
            return self.id
        if (creator := find_registered_env(self.id)) is not None:
            return creator
        if self.id in gym.registry or ":" not in self.id:
            return self.id
        module, _, attribute = self.id.partition(":")
        if attribute.isidentifier():
            return import_object(coerce("env.id", self.id, ImportPath))
        note_name(self.id)  # Gymnasium imports the module
        return f"{module}:{attribute}"

    def _spec(self) -> Any:
        """Gymnasium's specification of the id, or `None`."""
        return gym.registry.get(self.id) if isinstance(self.id, str) and find_registered_env(self.id) is None else None

    def _atari(self) -> Atari:
        return Atari.from_config(self.name, self.kwargs, self.max_episode_steps)

    def _native_pays(self) -> int:
        """Number of environments from which native is faster; a CartPole step costs 12 µs alone, 32 µs as a vector."""
        return 1 if is_atari(self.id) else 4

    def _has_native(self) -> bool:
        if is_atari(self.id):
            return not self.wrappers and self._atari().has_native
        spec = self._spec()
        return (
            spec is not None
            and spec.vector_entry_point is not None
            and not self.wrappers
            and not spec.additional_wrappers
        )

    def _native(self, num_envs: int) -> VectorEnv[Any, Any, Any]:
        limit = {} if self.max_episode_steps is None else {"max_episode_steps": self.max_episode_steps}
        try:
            if is_atari(self.id):
                return self._atari().make_vector(num_envs)
            env = gym.make_vec(
                self.name, num_envs=num_envs, vectorization_mode="vector_entry_point", **limit, **self.kwargs
            )
        except Exception as error:
            raise EnvError(
                f"native vector form of {self.name!r} failed to start with {type(error).__name__}: {error}"
            ) from error
        return ResetEnded(env) if autoreset_mode(env) == AutoresetMode.DISABLED else env


class ResetEnded(gym.vector.VectorWrapper):
    """Adds SAME_STEP autoreset to a vector environment without autoreset; `final_obs` is in the info."""

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        super().__init__(env)
        self.metadata = {**env.metadata, "autoreset_mode": AutoresetMode.SAME_STEP}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step all environments, then reset the ended ones through `reset_mask`."""
        obs, rewards, terminated, truncated, info = self.env.step(actions)
        ended = terminated | truncated
        if ended.any():
            final = np.full(self.num_envs, None, dtype=object)
            for index in np.flatnonzero(ended).tolist():
                final[index] = _row(obs, index)
            obs, _ = self.env.reset(options={"reset_mask": ended})
            info = {**info, "final_obs": final, "_final_obs": ended}
        return obs, rewards, terminated, truncated, info


def _unpickle(values: Mapping[str, Any], creator: Any) -> EnvCreator:
    if creator is not None:
        register_env(values["id"], creator)
    return EnvCreator(**values)


def autoreset_mode(env: VectorEnv[Any, Any, Any]) -> AutoresetMode:
    """The autoreset mode of a vector environment.

    Raises:
        EnvError: it does not declare one.
    """
    mode = env.metadata.get("autoreset_mode")
    try:
        return mode if isinstance(mode, AutoresetMode) else AutoresetMode(mode)
    except ValueError:
        raise EnvError(
            f"vector environment {env} declares autoreset_mode={mode!r} in its metadata; "
            f"expected one of {[mode.value for mode in AutoresetMode]}: add it to `metadata`"
        ) from None


def _row(obs: Any, index: int) -> Any:
    """A copy of one environment's observation from a (nested) vector observation."""
    if isinstance(obs, Mapping):
        return {name: _row(child, index) for name, child in obs.items()}
    if isinstance(obs, tuple):
        return tuple(_row(child, index) for child in obs)
    return np.copy(obs[index])


def _wrapper(wrapper: Any) -> Callable[[gym.Env[Any, Any]], gym.Env[Any, Any]]:
    if isinstance(wrapper, Mapping):
        keywords = dict(wrapper)
        return partial(_wrapper(keywords.pop("wrapper")), **keywords)
    return import_object(wrapper) if isinstance(wrapper, str) else wrapper


# Prefixes of ids whose packages register their environments only when they are imported.
PLUG_INS = {
    "minigrid": ("MiniGrid-", "BabyAI-"),
    "gymnasium_robotics": (
        "Fetch",
        "HandManipulate",
        "HandReach",
        "AdroitHand",
        "PointMaze_",
        "AntMaze_",
        "FrankaKitchen",
    ),
    "miniworld": ("MiniWorld-",),
    "highway_env": ("highway-", "merge-", "roundabout-", "parking-", "intersection-", "racetrack-"),
}


def _suggest(name: str) -> str:
    module, colon, id = name.rpartition(":")
    known = [*registered_envs(), *gym.registry]
    plug_in = next((package for package, beginnings in PLUG_INS.items() if id.startswith(beginnings)), None)
    if plug_in is None or id in known:
        return "" if colon else did_you_mean(name, known)
    if importlib.util.find_spec(plug_in) is None:
        return f". It comes with the package {plug_in}: pip install {plug_in.replace('_', '-')}, env.id={plug_in}:{id}"
    return (
        did_you_mean(id, known) if module == plug_in else f". Name the package that registers it: env.id={plug_in}:{id}"
    )
