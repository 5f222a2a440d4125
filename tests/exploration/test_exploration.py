"""Every exploration strategy: greedy without exploring, actions inside the space, one source of randomness."""

from __future__ import annotations

import inspect
import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from gymnasium import Space, spaces
from gymnasium.vector.utils import batch_space, iterate
from torch.testing import assert_close

from lightning_rl.config import compose_config
from lightning_rl.config.check import check_config
from lightning_rl.config.groups import group_options, shipped_conf
from lightning_rl.errors import ConfigError, UnsupportedSpaceError
from lightning_rl.exploration import (
    STRATEGIES,
    EpsilonGreedy,
    Exploration,
    GaussianNoise,
    Random,
    StochasticSampling,
    make_exploration,
    strategy_class,
)
from lightning_rl.policies import PPO
from lightning_rl.schema.signatures import keywords_of
from lightning_rl.spaces import ActionTransform
from tests.envs.classic_control import CARTPOLE
from tests.exploration.spaces import (
    BOXES,
    MIXED,
    OBSERVATIONS,
    TAKES,
    build_strategy,
    choose_actions,
    distribution,
    flat_actions,
)
from tests.refusals import not_refused

# Tuned values for these algorithms, not defaults.
REPLAYED = {"constant_noise": "td3", "random_start": "sac", "constant_group_noise": "maddpg"}
YAMLS = [name for name in group_options("exploration") if name != "custom" and name not in REPLAYED]
every_strategy = pytest.mark.parametrize("name", TAKES)


def test_every_strategy_is_here() -> None:
    own = {"noisy_network", "gsde"}  # whose noise is in the network: tests/models/test_noisy.py, test_gsde.py
    assert {*TAKES, *own} == set(STRATEGIES)


@every_strategy
def test_without_exploring_the_best_action_is_taken(name: str) -> None:
    for space in TAKES[name]:
        dist = distribution(space)
        actions, logp = choose_actions(build_strategy(name, space), dist, explore=False)
        assert torch.equal(flat_actions(space, actions), flat_actions(space, dist.deterministic_sample())), space
        assert_close(logp, dist.logp(actions), msg=str(space))


@pytest.mark.parametrize("name", ["gaussian_noise", "ornstein_uhlenbeck_noise", "per_worker_gaussian_noise"])
def test_without_exploring_deterministic_policies_are_not_disturbed(name: str) -> None:
    space = BOXES[0]
    dist = distribution(space, custom_action_dist="Deterministic")
    actions, logp = choose_actions(build_strategy(name, space), dist, explore=False)
    assert torch.equal(actions, dist.inputs) and not logp.any()


@every_strategy
def test_actions_alone_are_those_that_come_with_a_probability(name: str) -> None:
    for space, explore, rows in itertools.product(TAKES[name], (True, False), (1, 64)):
        both, alone = build_strategy(name, space), build_strategy(name, space)
        for seed in range(3):
            dist, how = distribution(space, rows, seed=seed), {"timestep": 0, "explore": explore}
            expected, _ = both.get_exploration_action(dist, generator=torch.Generator().manual_seed(seed), **how)
            dist = distribution(space, rows, seed=seed)
            given = alone.get_action(dist, generator=torch.Generator().manual_seed(seed), **how)
            assert torch.equal(flat_actions(space, given), flat_actions(space, expected)), (space, explore, rows)


@pytest.mark.parametrize("parent", [EpsilonGreedy, StochasticSampling, GaussianNoise])
def test_a_subclass_that_overrides_the_choice_is_used_in_every_short_cut(parent: type[Exploration]) -> None:
    """Subclasses that define `get_exploration_action` alone do not inherit shorter ways to their parents' choice."""
    space = BOXES[0] if parent is GaussianNoise else spaces.Discrete(3)

    class Mine(parent):  # type: ignore[misc,valid-type]
        def get_exploration_action(self, dist: Any, **how: Any) -> Any:
            actions = dist.deterministic_sample()
            return torch.full_like(actions, 2), torch.zeros(len(actions))

    mine, how = Mine(ActionTransform(space).policy_space), {"timestep": 0, "explore": True}
    generator = torch.Generator()
    assert mine.blind_action(4, generator=generator, **how) is None
    assert bool((mine.get_action(distribution(space, 4), generator=generator, **how) == 2).all())


def test_a_subclass_of_epsilon_greedy_that_chooses_otherwise_gets_the_outputs_of_the_model() -> None:
    class Mine(EpsilonGreedy):
        def choose(self, dist: Any, timestep: int, generator: Any, logp: bool) -> Any:
            return torch.full_like(dist.deterministic_sample(), 2), None

    mine, how = Mine(spaces.Discrete(3), epsilon_schedule=1.0), {"timestep": 0, "explore": True}
    assert mine.blind_action(4, generator=torch.Generator(), **how) is None
    assert bool((mine.get_action(distribution(spaces.Discrete(3), 4), **how) == 2).all())


