"""The default of Q-learning: the best action, or now and then any."""

from __future__ import annotations

import math
from typing import Any

import torch
from gymnasium import Space
from torch import Tensor

from lightning_rl.exploration.exploration import Exploration, require_discrete_actions
from lightning_rl.exploration.random import random_actions
from lightning_rl.models.distributions import ActionDistribution, Bernoulli, Categorical, MultiCategorical
from lightning_rl.schedules import Schedule, check_schedule, schedule_value
from lightning_rl.spaces import choices_of, leaf_spaces, leaf_values, packed

__all__ = ["EpsilonGreedy"]

BUILT_IN = (Categorical, MultiCategorical, Bernoulli)  # whose random actions are uniform over all of the space


class EpsilonGreedy(Exploration):
    """With probability ε a uniformly random action among the allowed ones, else the best. Sutton and Barto 2018, §2.2.

    An action of several components is random as a whole. The log-probability is that of this mixture.

    Args:
        action_space: discrete, or nested of discrete parts.
        initial_epsilon: ε until `warmup_timesteps`.
        final_epsilon: ε from `warmup_timesteps + epsilon_timesteps` on; linear between.
        warmup_timesteps: environment steps of the whole run before ε begins to fall.
        epsilon_timesteps: environment steps over which it falls.
        epsilon_schedule: ε as any schedule over environment steps, instead of these four.

    Raises:
        UnsupportedSpaceError: a part of the actions is continuous.
        ConfigError: an ε is outside [0, 1].
    """

    def __init__(
        self,
        action_space: Space[Any],
        initial_epsilon: float = 1.0,
        final_epsilon: float = 0.05,
        warmup_timesteps: int = 0,
        epsilon_timesteps: int = 100_000,
        epsilon_schedule: Schedule | None = None,
    ) -> None:
        super().__init__(action_space)
        require_discrete_actions(type(self).__name__, action_space)
        falling = {
            "type": "linear",
            "initial": initial_epsilon,
            "final": final_epsilon,
            "steps": max(1, epsilon_timesteps),
            "start": warmup_timesteps,
        }
        self.choices = math.prod(float(choices_of(leaf).prod()) for _, leaf in leaf_spaces(action_space))
        self.schedule: Schedule = falling if epsilon_schedule is None else epsilon_schedule
        check_schedule("exploration.epsilon_schedule", self.schedule, low=0.0, high=1.0)

    def epsilon(self, timestep: int) -> float:
        """ε after `timestep` environment steps."""
        return schedule_value(self.schedule, timestep)

    def get_exploration_action(
        self, dist: ActionDistribution, *, timestep: int, explore: bool, generator: torch.Generator | None = None
    ) -> tuple[Any, Tensor]:
        """The best actions, some replaced by random ones, and log(ε · uniform + (1 − ε) · [it is the best])."""
        best = dist.deterministic_sample()
        if not explore:
            return best, dist.sampled_action_logp()
        epsilon, rows, device = self.epsilon(timestep), len(dist.inputs), dist.inputs.device
        draws = torch.rand(rows, generator=generator, device=device)
        free = isinstance(dist, Categorical) and type(dist) in BUILT_IN and not dist.restricted
        if free and draws.min().item() >= epsilon:
            # Most steps of a small ε, at the price of acting greedily.
            return best, torch.full((rows,), math.log1p(epsilon * (1.0 / self.choices - 1.0)), device=device)
        chosen = draws < epsilon
        if free and type(dist) is Categorical:
            return self._one_choice(best, chosen, epsilon, generator)
        random, uniform_logp = random_actions(self.action_space, dist, generator)
        greedy = torch.ones_like(chosen)  # whether the action is the best one, by choice or by chance
        leaves = []
        pairs = zip(*(leaf_values(self.action_space, each) for each in (best, random)), strict=True)
        for ours, theirs in pairs:
            leaf = torch.where(chosen.view(-1, *[1] * (ours.dim() - 1)), theirs.to(ours.dtype), ours)
            greedy = greedy & (leaf == ours).view(len(greedy), -1).all(1)
            leaves.append(leaf)
        probability = epsilon * uniform_logp.exp() + (1.0 - epsilon) * greedy
        return packed(self.action_space, iter(leaves)), probability.log()

    def _one_choice(
        self, best: Tensor, chosen: Tensor, epsilon: float, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor]:
        """The same for one Discrete action without a mask, which most tasks have, in a quarter of the time."""
        random = torch.randint(int(self.choices), best.shape, generator=generator, device=best.device)
        actions = torch.where(chosen, random, best)
        by_chance = math.log(max(epsilon / self.choices, 1e-38))
        greedy = math.log1p(epsilon * (1.0 / self.choices - 1.0))
        return actions, torch.where(actions == best, greedy, by_chance)

    def info(self, timestep: int) -> dict[str, float]:
        """ε."""
        return {"epsilon": self.epsilon(timestep)}
