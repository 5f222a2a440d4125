"""Ornstein-Uhlenbeck noise, the exploration of DDPG: noise that is correlated over steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from gymnasium import Space
from torch import Generator, Tensor

from lightning_rl.exploration.additive_noise import AdditiveNoise, normal_logp
from lightning_rl.exploration.exploration import Actor
from lightning_rl.schema.ranges import NonNegative, Probability, WholeEnvSteps

__all__ = ["OrnsteinUhlenbeckNoise"]


class OrnsteinUhlenbeckNoise(AdditiveNoise):
    """The greedy action plus scale · base · (high − low) · x, with x ← x − θ x + σ N(0, 1).

    Lillicrap et al. 2016, arXiv:1509.02971, section 3; with its θ and σ, x has a standard deviation of 0.38. Every
    environment has its own x, which is 0 at an episode's start. (high − low) is 2 for bounded actions in the policy's
    space, and 1 for unbounded ones.

    Args:
        action_space: float Boxes, or a nested space of float Boxes.
        random_timesteps: env steps before which actions are uniformly random.
        ou_theta: rate θ at which x returns to 0, in [0, 1].
        ou_sigma: standard deviation σ of the noise added per step.
        ou_base_noise: factor of x, as a fraction of the range; ½ adds x itself to actions in [−1, 1], as in the paper.
        final_scale, keywords: see `AdditiveNoise`.

    Raises:
        UnsupportedSpaceError: a part of the actions is discrete.
        ConfigError: a scale is negative.
    """

    def __init__(
        self,
        action_space: Space[Any],
        random_timesteps: WholeEnvSteps = 1000,
        ou_theta: Probability = 0.15,
        ou_sigma: NonNegative = 0.2,
        ou_base_noise: NonNegative = 0.5,
        final_scale: NonNegative = 1.0,
        **keywords: Any,
    ) -> None:
        super().__init__(action_space, random_timesteps, final_scale=final_scale, **keywords)
        self.ou_theta, self.ou_sigma, self.ou_base_noise = ou_theta, ou_sigma, ou_base_noise
        self._states: dict[Actor, Tensor] = {}  # x of each actor's environments, [B, A]

    def begin_fragment(self, actor: Actor) -> None:
        """Switch to this actor's noise."""
        super().begin_fragment(actor)
        self._state(actor.num_envs)

    def on_episode_start(self, env_indices: Sequence[int]) -> None:
        """Reset x to 0 in these environments."""
        state = self._states.get(self.actor)
        if state is not None:
            state[torch.as_tensor(list(env_indices), dtype=torch.int64, device=state.device)] = 0.0

    def episode_state(self) -> dict[str, Any]:
        """X of the actor's environments."""
        return {"x": self._state(self.actor.num_envs).cpu().clone()}

    def load_episode_state(self, state: Mapping[str, Any]) -> None:
        """Go on from x."""
        self._state(self.actor.num_envs).copy_(state["x"])

    def noise(self, rows: int, scale: float, generator: Generator | None) -> tuple[Tensor, Tensor]:
        """The next x of every environment, scaled, and its density given the x before."""
        state = self._state(rows)
        drawn = torch.empty_like(state).normal_(generator=generator)
        state.mul_(1.0 - self.ou_theta).add_(drawn, alpha=self.ou_sigma)
        reach = (self.high - self.low).nan_to_num(posinf=1.0)
        unit = scale * self.ou_base_noise * reach
        return state * unit, normal_logp(drawn, unit * self.ou_sigma)

    def _state(self, rows: int) -> Tensor:
        """State x of the actor's environments; zeros at first, or if the number of rows changed."""
        state = self._states.get(self.actor)
        if state is None or len(state) != rows or state.device != self.low.device:
            state = self._states[self.actor] = torch.zeros(rows, len(self.low), device=self.low.device)
        return state
