"""The lanes of one policy in a worker: the agents, each in one environment, for which the policy acts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from lightning_rl.envs.action_masks import ActionMasks
from lightning_rl.envs.multi_agent import AgentLayout
from lightning_rl.errors import EnvError
from lightning_rl.exploration import Actor
from lightning_rl.rollouts.acting_policy import ActingPolicy
from lightning_rl.rollouts.fragments import concat_steps, describe_not_finite_obs, stack_steps, step_inputs
from lightning_rl.rollouts.own_time import OwnTime, all_act, own_steps
from lightning_rl.rollouts.recurrent_state import LaneMemory
from lightning_rl.sample_batch import STEP_INPUTS, SampleBatch, as_plain, map_leaves, to_nested_batch

__all__ = ["AgentSteps", "PolicyLanes"]


@dataclass(frozen=True, slots=True)
class AgentSteps:
    """What a policy's lanes read of `T` steps of `B` environments with `A` agents.

    Attributes:
        acting: bool `[T+1, B, A]`, whose actions each step took; the last entry: whose the next step takes.
        rewards: float64 `[T, B, A]`, of each step.
        terminated, truncated: bool `[T, B, A]`, agents that ended in the step.
        resets: bool `[T, B]`, steps that reset the environment.
        env_t: int32 `[T, B]`, the environment's step within its episode.
        eps_id: int64 `[T, B]`, its episode.
        owners: int `[T+1, B, A]`, the index of the policy that each agent has; `None` if that never changes.
        central_obs: float32 `[T+1, B, S]`; `None` if no policy reads it.
    """

    acting: np.ndarray
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    resets: np.ndarray
    env_t: np.ndarray
    eps_id: np.ndarray
    owners: np.ndarray | None = None
    central_obs: np.ndarray | None = None


@dataclass(slots=True)
class LaneRows:
    """What was recorded for all lanes of a policy: lists with an entry a step, arrays or tensors of `[L, …]`."""

    obs: list[Any] = field(default_factory=list)
    masks: list[np.ndarray] = field(default_factory=list)
    memory: list[SampleBatch] = field(default_factory=list)
    actions: list[Any] = field(default_factory=list)
    extra: dict[str, list[Any]] = field(default_factory=dict)


class PolicyLanes(ActingPolicy):
    """The agents for which one policy acts, in all environments of a worker.

    A lane is an agent of one environment; lanes are in order of the environments: lane `environment · n + j` is the
    policy's agent `j`. If the mapping of agents to policies changes with the episode, the lanes are those of all agents
    that the policy may get, and each acts only while it has got its agent.

    Args:
        policy_id, policy: as the container names it.
        index: of the policy among those of the worker.
        layout: of the agents.
        slots: indices of the policy's agents, all of one kind, ascending.
        fixed: whether these agents always have this policy.
        actor: of the worker; its environments are counted in lanes here.
        env_name: name of the environment, for messages.

    Attributes:
        size: lanes, `L`.
        kind: the key of the agents' kind in observations and actions.
    """

    memory: LaneMemory

    def __init__(
        self,
        policy_id: str,
        policy: Any,
        *,
        index: int,
        layout: AgentLayout,
        slots: tuple[int, ...],
        fixed: bool,
        actor: Actor,
        env_name: str,
    ) -> None:
        self.policy_id, self.index, self.fixed = policy_id, index, fixed
        self.layout, self.slots = layout, slots
        self.num_envs, self.per_env = actor.num_envs, len(slots)
        self.size = self.num_envs * self.per_env
        place = layout.places[slots[0]][0]
        kind, self.kind = layout.kinds[place], str(place)
        self.space = kind.observation_space
        self.whole_kind = slots == kind.slots
        self.all_slots = slots == tuple(range(len(layout.agents)))
        self.slot_index = _as_slice([*slots])
        self.rows_of_kind = np.array([layout.places[slot][1] for slot in slots])
        self.row_index = _as_slice(self.rows_of_kind.tolist())
        self.masked = layout.masked and kind.has_masks
        self._masks = ActionMasks(kind.action_space, env_name)
        self.needs_acting = self.masked or (isinstance(self.space, spaces.Dict) and "action_mask" in self.space.spaces)
        own_actor = Actor(actor.worker_index, actor.num_workers, self.size, actor.stream)
        super().__init__(policy, LaneMemory(policy, self.size), own_actor)
        self.reads_central_obs = bool(getattr(policy, "central_obs_size", 0))
        self.restart_rows()

    # -- fragments and episodes ---------------------------------------------------------------------------------------
    def begin_fragment(self) -> None:
        """Let the exploration strategy switch to this worker, and record new rows."""
        super().begin_fragment()
        self.rows_stand_alone = self.exploration is None or not self.exploration.follows_episodes
        self.rows = LaneRows()

    def restart_rows(self) -> None:
        """Drop actions that are no rows yet, because all environments are reset."""
        self.rows = LaneRows()
        self.held: SampleBatch | None = None  # columns `[L, …]` of them
        self._own_steps = np.zeros(self.size, dtype=np.int64)

    def restart(self) -> None:
        """Every environment starts an episode."""
        self.restart_rows()
        super().restart()

    def state_dict(self) -> dict[str, Any]:
        """As `ActingPolicy`, with the actions that are no rows yet."""
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
        if not self.all_slots:
            agents = agents[..., self.slot_index]
        return agents.reshape(*agents.shape[:-2], self.size)

    def acting(self, acts: np.ndarray, owners: np.ndarray | None) -> np.ndarray:
        """Which lanes act, bool `[…, L]`, where the agents `acts […, B, A]` act and have the policies `owners`."""
        return self.of_lanes(acts if owners is None or self.fixed else acts & (owners == self.index))

    def observe(self, packed: Mapping[str, Any], acting: np.ndarray | None) -> tuple[Any, np.ndarray | None]:
        """A copy of the lanes' observations `[L, *]`, and their action masks, if the environment's infos hold masks.

        A lane that waits and has no allowed action is allowed all of them, so that distributions can be computed.

        Raises:
            EnvApiError: a lane acts and has no allowed action.
        """
        obs = self._take(packed["obs"][self.kind])
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

    def record_inputs(self, obs: Any, mask: np.ndarray | None) -> None:
        """Record what the policy reads before a step."""
        self.rows.obs.append(obs)
        if mask is not None:
            self.rows.masks.append(mask)
        if self.memory.active:
            self.rows.memory.append(self.memory.columns())

    def act(self, obs: Any, mask: np.ndarray | None, turns: np.ndarray, **how: Any) -> tuple[Any, Any, dict[str, Any]]:
        """Actions of all lanes, the state after them, and the columns to record with them.

        Where it is the turn of at most half of the lanes, as in games or with many opponents, and each row stands for
        itself, the policy reads their rows alone; actions and columns of the others are zeros.

        Args:
            obs, mask: of `observe`.
            turns: bool `[L]`, the lanes whose agent is to act.
            how: further arguments of the policy's `act`.
        """
        memory = self.memory
        if memory.active or not self.rows_stand_alone or not 0 < 2 * np.count_nonzero(turns) <= self.size:
            return self.act_of_policy(obs, memory.state, action_mask=mask, **memory.before, **how)
        rows = np.flatnonzero(turns)
        read = map_leaves(lambda values: values[rows], obs)
        actions, state, extra = self.act_of_policy(read, (), action_mask=None if mask is None else mask[rows], **how)
        spread = partial(_spread, rows=rows, size=self.size)
        return map_leaves(spread, actions), state, {name: map_leaves(spread, each) for name, each in extra.items()}

    def record_outputs(self, actions: Any, extra: Mapping[str, Any]) -> None:
        """Record what `act` gave."""
        self.rows.actions.append(actions)
        for name, value in extra.items():
            self.rows.extra.setdefault(name, []).append(value)

    def repeat_outputs(self) -> None:
        """Fill the columns of a step in which no lane acted; these rows are never read."""
        self.rows.actions.append(self.rows.actions[-1])
        for values in self.rows.extra.values():
            values.append(values[-1])

    def advance_memory(self, output: tuple[Any, Any, Any] | None, rewards: np.ndarray, acting: np.ndarray) -> None:
        """Take a step into the memory.

        Args:
            output: of `act`; `None` if no lane acted.
            rewards: `[B, A]` of the step.
            acting: bool `[L]`.
        """
        gained = self.of_lanes(rewards)
        if output is None:
            self.memory.wait(gained)
        else:
            self.memory.advance_acting(output[1], output[0], gained, acting)

    def _per_lane(self, values: np.ndarray) -> np.ndarray:
        """Values `[T, B, …]` of environments as those of their lanes, `[T, L, …]`."""
        return values if self.per_env == 1 else np.repeat(values, self.per_env, axis=1)

    def by_env(self, actions: Any) -> Any:
        """Actions `[L, *]` in the environment's space as `[B, n, *]`."""
        if type(actions) is np.ndarray:
            return actions.reshape(self.num_envs, self.per_env, *actions.shape[1:])
        return map_leaves(self.by_env, actions)

    def _take(self, value: Any) -> Any:
        # Arrays first: the test for an abstract class costs more than all the rest.
        if type(value) is not np.ndarray and isinstance(value, Mapping):
            return {name: self._take(child) for name, child in value.items()}
        if isinstance(value, tuple):
            return tuple(self._take(child) for child in value)
        rows = value if self.whole_kind else value[:, self.row_index]
        return np.array(rows, order="C").reshape(self.size, *value.shape[2:])

    # -- the fragment -------------------------------------------------------------------------------------------------
    def build_fragment(self, steps: AgentSteps, where: Callable[[], str]) -> SampleBatch:
        """The recorded rows in the agents' own time; the columns of `sample_batch.py`, with "t", "env_t", "eps_id".

        Args:
            steps: of all agents.
            where: names the environment and the worker in messages.

        Raises:
            EnvError: an observation is not finite.
        """
        acts = self.acting(steps.acting, steps.owners)
        acting, acting_next = acts[:-1], acts[-1]
        rewards, terminated, truncated = map(self.of_lanes, (steps.rewards, steps.terminated, steps.truncated))
        t, self._own_steps = own_steps(acting, self._per_lane(steps.resets), self._own_steps)
        inputs = step_inputs(self.rows.obs, self.rows.memory)
        actions = stack_steps(self.rows.actions)
        if problem := describe_not_finite_obs("obs", inputs["obs"], actions, self.name_lane):
            raise EnvError(f"{where()}: {problem}; expected finite numbers")
        if steps.central_obs is not None and self.reads_central_obs:
            inputs["central_obs"] = torch.from_numpy(self._per_lane(steps.central_obs))
        columns = {name: stack_steps(values) for name, values in self.rows.extra.items()}
        columns |= {"actions": actions, "t": torch.from_numpy(t)}
        columns |= {
            "env_t": torch.from_numpy(self._per_lane(steps.env_t)),
            "eps_id": torch.from_numpy(self._per_lane(steps.eps_id)),
        }
        masks = torch.from_numpy(concat_steps(self.rows.masks)) if self.rows.masks else None
        if self.held is None and all_act(acting, terminated | truncated, acting_next):
            if masks is not None:
                columns["action_mask"] = masks[:-1]
            return self._recorded_fragment(inputs, columns, acting, rewards, terminated, truncated)
        if masks is not None:
            inputs["action_mask"] = masks
        return self._own_time_fragment(inputs, columns, acts, rewards, terminated, truncated)

    def _recorded_fragment(
        self,
        inputs: SampleBatch,
        columns: dict[str, Any],
        valid: np.ndarray,
        rewards: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
    ) -> SampleBatch:
        """The rows as they were recorded, where no agent waits within its episode."""
        fragment = SampleBatch(
            actions=columns.pop("actions"),
            rewards=torch.from_numpy(np.where(valid, rewards, 0).astype(np.float32)),
            terminated=torch.from_numpy(terminated & valid),
            truncated=torch.from_numpy(truncated & valid),
            valid=torch.from_numpy(valid),
        )
        for name, column in (*columns.items(), *inputs.items()):
            fragment[name] = column
        return fragment

    def _own_time_fragment(
        self,
        inputs: SampleBatch,
        columns: dict[str, Any],
        acts: np.ndarray,
        rewards: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
    ) -> SampleBatch:
        """Rows gathered in the agents' own time; keeps the actions that are no rows yet for the next fragment."""
        held = self.held
        every = SampleBatch({**columns, **dict(inputs.items())})
        if held is not None:  # what is held lies before the first step
            before = held.select(*every.columns).map(lambda column: column.unsqueeze(0))
            every = SampleBatch({name: _join(before[name], every[name]) for name in every})
            acts = np.concatenate([held.held.numpy()[None], acts])
            rewards = np.concatenate([held.held_rewards.numpy()[None], rewards])
            nothing = np.zeros((1, self.size), dtype=bool)
            terminated, truncated = (np.concatenate([nothing, ends]) for ends in (terminated, truncated))
        own = OwnTime.of(acts[:-1], rewards, terminated, truncated, acts[-1])
        lanes, count = torch.arange(self.size), len(rewards)
        self.held = None
        if own.held.any():
            at = torch.from_numpy(own.held_steps)
            self.held = every.map(lambda column: column[at, lanes])
            self.held["held"] = torch.from_numpy(own.held)
            self.held["held_rewards"] = torch.from_numpy(own.held_rewards)
        source, valid = torch.from_numpy(own.steps), torch.from_numpy(own.valid)
        rows = source[:-1].clamp(max=count - 1)
        fragment = SampleBatch(
            actions=map_leaves(lambda column: column[rows, lanes], every.actions),
            rewards=torch.from_numpy(own.rewards.astype(np.float32)),
            terminated=torch.from_numpy(own.terminated),
            truncated=torch.from_numpy(own.truncated),
            valid=valid,
        )
        for name in every.columns:
            if name in STEP_INPUTS:
                fragment[name] = map_leaves(lambda column: column[source, lanes], every[name])
            elif name == "action_mask":  # recorded once more than there are steps, for final observations
                fragment[name] = every[name][source[:-1], lanes]
            elif name != "actions":
                fragment[name] = map_leaves(lambda column: column[rows, lanes], every[name])
        for name in ("t", "env_t"):
            fragment[name] = torch.where(valid, fragment[name], 0)
        return fragment

    def name_lane(self, lane: int) -> str:
        """A lane in messages."""
        env, agent = divmod(lane, self.per_env)
        return f"agent {self.layout.agents[self.slots[agent]]!r} of sub-environment {env}"


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


def _join(before: Any, column: Any) -> Any:
    if isinstance(column, SampleBatch):
        return SampleBatch({name: _join(before[name], child) for name, child in column.items()})
    return torch.cat([before, column])
