"""Inputs of models with memory that a worker keeps: state, and earlier observations, actions and rewards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lightning_rl.rollouts.fragments import zip_leaves
from lightning_rl.sample_batch import SampleBatch, as_plain, to_nested_batch

__all__ = ["LaneMemory", "PolicyMemory"]


class PolicyMemory:
    """The memory of one policy in `num_envs` environments; empty, and without cost, for models without memory.

    Args:
        policy: `get_initial_state(num_envs)`; `prev_obs`, `prev_actions` and `prev_rewards`, the numbers of earlier
            observations, actions and rewards that its model reads; `initial_previous_step(num_envs)`, their values at
            an episode's start.
        num_envs: environments.

    Attributes:
        active: whether the model has any memory.
        state: recurrent state before the next step, `[B, …]` each.
        before: "prev_obs" `[B, n, *]`, "prev_actions" and "prev_rewards", if the model reads them: `[B, *]`, or
            `[B, n, *]` of the last n steps, the oldest first.
        obs: the newest observations that the policy has read.
    """

    def __init__(self, policy: Any, num_envs: int) -> None:
        self.policy, self.num_envs = policy, num_envs
        self.active = False
        self.state: list[Tensor] = []
        self.before: dict[str, Any] = {}
        self.obs: Any = None
        self.steps = {name: getattr(policy, name, 0) for name in ("prev_obs", "prev_actions", "prev_rewards")}
        self._first = SampleBatch()

    def restart(self) -> None:
        """Every environment starts an episode."""
        initial_states = getattr(self.policy, "initial_states", self.policy.get_initial_state)
        self.state = list(initial_states(self.num_envs))
        self.before = dict(self.policy.initial_previous_step(self.num_envs)) if any(self.steps.values()) else {}
        self.active = bool(self.state or self.before)
        self._first = self.columns()

    def columns(self) -> SampleBatch:
        """The columns that a fragment records before each step: "state_in", "prev_obs", "prev_actions", …, if any."""
        state = {"state_in": SampleBatch({str(i): part for i, part in enumerate(self.state)})} if self.state else {}
        return SampleBatch({**state, **self.before})

    def advance(self, state: Any, actions: Any, rewards: np.ndarray) -> None:
        """Take in a step: the state after it, its actions and its rewards."""
        self.state = list(state)
        for name in self.before:
            if name == "prev_rewards":
                newest: Any = torch.tensor(rewards, dtype=torch.float32)
            else:
                newest = to_nested_batch(actions if name == "prev_actions" else self.obs)
            is_window = self.steps[name] > 1 or name == "prev_obs"
            self.before[name] = zip_leaves(_shift if is_window else _cast, self.before[name], newest)

    def state_dict(self) -> dict[str, Any]:
        """The memory now, and that of an episode's start, which may depend on weights that have changed since."""
        return {"now": as_plain(self.columns()), "first": as_plain(self._first)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue with `state`; comes after `restart`."""
        now, self._first = (zip_leaves(_cast, self._first, to_nested_batch(state[name])) for name in ("now", "first"))
        if self.state:
            self.state = [now["state_in"][str(index)] for index in range(len(self.state))]
        self.before = {name: now[name] for name in self.before}

    def reset(self, starting: np.ndarray) -> None:
        """Reset the memory of the environments `[B]` whose next step is the first of an episode."""
        chosen, first = torch.from_numpy(starting), self._first
        if self.state:
            self.state = [_where(part, first.state_in[str(i)], chosen) for i, part in enumerate(self.state)]
        for name, value in self.before.items():
            self.before[name] = zip_leaves(lambda now, then: _where(now, then, chosen), value, first[name])


class LaneMemory(PolicyMemory):
    """The memory of one policy for several agents: that of a lane advances only when its agent acts.

    The earlier reward of an agent that waits grows by what it gets meanwhile.
    """

    def restart(self) -> None:
        """Every lane starts an episode."""
        super().restart()
        self._acted = np.zeros(self.num_envs, dtype=bool)  # in the running episode

    def advance_acting(self, chosen: tuple[Any, Any, Any] | None, rewards: np.ndarray, acting: np.ndarray) -> None:
        """Take in a step.

        Args:
            chosen: actions and the state after them, of which those of lanes that waited are ignored; `None`: no lane
                acted.
            rewards: `[L]`.
            acting: bool `[L]`.
        """
        waiting = ~acting & self._acted
        self._acted |= acting
        if "prev_rewards" in self.before and waiting.any():
            gained = np.where(waiting, rewards, 0.0)
            self.before["prev_rewards"] = self._add_rewards(self.before["prev_rewards"], gained)
        if chosen is None:
            return
        held_state, held, select = self.state, dict(self.before), torch.from_numpy(acting)
        self.advance(chosen[1], chosen[0], rewards)
        self.state = [_where(old, new, select) for old, new in zip(held_state, self.state, strict=True)]
        for name, old in held.items():
            self.before[name] = zip_leaves(lambda now, then: _where(now, then, select), old, self.before[name])

    def state_dict(self) -> dict[str, Any]:
        """As `PolicyMemory`, with the lanes that have acted in the running episode."""
        return {**super().state_dict(), "acted": torch.from_numpy(self._acted)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue with `state`; comes after `restart`."""
        super().load_state_dict(state)
        self._acted = state["acted"].numpy().copy()

    def reset(self, starting: np.ndarray) -> None:
        """Reset the memory of the lanes `[L]` whose environment's next step is the first of an episode."""
        super().reset(starting)
        self._acted &= ~starting

    def _add_rewards(self, before: Tensor, rewards: np.ndarray) -> Tensor:
        gained = torch.as_tensor(rewards).to(before.device, before.dtype)
        if self.steps["prev_rewards"] > 1:
            return torch.cat([before[:, :-1], (before[:, -1] + gained).unsqueeze(1)], dim=1)
        return before + gained


def _where(now: Tensor, then: Tensor, chosen: Tensor) -> Tensor:
    """`then` where `chosen`, else `now`; a new tensor, because the old one may have been recorded."""
    mask = chosen.to(now.device).view(-1, *[1] * (now.dim() - 1))
    return torch.where(mask, then.to(now.device, now.dtype), now)


def _cast(now: Tensor, newest: Tensor) -> Tensor:
    return torch.as_tensor(newest).to(now.device, now.dtype)  # a policy from scratch acts in arrays


def _shift(window: Tensor, newest: Tensor) -> Tensor:
    return torch.cat([window[:, 1:], _cast(window, newest).unsqueeze(1)], dim=1)
