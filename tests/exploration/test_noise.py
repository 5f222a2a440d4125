"""Gaussian and Ornstein-Uhlenbeck noise: size, units and schedule."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch.testing import assert_close

from lightning_rl.exploration import Actor, GaussianNoise, OrnsteinUhlenbeckNoise, PerWorkerGaussianNoise
from lightning_rl.models.distributions import Deterministic
from lightning_rl.spaces import ActionTransform
from tests.exploration.spaces import choose_actions

WIDE = spaces.Box(-100.0, 300.0, (2,), np.float32)
UNIT = ActionTransform(WIDE).policy_space
FREE = spaces.Box(-np.inf, np.inf, (1,), np.float32)
THETA, SIGMA = 0.15, 0.2


def center(rows: int, size: int = 2, at: float = 0.0) -> Deterministic:
    return Deterministic(torch.full((rows, size), at))


def test_gaussian_noise_has_the_configured_deviation() -> None:
    """stddev 0.1 at scale ½: 0.05, in units of [−1, 1], with the density of that normal distribution."""
    exploration = GaussianNoise(UNIT, random_timesteps=0, stddev=0.1, scale_schedule=0.5)
    actions, logp = choose_actions(exploration, center(20_000))
    assert actions.std().item() == pytest.approx(0.05, rel=0.02) and actions.mean().item() == pytest.approx(0, abs=2e-3)
    assert_close(logp, torch.distributions.Normal(0.0, 0.05).log_prob(actions).sum(1))


@pytest.mark.parametrize(("timestep", "scale"), [(0, 1.0), (5_000, 0.51), (10_000, 0.02), (10**9, 0.02)])
def test_the_scale_falls_with_env_steps(timestep: int, scale: float) -> None:
    assert GaussianNoise(UNIT).info(timestep) == {"scale": pytest.approx(scale)}


@pytest.mark.parametrize("kind", [GaussianNoise, OrnsteinUhlenbeckNoise])
def test_rllib_defect_noise_was_clipped_to_the_environments_bounds(kind: type[GaussianNoise]) -> None:
    """The environment's box is [−100, 300], the policy's [−1, 1]: noise reaches the latter's ends."""
    exploration = kind(UNIT, random_timesteps=0, scale_schedule=50.0)
    actions, logp = choose_actions(exploration, center(256, at=0.5))
    assert actions.max().item() == 1.0 and actions.min().item() == -1.0
    assert bool(logp.isfinite().all())


@pytest.mark.parametrize("kind", [GaussianNoise, OrnsteinUhlenbeckNoise])
def test_no_scale_is_no_noise(kind: type[GaussianNoise]) -> None:
    actions, logp = choose_actions(kind(UNIT, random_timesteps=0, scale_schedule=0.0), center(8, at=0.25))
    assert bool((actions == 0.25).all()) and not logp.any()


def test_every_worker_has_its_own_amount_of_noise() -> None:
    exploration = PerWorkerGaussianNoise(FREE, random_timesteps=0, stddev=1.0)
    deviations = []
    for index in range(3):
        exploration.begin_fragment(Actor(index, 3))
        deviations.append(choose_actions(exploration, center(20_000, 1))[0].std().item())
    assert deviations == pytest.approx([0.4, 0.4**4.5, 0.4**8], rel=0.03)


# -- Ornstein-Uhlenbeck -----------------------------------------------------------------------------------------------
def steps(exploration: OrnsteinUhlenbeckNoise, count: int, rows: int = 4, seed: int = 0) -> torch.Tensor:
    """Noise of `count` steps, `[count, rows]`, from one generator."""
    generator = torch.Generator().manual_seed(seed)
    drawn = [
        exploration.get_exploration_action(center(rows, 1), timestep=0, explore=True, generator=generator)[0][:, 0]
        for _ in range(count)
    ]
    return torch.stack(drawn)


def test_rllib_defect_the_scale_was_multiplied_twice() -> None:
    """The stationary deviation of x is σ/√(1 − (1−θ)²); noise = scale · base · x, halved when the scale is."""
    stationary = SIGMA / math.sqrt(1 - (1 - THETA) ** 2)
    for scale in (1.0, 0.5):
        exploration = OrnsteinUhlenbeckNoise(FREE, 0, THETA, SIGMA, 0.1, scale_schedule=scale)
        noise = steps(exploration, 400, rows=200)[100:]
        assert noise.std().item() == pytest.approx(scale * 0.1 * stationary, rel=0.05)


def test_noise_is_a_share_of_the_range() -> None:
    """[−1, 1] is 2 wide: twice the noise of an entry without bounds, from the same numbers."""
    free, bounded = (
        steps(OrnsteinUhlenbeckNoise(space, 0, scale_schedule=1.0), 5)
        for space in (FREE, spaces.Box(-1.0, 1.0, (1,), np.float32))
    )
    assert_close(bounded, 2 * free)


def test_noise_continues_over_fragments() -> None:
    """x' − (1 − θ) x is what was drawn: independent, with deviation σ · base."""
    noise = steps(OrnsteinUhlenbeckNoise(FREE, 0, THETA, SIGMA, 1.0, scale_schedule=1.0), 500, rows=20)
    drawn = noise[1:] - (1 - THETA) * noise[:-1]
    assert drawn.std().item() == pytest.approx(SIGMA, rel=0.03)
    neighbors = torch.corrcoef(torch.stack([drawn[:-1].flatten(), drawn[1:].flatten()]))
    assert neighbors[0, 1].item() == pytest.approx(0, abs=0.03)


def test_the_density_is_conditional_on_the_noise_of_the_step_before() -> None:
    exploration = OrnsteinUhlenbeckNoise(FREE, 0, THETA, SIGMA, 0.5, scale_schedule=1.0)
    before, _ = choose_actions(exploration, center(6, 1), seed=1)
    after, logp = choose_actions(exploration, center(6, 1), seed=2)
    expected = torch.distributions.Normal((1 - THETA) * before, 0.5 * SIGMA).log_prob(after).sum(1)
    assert_close(logp, expected)


def test_rllib_defect_noise_was_shared_and_survived_episodes() -> None:
    """Environment 1 begins an episode: its noise starts at 0, the others' goes on; all environments differ."""
    exploration = OrnsteinUhlenbeckNoise(FREE, 0, THETA, 0.0, 1.0, scale_schedule=1.0)
    exploration.begin_fragment(Actor(num_envs=3))
    exploration._state(3).copy_(torch.tensor([[1.0], [2.0], [3.0]]))  # σ = 0: x only returns to 0
    exploration.on_episode_start([1])
    assert_close(steps(exploration, 1, rows=3)[0], torch.tensor([0.85, 0.0, 2.55]))


def test_workers_of_one_process_keep_their_own_noise() -> None:
    """Two workers act with one policy object in turn, and an evaluation in between."""
    alone = OrnsteinUhlenbeckNoise(FREE, 0, scale_schedule=1.0)
    together = OrnsteinUhlenbeckNoise(FREE, 0, scale_schedule=1.0)
    expected = [steps(alone, 5, seed=seed) for seed in (1, 2)]
    together.begin_fragment(Actor(0, 2, 4))
    first = steps(together, 5, seed=1)
    for other in (Actor(1, 2, 4), Actor(0, 1, 4, "evaluation")):
        together.begin_fragment(other)
        steps(together, 3, seed=7)
    together.begin_fragment(Actor(0, 2, 4))
    assert_close([first, steps(together, 5, seed=2)], expected)
