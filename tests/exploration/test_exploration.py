"""Exploration: what is sampled, with which log-probability, and what `explore=False` means."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, iterate
from torch.testing import assert_close

from lightning_rl.errors import ConfigError
from lightning_rl.exploration import Exploration, Random, StochasticSampling, make_exploration
from lightning_rl.models.catalog import ModelCatalog
from lightning_rl.spaces import ActionTransform, leaf_values
from tests.models.test_distributions import NESTED_SPACE
from tests.test_spaces import ACTIONS


def setting(space, rows=64, mask=None, seed=0):
    transform = ActionTransform(space)
    factory, size = ModelCatalog.get_action_dist(space)
    inputs = 3 * torch.randn(rows, size, generator=torch.Generator().manual_seed(seed))
    return transform, factory(inputs, None, mask)


def asked(exploration, dist, explore=True, timestep=0, seed=0):
    return exploration.get_exploration_action(
        dist, timestep=timestep, explore=explore, generator=torch.Generator().manual_seed(seed)
    )


@pytest.mark.parametrize("space", [*ACTIONS, NESTED_SPACE], ids=str)
@pytest.mark.parametrize("kind", ["stochastic_sampling", "random"])
@pytest.mark.parametrize("explore", [True, False])
def test_actions_of_every_space_arrive_inside_it(space, kind, explore):
    transform, dist = setting(space)
    actions, logp = asked(make_exploration({"type": kind}, transform.policy_space), dist, explore)
    assert all(space.contains(single) for single in iterate(batch_space(space, 64), transform.to_env(actions)))
    assert logp.shape == (64,) and logp.isfinite().all()


@pytest.mark.parametrize("kind", [StochasticSampling, Random])
def test_without_exploring_the_best_action_is_taken(kind):
    transform, dist = setting(spaces.Discrete(4))
    actions, logp = asked(kind(transform.policy_space), dist, explore=False)
    assert torch.equal(actions, dist.inputs.argmax(1))
    assert_close(logp, dist.logp(actions))


def test_sampling_gives_the_log_probability_of_the_policy():
    transform, dist = setting(spaces.Discrete(4))
    actions, logp = asked(StochasticSampling(transform.policy_space), dist)
    assert_close(logp, dist.logp(actions))


def test_random_discrete_actions_are_uniform_over_the_mask():
    """Of 4 actions 2 are allowed: log ½ each, and never another one."""
    mask = torch.tensor([[True, False, False, True]]).expand(2000, 4)
    transform, dist = setting(spaces.Discrete(4), 2000, mask)
    actions, logp = asked(Random(transform.policy_space), dist)
    assert set(actions.tolist()) == {0, 3}
    assert (actions == 0).float().mean() == pytest.approx(0.5, abs=0.05)
    assert_close(logp, torch.full((2000,), math.log(0.5)))


def test_random_box_actions_fill_the_policy_space_with_their_density():
    """[−1, 1]²: density ¼."""
    transform, dist = setting(spaces.Box(-5.0, 20.0, (2,)), 2000)
    actions, logp = asked(Random(transform.policy_space), dist)
    assert actions.min() < -0.95 and actions.max() > 0.95 and actions.abs().max() <= 1
    assert_close(logp, torch.full((2000,), math.log(0.25)))


def test_random_actions_of_half_open_boxes_have_their_density():
    """[0, ∞): Exp(1), log density −x; (−∞, ∞): standard normal."""
    space = spaces.Box(np.array([0.0, -np.inf], np.float32), np.array([np.inf, np.inf], np.float32))
    transform, dist = setting(space, 3)
    actions, logp = asked(Random(transform.policy_space), dist)
    normal = torch.distributions.Normal(0.0, 1.0).log_prob(actions[:, 1])
    assert_close(logp, -actions[:, 0] + normal)


def test_random_steps_come_first_with_their_true_probability():
    """In RLlib they had logp 0, so that the first PPO ratio exploded."""
    transform, dist = setting(spaces.Discrete(4), 5)
    exploration = StochasticSampling(transform.policy_space, random_timesteps=100)
    _, early = asked(exploration, dist, timestep=99)
    assert_close(early, torch.full((5,), -math.log(4)))
    actions, late = asked(exploration, dist, timestep=100)
    assert_close(late, dist.logp(actions))


@pytest.mark.parametrize("kind", ["stochastic_sampling", "random"])
def test_only_the_generator_decides_and_the_global_one_is_not_touched(kind):
    transform, dist = setting(NESTED_SPACE)
    exploration, before = make_exploration({"type": kind}, transform.policy_space), torch.get_rng_state()
    first, second, other = (asked(exploration, dist, seed=seed)[0] for seed in (1, 1, 2))
    leaves = [leaf_values(NESTED_SPACE, actions) for actions in (first, second, other)]
    assert all(torch.equal(a, b) for a, b in zip(leaves[0], leaves[1], strict=True))
    assert any(not torch.equal(a, b) for a, b in zip(leaves[0], leaves[2], strict=True))
    assert torch.equal(before, torch.get_rng_state())


class Custom(Exploration):
    def get_exploration_action(self, dist, *, timestep, explore, generator=None):
        return dist.deterministic_sample(), dist.sampled_action_logp()


@pytest.mark.parametrize("named", [Custom, "tests.exploration.test_exploration:Custom"])
def test_a_custom_strategy_by_class_or_path(named):
    assert type(make_exploration({"type": named}, spaces.Discrete(2))).__name__ == "Custom"


@pytest.mark.parametrize("named", [None, {}, {"type": "StochasticSampling"}, {"type": "stochastic_sampling"}])
def test_the_default_and_rllibs_class_names(named):
    assert isinstance(make_exploration(named, spaces.Discrete(2)), StochasticSampling)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"type": "stochastic_sampler"}, "Did you mean 'stochastic_sampling'"),
        ({"type": "random", "epsilon": 1}, "unexpected keyword argument 'epsilon'"),
        ({"type": "collections.OrderedDict"}, "subclass of lightning_rl.exploration.Exploration"),
    ],
)
def test_wrong_configs_are_one_clear_error(config, words):
    with pytest.raises(ConfigError, match=words):
        make_exploration(config, spaces.Discrete(2))


def test_info_is_empty_without_a_schedule():
    assert Random(spaces.Discrete(2)).info(0) == {}
