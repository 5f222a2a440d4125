"""Hindsight replay (HER): rows are drawn with goals that their episode has reached."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from lightning_rl.data.replay_feed import ReplayFeed
from lightning_rl.envs.goals import GoalFunctions, goal_space
from lightning_rl.errors import ConfigError
from lightning_rl.replay.buffer import ReplayBuffer
from lightning_rl.replay.hindsight import HindsightReplayBuffer
from lightning_rl.schema.ranges import Whole
from lightning_rl.schema.signatures import check_fields

__all__ = ["HindsightFeed"]


@check_fields("data")
@dataclass(kw_only=True, eq=False)
class HindsightFeed(ReplayFeed):
    """Replay in which most rows are drawn with a goal that their episode reached, and with the reward for that goal.

    Andrychowicz et al. 2017, arXiv:1707.01495. For every algorithm that learns from single rows (dqn, sac, td3, ddpg,
    tqc, …), in environments of gymnasium-robotics' form (`envs/goals.py`).

    Args:
        goal_strategy: source of other goals: "future" (reached by this step or later in the episode), "final" (reached
            by the last step of the episode so far), or "episode" (reached by any step of it).
        hindsight_goals: number k of other goals per real goal: a fraction k / (k + 1) of sampled rows is relabeled; 0:
            none.
        prioritized: must be false, because a row has no separate priority for each goal.
        other keywords: see `ReplayFeed`; n-step returns end where the other goal is reached, if that ends an episode.

    Raises:
        ConfigError: a number is out of range, or two do not fit together.
    """

    goal_strategy: Literal["future", "final", "episode"] = "future"
    hindsight_goals: Whole = 4

    def __post_init__(self) -> None:
        """Refuse priorities."""
        super().__post_init__()
        if self.prioritized:
            raise ConfigError(
                "data.prioritized=true: an error with one goal says nothing about another; set it to false, or use "
                "data=replay"
            )
        self._goals: GoalFunctions | None = None

    def attach(self, datamodule: Any) -> None:
        """Become the source of a DataModule, whose environments have goals."""
        super().attach(datamodule)
        env = datamodule.env
        goal_space(env.spaces()[0], env.name)  # the rest of the environment is tried when training begins

    def make_buffer(self, policy: Any) -> ReplayBuffer:
        """A buffer that computes rewards for other goals.

        Raises:
            ConfigError: see `ReplayFeed`; the environment has no goals; or the policy learns from sequences.
        """
        if policy.is_recurrent:
            raise ConfigError(
                f"data=hindsight draws single rows, and {type(policy).__name__} with this model learns from "
                "sequences: take a model without memory, or data=replay"
            )
        self._goals = GoalFunctions(self.datamodule.env)
        return super().make_buffer(policy)

    def row_buffer(self, policy: Any, capacity: int, **keywords: Any) -> ReplayBuffer:
        """A buffer of single rows; goals' rewards are the environment's, clipped as those of steps are."""
        goals = self._goals
        assert goals is not None

        def compute_rewards(achieved: np.ndarray, desired: np.ndarray, info: Any) -> np.ndarray:
            return policy.reward_filter.clip_rewards(torch.from_numpy(goals.compute_rewards(achieved, desired))).numpy()

        def compute_terminated(achieved: np.ndarray, desired: np.ndarray, info: Any) -> np.ndarray:
            return goals.compute_terminated(achieved, desired)

        return HindsightReplayBuffer(
            capacity,
            compute_reward=compute_rewards,
            compute_terminated=compute_terminated if goals.terminates else None,
            strategy=self.goal_strategy,
            relabeled=self.hindsight_goals / (self.hindsight_goals + 1),
            **keywords,
        )

    def stop(self) -> None:
        """Close the environment that computes goals' rewards; safe to call again."""
        if self._goals is not None:
            self._goals.close()
