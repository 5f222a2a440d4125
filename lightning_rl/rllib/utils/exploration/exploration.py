"""The base class of exploration strategies in RLlib's form."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from gymnasium import Space

from lightning_rl import exploration

__all__ = ["Exploration"]

CONTEXT = {"framework": "torch", "policy_config": None, "model": None, "num_workers": 0, "worker_index": 0}
"""Arguments of RLlib's constructors that do not come from `exploration_config`, and what a strategy gets for them."""


class Exploration(exploration.Exploration):
    """Chooses actions by a subclass's `get_exploration_action(*, action_distribution, timestep, explore)`.

    That returns actions `[N, …]` and their log-probabilities `[N]`; `None` for these stands for those of the
    distribution. All other methods are those of `lightning_rl.exploration.Exploration`.

    Args:
        action_space: space of the policy's actions.
        framework, policy_config, model, num_workers, worker_index: not read: the policy is not built yet.

    Attributes:
        framework: "torch".
    """

    framework = "torch"

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if "__init__" in vars(cls):
            cls.__init__ = _with_context(cls.__init__)
        own = vars(cls).get("get_exploration_action")
        if own is not None and "action_distribution" in inspect.signature(own).parameters:
            cls.get_exploration_action = _in_both_forms(own)

    def __init__(
        self,
        action_space: Space[Any],
        *,
        framework: str = "torch",
        policy_config: Mapping[str, Any] | None = None,
        model: Any = None,
        num_workers: int = 0,
        worker_index: int = 0,
    ) -> None:
        super().__init__(action_space)
        self._policy: list[Any] = []  # in a list, so that its parameters are not those of this module as well

    def prepare_policy(self, policy: Any) -> None:
        """As `lightning_rl.exploration.Exploration`."""
        self._policy = [policy]

    @property
    def model(self) -> Any:
        """The policy's model; `None` in the constructor."""
        return self._policy[0].model if self._policy else None

    @property
    def policy_config(self) -> Mapping[str, Any]:
        """RLlib's config of the policy; empty in the constructor."""
        return getattr(self._policy[0], "config", {}) if self._policy else {}


def _with_context(constructor: Callable[..., None]) -> Callable[..., None]:
    """A constructor that needs none of the arguments that RLlib passes beside the keys of a config."""
    signature = inspect.signature(constructor)
    optional = [
        each.replace(default=CONTEXT[name]) if name in CONTEXT and each.default is each.empty else each
        for name, each in signature.parameters.items()
    ]

    @functools.wraps(constructor)
    def construct(self: Any, *args: Any, **keywords: Any) -> None:
        missing = {name: value for name, value in CONTEXT.items() if name in signature.parameters}
        constructor(self, *args, **{**missing, **keywords})

    construct.__signature__ = signature.replace(parameters=optional)  # type: ignore[attr-defined]
    return construct


def _in_both_forms(own: Callable[..., tuple[Any, Any]]) -> Callable[..., tuple[Any, Any]]:
    """RLlib's `get_exploration_action`, which also takes the arguments of this package's."""

    @functools.wraps(own)
    def choose(
        self: Any,
        dist: Any = None,
        *,
        timestep: int = 0,
        explore: bool = True,
        generator: Any = None,
        action_distribution: Any = None,
    ) -> tuple[Any, Any]:
        dist = dist if action_distribution is None else action_distribution
        actions, logp = own(self, action_distribution=dist, timestep=timestep, explore=explore)
        return actions, dist.logp(actions) if logp is None else logp

    return choose
