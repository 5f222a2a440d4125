"""The rows of lanes in their agents' own time: from steps in which an agent may wait to a row for each own action.

All functions work on arrays `[K, L]` of `K` steps and `L` lanes; a lane is an agent of one environment.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["LaneSteps", "OwnTime", "own_steps"]


@dataclass(frozen=True, slots=True)
class LaneSteps:
    """What lanes did in the steps of a fragment.

    Attributes:
        acting: bool `[K+1, L]`, whether the lane's agent acts in the step; the last entry: in the step after the last.
        rewards: `[K, L]`, of each step, also of those in which the agent did not act.
        terminated, truncated: bool `[K, L]`, whether the agent ended in the step, with or without acting.
    """

    acting: np.ndarray
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray

    def all_act(self) -> bool:
        """Whether no agent waits within its episode: each one that acts and does not end acts in the next step again.

        Recorded steps are then the rows of the lanes' own time as they are.
        """
        goes_on = self.acting[:-1] & ~(self.terminated | self.truncated)
        return not np.count_nonzero(goes_on & ~self.acting[1:])


@dataclass(frozen=True, slots=True)
class OwnTime:
    """Which recorded step each row of the lanes' fragment is taken from.

    A row is an own action. After an episode's end comes a row that is not an experience, whose observation is the final
    one. Shorter lanes are padded.

    Attributes:
        steps: int `[R+1, L]`, the recorded step (0 … K) that the inputs of each row are taken from; the other columns
            of a valid row are taken from the same step.
        valid: bool `[R, L]`, rows of experience.
        rewards: float64 `[R, L]`, summed from the own action to the next one, or to the episode's end.
        terminated, truncated: bool `[R, L]`, whether the agent ended before its next own action.
        held: bool `[L]`, whether the lane's newest action is not a row yet, because its agent has not seen the next own
            observation.
        held_steps: int `[L]`, the step of that action; 0 if there is none.
        held_rewards: float64 `[L]`, its rewards so far.
    """

    steps: np.ndarray
    valid: np.ndarray
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    held: np.ndarray
    held_steps: np.ndarray
    held_rewards: np.ndarray

    @classmethod
    def of(cls, steps: LaneSteps) -> OwnTime:
        """The rows of recorded steps."""
        acting, acting_next = steps.acting[:-1], steps.acting[-1]
        count, lanes = acting.shape
        step, lane = np.meshgrid(np.arange(count), np.arange(lanes), indexing="ij")
        ended = steps.terminated | steps.truncated
        last = np.maximum.accumulate(np.where(acting, step, -1), axis=0)  # step of the latest own action, −1: none
        # After an agent's end nothing belongs to its last action, until the next one in another episode.
        ends_before = ended.cumsum(0) - ended
        belongs = (last >= 0) & (ends_before == np.take_along_axis(ends_before, np.maximum(last, 0), axis=0))
        # Of the actions, at their own steps: [K, L].
        gained, end_step = np.zeros(acting.shape), np.zeros(acting.shape, dtype=np.int64)
        by_itself, cut = np.zeros(acting.shape, dtype=bool), np.zeros(acting.shape, dtype=bool)
        np.add.at(gained, (last[belongs], lane[belongs]), steps.rewards[belongs])
        for marks, ends in ((by_itself, belongs & steps.terminated), (cut, belongs & steps.truncated)):
            marks[last[ends], lane[ends]] = True
            end_step[last[ends], lane[ends]] = step[ends] + 1
        over = by_itself | cut

        newest, each = last[-1], np.arange(lanes)
        held = (newest >= 0) & ~over[newest, each] & ~acting_next
        kept = acting.copy()
        kept[newest[held], each[held]] = False
        position = acting.cumsum(0) - acting + over.cumsum(0) - over  # of each action's row
        rows = max(1, int((kept.sum(0) + over.sum(0)).max()))
        source = np.full((rows + 1, lanes), count)
        source[position[acting], lane[acting]] = step[acting]  # the held ones too: they end the rows before them
        source[position[over] + 1, lane[over]] = end_step[over]
        own = position[kept], lane[kept]
        valid, row_terminated, row_truncated = np.zeros((3, rows, lanes), dtype=bool)
        row_rewards = np.zeros((rows, lanes))
        valid[own], row_rewards[own] = True, gained[kept]
        row_terminated[own], row_truncated[own] = by_itself[kept], cut[kept]
        return cls(
            steps=source,
            valid=valid,
            rewards=row_rewards,
            terminated=row_terminated,
            truncated=row_truncated,
            held=held,
            held_steps=np.where(held, newest, 0),
            held_rewards=np.where(held, gained[newest, each], 0.0),
        )


def own_steps(acting: np.ndarray, resets: np.ndarray, before: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How often each lane has acted in its episode before each step.

    Args:
        acting: bool `[K, L]`.
        resets: bool `[K, L]`, steps that reset the environment: the step after is the first of an episode.
        before: int `[L]`, own actions of the running episodes before the first step.

    Returns:
        int32 `[K, L]`, and `before` of the step after the last.
    """
    acted = acting.cumsum(0)
    earlier = acted - acting
    at_reset = np.maximum.accumulate(np.where(resets, earlier, -before), axis=0)
    return (earlier - at_reset).astype(np.int32), acted[-1] - at_reset[-1]