@every_strategy
def test_explored_actions_are_inside_the_space_and_not_the_best_ones(name: str) -> None:
    """And the outputs of the network are left alone: RLlib's soft Q divided the caller's logits in place."""
    for space in TAKES[name]:
        dist = distribution(space)
        before = dist.inputs.clone()
        actions, logp = choose_actions(build_strategy(name, space), dist)
        assert torch.equal(dist.inputs, before), space
        single = iterate(batch_space(space, 64), ActionTransform(space).to_env(actions))
        assert all(space.contains(action) for action in single), space
        assert logp.shape == (64,) and bool(logp.isfinite().all()), space
        is_best = torch.equal(flat_actions(space, actions), flat_actions(space, dist.deterministic_sample()))
        assert not is_best or name == "parameter_noise", space  # whose noise is in the network


@every_strategy
def test_actions_depend_on_the_passed_generator_only(name: str) -> None:
    for space in TAKES[name]:
        dist, before = distribution(space), torch.get_rng_state()
        strategies = [build_strategy(name, space) for _ in range(3)]
        inside = torch.get_rng_state()  # networks of a strategy draw their first weights
        first, second, other = (
            flat_actions(space, choose_actions(exploration, dist, seed=seed)[0])
            for exploration, seed in zip(strategies, (1, 1, 2), strict=True)
        )
        assert torch.equal(inside, torch.get_rng_state()), space
        torch.set_rng_state(before)
        assert torch.equal(first, second), space
        assert not torch.equal(first, other), space


# -- random actions ---------------------------------------------------------------------------------------------------
def test_sampling_gives_the_log_probability_of_the_policy() -> None:
    dist = distribution(spaces.Discrete(4))
    actions, logp = choose_actions(StochasticSampling(spaces.Discrete(4)), dist)
    assert_close(logp, dist.logp(actions))


def test_random_discrete_actions_are_uniform_over_the_mask() -> None:
    """Of 4 actions 2 are allowed: log ½ each, and never another one."""
    mask = torch.tensor([[True, False, False, True]]).expand(2000, 4)
    actions, logp = choose_actions(Random(spaces.Discrete(4)), distribution(spaces.Discrete(4), 2000, mask))
    assert set(actions.tolist()) == {0, 3}
    assert (actions == 0).float().mean() == pytest.approx(0.5, abs=0.05)
    assert_close(logp, torch.full((2000,), math.log(0.5)))


def test_rllib_defect_random_actions_of_the_environments_space_saturate() -> None:
    """They were drawn in [−5, 20] and then taken for [−1, 1]. Here [−1, 1]² is filled evenly: density ¼."""
    space = spaces.Box(-5.0, 20.0, (2,))
    actions, logp = choose_actions(build_strategy("random", space), distribution(space, 2000))
    assert actions.min() < -0.95 and actions.max() > 0.95 and actions.abs().max() <= 1
    assert actions.abs().mean() == pytest.approx(0.5, abs=0.02)
    assert_close(logp, torch.full((2000,), math.log(0.25)))


def test_random_actions_of_half_open_boxes_have_their_density() -> None:
    """[0, ∞): Exp(1), log density −x; (−∞, ∞): standard normal."""
    space = spaces.Box(np.array([0.0, -np.inf], np.float32), np.array([np.inf, np.inf], np.float32))
    actions, logp = choose_actions(Random(space), distribution(space, 3))
    normal = torch.distributions.Normal(0.0, 1.0).log_prob(actions[:, 1])
    assert_close(logp, -actions[:, 0] + normal)


@pytest.mark.parametrize(
    ("name", "space"),
    [
        *((name, spaces.Discrete(4)) for name in ("stochastic_sampling", "parameter_noise")),
        *((f"{kind}_noise", BOXES[0]) for kind in ("gaussian", "per_worker_gaussian", "ornstein_uhlenbeck")),
    ],
)
def test_rllib_defect_random_steps_had_log_probability_0(name: str, space: Space[Any]) -> None:
    """…so that the first ratio π/1 of PPO was wrong. Here it is ¼: of four actions, or of [−1, 1]².

    The random steps end at `random_timesteps`.
    """
    exploration, dist = build_strategy(name, space, random_timesteps=100), distribution(space)
    actions, early = choose_actions(exploration, dist, timestep=99)
    assert_close(early, torch.full((64,), -math.log(4)))
    later, late = choose_actions(exploration, dist, timestep=100)
    assert not torch.equal(flat_actions(space, actions), flat_actions(space, later)) and not torch.equal(early, late)


# -- making -----------------------------------------------------------------------------------------------------------
class Custom(Exploration):
    def get_exploration_action(self, dist: Any, *, timestep: int, explore: bool, generator: Any = None) -> Any:
        return dist.deterministic_sample(), dist.sampled_action_logp()


