"""Creates environments and vector environments from an id, an import path or a function.

Only this file and `rollout_worker.py` depend on autoreset modes. This file does not import torch, so that the processes
of an asynchronous vector environment start quickly.
"""

from __future__ import annotations

import copy
import importlib
import importlib.util
import multiprocessing
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from types import ModuleType
from typing import Annotated, Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from lightning_rl.envs.action_masks import mask_row
from lightning_rl.envs.async_vector_env import AsyncEnv
from lightning_rl.envs.atari import Atari, is_atari
from lightning_rl.envs.multi_agent.adapters import as_multi_agent
from lightning_rl.envs.multi_agent.agent_layout import AgentLayout
from lightning_rl.envs.multi_agent.copies import Copies
from lightning_rl.envs.multi_agent.grouped_agents import GroupedAgents
from lightning_rl.envs.multi_agent.multi_agent_env import MultiAgentEnv
from lightning_rl.envs.multi_agent.packed_env import PackedEnv, is_packed, row_of
from lightning_rl.envs.multi_agent.packed_vector_env import PackedVectorEnv
from lightning_rl.envs.multi_agent.random_play import OLD_API, check_env
from lightning_rl.envs.multi_agent.single_agent_env import SingleAgentEnv
from lightning_rl.envs.multi_agent.wrappers import EpisodeLimit, MultiAgentWrapper
from lightning_rl.envs.registry import EnvContext, call_creator, find_registered_env, register_env, registered_envs
from lightning_rl.envs.replayable_env import ReplayableEnv
from lightning_rl.envs.sync_vector_env import SyncEnv
from lightning_rl.errors import (
    ConfigError,
    EnvError,
    did_you_mean,
    import_object,
    is_dotted_path,
    names_attribute,
    note_name,
    object_at,
    place_of,
    short_repr,
)
from lightning_rl.schema.ranges import Agents, Count
from lightning_rl.schema.signatures import ImportPath, check_fields, coerce, with_tuples

