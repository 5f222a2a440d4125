"""Random network distillation (RND): rewards for observations that differ from those seen before."""

from __future__ import annotations

from typing import Any, Literal

from gymnasium import Space
from torch import Tensor

from lightning_rl.exploration.features import Features, NetworkOptions
from lightning_rl.exploration.intrinsic import IntrinsicReward
from lightning_rl.schema.ranges import NonNegativeSchedule, Width

__all__ = ["RND"]


class RND(IntrinsicReward):
    """r = c ‖f̂(s') − f(s')‖²/d, f a random network that never learns. Burda et al. 2019, arXiv:1810.12894.

    f̂ is trained to predict f, and succeeds on observations like those it was trained on. One critic learns the sum of
    both rewards (the paper has one critic for each, and the intrinsic one continues across episodes).

    Args:
        action_space: any space.
        observation_space: space of a single environment's observations, of any kind.
        intrinsic_reward_coeff: weight c of the intrinsic reward, a number or a schedule over env steps.
        embed_dim: width d of the networks' outputs.
        distill_net_config: keys of the model config for both networks; `None`: its defaults for the space.
        observation_filter: filter of vectors before the networks: "none", or "mean_std" (clipped to ±5). Because f
            never learns, all entries need the same scale.
        normalize, sub_exploration: see `IntrinsicReward`.

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
        observation_filter: Literal["none", "mean_std"] = "mean_std",
        **keywords: Any,
    ) -> None:
        made = (observation_space, action_space, embed_dim, distill_net_config, "distill_net_config")
        keywords["observation_filter"] = observation_filter
        super().__init__(action_space, observation_space, Features(*made), intrinsic_reward_coeff, **keywords)
        self.target = Features(*made).requires_grad_(False)

    def novelty(self, obs: dict[str, Any], actions: Any, next_obs: dict[str, Any]) -> Tensor:
        """‖f̂(s') − f(s')‖²/d."""
        return (self.encoder(next_obs) - self.target(next_obs)).square().mean(1)

    def own_loss(self, obs: dict[str, Any], actions: Any, next_obs: dict[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
        """The mean novelty: training f̂ makes observations less novel."""
        loss = self.novelty(obs, actions, next_obs).mean()
        return loss, {"distill_loss": loss}
