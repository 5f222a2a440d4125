"""Worker hooks of Ape-X: the workers clip rewards and compute the first priorities of their rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from lightning_rl.replay.buffer import REPLAY_COLUMNS, ReplayBuffer
from lightning_rl.replay.ring import SAMPLEABLE
from lightning_rl.sample_batch import SampleBatch

__all__ = ["ClipRewards", "InitialPriorities", "initial_priorities"]


class ClipRewards:
    """Clips rewards, if the policy does, in the worker; the shards store fragments as they come."""

    def on_sample_end(self, *, worker: Any, samples: SampleBatch) -> None:
        """Change a fragment that the worker has collected."""
        samples["rewards"] = worker.policy.reward_filter.clip_rewards(samples.rewards)


class InitialPriorities(ClipRewards):
    """Adds the column "priorities" `[T, B]` to fragments. Horgan et al. 2018, arXiv:1803.00933.

    Rewards are clipped first, so the errors are those of the rows that the policy will learn from.

    Args:
        n_step: rewards that a row sums.
    """

    def __init__(self, n_step: int) -> None:
        self.n_step = n_step

    def on_sample_end(self, *, worker: Any, samples: SampleBatch) -> None:
        """Change a fragment that the worker has collected."""
        super().on_sample_end(worker=worker, samples=samples)
        samples["priorities"] = initial_priorities(worker.policy, samples, self.n_step)


def initial_priorities(policy: Any, fragment: SampleBatch, n_step: int) -> Tensor:
    """|TD error| of each row of a fragment `[T, B]`, 0 where there is no experience.

    The rows are those of a replay buffer that holds this fragment only: n-step sums stop at its end. A last row whose
    next action mask comes with the next fragment gets the largest error of the other rows.

    Args:
        policy: `policy.learner.initial_priorities(rows)` gives the errors, with the weights that act.
        fragment: `[T, B, …]`.
        n_step: rewards that a row sums.
    """
    fragment = fragment.copy()
    valid = fragment.valid
    fragment["row"] = torch.arange(valid.numel()).view_as(valid)
    room = 2 * valid.numel() + 2 * valid.shape[1]  # for an episode's end at each step
    columns = (*REPLAY_COLUMNS, *policy.learner.extra_replay_columns(), "row")
    buffer = ReplayBuffer(room, n_step=n_step, gamma=policy.gamma, columns=columns, stack_frames=False)
    buffer.add(fragment)
    if buffer.ring is None or len(buffer) == 0:
        return torch.zeros(valid.shape)
    rows = buffer.rows(buffer.ring.ids(np.flatnonzero(buffer.ring.flags >= SAMPLEABLE)))
    errors = policy.learner.initial_priorities(rows)
    priorities = torch.where(valid, errors.amax(), 0.0)
    return priorities.flatten().scatter(0, rows["row"], errors).view_as(valid)
