"""The lanes of one of several policies: the agents, each in one environment, for which it acts."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from lightning_rl.envs.action_masks import ActionMasks
from lightning_rl.rollouts.episodes import AgentSteps
from lightning_rl.rollouts.fragments import EnvSteps, concat_steps, zip_leaves
from lightning_rl.rollouts.own_time import LaneSteps, OwnTime, own_steps
from lightning_rl.rollouts.policy_lanes import PolicyLanes
from lightning_rl.rollouts.recurrent_state import LaneMemory
from lightning_rl.sample_batch import STEP_INPUTS, Fragment, SampleBatch, as_plain, map_leaves, to_nested_batch

__all__ = ["AgentLanes"]


class AgentLanes(PolicyLanes):
    """The agents for which one policy acts, in all environments of a worker.

    A lane is an agent of one environment; lanes are in order of the environments: lane `environment · n + j` is the
    policy's agent `j`. If the mapping of agents to policies changes with the episode, the lanes are those of all agents
    that the policy may get, and each acts only while it has got its agent.

    Args:
        agents: a `SeveralAgents`.
        policy_id: the policy that acts.
        slots: indices of the policy's agents, all of one kind, ascending.

    Attributes:
        index: the number of the policy.
        fixed: whether these agents always have this policy.
        kind: the key of the agents' kind in observations and actions.
    """

    memory: LaneMemory
    memory_class = LaneMemory

    def __init__(self, agents: Any, policy_id: str, slots: tuple[int, ...]) -> None:
        worker, policy, layout = agents.worker, agents.policies[policy_id], agents.layout
        self.index, self.fixed, self.layout, self.slots = agents.ids.index(policy_id), agents.fixed, layout, slots
        self.num_envs, self.per_env = worker.num_envs, len(slots)
        place = layout.places[slots[0]][0]
        kind, self.kind = layout.kinds[place], str(place)
        super().__init__(worker, policy_id, policy, kind.observation_space, self.num_envs * self.per_env)
        self.whole_kind = slots == kind.slots
        self.slot_index = _as_slice([*slots])
        self.rows_of_kind = np.array([layout.places[slot][1] for slot in slots])
        self.row_index = _as_slice(self.rows_of_kind.tolist())
        self.masked = layout.masked and kind.has_masks
        self._masks = ActionMasks(kind.action_space, worker.env_creator.name)
        space = kind.observation_space
        self.needs_acting = self.masked or (isinstance(space, spaces.Dict) and "action_mask" in space.spaces)
        self.reads_central_obs = bool(getattr(policy, "central_obs_size", 0))
        self._drop_held()

    def name_lane(self, lane: int) -> str:
        """A lane in messages."""
        env, agent = divmod(lane, self.per_env)
        return f"agent {self.layout.agents[self.slots[agent]]!r} of sub-environment {env}"

    # -- fragments and episodes ---------------------------------------------------------------------------------------
    def begin_fragment(self) -> None:
        """As `PolicyLanes`."""
        super().begin_fragment()
        self.rows_stand_alone = self.exploration is None or not self.exploration.follows_episodes

    def _drop_held(self) -> None:
        self.held: SampleBatch | None = None  # columns `[L, …]` of actions that are not rows yet
        self._own_steps = np.zeros(self.size, dtype=np.int64)

    def restart(self) -> None:
        """Every environment starts an episode; actions that are not rows yet are dropped."""
        self._drop_held()
        super().restart()

    def start_episodes(self, starting: np.ndarray) -> None:
        """As `PolicyLanes`, for all lanes of these environments."""
        super().start_episodes(np.repeat(starting, self.per_env))

    def add_running_returns(self, samples: Any) -> None:
        """As `PolicyLanes`, to the policy's own fragment."""
        super().add_running_returns(samples[self.policy_id])

    def state_dict(self) -> dict[str, Any]:
        """As `PolicyLanes`, with the actions that are not rows yet."""
        held = None if self.held is None else as_plain(self.held)
        return {**super().state_dict(), "held": held, "own_steps": torch.from_numpy(self._own_steps)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue the episodes of `state`; comes after `begin_fragment`."""
        super().load_state_dict(state)
        self.held = None if state["held"] is None else to_nested_batch(state["held"])
        self._own_steps = state["own_steps"].numpy().copy()

    # -- acting -------------------------------------------------------------------------------------------------------
    def of_lanes(self, agents: np.ndarray) -> np.ndarray:
        """Values `[…, B, A]` of all agents as those of the lanes, `[…, L]`."""
        return agents[..., self.slot_index].reshape(*agents.shape[:-2], self.size)

    def acting(self, acts: np.ndarray, owners: np.ndarray) -> np.ndarray:
        """Which lanes act, bool `[…, L]`, where the agents `acts […, B, A]` act and have the policies `owners`."""
        return self.of_lanes(acts if self.fixed else acts & (owners == self.index))

    def observe(self, packed: Mapping[str, Any], acting: np.ndarray | None) -> tuple[Any, np.ndarray | None]:
        """A copy of the lanes' observations `[L, *]`, and their action masks, if the environment's infos hold masks.

        A lane that waits and has no allowed action is allowed all of them, so that distributions can be computed.

        Raises:
            EnvApiError: a lane acts and has no allowed action.
        """
        obs = map_leaves(self._take, packed["obs"][self.kind])
        if acting is None:
            return obs, None
        mask = self._take(packed["masks"][self.kind]).view(np.bool_) if self.masked else None
        if mask is not None:
            mask[self._waiting_without(mask, acting)] = True
        elif (inside := self._masks.find_inside(obs, self.size)) is not None:
            idle = self._waiting_without(inside, acting)
            map_leaves(
                lambda leaf: np.copyto(leaf, 1, where=idle.reshape(-1, *[1] * (leaf.ndim - 1))), obs["action_mask"]
            )
        return obs, mask

    def _waiting_without(self, masks: np.ndarray, acting: np.ndarray) -> np.ndarray:
        """The lanes that wait and have no allowed action, bool `[L]`.

        Raises:
            EnvApiError: a lane that acts has none.
        """
        nothing = self._masks.forbid_all(masks)
        if np.count_nonzero(nothing & acting):
            lane = int(np.flatnonzero(nothing & acting)[0])
            raise self._masks.refuse(masks[lane], self.name_lane(lane))
        return nothing

    def act(  # type: ignore[override]
        self, obs: Any, mask: np.ndarray | None, *, turns: np.ndarray
    ) -> tuple[Any, Any, dict[str, Any]]:
        """Actions of all lanes, the state after them, and the columns to record with them.

        Where it is the turn of at most half of the lanes, as in games or with many opponents, and each row stands for
        itself, the policy reads their rows alone; actions and columns of the others are zeros.

        Args:
            obs, mask: the observation and mask of `observe`.
            turns: bool `[L]`, the lanes whose agent is to act.
        """
        if self.memory.active or not self.rows_stand_alone or not 0 < 2 * np.count_nonzero(turns) <= self.size:
            return super().act(obs, mask)
        rows = np.flatnonzero(turns)
        read = map_leaves(lambda values: values[rows], obs)
        actions, state, extra = super().act(read, None if mask is None else mask[rows])
        spread = partial(_spread, rows=rows, size=self.size)
        return map_leaves(spread, actions), state, {name: map_leaves(spread, each) for name, each in extra.items()}

    def skip(self, obs: Any, mask: np.ndarray | None, *, record: bool) -> None:
        """A step in which no lane acts; what is recorded as outputs of the policy is never read."""
        self.chosen = None
        if record:
            self.record_inputs(obs, mask)
            for values in (self.rows.actions, *self.rows.extra.values()):
                values.append(values[-1])

    def by_env(self, actions: Any) -> Any:
        """Actions `[L, *]` in the environment's space as `[B, n, *]`."""
        return map_leaves(lambda leaf: leaf.reshape(self.num_envs, self.per_env, *leaf.shape[1:]), actions)

    def _take(self, values: np.ndarray) -> np.ndarray:
        return np.array(values[:, self.row_index], order="C").reshape(self.size, *values.shape[2:])

    # -- the fragment -------------------------------------------------------------------------------------------------
    def build(self, steps: EnvSteps, of_agents: AgentSteps) -> Fragment:
        """The recorded rows in the agents' own time; the columns of `sample_batch.py`, with "t", "env_t", "eps_id".

        Raises:
            EnvError: a reward or an observation is not finite.
        """
        acting = self.acting(of_agents.acting, of_agents.owners)
        own = LaneSteps(acting, *map(self.of_lanes, (of_agents.rewards, of_agents.terminated, of_agents.truncated)))
        per_lane = partial(np.repeat, repeats=self.per_env, axis=1)
        t, self._own_steps = own_steps(acting[:-1], per_lane(~steps.experience), self._own_steps)
        columns = {"t": t, "env_t": per_lane(steps.t), "eps_id": per_lane(of_agents.eps_id[:-1])}
        if self.reads_central_obs and of_agents.central_obs is not None:
            columns["central_obs"] = per_lane(of_agents.central_obs)
        fragment = self.build_fragment(acting[:-1], own, columns)
        if self.held is None and own.all_act():
            return fragment
        every = fragment.without("rewards", "terminated", "truncated", "valid")
        if self.rows.masks:  # recorded once more than there are steps, for final observations
            every["action_mask"] = torch.from_numpy(concat_steps(self.rows.masks))
        return self._in_own_time(every, own)

    def _in_own_time(self, every: SampleBatch, steps: LaneSteps) -> Fragment:
        """Rows gathered in the agents' own time; keeps the actions that are not rows yet for the next fragment."""
        held = self.held
        if held is not None:  # what is held lies before the first step
            before = held.select(*every.columns).map(lambda column: column.unsqueeze(0))
            every = zip_leaves(lambda first, then: torch.cat([first, then]), before, every)
            steps = LaneSteps(
                np.concatenate([held.held.numpy()[None], steps.acting]),
                np.concatenate([held.held_rewards.numpy()[None], steps.rewards]),
                *(np.pad(ends, ((1, 0), (0, 0))) for ends in (steps.terminated, steps.truncated)),
            )
        own, lanes = OwnTime.of(steps), torch.arange(self.size)
        self.held = None
        if own.held.any():
            at = torch.from_numpy(own.held_steps)
            self.held = every.map(lambda column: column[at, lanes])
            self.held["held"] = torch.from_numpy(own.held)
            self.held["held_rewards"] = torch.from_numpy(own.held_rewards)
        source, valid = torch.from_numpy(own.steps), torch.from_numpy(own.valid)
        rows = source[:-1].clamp(max=len(steps.rewards) - 1)
        fragment = Fragment(
            rewards=torch.from_numpy(own.rewards.astype(np.float32)),
            terminated=torch.from_numpy(own.terminated),
            truncated=torch.from_numpy(own.truncated),
            valid=valid,
        )
        for name, column in every.items():
            at = source if name in STEP_INPUTS else source[:-1] if name == "action_mask" else rows
            fragment[name] = map_leaves(lambda leaf, at=at: leaf[at, lanes], column)
        for name in ("t", "env_t"):
            fragment[name] = torch.where(valid, fragment[name], 0)
        return fragment


def _spread(values: Any, rows: np.ndarray, size: int) -> Any:
    """Values `[n, …]` at the rows `[n]` of `[size, …]`; zeros elsewhere."""
    whole: Any
    if isinstance(values, torch.Tensor):
        whole = values.new_zeros(size, *values.shape[1:])
        whole[torch.from_numpy(rows)] = values
    else:
        whole = np.zeros((size, *values.shape[1:]), values.dtype)
        whole[rows] = values
    return whole


def _as_slice(indices: list[int]) -> slice | list[int]:
    """A slice where the indices follow each other, which numpy takes without a copy."""
    first, last = indices[0], indices[-1]
    return slice(first, last + 1) if indices == [*range(first, last + 1)] else indices
