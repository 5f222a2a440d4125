"""Exploration of a group's members: noise on continuous actions, samples of discrete ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from gymnasium import Space, spaces
from torch import Tensor

from lightning_rl.exploration.catalog import make_exploration
from lightning_rl.exploration.exploration import Actor, Exploration
from lightning_rl.exploration.random import random_actions
from lightning_rl.models.distributions import ActionDistribution, MultiActionDistribution
from lightning_rl.schedules import to_env_steps
from lightning_rl.schema.ranges import WholeEnvSteps
from lightning_rl.spaces import leaf_spaces, leaf_values, pack_leaves

__all__ = ["GroupNoise"]


class GroupNoise(Exploration):
    """Noise on the float Boxes of an action, samples of its discrete parts.

    A sample of softmax(logits) is the argmax of logits + Gumbel noise: members explore as their relaxed actions do in
    learning. Lowe et al. 2017, arXiv:1706.02275, section 4.

    Args:
        action_space: any, such as the Tuple of the actions of a group's members.
        random_timesteps: before this many environment steps, actions are uniformly random instead.
        sub_exploration: `{type: …, **keywords}` of the noise on the Boxes; `None`: `gaussian_noise` of constant scale.
    """

    def __init__(
        self,
        action_space: Space[Any],
        random_timesteps: WholeEnvSteps = 0,
        sub_exploration: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(action_space)
        self.random_timesteps = to_env_steps(random_timesteps)
        leaves = [leaf for _, leaf in leaf_spaces(action_space)]
        is_box = [isinstance(leaf, spaces.Box) and leaf.dtype.kind == "f" for leaf in leaves]
        self._boxes = [number for number, box in enumerate(is_box) if box]
        self._discrete = [number for number, box in enumerate(is_box) if not box]
        noise = CONSTANT if sub_exploration is None else sub_exploration
        nested = isinstance(action_space, spaces.Dict | spaces.Tuple)
        boxes = spaces.Tuple([leaves[number] for number in self._boxes]) if nested else action_space
        self.noise = make_exploration(noise, boxes) if self._boxes else None

    def get_exploration_action(
        self, dist: ActionDistribution, *, timestep: int, explore: bool, generator: torch.Generator | None = None
    ) -> tuple[Any, Tensor]:
        """The noisy and the sampled actions; their log densities and log-probabilities are added."""
        if explore and timestep < self.random_timesteps:
            return random_actions(self.action_space, dist, generator)
        how: dict[str, Any] = {"timestep": timestep, "explore": explore, "generator": generator}
        if not isinstance(dist, MultiActionDistribution):
            if self.noise is not None:
                return self.noise.get_exploration_action(dist, **how)
            chosen = dist.sample(generator) if explore else dist.deterministic_sample()
            return chosen, dist.sampled_action_logp()
        leaves: dict[int, Tensor] = {}
        logp = dist.inputs.new_zeros(dist.inputs.shape[0])
        for number in self._discrete:
            child = dist.children[number]
            leaves[number] = child.sample(generator) if explore else child.deterministic_sample()
            logp = logp + child.sampled_action_logp()
        if self.noise is not None:
            part = dist.select(self._boxes)
            actions, density = self.noise.get_exploration_action(part, **how)
            leaves |= zip(self._boxes, leaf_values(part.space, actions), strict=True)
            logp = logp + density
        return pack_leaves(self.action_space, iter([leaves[number] for number in sorted(leaves)])), logp

    @property
    def follows_episodes(self) -> bool:
        """Whether the noise does."""
        return self.noise is not None and self.noise.follows_episodes

    def begin_fragment(self, actor: Actor) -> None:
        """Switch to this actor, and to its noise."""
        super().begin_fragment(actor)
        if self.noise is not None:
            self.noise.begin_fragment(actor)

    def on_episode_start(self, env_indices: Sequence[int]) -> None:
        """Restart the noise in these environments."""
        if self.noise is not None:
            self.noise.on_episode_start(env_indices)

    def episode_state(self) -> dict[str, Any] | None:
        """That of the noise."""
        return {} if self.noise is None else self.noise.episode_state()

    def load_episode_state(self, state: Mapping[str, Any]) -> None:
        """Go on with the noise of the running episodes."""
        if self.noise is not None:
            self.noise.load_episode_state(state)

    def info(self, timestep: int) -> dict[str, float]:
        """The numbers of the noise."""
        return {} if self.noise is None else self.noise.info(timestep)


CONSTANT: dict[str, Any] = {"type": "gaussian_noise", "random_timesteps": 0, "final_scale": 1.0, "scale_timesteps": 0}
