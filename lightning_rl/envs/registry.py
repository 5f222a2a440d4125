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
        config: the keywords.

    Attributes:
        worker_index: logical worker, from 0.
        vector_index: environment within the worker, from 0.
        num_workers: logical workers of the run.
    """

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        worker_index: int = 0,
        vector_index: int = 0,
        num_workers: int = 1,
    ) -> None:
        super().__init__(config or {})
        self.worker_index, self.vector_index, self.num_workers = worker_index, vector_index, num_workers


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

    The whole context is passed to a function with one argument that the keywords do not name, and to a class with an
    argument called `config` (or `env_config`, …); all others receive the keywords.
    """
    parameters = _positional(creator)
    needed = [name for name, default in parameters.items() if default is inspect.Parameter.empty]
    named = [name for name in parameters if name in CONTEXT_NAMES]
    wanted = (needed if not isinstance(creator, type) and len(needed) == 1 else []) or named
    if len(wanted) == 1 and wanted[0] not in context and set(needed) <= set(wanted):
        return creator(**{wanted[0]: context}, **extra)
    return creator(**with_tuples(creator, {**context, **extra}))


def _positional(creator: Callable[..., Any]) -> dict[str, Any]:
    """Name and default of each argument that could be passed by position."""
    try:
        parameters = inspect.signature(creator).parameters.values()
    except ValueError:  # built-in classes have no signature
        return {}
    return {p.name: p.default for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD}