__all__ = ["EnvCreator", "ResetEnded", "autoreset_mode", "check_installed", "declared_time_limit", "suggest_id"]


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
@dataclass(frozen=True)
class EnvCreator:
    """Describes how to create an environment; can be pickled, compared and written to a config.

    Args:
        id: a Gymnasium id ("CartPole-v1", "my_pkg:My-v0"), an import path ("my_pkg.envs:MyEnv"), a name passed to
            `register_env`, an `Env` class, or any function that returns an `Env` (it may take an `EnvContext`). "ALE/…"
            are Atari games with DeepMind's preprocessing (`atari.py`). A multi-agent environment may have any form that
            `as_multi_agent` supports. A module in PettingZoo's style is named by its path ("mpe2.simple_spread_v3");
            its `parallel_env` takes precedence over its `env`.
        kwargs: keywords for the environment; for an Atari game, those of `Atari`.
        wrappers: import paths or callables applied to each environment in order; a mapping `{wrapper: path,
            **keywords}` passes keywords. A list in these or in `kwargs` becomes a tuple if the type hint of a wrapper,
            class, or function asks for one. With several agents, wrappers receive a `MultiAgentEnv`; with `agents`,
            each copy is wrapped, and a `MultiAgentWrapper` wraps all copies together.
        max_episode_steps: truncate episodes after this many steps, for all agents; `None`: the environment's own limit.
        check: test the Gymnasium API before training (`check_env`); disable it for hardware that cannot be reset
            freely.
        agents: number of copies of a single-agent environment that become the agents "agent_0", "agent_1", … of one
            environment; `None`: use the environment as it is.
        group_agents: name of a group → its agents or patterns of their names; each group acts as one agent
            (`grouped_agents.py`). "all": all agents form one group, so the environment has a single agent.
    """

    id: str | Callable[..., gym.Env[Any, Any]]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    wrappers: Sequence[Annotated[Any, WrapperEntry()]] = ()
    max_episode_steps: Count | None = None
    check: bool = True
    agents: Agents | None = None
    group_agents: Literal["all"] | Mapping[str, Sequence[str]] | None = None

    def __post_init__(self) -> None:
        """Refuse an environment that exists already.

        Raises:
            EnvError: `id` is one.
        """
        if isinstance(self.id, gym.Env | gym.vector.VectorEnv):
            name = self.id.spec.id if self.id.spec is not None else type(self.id.unwrapped).__name__
            raise EnvError(
                f"env={short_repr(self.id)} is there already, but workers make their own environments: give its id or "
                f"class ({name}), or a function that makes one; workers.envs_per_worker says how many there are"
            )

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
        """Create one environment with its wrappers; one with several agents is a `PackedEnv`.

        Args:
            context: index of the environment and its worker, for creators that take it; `None`: the first ones.
            extra: more keywords, such as `render_mode`; they replace those of `kwargs`.

        Raises:
            EnvError: the id is unknown, the environment cannot be imported or constructed (its own error is chained),
                or it has another number of agents than `agents` and `group_agents` need.
        """
        check_installed(self.name)
        try:
            env = self._make_with_wrappers(context, extra)
            return env if isinstance(env, gym.Env) else self._pack(env)
        except (ConfigError, EnvError):
            raise  # a wrong import path, an unknown keyword, or a missing extra
        except gym.error.DependencyNotInstalled as error:
            raise EnvError(f"environment {self.name!r} needs a package that is not installed: {error}") from error
        except (gym.error.Error, ModuleNotFoundError) as error:
            raise EnvError(f"environment {self.name!r} cannot be made: {error}{suggest_id(self.name)}") from error
        except Exception as error:
            given = {**self.kwargs, **extra} if isinstance(error, TypeError) else {}
            keywords = f"; its keywords are env.kwargs={short_repr(given)}" if given else ""
            raise EnvError(
                f"environment {self.name!r} failed to start with {type(error).__name__}: {error}"
                f"{place_of(error)}{keywords}"
            ) from error

    def _make_with_wrappers(self, context: EnvContext | None, extra: Mapping[str, Any]) -> Any:
        """A `gym.Env` or a `MultiAgentEnv`."""
        wrappers = [_wrapper(wrapper) for wrapper in self.wrappers]
        if self.agents is None:
            env = _wrap(self._make_bare(context, extra), wrappers)
        else:
            together = [wrapper for wrapper in wrappers if _is_multi_agent_wrapper(wrapper)]
            alone = [wrapper for wrapper in wrappers if wrapper not in together]
            copies = [_wrap(self._make_bare(context, extra), alone) for _ in range(self.agents)]
            if not isinstance(copies[0], gym.Env):
                raise EnvError(
                    f"agents={self.agents} makes copies of an environment with one agent, and {self.name!r} made a "
                    f"{type(copies[0]).__name__}: set agents=null"
                )
            env = _wrap(Copies(copies), together)
        if isinstance(env, gym.vector.VectorEnv):
            raise EnvError(
                f"{self.name!r} made a {type(env).__name__}; expected one environment: "
                "workers.envs_per_worker says how many there are"
            )
        if not isinstance(env, gym.Env | MultiAgentEnv):
            raise EnvError(
                f"{self.name!r} made a {type(env).__name__}; expected a gymnasium.Env "
                "(observation_space, action_space, reset, step), a MultiAgentEnv or a PettingZoo environment. "
                f"{OLD_API}"
            )
        if self.group_agents is not None and isinstance(env, gym.Env):
            self._check_group(env)
        return env

    def _check_group(self, env: gym.Env[Any, Any]) -> None:
        """Refuse `group_agents` for an environment with one agent that does not say that it acts for a group.

        Raises:
            EnvError: parts of a Tuple action may be those of one agent.
        """
        acts, sees = env.action_space, env.observation_space
        is_group = isinstance(acts, gym.spaces.Tuple) and isinstance(sees, gym.spaces.Dict) and "agents" in sees.spaces
        if self.group_agents != "all" or not is_group:
            raise EnvError(
                f"group_agents={self.group_agents!r}: {self.name!r} has one agent; set group_agents=null, and use dqn, "
                "ppo or another algorithm for one agent. A group observes a Dict with a Tuple 'agents', and acts by a "
                "Tuple; an environment with the attribute n_agents and two Tuple spaces has several agents"
            )

    def _make_bare(self, context: EnvContext | None, extra: Mapping[str, Any]) -> Any:
        """The environment as a user of it alone would make it, with its limit."""
        creator = self._creator()
        if is_atari(creator):
            return self._atari().make(**extra)
        limit = self.max_episode_steps
        if isinstance(creator, str):
            given = {} if limit is None else {"max_episode_steps": limit}
            return gym.make(creator, disable_env_checker=True, **given, **{**self.kwargs, **extra})
        env = call_creator(creator, EnvContext(self.kwargs) if context is None else context, extra)
        if limit is None:
            return env
        several = as_multi_agent(env)
        return gym.wrappers.TimeLimit(env, limit) if several is None else EpisodeLimit(several, limit)

    def _pack(self, env: MultiAgentEnv) -> gym.Env[Any, Any]:
        if self.group_agents is not None and not (self.group_agents == "all" and _is_one_group(env)):
            env = GroupedAgents(env, self.group_agents, check=self.check)
        return SingleAgentEnv(env) if self.group_agents == "all" else PackedEnv(env, self.name, self.check)

    def make(
        self,
        num_envs: int,
        vectorization: str = "auto",
        mode: AutoresetMode = AutoresetMode.NEXT_STEP,
        worker_index: int = 0,
        num_workers: int = 1,
        replayable: bool = False,
    ) -> VectorEnv[Any, Any, Any]:
        """Create a vector environment of `num_envs` environments; of `PackedEnv`s if they have several agents.

        Args:
            num_envs: number of environments, ≥ 1.
            vectorization: "sync" (one process), "async" (a process each), "native" (the environment's own
                `vector_entry_point`), or "auto": native if the environment has one, needs no wrappers, and there are
                enough environments for it to be faster; else sync.
            mode: autoreset mode of sync and async environments; native ones have their own.
            worker_index, num_workers: values of the `EnvContext` of creators that take one.
            replayable: seed each reset of an environment, so that episodes can be replayed; a native one has a way of
                its own.

        Raises:
            EnvError: see `make_single`; or `native` is chosen and the environment has none, or several agents have
                another mode than NEXT_STEP.
        """
        native = self._has_native()
        if vectorization == "native" and not native:
            raise EnvError(
                f"environment {self.name!r} has no native vector form without wrappers: set workers.vectorization=sync"
            )
        if vectorization == "native" or (vectorization == "auto" and native and num_envs >= self._native_pays()):
            return self._native(num_envs)
        contexts = [EnvContext(self.kwargs, worker_index, index, num_workers) for index in range(num_envs)]
        creators: list[Callable[[], gym.Env[Any, Any]]] = [partial(self.make_single, context) for context in contexts]
        if replayable:
            creators = [partial(_make_replayable, create) for create in creators]
        if vectorization == "async":
            # The fork server imports this module once, instead of each environment's process for itself.
            multiprocessing.get_context("forkserver").set_forkserver_preload(["__main__", __name__])
            env: VectorEnv[Any, Any, Any] = AsyncEnv(creators, mode)
            several = is_packed(env.single_observation_space)
        else:
            first = creators[0]()
            given: list[Callable[[], Any]] = [lambda: first, *creators[1:]]
            several = isinstance(first.unwrapped, PackedEnv)
            env = PackedVectorEnv(given) if several else SyncEnv(given, mode)
        if several and mode != AutoresetMode.NEXT_STEP:
            env.close()
            raise EnvError(f"environment {self.name!r} has several agents, which need autoreset mode NEXT_STEP")
        return ResetEnded(env) if mode == AutoresetMode.DISABLED else env

    def spaces(self) -> tuple[gym.Space[Any], gym.Space[Any]]:
        """Observation and action space of one environment, which is created, checked and closed again.

        With several agents, both are a Dict with the space of each agent.

        Raises:
            EnvError: see `make_single`; or the environment breaks the Gymnasium API.
        """
        env = self.make_single()
        try:
            if self.check:
                _check(env, self.name)
            layout = env.layout if isinstance(env, PackedEnv) else None
            vars(self).update(_layout=layout, _time_limit=declared_time_limit(env))
            if layout is None:
                return env.observation_space, env.action_space
            # Not sorted, as Dict sorts a dict's keys: the order of the agents is the environment's.
            observed, acted = layout.observation_spaces, layout.action_spaces
            return gym.spaces.Dict([*observed.items()]), gym.spaces.Dict([*acted.items()])
        finally:
            env.close()

    def layout(self) -> AgentLayout | None:
        """The agents of the environment; `None` for a single-agent one. Made once, as `spaces`, and kept.

        Raises:
            EnvError: see `spaces`.
        """
        if "_layout" not in vars(self):
            self.spaces()
        return vars(self)["_layout"]

    @property
    def time_limit(self) -> int | None:
        """Steps after which the environment truncates an episode, if it says so; found once, as `spaces`, and kept.

        Raises:
            EnvError: see `spaces`.
        """
        if "_time_limit" not in vars(self):
            self.spaces()
        return vars(self)["_time_limit"]

    @property
    def reward_threshold(self) -> float | None:
        """The return at which Gymnasium considers the environment solved; `None` without one, or with copies of it."""
        spec = self._spec()
        return spec.reward_threshold if spec is not None and self.agents is None else None

    def _creator(self) -> str | Callable[..., gym.Env[Any, Any]]:
        """A Gymnasium id ("module:Name-v0" registers it first), or the class or function behind an import path."""
        if not isinstance(self.id, str):
            return self.id
        if (creator := find_registered_env(self.id)) is not None:
            return creator
        if self.id in gym.registry:
            return self.id
        if ":" not in self.id:
            return _creator_in_module(_import_dotted(self.id)) if is_dotted_path(self.id) else self.id
        if names_attribute(self.id):
            return import_object(coerce("env.id", self.id, ImportPath))
        note_name(self.id)  # Gymnasium imports the module
        return self.id

    @property
    def reseeds(self) -> bool:
        """Whether every episode may begin with its own seed; an Atari game reads its ROM again for one."""
        return not is_atari(self.id)

    def _spec(self) -> Any:
        """Gymnasium's specification of the id, or `None`."""
        return gym.registry.get(self.id) if isinstance(self.id, str) and find_registered_env(self.id) is None else None

    def _atari(self) -> Atari:
        return Atari.from_config(self.name, self.kwargs, self.max_episode_steps)

    def _native_pays(self) -> int:
        """Number of environments from which native is faster; a CartPole step costs 12 µs alone, 32 µs as a vector."""
        return 1 if is_atari(self.id) else 4

    def _has_native(self) -> bool:
        if self.agents is not None or self.group_agents is not None or self.wrappers:
            return False
        if is_atari(self.id):
            return self._atari().has_native
        spec = self._spec()
        return spec is not None and spec.vector_entry_point is not None and not spec.additional_wrappers

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
                final[index] = copy.deepcopy(row_of(obs, index))
            obs, begun = self.env.reset(options={"reset_mask": ended})
            masks = self._masks_after_reset(info, begun, ended) if "action_mask" in {**info, **begun} else {}
            info = {**info, **masks, "final_obs": final, "_final_obs": ended, "final_info": info, "_final_info": ended}
        return obs, rewards, terminated, truncated, info

    def _masks_after_reset(
        self, info: Mapping[str, Any], begun: Mapping[str, Any], ended: np.ndarray
    ) -> dict[str, Any]:
        """Action masks: from the step's infos for episodes that continue, from the reset's for those that begin."""
        masks, given = np.full(self.num_envs, None, dtype=object), np.zeros(self.num_envs, dtype=bool)
        for infos, rows in ((info, ~ended), (begun, ended)):
            if "action_mask" in infos:
                given |= (present := rows & infos.get("_action_mask", True))
                for index in np.flatnonzero(present).tolist():
                    masks[index] = mask_row(infos["action_mask"], index)
        return {"action_mask": masks, "_action_mask": given}


