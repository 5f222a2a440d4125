"""Random network distillation: rewards for observations that one has not learned yet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from gymnasium import Space
from torch import Tensor

from lightning_rl.exploration.features import Features, NetworkOptions
from lightning_rl.exploration.intrinsic import IntrinsicReward
from lightning_rl.ranges import NonNegativeSchedule, Width

__all__ = ["RND"]


class RND(IntrinsicReward):
    """r = c ‖f̂(s') − f(s')‖²/d, f a random network that never learns. Burda et al. 2019, arXiv:1810.12894.

    f̂ is trained to give what f gives: it does so for observations it has met. One critic learns the sum of both rewards
    (the paper has one for each, whose intrinsic one looks across episodes).

    Args:
        action_space: any.
        observation_space: of one environment, any.
        intrinsic_reward_coeff: c, a number or a schedule over environment steps.
        embed_dim: d, entries of what the networks give.
        distill_net_config: keys of the model config for both networks; `None`: its defaults, as the space asks for.
        normalize: divide by the running deviation of the discounted sum of these rewards (section 2.4).
        observation_filter: what vectors go through before the networks: "none", or "mean_std" (clipped to ±5): f has to
            see every entry at one scale, because it never learns.
        sub_exploration: `{type: …, **keywords}` of the strategy that chooses the actions; `None` samples from the
            action distribution.

    Raises:
        ConfigError: c is negative, or a setting of the networks is unknown.
    """

    def __init__(
        self,
        action_space: Space[Any],
        observation_space: Space[Any],
        intrinsic_reward_coeff: NonNegativeSchedule = 0.1,
        embed_dim: Width = 128,
        distill_net_config: NetworkOptions | None = None,
        normalize: bool = True,
        observation_filter: Literal["none", "mean_std"] = "mean_std",
        sub_exploration: Mapping[str, Any] | None = None,
    ) -> None:
        made = (observation_space, action_space, embed_dim, distill_net_config, "distill_net_config")
        super().__init__(
            action_space,
            observation_space,
            Features(*made),
            coefficient=intrinsic_reward_coeff,
            normalize=normalize,
            observation_filter=observation_filter,
            sub_exploration=sub_exploration,
        )
        self.target = Features(*made).requires_grad_(False)

    def novelty(self, obs: dict[str, Any], actions: Any, next_obs: dict[str, Any]) -> Tensor:
        """‖f̂(s') − f(s')‖²/d."""
        return (self.encoder(next_obs) - self.target(next_obs)).square().mean(1)

    def own_loss(self, obs: dict[str, Any], actions: Any, next_obs: dict[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
        """The mean of the same: what is learned is no longer new."""
        loss = self.novelty(obs, actions, next_obs).mean()
        return loss, {"distill_loss": loss}
