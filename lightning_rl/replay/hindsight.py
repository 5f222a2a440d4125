"""Hindsight experience replay: a goal achieved in an episode replaces the desired goal of sampled rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import torch

from lightning_rl.replay.buffer import ReplayBuffer
from lightning_rl.replay.ring import ENDED, SAMPLEABLE, Ring
from lightning_rl.replay.transitions import discounted_sums, runs
from lightning_rl.sample_batch import SampleBatch
from lightning_rl.schema.ranges import Probability
from lightning_rl.schema.signatures import check_keywords

__all__ = ["HindsightReplayBuffer"]

ComputeReward = Callable[[np.ndarray, np.ndarray, Any], np.ndarray]


class HindsightReplayBuffer(ReplayBuffer):
    """A ring buffer for a goal-conditioned environment. Andrychowicz et al. 2017, arXiv:1707.01495.

    Observations are a Dict of "observation", "achieved_goal" and "desired_goal". In a share of the sampled rows, an
    achieved goal of the same episode replaces the desired one, and rewards are computed for it.

    Args:
        capacity: rows.
        compute_reward: (achieved [N, *], desired [N, *], info = {}) → rewards [N], as in a Gymnasium-Robotics
            environment.
        compute_terminated: function of the same arguments that returns whether reaching the goal ends the episode, bool
            [N]: it alone ends relabeled rows, and so their n-step returns. `None`: ends are as recorded.
        strategy: source of achieved goals: a step of the same episode from the row on ("future"), the episode's last
            stored step ("final"), or any step of the episode ("episode").
        relabeled: share of relabeled rows, in [0, 1]; k achieved goals for each desired one are k / (k + 1).
        keywords: see `ReplayBuffer`.

    Raises:
        ConfigError: a number is out of range, or the strategy is unknown.
    """

    @check_keywords("data")
    def __init__(
        self,
        capacity: int,
        *,
        compute_reward: ComputeReward,
        compute_terminated: ComputeReward | None = None,
        strategy: Literal["future", "final", "episode"] = "future",
        relabeled: Probability = 0.8,
        **keywords: Any,
    ) -> None:
        super().__init__(capacity, **keywords)
        self.compute_reward, self.compute_terminated = compute_reward, compute_terminated
        self.strategy, self.relabeled = strategy, relabeled
        self._episodes: Episodes | None = None

    def _on_drawable(self, slots: np.ndarray) -> None:
        if self._episodes is None:
            self._episodes = Episodes(self._ring())
        self._episodes.note(slots)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state`; starts and ends of episodes are found again from the rows.

        Raises:
            CheckpointError: see `ReplayBuffer`.
        """
        super().load_state_dict(state)
        if self.ring is not None:
            self._episodes = Episodes(self.ring)
            self._episodes.note(np.flatnonzero(self.ring.flags >= SAMPLEABLE))

    # -- drawing ------------------------------------------------------------------------------------------------------
    def sample(self, batch_size: int, generator: np.random.Generator | None = None) -> SampleBatch:
        """Sample rows as `ReplayBuffer.sample`; a share `relabeled`, spread evenly, gets achieved goals as desired.

        Args:
            batch_size, generator: see `ReplayBuffer.sample`.

        Raises:
            ConfigError: see `ReplayBuffer.sample`.
        """
        generator = self._generator if generator is None else generator
        batch = super().sample(batch_size, generator)
        # A sample may consist of several batches, one after the other: each has its share.
        chosen = np.flatnonzero(np.diff(np.floor(self.relabeled * np.arange(batch_size + 1) + 1e-9)))
        if len(chosen):
            self._relabel(batch, chosen, generator)
        return batch

    def _relabel(self, batch: SampleBatch, chosen: np.ndarray, generator: np.random.Generator) -> None:
        assert self._episodes is not None
        ring, slots, rows = self._ring(), batch.batch_indexes.numpy()[chosen] % self.slots, torch.from_numpy(chosen)
        achieved = ring.columns.leaves["obs", "achieved_goal"]
        goals = achieved.read(ring.after(self._episodes.draw_goals(slots, self.strategy, generator)))
        for name in ("obs", "next_obs", "step_next_obs"):
            if name not in batch:
                continue
            column = batch[name].desired_goal.clone()
            column[rows] = torch.from_numpy(goals)
            batch[name]["desired_goal"] = column
        window, _, inside = runs(ring, slots, self.n_step)
        reached = achieved.read(ring.after(window.ravel()))
        wanted = np.repeat(goals, self.n_step, axis=0)
        rewards = np.asarray(self.compute_reward(reached, wanted, {}), np.float64)
        if self.compute_terminated is not None:
            ends = np.asarray(self.compute_terminated(reached, wanted, {}), bool)
            over = ends.reshape(inside.shape)
            inside[:, 1:] &= ~np.logical_or.accumulate(over, axis=1)[:, :-1]  # nothing follows a step that ends it
            batch.terminated[rows] = torch.from_numpy((over & inside).any(1))
            if "intrinsic_rewards" in batch:
                paid = ring.columns.array("intrinsic_rewards").take(window, mode="wrap") * inside
                batch["intrinsic_rewards"][rows] = discounted_sums(paid, self._powers)
        each = np.where(inside, rewards.reshape(inside.shape), 0)
        batch.rewards[rows] = discounted_sums(each, self._powers)
        if "step_rewards" in batch:
            batch["step_rewards"][rows] = torch.from_numpy(each.astype(np.float32))


