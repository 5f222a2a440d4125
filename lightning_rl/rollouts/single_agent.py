"""Environments of one agent, in which one policy acts: a lane for each environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lightning_rl.envs.action_masks import ActionMasks
from lightning_rl.envs.infos import info_of
from lightning_rl.rollouts.fragments import (
    EnvSteps,
    copy_arrays,
    insert_final_obs,
    insert_reset_rows,
    stack_masks,
    step_inputs,
    write_final_masks,
)
from lightning_rl.rollouts.policy_lanes import LaneRows, PolicyLanes
from lightning_rl.sample_batch import DEFAULT_POLICY, Fragment, map_leaves

__all__ = ["SingleAgent"]


class SingleAgent:
    """Environments of one agent: a worker's only policy has a lane in each environment, which always acts.

    Args:
        worker: a `RolloutWorker`.

    Attributes:
        lanes: the policy's lanes.
        names: the names of the agents of an environment: the only one has none.
        layout: where agents are in arrays; `None`, because arrays of environments are those of lanes.
    """

    names: tuple[str, ...] = ()
    layout = None

    def __init__(self, worker: Any) -> None:
        self.worker = worker
        space = worker.env.single_observation_space
        self.own = PolicyLanes(worker, DEFAULT_POLICY, worker.policy, space, worker.num_envs)
        self.lanes = [self.own]
        self._action_masks = ActionMasks(worker.env.single_action_space, worker.env_creator.name)
        self._reads_infos = getattr(worker.policy, "reads_infos", False)
        self._has_masks = False  # whether an info has held one: from then on fragments have the column "action_mask"
        self._records = False
        self._following = LaneRows()  # SAME_STEP only: inputs of the policy after each step, before resets

    def begin_fragment(self) -> bool:
        """Whether the lanes are new: never."""
        if self.worker.same_step:
            self._following = LaneRows()
        return False

    def restart(self) -> None:
        """Every environment starts an episode."""
        self._has_masks = False

    def start_episodes(self, starting: np.ndarray) -> None:
        """The next step in the environments `starting`, bool `[B]`, is the first of an episode."""

    def state_dict(self) -> dict[str, Any]:
        """What belongs to the running episodes, beside the lanes' own."""
        return {"has_masks": self._has_masks}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue the episodes of `state`."""
        self._has_masks = bool(state["has_masks"])

    def policy_ids(self, env: int) -> list[str]:
        """The policy of each of `names`."""
        return []

    def observed(self, lanes: PolicyLanes) -> tuple[Any, np.ndarray | None]:
        """The latest observations of the lanes, and which of them count (`None`: all)."""
        return self.worker.obs, None

    # -- a step -------------------------------------------------------------------------------------------------------
    def act(self, active: np.ndarray | None) -> Any:
        """The policy's actions in all environments.

        Args:
            active: bool `[B]`, environments whose steps are recorded; `None`: nothing is recorded.
        """
        worker, self._records = self.worker, active is not None
        obs, mask = copy_arrays(worker.obs), self._find_masks()
        infos = {"infos": [info_of(worker.info, env) for env in range(worker.num_envs)]} if self._reads_infos else {}
        return self.own.choose(obs, mask, record=self._records, **infos)

    def _find_masks(self) -> np.ndarray | None:
        """The allowed actions `[B, n]` by the infos, from the first mask on; policies find those in observations.

        Raises:
            EnvApiError: a mask does not fit the action space, or forbids everything in a running episode.
        """
        worker, finder = self.worker, self._action_masks
        if type(worker.obs) is np.ndarray and not self._has_masks and "action_mask" not in worker.info:
            return None  # the usual case
        masks = finder.find_all(worker.obs, worker.info, worker.num_envs, always=self._has_masks)
        self._has_masks = masks is not None
        seen = finder.find_inside(worker.obs, worker.num_envs) if masks is None else masks
        if seen is not None and np.count_nonzero(nothing := finder.forbid_all(seen) & ~worker.just_ended):
            env = int(np.flatnonzero(nothing)[0])
            raise finder.refuse(seen[env], f"sub-environment {env}")
        return masks

    def end_step(self, rewards: np.ndarray) -> None:
        """Take in what a step gave: `worker.obs` and `worker.info`, and the rewards `[B]`."""
        memory = self.own.memory
        if memory.active:
            assert self.own.chosen is not None
            actions, state, _ = self.own.chosen
            memory.advance(state, actions, rewards)
        if self._records and self.worker.same_step:
            self._record_following()

    def _record_following(self) -> None:
        """SAME_STEP: what the policy would have read next, which is not what the reset gave."""
        worker, following = self.worker, self._following
        following.obs.append(final_obs := insert_final_obs(copy_arrays(worker.obs), worker.info))
        if self._has_masks:
            final_info = worker.info.get("final_info", {})
            following.masks.append(self._action_masks.find_all(final_obs, final_info, worker.num_envs, always=True))
        if self.own.memory.active:
            following.memory.append(self.own.memory.columns())

    # -- the fragment -------------------------------------------------------------------------------------------------
    def record_last(self) -> None:
        """Record what the policy reads after the last step."""
        self.own.record_inputs(copy_arrays(self.worker.obs), None)

    def count(self, rewards: np.ndarray, ended: np.ndarray, over: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Count steps into the episodes; as `EpisodeTracker.count`."""
        return self.worker.episodes.count(rewards, ended, over)

    def build(self, steps: EnvSteps) -> Fragment:
        """The recorded steps as a fragment in the common form."""
        valid = steps.active & steps.experience
        fragment = self.own.build_fragment(valid, steps, {"t": steps.t})
        if not self.worker.same_step:
            return fragment
        following = step_inputs(self._following.obs, self._following.memory)
        for name in following:
            fragment[name] = map_leaves(lambda column: column[:-1], fragment[name])
        before, fragment = fragment, insert_reset_rows(fragment, following)
        if self._following.masks:
            write_final_masks(fragment, before, stack_masks(self._following.masks, len(valid)))
        return fragment