def _make_replayable(create: Callable[[], gym.Env[Any, Any]]) -> ReplayableEnv:
    return ReplayableEnv(create())


def _unpickle(values: Mapping[str, Any], creator: Any) -> EnvCreator:
    if creator is not None:
        register_env(values["id"], creator)
    return EnvCreator(**values)


def declared_time_limit(env: Any) -> int | None:
    """The limit of `TimeLimit`, `EpisodeLimit` or the environment itself, by its attributes; `None` without one."""
    while env is not None:
        attributes = getattr(env, "__dict__", {})
        for name in ("_max_episode_steps", "max_episode_steps"):
            if type(limit := attributes.get(name)) is int:
                return limit
        env = attributes.get("env")
    return None


def autoreset_mode(env: VectorEnv[Any, Any, Any]) -> AutoresetMode:
    """The autoreset mode of a vector environment.

    Raises:
        EnvError: it does not declare one.
    """
    mode = env.metadata.get("autoreset_mode")
    try:
        return AutoresetMode(mode)
    except ValueError:
        raise EnvError(
            f"vector environment {env} declares autoreset_mode={mode!r} in its metadata; "
            f"expected one of {[mode.value for mode in AutoresetMode]}: add it to `metadata`"
        ) from None


def _wrapper(wrapper: Any) -> Callable[[gym.Env[Any, Any]], gym.Env[Any, Any]]:
    if isinstance(wrapper, Mapping):
        keywords = dict(wrapper)
        function = _wrapper(keywords.pop("wrapper"))
        return partial(function, **with_tuples(function, keywords))
    return import_object(wrapper) if isinstance(wrapper, str) else wrapper


