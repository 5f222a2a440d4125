"""The lanes of one policy in a worker: where the policy acts, and what it read and chose there."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from gymnasium import Space

from lightning_rl.errors import EnvError
from lightning_rl.exploration import Actor, Exploration
from lightning_rl.models.filters import RunningReturns
from lightning_rl.rollouts.fragments import describe_not_finite, is_finite, stack_masks, stack_steps, step_inputs
from lightning_rl.rollouts.obs_bounds_check import ObsBoundsCheck
from lightning_rl.rollouts.recurrent_state import PolicyMemory
from lightning_rl.sample_batch import Fragment, SampleBatch

__all__ = ["LaneRows", "PolicyLanes"]

log = logging.getLogger(__name__)


@dataclass(slots=True)
class LaneRows:
    """What was recorded for all lanes of a policy: lists with an entry a step, arrays or tensors of `[L, …]`."""

    obs: list[Any] = field(default_factory=list)
    masks: list[Any] = field(default_factory=list)  # from the first step on in which an info held one
    memory: list[SampleBatch] = field(default_factory=list)  # other inputs of the policy before a step
    actions: list[Any] = field(default_factory=list)
    extra: dict[str, list[Any]] = field(default_factory=dict)


class PolicyLanes:
    """The lanes of one policy, which acts in all of them at once: an environment each.

    Args:
        worker: a `RolloutWorker`.
        policy_id, policy: acts.
        space: the space of a lane's observations.
        size: lanes, `L`.

    Attributes:
        exploration: the policy's strategy; `None` if it has none, as policies written from scratch.
        returns: running returns of a reward filter that scales by them; `None`: there is none.
        chosen: the latest actions, the state after them and the columns to record with them; `None`: the policy was not
            asked.
    """

    memory_class: ClassVar[type[PolicyMemory]] = PolicyMemory

    def __init__(self, worker: Any, policy_id: str, policy: Any, space: Space[Any], size: int) -> None:
        self.worker, self.policy_id, self.policy, self.size = worker, policy_id, policy, size
        self.memory = self.memory_class(policy, size)
        self.actor = Actor(worker.worker_index, worker.logical_workers, size, worker.stream)
        self.bounds_check = ObsBoundsCheck(
            space, f"environment {worker.env_creator.name!r} of worker {worker.worker_index}", self.name_lane
        )
        self.exploration: Exploration | None = None
        self.rows = LaneRows()
        self.chosen: tuple[Any, Any, dict[str, Any]] | None = None
        self._how = {"explore": worker.explore} if worker.record_logp else {"explore": worker.explore, "logp": False}
        self._act_of_policy = policy.compute_actions
        scales = getattr(getattr(policy, "reward_filter", None), "normalizer", None)
        self.returns = None if scales is None else RunningReturns(scales.gamma)

    def name_lane(self, lane: int) -> str:
        """A lane in messages."""
        return f"sub-environment {lane}"

    # -- fragments and episodes ---------------------------------------------------------------------------------------
    def begin_fragment(self) -> None:
        """Let the exploration strategy switch to this worker, and record new rows."""
        self.rows = LaneRows()
        self._act_of_policy = getattr(self.policy, "act", self.policy.compute_actions)
        exploration = getattr(self.policy, "exploration", None)
        self.exploration = exploration if isinstance(exploration, Exploration) else None
        if self.exploration is not None:
            self.exploration.begin_fragment(self.actor)

    def restart(self) -> None:
        """Every lane starts an episode."""
        self.memory.restart()
        if self.exploration is not None:
            self.exploration.on_episode_start(list(range(self.size)))

    def start_episodes(self, starting: np.ndarray) -> None:
        """The next step in the environments `starting`, bool `[B]`, is the first of an episode."""
        if self.memory.active:
            self.memory.reset(starting)
        if self.exploration is not None:
            self.exploration.on_episode_start(np.flatnonzero(starting).tolist())

    def add_running_returns(self, samples: Any) -> None:
        """Add the column where fragments continue each other; learners get them in any order."""
        if self.returns is not None:
            samples["running_returns"] = self.returns.update(samples.rewards, samples.valid, samples.t).float()

    def state_dict(self) -> dict[str, Any]:
        """What belongs to the running episodes, as plain data and tensors."""
        return {
            "memory": self.memory.state_dict(),
            "exploration": None if self.exploration is None else self._noise_state(self.exploration),
            "running_returns": None if self.returns is None else self.returns.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue the episodes of `state`; comes after `begin_fragment`."""
        self.memory.restart()
        self.memory.load_state_dict(state["memory"])
        if self.returns is not None:
            self.returns.load_state_dict(state["running_returns"])
        if self.exploration is None:
            return
        if state["exploration"] is not None:
            self.exploration.load_episode_state(state["exploration"])
            return
        self.exploration.on_episode_start(list(range(self.size)))
        log.warning(
            "%s has no episode_state: its noise starts from scratch: the resumed run is as good as the one that would "
            "have gone on, but not the same",
            type(self.exploration).__name__,
        )

    def _noise_state(self, exploration: Exploration) -> dict[str, Any] | None:
        """What the strategy keeps for this worker's episodes; another worker or an evaluation may have acted since."""
        acted = exploration.actor
        exploration.begin_fragment(self.actor)
        state = exploration.episode_state()
        exploration.begin_fragment(acted)
        return state

    # -- acting -------------------------------------------------------------------------------------------------------
    def choose(self, obs: Any, mask: np.ndarray | None, *, record: bool, **more: Any) -> Any:
        """The policy's actions in all lanes, in the environment's space.

        Args:
            obs: `[L, *]`, no other's arrays.
            mask: allowed actions, bool `[L, n]`; `None`: by the observations.
            record: whether inputs and outputs of the policy are recorded.
            more: further arguments of `act`.

        Raises:
            EnvError: an observation is not finite, where nothing is recorded; `build_fragment` checks what is.
        """
        if record:
            self.record_inputs(obs, mask)
        elif not is_finite(obs):
            raise EnvError(f"{self.worker.where()}: an observation holds NaN or infinity; expected finite numbers")
        actions, _, extra = self.chosen = self.act(obs, mask, **more)
        if record:
            self.rows.actions.append(actions)
            for name, value in extra.items():
                self.rows.extra.setdefault(name, []).append(value)
        return self.policy.env_actions(actions)

    def act(self, obs: Any, mask: np.ndarray | None, **more: Any) -> tuple[Any, Any, dict[str, Any]]:
        """What `compute_actions` of the policy gives; `more`: further arguments of it."""
        memory = self.memory
        memory.obs = obs
        # Each policy has its own count, which its exploration follows: that of a frozen one stands still.
        return self._act_of_policy(
            obs,
            memory.state,
            timestep=self.policy.env_steps,
            action_mask=mask,
            **memory.before,
            **self._how,
            **more,
        )

    def record_inputs(self, obs: Any, mask: np.ndarray | None) -> None:
        """Record what the policy reads before a step."""
        self.rows.obs.append(obs)
        if mask is not None:
            self.rows.masks.append(mask)
        if self.memory.active:
            self.rows.memory.append(self.memory.columns())

    # -- the fragment -------------------------------------------------------------------------------------------------
    def build_fragment(self, valid: np.ndarray, steps: Any, columns: Mapping[str, np.ndarray]) -> Fragment:
        """What was recorded, in the columns of `sample_batch.py`.

        Args:
            valid: bool `[T, L]`, rows of experience.
            steps: rewards `[T, L]`, and terminated and truncated, bool `[T, L]`.
            columns: more of them, `[T, L, …]` or `[T+1, L, …]`.

        Raises:
            EnvError: a reward or an observation is not finite.
        """
        rows = self.rows
        fragment = Fragment(
            actions=stack_steps(rows.actions),
            rewards=torch.from_numpy(np.where(valid, steps.rewards, 0).astype(np.float32)),
            terminated=torch.from_numpy(steps.terminated & valid),
            truncated=torch.from_numpy(steps.truncated & valid),
            valid=torch.from_numpy(valid),
            **{name: torch.from_numpy(column) for name, column in columns.items()},
            **{name: stack_steps(values) for name, values in rows.extra.items()},
        )
        for name, column in step_inputs(rows.obs, rows.memory).items():
            fragment[name] = column
        if rows.masks:
            fragment["action_mask"] = stack_masks(rows.masks[: len(valid)], len(valid))
        if problem := describe_not_finite(fragment, steps.rewards, self.name_lane):
            raise EnvError(f"{self.worker.where()}: {problem}; expected finite numbers")
        return fragment
