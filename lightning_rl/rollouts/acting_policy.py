"""A policy in a worker's running episodes: its memory, its exploration noise and its running returns."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np

from lightning_rl.exploration import Actor, Exploration
from lightning_rl.models.filters import RunningReturns
from lightning_rl.rollouts.recurrent_state import PolicyMemory

__all__ = ["ActingPolicy"]

log = logging.getLogger(__name__)


class ActingPolicy:
    """What one policy needs from step to step where it acts in several places at a time.

    A place is an environment, or an agent of one (`PolicyLanes`).

    Args:
        policy: acts.
        memory: of the policy, for its places.
        actor: the worker and the places, for the exploration strategy.

    Attributes:
        exploration: the policy's strategy; `None` if it has none, as policies written from scratch.
        returns: running returns of a reward filter that scales by them; `None`: there is none.
    """

    def __init__(self, policy: Any, memory: PolicyMemory, actor: Actor) -> None:
        self.policy, self.memory, self.actor = policy, memory, actor
        self.exploration: Exploration | None = None
        self.act_of_policy = policy.compute_actions
        scales = getattr(getattr(policy, "reward_filter", None), "normaliser", None)
        self.returns = None if scales is None else RunningReturns(scales.gamma)

    def begin_fragment(self) -> None:
        """Let the exploration strategy switch to this worker."""
        self.act_of_policy = getattr(self.policy, "act", self.policy.compute_actions)
        exploration = getattr(self.policy, "exploration", None)
        self.exploration = exploration if isinstance(exploration, Exploration) else None
        if self.exploration is not None:
            self.exploration.begin_fragment(self.actor)

    def restart(self) -> None:
        """Every place starts an episode."""
        self.memory.restart()
        if self.exploration is not None:
            self.exploration.on_episode_start(list(range(self.actor.num_envs)))

    def start_episodes(self, starting: np.ndarray) -> None:
        """The next step in the places `starting`, bool `[P]`, is the first of an episode."""
        if self.memory.active:
            self.memory.reset(starting)
        if self.exploration is not None:
            self.exploration.on_episode_start(np.flatnonzero(starting).tolist())

    def add_running_returns(self, fragment: Any) -> None:
        """Add the column where fragments continue each other; learners get them in any order."""
        if self.returns is not None:
            fragment["running_returns"] = self.returns.update(fragment.rewards, fragment.valid, fragment.t).float()

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
        self.exploration.on_episode_start(list(range(self.actor.num_envs)))
        log.warning(
            "%s has no episode_state: its noise begins anew, so that the resumed run is as good as the one that would "
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