def _check(env: gym.Env[Any, Any], name: str) -> None:
    if isinstance(env, PackedEnv | SingleAgentEnv):
        check_env(env.env, name)
    if not isinstance(env, PackedEnv):
        check_env(env, name)


def _wrap(env: Any, wrappers: Sequence[Callable[[Any], Any]]) -> Any:
    """Apply wrappers; each receives a `MultiAgentEnv` if the environment has several agents."""
    for wrapper in wrappers:
        several = as_multi_agent(env)
        try:
            env = wrapper(env if several is None else several)
        except (ConfigError, EnvError):
            raise
        except Exception as error:
            raise EnvError(f"env.wrappers: {_describe(wrapper)} failed with {type(error).__name__}: {error}") from error
    several = as_multi_agent(env)
    return env if several is None else several


def _without_keywords(wrapper: Any) -> Any:
    """The class or function of a wrapper; `partial` keeps partials of partials flat."""
    return wrapper.func if isinstance(wrapper, partial) else wrapper


def _describe(wrapper: Any) -> str:
    """The name of a wrapper, with its keywords."""
    found = _without_keywords(wrapper)
    name = getattr(found, "__name__", repr(found))
    return name if found is wrapper else f"{name} with {short_repr(wrapper.keywords)}"


def _is_one_group(env: MultiAgentEnv) -> bool:
    """Whether the only agent of an environment is a group, as `with_agent_groups` makes one."""
    agents, actions = getattr(env, "possible_agents", None), getattr(env, "action_spaces", None)  # not checked yet
    if not isinstance(agents, list | tuple) or len(agents) != 1 or not isinstance(actions, Mapping):
        return False
    return isinstance(actions.get(agents[0]), gym.spaces.Tuple)


