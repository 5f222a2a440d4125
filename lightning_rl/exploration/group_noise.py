"""Exploration of a group's members: noise on continuous actions, samples of discrete ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gymnasium import Space, spaces
from torch import Generator, Tensor

from lightning_rl.exploration.random_actions import random_actions
from lightning_rl.exploration.wrapper import ExplorationWrapper
from lightning_rl.models.distributions import ActionDistribution, MultiActionDistribution
from lightning_rl.schedules import to_env_steps
from lightning_rl.schema.ranges import WholeEnvSteps
from lightning_rl.spaces import is_continuous, leaf_spaces, leaf_values, pack_leaves

__all__ = ["GroupNoise"]


class GroupNoise(ExplorationWrapper):
    """Noise on the float Boxes of an action, and sampling of its discrete parts.

    A sample of softmax(logits) is the argmax of logits + Gumbel noise: members explore as their relaxed actions do in
    learning. Lowe et al. 2017, arXiv:1706.02275, section 4.

    Args:
        action_space: any space, such as the Tuple of the actions of a group's members.
        random_timesteps: env steps before which actions are uniformly random.
        sub_exploration: `{type: …, **keywords}` for the noise on the Boxes; `None`: `gaussian_noise` of fixed scale.
    """

    def __init__(
        self,
        action_space: Space[Any],
        random_timesteps: WholeEnvSteps = 0,
        sub_exploration: Mapping[str, Any] | None = None,
    ) -> None:
        leaves = [leaf for _, leaf in leaf_spaces(action_space)]
        boxes = [number for number, leaf in enumerate(leaves) if is_continuous(leaf)]
        nested = isinstance(action_space, spaces.Dict | spaces.Tuple)
        noisy = spaces.Tuple([leaves[number] for number in boxes]) if nested and boxes else action_space
        noise = CONSTANT if boxes and sub_exploration is None else sub_exploration
        super().__init__(noisy, sub_exploration=noise if boxes else None)
        self.action_space, self.random_timesteps = action_space, to_env_steps(random_timesteps)
        self._boxes, self._discrete = boxes, [number for number in range(len(leaves)) if number not in boxes]

    def get_exploration_action(
        self, dist: ActionDistribution, *, timestep: int, explore: bool, generator: Generator | None = None
    ) -> tuple[Any, Tensor]:
        """The noisy and the sampled actions; their log densities and log-probabilities are added."""
        if explore and timestep < self.random_timesteps:
            return random_actions(self.action_space, dist, generator)
        how: dict[str, Any] = {"timestep": timestep, "explore": explore, "generator": generator}
        if not isinstance(dist, MultiActionDistribution):
            return self.sub_exploration.get_exploration_action(dist, **how)
        leaves: dict[int, Tensor] = {}
        logp = dist.inputs.new_zeros(dist.inputs.shape[0])
        for number in self._discrete:
            child = dist.children[number]
            leaves[number] = child.sample(generator) if explore else child.deterministic_sample()
            logp = logp + child.sampled_action_logp()
        if self._boxes:
            part = dist.select(self._boxes)
            actions, density = self.sub_exploration.get_exploration_action(part, **how)
            leaves |= zip(self._boxes, leaf_values(part.space, actions), strict=True)
            logp = logp + density
        return pack_leaves(self.action_space, iter([leaves[number] for number in sorted(leaves)])), logp


CONSTANT: dict[str, Any] = {"type": "gaussian_noise", "random_timesteps": 0, "final_scale": 1.0, "scale_timesteps": 0}