@pytest.mark.parametrize("named", [Custom, "tests.exploration.test_exploration:Custom"])
def test_a_custom_strategy_by_class_or_path(named: Any) -> None:
    assert type(make_exploration({"type": named}, spaces.Discrete(2))).__name__ == "Custom"


@pytest.mark.parametrize("named", [None, {}, {"type": "StochasticSampling"}, {"type": "stochastic_sampling"}])
def test_the_default_and_rllibs_class_names(named: Any) -> None:
    assert isinstance(make_exploration(named, spaces.Discrete(2)), StochasticSampling)


def test_wrong_configs_are_one_clear_error() -> None:
    cases = [
        ({"type": "stochastic_sampler"}, "'stochastic_sampling'"),
        ({"type": "random", "epsilon": 1}, "key 'epsilon'"),
        ({"type": "epsilon_greedy", "epsilon_timestep": 1}, "'epsilon_timesteps'"),
        ({"type": "epsilon_greedy", "final_epsilon": 1.5}, "final_epsilon=1.5; expected between 0 and 1"),
        ({"type": "epsilon_greedy", "action_space": 1}, "key 'action_space'"),
        ({"type": "soft_q", "temperature": 0.0}, "temperature=0.0; expected a number above 0"),
        ({"type": "collections.OrderedDict"}, "subclass of lightning_rl.exploration.Exploration"),
        ({"type": "curiosity"}, "observation_space"),
        ({"type": "rnd", "distill_net_config": {"use_lstm": True}}, "has memory"),
        ({"type": "rnd", "observation_filter": "mean"}, "'mean_std'"),
    ]

    def call(config: dict[str, Any]) -> None:
        observations = None if config["type"] == "curiosity" else OBSERVATIONS
        make_exploration(config, spaces.Discrete(2), observations)

    assert not_refused(call, cases) == []


@pytest.mark.parametrize("strategy", [EpsilonGreedy, GaussianNoise])
def test_the_error_for_the_wrong_kind_of_actions_names_alternatives(strategy: type[Exploration]) -> None:
    with pytest.raises(UnsupportedSpaceError, match=r"action '(move|grip)', .* use (gaussian_noise|epsilon_greedy)"):
        strategy(MIXED[0])


@pytest.mark.parametrize("name", YAMLS)
def test_the_yaml_is_the_constructor(name: str) -> None:
    written = yaml.safe_load((shipped_conf() / "exploration" / f"{name}.yaml").read_text(encoding="utf-8"))
    keywords = {
        key: list(keyword.default) if isinstance(keyword.default, tuple) else keyword.default
        for key, keyword in keywords_of(strategy_class(written.pop("type"))).items()
        if key not in ("action_space", "observation_space")
    }
    assert written == keywords and inspect.Parameter.empty not in keywords.values()


def test_every_yaml_composes_and_passes_the_check_and_every_strategy_has_one() -> None:
    types = set()
    for name in (*YAMLS, *REPLAYED):
        config = compose_config([f"policy={REPLAYED.get(name, 'ppo')}", f"exploration={name}"])
        check_config(config)
        types.add(config["exploration"]["type"])
    assert types == set(STRATEGIES)


@pytest.mark.parametrize("name", REPLAYED)
def test_the_random_phase_ends_where_learning_starts(name: str) -> None:
    config = compose_config([f"policy={REPLAYED[name]}", f"exploration={name}", "data.learning_starts=777"])
    assert config["exploration"]["random_timesteps"] == 777


def test_another_exploration_type_drops_the_keys_of_the_default_type() -> None:
    config = compose_config(["exploration.type=epsilon_greedy", "exploration.final_epsilon=0.1"])
    check_config(config)
    assert config["exploration"] == {"type": "epsilon_greedy", "final_epsilon": 0.1}


def test_info_is_empty_without_a_schedule() -> None:
    assert Random(spaces.Discrete(2)).info(0) == {}


def test_noisy_network_exploration_refuses_a_network_without_noise() -> None:
    """PPO on a plain network would take its best action every time."""
    with pytest.raises(ConfigError, match=r"exploration\.type=noisy_network"):
        PPO(*CARTPOLE.spaces(), exploration={"type": "noisy_network"})


def test_strategies_with_noise_that_lasts_follow_episodes() -> None:
    box, noise = spaces.Box(-1.0, 1.0, (2,), np.float32), {"type": "ornstein_uhlenbeck_noise"}
    lasting = [noise, {"type": "gsde"}, {"type": "parameter_noise"}]
    lasting += [{"type": name, "sub_exploration": noise} for name in ("curiosity", "group_noise")]
    drawn = [{"type": name} for name in ("stochastic_sampling", "gaussian_noise", "curiosity", "group_noise")]
    assert [each for each in lasting if not make_exploration(each, box, box).follows_episodes] == []
    assert [each for each in drawn if make_exploration(each, box, box).follows_episodes] == []