def _is_multi_agent_wrapper(wrapper: Any) -> bool:
    found = _without_keywords(wrapper)
    return isinstance(found, type) and issubclass(found, MultiAgentWrapper)


def _import_dotted(path: str) -> Any:
    """The module at a dotted path, or the object in one."""
    note_name(path)
    with warnings.catch_warnings():
        # PettingZoo announces a registry whose ids cannot be told from Gymnasium's.
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            return importlib.import_module(path)
        except ModuleNotFoundError as error:
            if not f"{path}.".startswith(f"{error.name}."):
                raise  # the module exists; something that it imports does not
            return object_at(path)


def _creator_in_module(found: Any) -> Callable[..., Any]:
    """The function that creates the environment of a module of PettingZoo's style; other objects as they are.

    Raises:
        EnvError: the module has no such function.
    """
    if not isinstance(found, ModuleType) and type(found).__name__ != "DeprecatedModule":  # of PettingZoo
        return found
    creator = getattr(found, "parallel_env", None) or getattr(found, "env", None)
    if not callable(creator):
        raise EnvError(f"module {found.__name__!r} has neither parallel_env nor env; name a class: package.module:Name")
    return creator


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
    "lbforaging": ("Foraging-",),
    "rware": ("rware-",),
    "highway_env": ("highway-", "merge-", "roundabout-", "parking-", "intersection-", "racetrack-"),
}


MULTI_AGENT_PACKAGES = ("lbforaging", "mpe2", "pettingzoo", "rware")  # what the extra `multiagent` brings


def check_installed(name: str) -> None:
    """Refuse an environment of a package that the extra `multiagent` brings and that is not installed.

    Args:
        name: such as "mpe2.simple_spread_v3" or "lbforaging:Foraging-8x8-2p-2f-coop-v3".

    Raises:
        EnvError: says what to install.
    """
    package = name.partition(":")[0].partition(".")[0]
    if package in MULTI_AGENT_PACKAGES and importlib.util.find_spec(package) is None:
        raise EnvError(f'environment {name!r} needs {package}: pip install -e ".[multiagent]"')


def suggest_id(name: str) -> str:
    """What to write for an id that is not registered: the package that registers it, or a similar id; or nothing."""
    module, colon, id = name.rpartition(":")
    known = [*registered_envs(), *gym.registry]
    plug_in = next((package for package, beginnings in PLUG_INS.items() if id.startswith(beginnings)), None)
    if plug_in is None or id in known:
        return "" if colon else did_you_mean(name, known)
    if importlib.util.find_spec(plug_in) is None:
        return f" It comes with the package {plug_in}: pip install {plug_in.replace('_', '-')}, env.id={plug_in}:{id}"
    return (
        did_you_mean(id, known) if module == plug_in else f" Name the package that registers it: env.id={plug_in}:{id}"
    )
