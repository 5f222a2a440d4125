"""Registers environments under names of the user's own, and passes creators their context."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from lightning_rl.schema.signatures import with_tuples

__all__ = ["EnvContext", "call_creator", "find_registered_env", "register_env", "registered_envs"]

_CREATORS: dict[str, Callable[..., Any]] = {}
CONTEXT_NAMES = ("config", "env_config", "context", "env_context", "cfg", "_")  # arguments that get the whole context


class EnvContext(dict[str, Any]):
    """The environment's keywords (`env.kwargs`), with the index of the environment and of its worker.

    Args:
        env_config: the keywords.

    Attributes:
        worker_index: logical worker, from 0.
        vector_index: environment within the worker, from 0.
        num_workers: logical workers of the run.
        remote: whether the environment is a Ray actor of its own; here none is.
    """

    def __init__(
        self,
        env_config: Mapping[str, Any] | None = None,
        worker_index: int = 0,
        vector_index: int = 0,
        num_workers: int = 1,
        remote: bool = False,
    ) -> None:
        super().__init__(env_config or {})
        self.worker_index, self.vector_index, self.num_workers = worker_index, vector_index, num_workers
        self.remote = remote

    def copy_with_overrides(self, env_config: Mapping[str, Any] | None = None, **places: int | None) -> EnvContext:
        """A context with other keywords, or of another place.

        Args:
            env_config: the keywords; `None`: these.
            places: the attributes that differ; those that are `None` stay.
        """
        changed = {name: place for name, place in places.items() if place is not None}
        return EnvContext(self if env_config is None else env_config, **{**vars(self), **changed})

    def set_defaults(self, defaults: Mapping[str, Any]) -> None:
        """Add keywords that are missing."""
        self.update({**defaults, **self})


def register_env(name: str, creator: Callable[..., Any]) -> None:
    """Register a creator function under a name for `env.id`, here and in the processes of workers.

    Args:
        name: any text; it takes precedence over a Gymnasium id of the same name.
        creator: function or class; called with an `EnvContext` if it takes an argument, else with nothing.
    """
    _CREATORS[name] = creator


def find_registered_env(name: Any) -> Callable[..., Any] | None:
    """The creator registered under a name, or `None`."""
    return _CREATORS.get(name) if isinstance(name, str) else None


def registered_envs() -> dict[str, Callable[..., Any]]:
    """All registered names with their creators."""
    return dict(_CREATORS)


def call_creator(creator: Callable[..., Any], context: EnvContext, extra: Mapping[str, Any]) -> Any:
    """Create an environment from its class or function.

    The whole context is passed to an argument called `config` (or `env_config`, …), to the one argument that a function
    needs, or that a class needs where there are keywords that name none of its arguments, to an only argument if there
    are keywords and they do not name it, and to `*args` alone; all others receive the keywords.
    """
    kinds = _parameters(creator)
    if [p.kind for p in kinds] == [inspect.Parameter.VAR_POSITIONAL]:
        return creator(context, **extra)
    parameters = {p.name: p.default for p in kinds if p.kind is p.POSITIONAL_OR_KEYWORD}
    needed = [name for name, default in parameters.items() if default is inspect.Parameter.empty]
    named = [name for name in parameters if name in CONTEXT_NAMES]
    # A class whose one argument lacks its keyword gets no context in its place, but the error that it is missing.
    needs_context = len(needed) == 1 and not (isinstance(creator, type) and (not context or {*parameters} & {*context}))
    only = [*parameters] if context and len(kinds) == 1 else []
    wanted = (needed if needs_context else []) or named or only
    if len(wanted) == 1 and wanted[0] not in context and set(needed) <= set(wanted):
        return creator(**{wanted[0]: context}, **extra)
    return creator(**with_tuples(creator, {**context, **extra}))


def _parameters(creator: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return [*inspect.signature(creator).parameters.values()]
    except ValueError:  # built-in classes have no signature
        return []
