"""Policies written from scratch: classes that act and learn by methods of their own, without model and optimizer.

`Policy` recognises such a class by what it defines: `compute_actions` and `learn_on_batch`, and no `loss`. Its actions
are the environment's own, its learning is given transitions, and a checkpoint holds what its `get_weights` gives.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from gymnasium import Space
from gymnasium.vector.utils import concatenate, create_empty_array
from torch import Tensor, nn

from lightning_rl.distributed import sum_over_ranks
from lightning_rl.errors import ConfigError
from lightning_rl.exploration import Exploration
from lightning_rl.policies.inputs import mapped, row_count
from lightning_rl.sample_batch import SampleBatch

if TYPE_CHECKING:
    from lightning_rl.policies.learning import Learning

__all__ = ["DEFINED", "OwnActions", "act_alone", "learn_alone", "start_alone", "transitions"]

DEFINED = ("compute_actions", "learn_on_batch", "loss")  # by what a class written from scratch is recognised


class NoModel(nn.Module):
    """Stands where the model of other policies is: nothing to remember, nothing to report."""

    prev_actions = prev_rewards = 0

    def get_initial_state(self) -> list[Tensor]:
        """No state."""
        return []


class OwnActions:
    """The door to an environment for actions that are in its space already.

    Args:
        action_space: of one environment, any kind.
    """

    def __init__(self, action_space: Space[Any]) -> None:
        self.action_space = self.policy_space = action_space

    def to_env(self, actions: Any) -> Any:
        """The same actions as arrays."""
        return mapped(_array, actions)

    def batched(self, actions: Any, rows: int) -> Any:
        """What `compute_actions` returned, a list with one action per row or arrays, as arrays `[B, …]`.

        Raises:
            ConfigError: there are not as many actions as rows.
        """
        if isinstance(actions, list):
            given = len(actions)
            if given == rows:
                empty = create_empty_array(self.action_space, given, fn=np.zeros)
                return concatenate(self.action_space, actions, empty)
        else:
            actions = self.to_env(actions)
            given = row_count(actions)
        if given != rows:
            raise ConfigError(
                f"compute_actions returned {given} actions for {rows} observations; expected one for each"
            )
        return actions


def start_alone(policy: Any, config: Mapping[str, Any] | None) -> None:
    """What `Policy.__init__` does for a class written from scratch, instead of building a model."""
    policy.config = dict(config or {})
    policy.is_recurrent = False
    policy.exploration = Exploration(policy.action_space)  # for its hooks, which do nothing
    policy.model = NoModel()
    policy.action_transform = OwnActions(policy.action_space)


def act_alone(policy: Any, obs: Any, state: Any, arguments: Mapping[str, Any]) -> tuple[Any, list[Any], dict[str, Any]]:
    """Ask `compute_actions` for what it knows of the arguments, and bring its answer into the form that is recorded.

    Raises:
        ConfigError: the answer is not (actions, state, extra columns).
    """
    takes = inspect.signature(policy.compute_actions).parameters
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in takes.values()):
        arguments = {name: value for name, value in arguments.items() if name in takes}
    answer: Any = policy.compute_actions(obs, state, **arguments)
    if not isinstance(answer, tuple) or len(answer) != 3:
        raise ConfigError(
            f"{type(policy).__name__}.compute_actions returned {type(answer).__name__}; expected the tuple "
            "(actions, state, extra columns), such as (actions, [], {})"
        )
    actions, state_out, extra = answer
    columns = {name: torch.from_numpy(_array(value)) for name, value in extra.items()}
    return policy.action_transform.batched(actions, row_count(obs)), list(state_out), columns


def transitions(fragment: SampleBatch) -> SampleBatch:
    """The experience of a fragment as rows `[N, …]` with `next_obs`, in order of environment and then of time.

    `t` is 0 where an episode starts; `next_obs` of an episode's last row is its final observation.
    """
    steps = len(fragment.valid)
    rows = fragment.without("valid").map(lambda column: column[:steps])
    rows["next_obs"] = mapped(lambda column: column[1:], fragment.obs)
    rows = rows.map(lambda column: column.transpose(0, 1).flatten(0, 1))
    return rows[fragment.valid.T.flatten().nonzero().squeeze(1)]


def learn_alone(policy: Learning, batch: SampleBatch) -> None:
    """One iteration with a class's own `learn_on_batch`: what `Policy.learn_on_batch` counts and reports is done here.

    Raises:
        ConfigError: it did not return a mapping of numbers.
    """
    started = time.perf_counter()
    policy.train()
    rows = policy._rows(batch)
    policy._call_hooks("on_postprocess_trajectory", policy=policy, postprocessed_batch=rows, original_batch=batch)
    stats: Any = policy.learn_on_batch(rows)
    policy.env_steps += sum_over_ranks(rows.count)
    policy.iterations += 1
    policy.iteration_metrics = _numbers(policy, stats if stats is not None else {})
    policy._call_hooks("on_learn_on_batch", policy=policy, train_batch=rows, result=policy.iteration_metrics)
    policy.learn_seconds = time.perf_counter() - started


def _array(value: Any) -> np.ndarray:
    return value.numpy(force=True) if isinstance(value, Tensor) else np.asarray(value)


def _numbers(policy: Learning, stats: Any, prefix: str = "") -> dict[str, float]:
    """A (nested) mapping of numbers, flat."""
    if not isinstance(stats, Mapping):
        raise ConfigError(f"{type(policy).__name__}.learn_on_batch returned {stats!r}; expected a dict of numbers")
    found: dict[str, float] = {}
    for name, value in stats.items():
        if isinstance(value, Mapping):
            found |= _numbers(policy, value, f"{prefix}{name}/")
        elif isinstance(value, Tensor | np.ndarray | np.generic | int | float) and np.size(_array(value)) == 1:
            found[f"{prefix}{name}"] = float(_array(value).item())
        else:
            raise ConfigError(
                f"{type(policy).__name__}.learn_on_batch returned {prefix}{name}={value!r}; expected one number"
            )
    return found
