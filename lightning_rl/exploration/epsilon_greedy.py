"""ε-greedy, the default of Q-learning: the best action, or a random one with probability ε."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Generator, Tensor

from lightning_rl.exploration.exploration import Actor, Choice, Exploration, require_discrete_actions
from lightning_rl.exploration.falling import TENTH, falling
from lightning_rl.exploration.random_actions import random_actions
from lightning_rl.models.distributions import (
    ActionDistribution,
    Bernoulli,
    Categorical,
    MultiActionDistribution,
    MultiCategorical,
)
from lightning_rl.models.distributions.discrete import IMPOSSIBLE
from lightning_rl.schedules import schedule_value
from lightning_rl.schema.ranges import Probability, ProbabilitySchedule, WholeEnvSteps
from lightning_rl.spaces import choices_of, leaf_spaces, leaf_values, pack_leaves

__all__ = ["EpsilonGreedy"]

FEW = 64  # up to that many numbers, comparisons in Python are faster than in torch
BUILT_IN = (Categorical, MultiCategorical, Bernoulli)  # their random actions are uniform over the whole space


class EpsilonGreedy(Exploration):
    """A uniformly random legal action with probability ε, otherwise the greedy one. Sutton and Barto 2018, §2.2.

    An action of several components is random as a whole; with `independent` each component by itself, as for members
    of a group (Rashid et al. 2018, arXiv:1803.11485, section 5). The log-probability is that of this mixture.

    Args:
        action_space: a discrete space, or a nested space of discrete parts.
        initial_epsilon: ε until `warmup_timesteps`.
        final_epsilon: ε from `warmup_timesteps + epsilon_timesteps` on, after linear interpolation.
        warmup_timesteps: env steps of the whole run before ε starts to decay.
        epsilon_timesteps: env steps over which ε decays. Here and in `warmup_timesteps`, a fraction such as "10%"
            refers to a run's `total_env_steps`, or to 100,000 outside of a run.
        epsilon_schedule: a schedule for ε over env steps, which replaces these four.
        independent: whether each component of a Dict or Tuple action is randomized independently; `None`: only for
            policies that act for a group of agents.

    Raises:
        UnsupportedSpaceError: a part of the actions is continuous.
        ConfigError: an ε is outside [0, 1].
    """

    def __init__(
        self,
        action_space: Space[Any],
        initial_epsilon: Probability = 1.0,
        final_epsilon: Probability = 0.05,
        warmup_timesteps: WholeEnvSteps = 0,
        epsilon_timesteps: WholeEnvSteps = TENTH,
        epsilon_schedule: ProbabilitySchedule | None = None,
        independent: bool | None = None,
    ) -> None:
        super().__init__(action_space)
        require_discrete_actions(type(self).__name__, action_space)
        self.choices = math.prod(float(n) for _, leaf in leaf_spaces(action_space) for n in choices_of(leaf))
        self.schedule = falling(
            epsilon_schedule, initial_epsilon, final_epsilon, epsilon_timesteps, start=warmup_timesteps
        )
        self.independent = independent
        self._drawn: Tensor | None = None

    def prepare_policy(self, policy: Any) -> None:
        """Choose independent components for a policy that acts for a group, unless the config says something else."""
        if self.independent is None:
            self.independent = policy.acts_for_group

    def epsilon(self, timestep: int) -> float:
        """ε after `timestep` environment steps."""
        return schedule_value(self.schedule, timestep)

    def choose(self, dist: ActionDistribution, timestep: int, generator: Generator | None, logp: bool) -> Choice:
        """The best actions, some replaced by random ones, and log(ε · uniform + (1 − ε) · [it is the best])."""
        epsilon = self.epsilon(timestep)
        if self.independent and isinstance(dist, MultiActionDistribution):
            return self._independent_components(dist, epsilon, generator, logp)
        draws = self._draws(dist, generator)
        if (few := self._few_choices(dist, draws, epsilon, generator)) is not None:
            actions = torch.from_numpy(np.array(few[0]))
            if not logp:
                return actions, None
            greedy, chance = self._greedy_logp(epsilon), self._chance_logp(epsilon)
            each = [greedy if action == best else chance for action, best in zip(*few, strict=True)]
            return actions, torch.from_numpy(np.array(each, np.float32))
        best = dist.deterministic_sample()
        free = isinstance(dist, Categorical) and type(dist) in BUILT_IN and not dist.restricted
        if free and draws.min().item() >= epsilon:
            # The usual case for a small ε; it costs no more than acting greedily.
            return best, torch.full_like(draws, self._greedy_logp(epsilon))
        chosen = draws < epsilon
        if free and type(dist) is Categorical:  # a Discrete action, at a quarter of the cost
            random = torch.randint(int(self.choices), best.shape, generator=generator, device=best.device)
            actions = torch.where(chosen, random, best)
            return actions, torch.where(actions == best, self._greedy_logp(epsilon), self._chance_logp(epsilon))
        random, uniform_logp = random_actions(self.action_space, dist, generator)
        pairs = zip(*(leaf_values(self.action_space, each) for each in (best, random)), strict=True)
        leaves, greedy = [], torch.ones_like(chosen)  # whether the action is the best one, by choice or by chance
        for ours, theirs in pairs:
            leaf, is_best = _mix(ours, theirs, chosen)
            greedy = greedy & is_best
            leaves.append(leaf)
        probability = epsilon * uniform_logp.exp() + (1.0 - epsilon) * greedy
        return pack_leaves(self.action_space, iter(leaves)), probability.log()

    def _independent_components(
        self, dist: MultiActionDistribution, epsilon: float, generator: Generator | None, logp: bool
    ) -> Choice:
        """`choose` for each component of the action by itself."""
        if (logits := _equal_choices(dist)) is not None:
            actions, best = self._member_actions(logits, epsilon, generator)
            packed = pack_leaves(self.action_space, iter(actions.unbind(1)))
            if not logp:
                return packed, None
            chance = epsilon / (logits > IMPOSSIBLE).sum(-1)
            return packed, (chance + (1.0 - epsilon) * (actions == best)).log().sum(1)
        draws = torch.rand(len(dist.inputs), len(dist.children), generator=generator, device=dist.inputs.device)
        leaves, total = [], torch.zeros(len(draws), device=draws.device)
        for (_, space), child, draw in zip(leaf_spaces(self.action_space), dist.children, draws.unbind(1), strict=True):
            best = child.deterministic_sample()
            random, uniform_logp = random_actions(space, child, generator)
            leaf, greedy = _mix(best, random, draw < epsilon)
            total = total + (epsilon * uniform_logp.exp() + (1.0 - epsilon) * greedy).log()
            leaves.append(leaf)
        return pack_leaves(self.action_space, iter(leaves)), total

    @staticmethod
    def _member_actions(logits: Tensor, epsilon: float, generator: Generator | None) -> tuple[Tensor, Tensor]:
        """ε-greedy and best actions `[N, n]` of n independent choices with logits `[N, n, A]`, all at once."""
        best = logits.argmax(-1)
        draws = torch.rand(best.shape, generator=generator, device=best.device)
        if draws.min().item() >= epsilon:
            return best, best
        scores = torch.rand(logits.shape, generator=generator, device=logits.device)
        random = scores.masked_fill(logits <= IMPOSSIBLE, -1.0).argmax(-1)
        return torch.where(draws < epsilon, random, best), best

    def blind_action(self, rows: int, *, timestep: int, explore: bool, generator: Generator) -> Tensor | None:
        """Random actions if ε decides so for all rows, equal to those of `get_action`; else `None`."""
        chooses_so = self.uses_choose and type(self).choose is EpsilonGreedy.choose
        if not (explore and chooses_so and isinstance(self.action_space, spaces.Discrete)):
            return None
        draws = torch.rand(rows, generator=generator, device=generator.device)
        if draws.max().item() < self.epsilon(timestep):
            return torch.randint(int(self.choices), (rows,), generator=generator, device=generator.device)
        self._drawn = draws
        return None

    def begin_fragment(self, actor: Actor) -> None:
        """Switch to this actor's environments, and drop unused random numbers."""
        super().begin_fragment(actor)
        self._drawn = None  # drawn for a step that did not happen

    def _draws(self, dist: ActionDistribution, generator: Generator | None) -> Tensor:
        """A number in [0, 1) per row; if they were drawn already for this step, the same ones."""
        drawn, self._drawn = self._drawn, None
        if drawn is not None and len(drawn) == len(dist.inputs):
            return drawn
        return torch.rand(len(dist.inputs), generator=generator, device=dist.inputs.device)

    def _few_choices(
        self, dist: ActionDistribution, draws: Tensor, epsilon: float, generator: Generator | None
    ) -> tuple[list[int], list[int]] | None:
        """Actions and best actions, for few rows on a CPU, where Python numbers cost less than tensor operations."""
        if type(dist) is not Categorical or dist.mask is not None or dist.logits.numel() > FEW or not draws.is_cpu:
            return None
        scores = dist.logits.tolist()
        if min(map(min, scores)) < IMPOSSIBLE:
            return None
        best = [row.index(max(row)) for row in scores]
        numbers = draws.tolist()
        if min(numbers) >= epsilon:
            return best, best
        random = torch.randint(int(self.choices), (len(best),), generator=generator).tolist()
        return [r if draw < epsilon else b for r, b, draw in zip(random, best, numbers, strict=True)], best

    def _greedy_logp(self, epsilon: float) -> float:
        """Log-probability of the best action, taken by choice or at random."""
        return math.log1p(epsilon * (1.0 / self.choices - 1.0))

    def _chance_logp(self, epsilon: float) -> float:
        """Log-probability of any other action."""
        return math.log(max(epsilon / self.choices, 1e-38))

    def info(self, timestep: int) -> dict[str, float]:
        """ε, for logging."""
        return {"epsilon": self.epsilon(timestep)}


def _mix(best: Tensor, random: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """The random actions `[N, *]` of the chosen rows, else the best ones; and which rows have the best, bool `[N]`."""
    actions = torch.where(chosen.view(-1, *[1] * (best.dim() - 1)), random.to(best.dtype), best)
    return actions, (actions == best).view(len(chosen), -1).all(1)


def _equal_choices(dist: ActionDistribution) -> Tensor | None:
    """The logits `[N, n, A]` of an action of n Discrete parts with A choices each; else `None`."""
    if not isinstance(dist, MultiActionDistribution):
        return None
    parts = [child.logits for child in dist.children if type(child) is Categorical]
    if len(parts) < len(dist.children) or len({part.shape for part in parts}) > 1:
        return None
    return torch.stack(parts, dim=1)
