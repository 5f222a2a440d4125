"""A policy that a function is, such as a rule or a search."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from lightning_rl.errors import ConfigError, import_object, short_repr
from lightning_rl.policies.scratch_policy import ScratchPolicy
from lightning_rl.sample_batch import SampleBatch, action_mask_of, from_nested_batch, map_leaves, row_count
from lightning_rl.schema.ranges import Seed
from lightning_rl.schema.signatures import ImportPath

__all__ = ["ScriptedPolicy"]


class ScriptedPolicy(ScratchPolicy):
    """Acts by a function of one observation; it never learns.

    Args:
        observation_space, action_space: the spaces of a single environment, of any kind.
        config: the attribute `config`.
        function: `fn(obs) -> action`, or its import path. It may take `action_mask`, the allowed actions `[n]` or
            `None`, and `rng`, a NumPy generator to draw from. `obs` is nested as the environment's.
        seed: seed of the generator, and of the action space, which the function may also sample.
    """

    def __init__(
        self,
        observation_space: Space[Any],
        action_space: Space[Any],
        config: Mapping[str, Any] | None = None,
        *,
        function: ImportPath,
        seed: Seed = 0,
    ) -> None:
        super().__init__(observation_space, action_space, config, seed=seed)
        self.function = import_object(function) if isinstance(function, str) else function
        self._takes = frozenset(inspect.signature(self.function).parameters)
        self.seed_exploration(self.generators.seed)

    def compute_actions(self, obs: Any, state: Any = (), *, action_mask: Any = None, **unused: Any) -> Any:
        """The function's actions for observations `[B, *]`.

        Args:
            obs: the observations.
            state: not used.
            action_mask: `[B, n]`, allowed actions of a Discrete space.
            unused: further arguments of `Policy.compute_actions`.

        Raises:
            ConfigError: the function returned no action of the action space.
        """
        masks = action_mask_of(obs, action_mask)
        if isinstance(obs, SampleBatch):
            obs = from_nested_batch(self.observation_space, obs)
        actions = []
        for row in range(row_count(obs)):
            one = map_leaves(lambda leaf, row=row: np.asarray(leaf[row]), obs)
            given = {"action_mask": None if masks is None else np.asarray(masks[row]), "rng": self._rng}
            action = self.function(one, **{name: given[name] for name in given.keys() & self._takes})
            if not is_action(self.action_space, action):
                name = getattr(self.function, "__name__", repr(self.function))
                raise ConfigError(
                    f"the function {name} returned {short_repr(action)} for the observation {short_repr(one)}; "
                    f"expected an action of {self.action_space}"
                )
            actions.append(action)
        return actions, [], {}

    def seed_exploration(self, seed: int) -> None:
        """Seed the generator and the action space."""
        super().seed_exploration(seed)
        self._rng = np.random.default_rng(seed)


def is_action(space: Space[Any], action: Any) -> bool:
    """Whether an action has the form of a space, and whole numbers are its own; numbers of a Box may be any."""
    if isinstance(space, spaces.Tuple):
        fits = isinstance(action, tuple | list) and len(action) == len(space.spaces)
        return fits and all(map(is_action, space.spaces, action))
    if isinstance(space, spaces.Dict):
        fits = isinstance(action, Mapping) and action.keys() == space.spaces.keys()
        return fits and all(is_action(child, action[name]) for name, child in space.spaces.items())
    if not isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        return space.contains(action)
    try:
        values = np.asarray(action)
    except ValueError:  # nested lists of different lengths
        return False
    real = isinstance(space, spaces.Box)
    if values.dtype.kind not in ("biuf" if real else "biu") or values.shape != space.shape:
        return False
    return real or space.contains(values.astype(space.dtype))
