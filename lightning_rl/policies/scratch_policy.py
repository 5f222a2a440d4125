"""Policies written from scratch: classes that define how they act and learn, without a model and an optimizer."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from gymnasium import Space, spaces
from gymnasium.vector.utils import concatenate, create_empty_array
from torch import Tensor, nn

from lightning_rl.errors import ConfigError
from lightning_rl.exploration import Exploration
from lightning_rl.learning.learner import Learner
from lightning_rl.models.filters import NoFilter, RewardFilter
from lightning_rl.policies.checkpoints import counters, plain_weights
from lightning_rl.policies.policy import Policy
from lightning_rl.sample_batch import SampleBatch, map_leaves, row_count, transition_rows
from lightning_rl.schema.ranges import Seed
from lightning_rl.spaces import leaf_spaces

__all__ = ["OwnActions", "ScratchPolicy"]

# RLlib's names of arguments of `compute_actions`.
CLASSIC_ARGUMENTS = {"prev_action_batch": "prev_actions", "prev_reward_batch": "prev_rewards", "info_batch": "infos"}


class ScratchPolicy(Policy):
    """The base of policies without a model: a subclass defines `compute_actions` and a learning method.

    Actions are in the environment's space. `learn_on_batch(rows)` gets transitions `[N, …]` (`transition_rows`) and
    returns numbers to log; or a subclass defines `compute_gradients` and `apply_gradients` instead. A checkpoint holds
    the result of `get_weights`. Observations, states and earlier steps are arrays; as in RLlib, `get_initial_state` may
    return the state of one environment, and `compute_actions` may take `prev_action_batch` and `prev_reward_batch`, and
    `infos` (or `info_batch`), a list with the info of each environment.

    Args:
        observation_space, action_space: the spaces of a single environment, of any kind.
        config: the attribute `config`.
        seed: seed of the samples of the action space.
    """

    has_model: ClassVar[bool] = False

    def __init__(
        self,
        observation_space: Space[Any],
        action_space: Space[Any],
        config: Mapping[str, Any] | None = None,
        *,
        seed: Seed = 0,
    ) -> None:
        super().__init__(observation_space, action_space, gamma=1.0, seed=seed)
        takes = inspect.signature(self.compute_actions).parameters
        self.reads_infos = not {"infos", "info_batch"}.isdisjoint(takes)
        self.config = dict(config or {})
        self.is_recurrent = False
        self.model = NoModel(self.compute_actions, action_space)  # type: ignore[assignment]
        self.exploration = Exploration(action_space)  # for its hooks, which do nothing
        self.action_transform = OwnActions(action_space)  # type: ignore[assignment]
        self.observation_filter, self.reward_filter = NoFilter(), RewardFilter("none", 1.0)
        self.learner = Learner(self)

    def act(self, obs: Any, state: Sequence[Tensor] = (), **arguments: Any) -> tuple[Any, list[Any], dict[str, Any]]:
        """Call `compute_actions` with the arguments that it takes; returns its result in the form that is recorded.

        Raises:
            ConfigError: it did not return (actions, state, extra columns), or not as many actions as observations.
        """
        takes = inspect.signature(self.compute_actions).parameters
        for classic, name in CLASSIC_ARGUMENTS.items():
            if classic in takes and name in arguments:
                given = arguments.pop(name)
                arguments[classic] = given if name == "infos" else map_leaves(_as_array, given)
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in takes.values()):
            arguments = {name: value for name, value in arguments.items() if name in takes}
        states: Any = [_as_array(part) for part in state]
        answer: Any = self.compute_actions(obs, states, **arguments)
        if not isinstance(answer, tuple) or len(answer) != 3:
            raise ConfigError(
                f"{type(self).__name__}.compute_actions returned {type(answer).__name__}; expected the tuple "
                "(actions, state, extra columns), such as (actions, [], {})"
            )
        actions, state_out, extra = answer
        columns = {name: torch.from_numpy(_as_array(value)) for name, value in extra.items()}
        after = [torch.as_tensor(part) for part in state_out]
        return self.action_transform.batch_actions(actions, row_count(obs)), after, columns  # type: ignore[attr-defined]

    def initial_states(self, batch_size: int) -> list[Tensor]:
        """The states at an episode's start, `[B, …]` each; `get_initial_state` may lack the argument, as in RLlib."""
        if inspect.signature(self.get_initial_state).parameters:
            return [torch.as_tensor(state) for state in self.get_initial_state(batch_size)]
        states: Any = self.get_initial_state()  # type: ignore[call-arg]
        return [torch.from_numpy(np.stack([np.asarray(state)] * batch_size)) for state in states]

    def seed_exploration(self, seed: int) -> None:
        """Seed the action space, from which policies written from scratch usually sample."""
        super().seed_exploration(seed)
        self.action_space.seed(seed)

    def postprocess_trajectory(self, batch: SampleBatch, other_agent_batches: Any = None) -> SampleBatch:
        """The fragment as transitions `[N, …]`."""
        return transition_rows(batch)

    def get_state(self) -> dict[str, Any]:
        """Weights and counters."""
        return {"weights": self.get_weights(), "counters": counters(self)}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """As `Policy`, with the result of `get_weights` as plain data.

        Raises:
            CheckpointError: the weights hold a value that is not a number, text, array or tensor.
            NonFiniteError: a weight is NaN or infinite.
        """
        checkpoint["weights"] = plain_weights("weights", self.get_weights())
        super().on_save_checkpoint(checkpoint)


class NoModel(nn.Module):
    """Takes the place of a model; its attributes say which columns of earlier steps `compute_actions` takes.

    Args:
        compute_actions: the policy's method.
        action_space: earlier actions are recorded only if they are numbers.
    """

    def __init__(self, compute_actions: Any, action_space: Space[Any]) -> None:
        super().__init__()
        takes = inspect.signature(compute_actions).parameters
        numbers = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
        are_numbers = all(isinstance(leaf, numbers) for _, leaf in leaf_spaces(action_space))
        self.prev_obs = 0
        self.prev_actions = int("prev_action_batch" in takes and are_numbers)
        self.prev_rewards = int("prev_reward_batch" in takes)

    def get_initial_state(self) -> list[Tensor]:
        """No state."""
        return []


class OwnActions:
    """The action transform of actions that are in the environment's space already.

    Args:
        action_space: space of a single environment's actions, of any kind.
    """

    def __init__(self, action_space: Space[Any]) -> None:
        self.action_space = self.policy_space = action_space

    def to_env(self, actions: Any) -> Any:
        """The same actions as arrays."""
        return map_leaves(_as_array, actions)

    from_env = to_env

    def batch_actions(self, actions: Any, rows: int) -> Any:
        """The actions that `compute_actions` returned, a list with one action per row or arrays, as arrays `[B, …]`.

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


def _as_array(value: Any) -> np.ndarray:
    return value.numpy(force=True) if isinstance(value, Tensor) else np.asarray(value)
