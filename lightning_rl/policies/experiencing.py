"""What a policy does with experience before it learns from it: counts, filters, and takes it into its statistics."""

from __future__ import annotations

import torch
from torch import Tensor

from lightning_rl.distributed import sum_over_ranks
from lightning_rl.exploration import Exploration
from lightning_rl.models.filters import MeanStdFilter, ReturnNormaliser, RewardFilter
from lightning_rl.policies.acting import Acting
from lightning_rl.sample_batch import SampleBatch, env_steps, flattened, restored

__all__ = ["Experiencing"]


class Experiencing(Acting):
    """What `Policy` builds, used on what happened.

    Attributes:
        reward_filter: made in its constructor.
        gamma: discount per environment step.
    """

    reward_filter: RewardFilter
    gamma: float

    def normalised_rewards(self, fragment: SampleBatch) -> Tensor:
        """Rewards `[T, B]` as the algorithm shall see them: filtered, and with what the exploration pays.

        Running statistics are updated first.
        """
        rewards, paid = self.reward_filter(fragment), fragment.get("intrinsic_rewards")
        return rewards if paid is None else rewards + paid

    def take_experience(self, fragment: SampleBatch) -> SampleBatch:
        """A fragment `[T, B, …]` as it goes into a replay buffer: its steps are counted, statistics take it in.

        Rewards are clipped here, before n of them are summed. Scaled they are in the gradient step, by its statistics,
        and what the exploration pays, the column "intrinsic_rewards", comes on top then (`scaled`).
        """
        self.env_steps += sum_over_ranks(env_steps(fragment))
        fragment = self.exploration.postprocess_trajectory(self, fragment)
        self.reward_filter.observe(fragment)
        fragment = fragment.copy()
        fragment["rewards"] = self.clipped(fragment.rewards)
        if isinstance(self.observation_filter, MeanStdFilter):
            self._watch(flattened(fragment))
        return fragment

    def _watch(self, rows: SampleBatch) -> None:
        """Let the observation filter's statistics, where there are any, take rows `[N, …]` in."""
        if isinstance(self.observation_filter, MeanStdFilter):
            self.observation_filter.update(
                self.preprocessor.transform_batch(restored(self.observation_space, rows.obs))
            )

    @property
    def watches_experience(self) -> bool:
        """Whether `take_experience` does more than count and clip: then the learner has to see every fragment."""
        return self.acts_by_experience or self.reward_filter.normaliser is not None

    @property
    def acts_by_experience(self) -> bool:
        """Whether `take_experience` changes how the policy acts, without any gradient step."""
        explores = type(self.exploration).postprocess_trajectory is not Exploration.postprocess_trajectory
        return explores or isinstance(self.observation_filter, MeanStdFilter)

    def clipped(self, rewards: Tensor) -> Tensor:
        """Rewards of any shape as a replay buffer keeps them."""
        return self.reward_filter.filtered(rewards) if self.reward_filter.name in ("sign", "clip") else rewards

    def scaled(self, rows: SampleBatch) -> SampleBatch:
        """Replayed rows as `loss` reads them: rewards by the statistics of now, and what the exploration pays on top.

        `rows` stay as they are.
        """
        normaliser, paid = self.reward_filter.normaliser, rows.get("intrinsic_rewards")
        if normaliser is None and paid is None:
            return rows
        scaled = rows.without("intrinsic_rewards", "step_rewards")
        if normaliser is not None:
            scaled["rewards"] = self._scaled_sums(normaliser, rows)
        if paid is not None:
            scaled["rewards"] = scaled.rewards + paid
        return scaled

    def _scaled_sums(self, normaliser: ReturnNormaliser, rows: SampleBatch) -> Tensor:
        """The rewards of rows, scaled and clipped each before they are summed."""
        if "step_rewards" not in rows:
            return normaliser(rows.rewards)
        steps = normaliser(rows["step_rewards"])
        return steps @ self.gamma ** torch.arange(steps.shape[1], device=steps.device, dtype=steps.dtype)

    def replayed_columns(self) -> list[str]:
        """What a replay buffer has to give beside what each one does, for the model, filters and the exploration."""
        scales, looks = self.reward_filter.normaliser is not None, self.exploration.reads_next_obs
        return [*self.read_before(), *["step_rewards"] * scales, *["step_next_obs"] * looks]