class Episodes:
    """The episode of each row of a ring, and the first and last stored row of each episode.

    Args:
        ring: ring whose rows are passed to `note` when they can be drawn.
    """

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        self.counts = np.zeros(ring.num_envs, np.int64)  # number of episodes begun, by environment
        # By slot, the number of its episode. Each environment has as many numbers as rows; when it uses a number again,
        # the rows of the old episode have been overwritten.
        self.of = np.zeros(ring.slots, np.int32)
        self.first, self.last = np.zeros((2, ring.slots), np.int64)  # by episode: positions
        self.current = np.full(ring.num_envs, -1)  # by environment: number of the current episode, or −1
        self.newest = np.full(ring.num_envs, -1)  # by environment: position of the last row

    def note(self, slots: np.ndarray) -> None:
        """Assign new rows to episodes."""
        ring = self.ring
        position, env = ring.positions(slots), slots % ring.num_envs
        order = np.lexsort((position, env))
        slots, position, env = slots[order], position[order], env[order]
        ended = (ring.flags[slots] & ENDED) != 0
        goes_on = (self.current[env] >= 0) & (position == self.newest[env] + 1)
        goes_on[1:] = np.where(env[1:] == env[:-1], ~ended[:-1] & (position[1:] == position[:-1] + 1), goes_on[1:])
        starts = np.flatnonzero(~goes_on)
        begun, first = np.cumsum(~goes_on), np.searchsorted(env, env)
        begun -= begun[first] - ~goes_on[first]  # in this environment, among these rows
        number = (self.counts[env] + begun - 1) % ring.length * ring.num_envs + env
        self.counts += np.bincount(env[starts], minlength=ring.num_envs)
        before = np.maximum.accumulate(np.where(goes_on, -1, np.arange(len(slots))))
        number = np.where((before >= 0) & (env[before] == env), number, self.current[env])
        self.first[number[starts]] = position[starts]
        self.of[slots] = number
        self.last[number] = position  # rows are in order of time: the last assignment wins
        self.current[env] = np.where(ended, -1, number)
        self.newest[env] = position

    def draw_goals(self, slots: np.ndarray, strategy: str, generator: np.random.Generator) -> np.ndarray:
        """For each row, the slot of a row in the same episode, whose achieved goal becomes the desired one."""
        ring, env, position = self.ring, slots % self.ring.num_envs, self.ring.positions(slots)
        last = self.last[self.of[slots]]
        if strategy == "final":
            return ring.slot(last, env)
        oldest = ring.heads[env] + 1 + ring.history - ring.length
        first = position if strategy == "future" else np.maximum(self.first[self.of[slots]], oldest)
        return ring.slot(generator.integers(first, last + 1), env)
