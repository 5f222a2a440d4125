"""Noise on the continuous parts of a group's actions, samples of the discrete ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch.testing import assert_close

from lightning_rl.exploration import Actor, make_exploration
from lightning_rl.models.distributions import MultiActionDistribution, parts_of
from lightning_rl.models.distributions.continuous import Deterministic

BOX, LINE = spaces.Box(-1.0, 1.0, (2,), np.float32), spaces.Box(-1.0, 1.0, (1,), np.float32)
SPACE = spaces.Tuple([BOX, spaces.Discrete(3), LINE])
ROWS = 4000


def distribution() -> MultiActionDistribution:
    """Best continuous actions 0.2, 0.3 and −0.4; probabilities 0.5, 0.3 and 0.2 of the discrete ones."""
    inputs = torch.tensor([0.2, 0.3, *np.log([0.5, 0.3, 0.2]), -0.4], dtype=torch.float32).expand(ROWS, -1)
    return MultiActionDistribution(inputs, space=SPACE, parts=parts_of(SPACE, Deterministic))


def choose(exploration: Any, **how: Any) -> Any:
    how = {"timestep": 0, "explore": True, "generator": torch.Generator().manual_seed(0), **how}
    return exploration.get_exploration_action(distribution(), **how)


def test_boxes_get_noise_and_discrete_parts_are_sampled() -> None:
    exploration = make_exploration({"type": "group_noise"}, SPACE)
    (plane, chosen, line), _ = choose(exploration)
    assert_close(plane.mean(0), torch.tensor([0.2, 0.3]), atol=0.01, rtol=0)
    assert_close(torch.cat([plane, line], dim=1).std(0), torch.full((3,), 0.1), atol=0.01, rtol=0)
    assert_close(chosen.bincount() / ROWS, torch.tensor([0.5, 0.3, 0.2]), atol=0.03, rtol=0)


def test_the_log_probability_is_the_sum_of_noise_and_choice() -> None:
    exploration = make_exploration({"type": "group_noise"}, SPACE)
    (plane, chosen, line), logp = choose(exploration)
    noise = torch.cat([plane, line], dim=1) - torch.tensor([0.2, 0.3, -0.4])
    density = torch.distributions.Normal(0.0, 0.1).log_prob(noise).sum(1)
    assert_close(logp, density + torch.tensor([0.5, 0.3, 0.2]).log()[chosen], atol=1e-3, rtol=1e-3)


def test_without_exploring_the_best_actions_are_taken() -> None:
    plane, chosen, line = choose(make_exploration({"type": "group_noise"}, SPACE), explore=False)[0]
    assert plane[0].tolist() == [np.float32(0.2), np.float32(0.3)] and line[0].item() == np.float32(-0.4)
    assert not chosen.any()


def test_first_steps_are_uniformly_random() -> None:
    exploration = make_exploration({"type": "group_noise", "random_timesteps": 10}, SPACE)
    (plane, chosen, _), _ = choose(exploration, timestep=9)
    assert_close(plane.std(0), torch.full((2,), 2 / 12**0.5), atol=0.02, rtol=0)
    assert_close(chosen.bincount() / ROWS, torch.full((3,), 1 / 3), atol=0.03, rtol=0)


def test_noise_that_lasts_restarts_with_the_episodes_of_its_environment() -> None:
    """Ornstein-Uhlenbeck without new noise: x ← (1 − θ) x."""
    noise = {"type": "ornstein_uhlenbeck_noise", "random_timesteps": 0, "ou_theta": 0.5, "ou_base_noise": 0.1}
    exploration: Any = make_exploration({"type": "group_noise", "sub_exploration": noise}, SPACE)
    exploration.begin_fragment(Actor(num_envs=ROWS))
    first = choose(exploration)[0][0]
    exploration.sub_exploration.ou_sigma = 0.0
    exploration.on_episode_start([0])
    second = choose(exploration)[0][0]
    best = torch.tensor([0.2, 0.3])
    assert torch.equal(second[0], best)
    assert_close(second[1:] - best, 0.5 * (first[1:] - best), atol=1e-6, rtol=1e-4)


def test_a_part_of_a_distribution_is_that_of_the_chosen_leaves() -> None:
    dist = distribution()
    part = dist.select([2, 0])
    assert part.space == spaces.Tuple([LINE, BOX])
    line, plane = part.deterministic_sample()
    assert torch.equal(line, dist.deterministic_sample()[2]) and torch.equal(plane, dist.deterministic_sample()[0])
