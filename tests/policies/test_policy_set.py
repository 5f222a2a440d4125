"""PolicySet: building the policies of several agents, acting, learning, and adding policies."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from lightning.pytorch import Callback

from lightning_rl import MultiAgentBatch, Policy, PolicySet, RandomPolicy, ScriptedPolicy
from lightning_rl.data import ReplayFeed, RolloutDataModule
from lightning_rl.errors import ConfigError, NonFiniteError
from lightning_rl.learning.gradients import GradientUpdates, MultiAgentGradientUpdate
from lightning_rl.policies import DQN, ES, PPO
from lightning_rl.policies.checkpoints import counters
from lightning_rl.policies.policy_entries import policy_seed
from lightning_rl.rollouts.processes.weights import pack, unpack
from lightning_rl.sample_batch import SampleBatch, env_steps
from tests.envs.classic_control import CARTPOLE, PENDULUM
from tests.policies.fits_and_files import assert_same, differ, loader, trainer_of, weights_of
from tests.policies.several_agents import (
    DQN_ENTRY,
    FIRST_AND_SECOND,
    PPO_ENTRY,
    SMALL,
    agent_spaces,
    fragment_of,
    ppo_and_dqn,
    sample,
    several,
    two_ppo,
)
from tests.refusals import not_refused


def push_right(obs: np.ndarray) -> int:
    return int(obs[2] > 0)


# -- building ---------------------------------------------------------------------------------------------------------
def test_each_policy_has_the_spaces_of_its_agents() -> None:
    entries = {"carts": PPO_ENTRY, "pendulums": {**PPO_ENTRY, "lr": 1e-3}}
    policy = several(entries, {"cart_*": "carts", "pendulum_*": "pendulums"}, carts=2, pendulums=1)
    found = [(part.observation_space, part.action_space) for part in policy.policies.values()]
    assert found == [CARTPOLE.spaces(), PENDULUM.spaces()]
    assert policy.policies_to_train == ["carts", "pendulums"] and policy.agents_of("carts") == ["cart_0", "cart_1"]


@pytest.mark.parametrize(
    ("entry", "built"),
    [
        (PPO, PPO),
        ("lightning_rl.policies.PPO", PPO),
        ({"_target_": DQN, "model": SMALL}, DQN),
        ("random", RandomPolicy),
        ({"_target_": "random"}, RandomPolicy),
        (push_right, ScriptedPolicy),
        (f"{__name__}:push_right", ScriptedPolicy),
        ({"_target_": "scripted", "function": push_right}, ScriptedPolicy),
    ],
)
def test_an_entry_is_a_class_a_function_a_name_or_a_path(entry: Any, built: type[Policy]) -> None:
    policy = several({"shared": entry})
    assert type(policy.get_policy()) is built
    assert policy.policies_to_train == (["shared"] if built in (PPO, DQN) else [])


@pytest.mark.parametrize(("own_seed", "seed"), [({"seed": 7}, 0), ({}, 3), ({"seed": 3}, 3)])
def test_a_policy_that_is_built_already_is_used_as_it_is(own_seed: dict[str, int], seed: int) -> None:
    """Copies have its seed, whatever that of the policy that holds it."""
    own = PPO(*CARTPOLE.spaces(), model=SMALL, **own_seed)
    policy = several({"shared": own}, seed=seed)
    assert policy.get_policy("shared") is own
    twin = policy.copy_for_acting()
    assert_same(weights_of(twin), weights_of(policy))
    assert twin.policies["shared"].seed == own.seed == own_seed.get("seed", 0)


def test_a_copy_for_acting_has_the_weights_and_the_counters() -> None:
    """The frozen policy has counters of its own."""
    old = DQN(*CARTPOLE.spaces(), model=SMALL)
    old.env_steps = old.iterations = 1000
    policy = several({"first": PPO_ENTRY, "second": old}, FIRST_AND_SECOND, policies_to_train=["first"])
    policy.learn_on_batch(sample(policy))
    twin = policy.copy_for_acting()
    assert_same(weights_of(twin), weights_of(policy))
    for one, other in ((twin, policy), *zip(twin.policies.values(), policy.policies.values(), strict=True)):
        assert counters(one) == counters(other)
    assert policy.policies["first"].gradient_steps > 0 and not twin.training


def test_policies_without_seeds_of_their_own_differ_and_depend_on_their_ids_only() -> None:
    policy, other = ppo_and_dqn(seed=3), several({"second": PPO_ENTRY, "first": PPO_ENTRY}, FIRST_AND_SECOND, seed=3)
    assert other.policies["first"].seed == policy.policies["first"].seed
    assert_same(weights_of(other.policies["first"]), weights_of(policy.policies["first"]))
    assert differ(weights_of(other.policies["first"]), weights_of(other.policies["second"]))
    for seed in (0, 11):
        assert several({"first": {**PPO_ENTRY, "seed": seed}}).policies["first"].seed == seed
    assert len({policy_seed(0, f"agent_{number}") for number in range(100)}) == 100


class Unseeded(RandomPolicy):
    """Its constructor takes no seed."""

    def __init__(self, observation_space: Any, action_space: Any, *, lr: float = 0.1) -> None:
        super().__init__(observation_space, action_space)
        self.lr = lr


class WithConfig(RandomPolicy):
    """Its constructor takes a config, as those of RLlib's policies."""

    def __init__(self, observation_space: Any, action_space: Any, config: dict[str, Any]) -> None:
        super().__init__(observation_space, action_space, config)


def test_a_class_that_takes_no_seed_gets_none_and_one_that_needs_a_config_gets_the_keywords_as_one() -> None:
    entries = {
        "first": {"_target_": WithConfig, "speed": 2},
        "second": {"_target_": WithConfig, "config": {"speed": 3}},
        "third": WithConfig,
        "fourth": {"_target_": Unseeded, "lr": 0.5},
    }
    policy = several(entries, {**FIRST_AND_SECOND, "cart_2": "third", "cart_3": "fourth"}, carts=4)
    for each in (policy, policy.copy_for_acting()):
        assert [part.config for part in each.policies.values()] == [{"speed": 2}, {"speed": 3}, {}, {}]
        assert each.policies["fourth"].lr == 0.5


class Careless(PPO):
    """Takes any keyword, and fails where `size` is no number."""

    def __init__(self, observation_space: Any, action_space: Any, *, size: Any = 1, **keywords: Any) -> None:
        keywords.pop("width", None)
        super().__init__(observation_space, action_space, **keywords)
        self.table = torch.empty(size=size)


def test_an_error_within_a_constructor_is_not_taken_for_an_unknown_keyword() -> None:
    """It names an argument that the class does take; `width` is unknown and accepted."""
    with pytest.raises(TypeError, match="argument 'size' must be"):
        several({"shared": {**PPO_ENTRY, "_target_": Careless, "size": "wide", "width": 3}})


def test_a_policy_that_no_agent_has_yet_takes_the_spaces_of_those_it_can_act_for() -> None:
    """A built policy has spaces of its own; a function of the episode may give it to any agent with these."""
    own = PPO(*PENDULUM.spaces(), model=SMALL)
    chosen = {"cart_0": "carts", "cart_1": "carts", "pendulum_0": "first"}

    def with_policy(name: str, entry: Any) -> PolicySet:
        entries = {"carts": PPO_ENTRY, "first": PPO_ENTRY, name: entry}
        return several(entries, lambda agent_id, rng: chosen[agent_id], carts=2, pendulums=1)

    policy = with_policy("own", own)
    assert policy.get_policy("own") is own and policy.agents_of("own") == ["pendulum_0"]
    with pytest.raises(ConfigError, match=r"policies\.late"):
        with_policy("late", PPO_ENTRY)
    equal = several({"first": PPO_ENTRY, "late": PPO_ENTRY}, lambda agent_id, rng: "first")
    assert equal.get_policy("late").observation_space == CARTPOLE.spaces()[0]
    assert equal.agents_of("late") == ["cart_0", "cart_1"]


def test_a_function_of_the_episode_gives_agents_only_policies_of_their_spaces() -> None:
    chosen, rng = {"cart_0": "carts", "pendulum_0": "pendulums"}, np.random.default_rng(0)
    entries = {"carts": PPO_ENTRY, "pendulums": PPO_ENTRY}
    policy = several(entries, lambda agent_id, rng: chosen[agent_id], carts=1, pendulums=1)
    assert policy.mapping.assign(rng) == chosen
    policy.add_policy("late", PPO_ENTRY, spaces_of="cart_0")
    assert policy.agents_of("late") == ["cart_0"]
    chosen["cart_0"] = "late"
    assert policy.mapping.assign(rng) == chosen
    chosen["pendulum_0"] = "late"
    with pytest.raises(ConfigError, match=r"'pendulum_0'.*'late'"):
        policy.mapping.assign(rng)


def test_a_copy_made_of_the_constructor_s_arguments_is_equal() -> None:
    policy = ppo_and_dqn(seed=3, count_steps_by="agent_steps", policies_to_train=["second"])
    twin = copy_of(policy)
    assert_same(weights_of(twin), weights_of(policy))
    assert twin.policies_to_train == ["second"] and twin.count_steps_by == "agent_steps"
    assert [part.seed for part in twin.policies.values()] == [part.seed for part in policy.policies.values()]


def test_policies_that_cannot_work_are_refused() -> None:
    other_action = (CARTPOLE.spaces()[0], spaces.Discrete(3))
    entries = [
        (None, r"policies\.a=None; expected \{_target_"),
        ({"lr": 1}, r"policies\.a=.*; expected _target_ .* or checkpoint"),
        ({"_target_": PPO, "checkpoint": "x.ckpt"}, "expected _target_ .* or checkpoint"),
        ("lightning_rl.policies.PPPO", r"policies\.a.*'PPO'"),
        (torch.nn.Linear, r"policies\.a\._target_="),
        ({"_target_": 3}, r"policies\.a\._target_=3; expected a policy class"),
        ({"_target_": PPO, "gama": 1}, r"policies\.a.*'policy\.gama'.*'policy\.gamma'"),
        ({"_target_": Careless, "siez": 3}, r"policies\.a.*'policy\.siez'.*'policy\.size'"),
        ({"_target_": Unseeded, "seed": 1}, r"policies\.a.*'seed'"),
        ({"_target_": PPO, "gamma": 2}, r"policies\.a: policy\.gamma=2"),
        (PolicySet, r"policies\.a\._target_=.*PolicySet.*expected a policy class"),
        ({"_target_": PPO, "spaces_of": "cart_9"}, r"'cart_9'.*'cart_"),
        (PPO(*PENDULUM.spaces(), model=SMALL), r"policies\.a.*observation_space.*'cart_0'"),
        (PPO(*other_action, model=SMALL), r"policies\.a.*action_space.*'cart_0'"),
    ]
    ids = [
        ("a.b", r"the id 'a.b' has a '.' or a '/'"), ("a/b", r"the id 'a/b' has a '.' or a '/'"), ("", "''"),
        (3, "id 3 "), ("a\nb", r"'a\\nb'"), ("keys", "'keys'"),
    ]  # fmt: skip
    keywords = [
        ({"policies": {}}, "policies"),
        ({"policies": {"a": PPO, "b": PPO}, "policy_mapping": {"*": "a"}}, r"policies\.b"),
        ({"policy_mapping": {"*": "b"}}, r"'b'.*'a'"),
        ({"policies_to_train": ["b"]}, r"policies_to_train.*'b'"),
        ({"policies_to_train": ["a", "a"]}, "names 'a' twice"),
        ({"policies": {"a": "random"}, "policies_to_train": ["a"]}, "RandomPolicy"),
        ({"policies": {"a": ES}, "policies_to_train": ["a"]}, r"an? ES"),
        ({"count_steps_by": "steps"}, "count_steps_by='steps'; expected env_steps or"),
    ]
    one_action = spaces.Dict({"cart_0": CARTPOLE.spaces()[1]})
    of_spaces = [
        (agent_spaces(1, 1), "policy 'a' cannot act for both 'cart_0' and 'pendulum_0'.*Map them to two .*, or make"),
        (CARTPOLE.spaces(), "Dict space"),
        (agent_spaces(0), "Dict space"),
        ((agent_spaces()[0], one_action), "'cart_1'"),
    ]
    cases = [({"policies": {"a": entry}}, agent_spaces(), what) for entry, what in entries]
    cases += [({"policies": {policy_id: PPO}}, agent_spaces(), what) for policy_id, what in ids]
    cases += [(given, agent_spaces(), what) for given, what in keywords]
    cases += [({}, given, what) for given, what in of_spaces]
    assert not_refused(lambda given, of: PolicySet(*of, **{"policies": {"a": PPO}, **given}), cases) == []


def test_the_width_of_the_central_observation_reaches_policies_that_take_it() -> None:
    central = {**PPO_ENTRY, "central_critic": True}
    policy = several({"first": central, "second": DQN_ENTRY}, FIRST_AND_SECOND, central_size=9)
    assert [part.central_obs_size for part in policy.policies.values()] == [9, 0]
    own = several({"first": {**central, "central_obs_size": 4}, "second": DQN_ENTRY}, FIRST_AND_SECOND, central_size=9)
    assert own.policies["first"].central_obs_size == 4
    assert not any(part.central_obs_size for part in ppo_and_dqn(central_size=9).policies.values())


# -- acting -----------------------------------------------------------------------------------------------------------
def test_the_policy_that_acts_is_named() -> None:
    policy, alone = ppo_and_dqn(), several({"shared": PPO_ENTRY})
    obs = np.stack([CARTPOLE.spaces()[0].sample() for _ in range(5)])
    for name, part in policy.policies.items():
        assert policy.get_policy(name) is part
    assert alone.get_policy().compute_single_action(obs[0]) in (0, 1)
    cases = [
        (policy, None, "policy_id: 'first', 'second'"),
        (policy, "frist", "'frist'.*'first'"),
        (alone, "shraed", "'shraed'.*'shared'"),
    ]
    assert not_refused(PolicySet.get_policy, cases) == []


def test_a_policy_on_its_own_is_the_only_one_of_its_policies() -> None:
    alone = PPO(*CARTPOLE.spaces(), model=SMALL)
    assert alone.policies == {"default_policy": alone} and alone.get_policy() is alone
    assert not alone.agents and [*alone.policies_to_train] == ["default_policy"]
    assert not any(name.startswith("policies") for name in alone.state_dict())


def test_policies_explore_by_different_seeds() -> None:
    policy, obs = two_ppo(), np.zeros((64, 4), np.float32)
    policy.policies["second"].set_weights(policy.policies["first"].get_weights())
    policy.seed_exploration(5)
    assert not torch.equal(*(part.compute_actions(obs)[0] for part in policy.policies.values()))


def test_random_policies_respect_action_masks_and_draw_the_allowed_actions_equally() -> None:
    space = spaces.Discrete(4, start=3)
    policy = RandomPolicy(spaces.Box(-1, 1, (2,)), space, seed=1)
    mask = np.tile(np.array([0, 1, 0, 1], np.int8), (4000, 1))
    actions, _, _ = policy.act(np.zeros((4000, 2), np.float32), action_mask=mask)
    counts = np.bincount(actions, minlength=7)
    assert counts[[3, 5]].tolist() == [0, 0] and abs(counts[4] - 2000) < 200 and counts[4] + counts[6] == 4000
    free, _, _ = policy.act(np.zeros((4000, 2), np.float32))
    assert set(np.unique(free)) == {3, 4, 5, 6}


@pytest.mark.parametrize("space", [spaces.Discrete(5), spaces.Box(-1, 1, (2,)), spaces.MultiDiscrete([2, 3])])
def test_random_actions_lie_in_the_space_and_follow_the_seed(space: spaces.Space[Any]) -> None:
    policy = RandomPolicy(spaces.Box(-1, 1, (2,)), space)
    drawn = []
    for _ in range(2):
        policy.seed_exploration(4)
        drawn.append(np.asarray(policy.act(np.zeros((6, 2), np.float32))[0]))
    assert np.array_equal(*drawn) and len(np.unique(drawn[0], axis=0)) > 1
    assert all(space.contains(action) for action in drawn[0])


def test_a_scripted_policy_acts_by_a_function_of_one_observation_and_its_mask() -> None:
    observation_space = spaces.Dict({"action_mask": spaces.MultiBinary(3), "x": spaces.Box(-1, 1, (2,))})

    def last_allowed(obs: dict[str, np.ndarray], action_mask: np.ndarray) -> int:
        assert obs["x"].shape == (2,) and np.array_equal(obs["action_mask"], action_mask)
        return int(np.flatnonzero(action_mask)[-1])

    policy = ScriptedPolicy(observation_space, spaces.Discrete(3), function=last_allowed)
    masks = np.array([[1, 1, 0], [0, 1, 1]], np.int8)
    actions, state, extra = policy.act({"action_mask": masks, "x": np.zeros((2, 2), np.float32)})
    assert actions.tolist() == [1, 2] and not state and not extra
    pair = spaces.Tuple([spaces.Discrete(3), spaces.Discrete(3)])
    sums = ScriptedPolicy(pair, spaces.Discrete(6), function=lambda obs: int(sum(obs)) if type(obs) is tuple else -1)
    assert sums.act(SampleBatch({"0": torch.tensor([1, 2]), "1": torch.tensor([1, 1])}))[0].tolist() == [2, 3]
    recorded = SampleBatch({"action_mask": torch.from_numpy(masks), "x": torch.zeros(2, 2)})
    assert policy.act(recorded)[0].tolist() == [1, 2]
    plain = ScriptedPolicy(*CARTPOLE.spaces(), function=push_right)
    assert plain.act(np.array([[0, 0, 1, 0], [0, 0, -1, 0]], np.float32))[0].tolist() == [1, 0]
    assert fragment_of(plain).valid.any()


def test_a_scripted_function_has_to_return_actions_of_the_space() -> None:
    two, pair, box = spaces.Discrete(2), spaces.MultiDiscrete([2, 3]), spaces.Box(-1, 1, (2,))
    both, named = spaces.Tuple([two, spaces.Box(0, 1, ())]), spaces.Dict({"move": two})
    obs = np.zeros((2, 1), np.float32)

    def act(space: spaces.Space[Any], action: Any) -> None:
        def rule(obs: Any) -> Any:
            return action

        ScriptedPolicy(spaces.Box(-1, 1, (1,)), space, function=rule).act(obs)

    fitting = [(two, 1), (two, np.uint8(1)), (pair, [1, 2]), (box, [0.5, 3.0]), (both, (1, 0.5)), (named, {"move": 1})]
    for space, action in fitting:
        act(space, action)
    wrong = [
        (two, 7), (two, 0.5), (two, "up"), (two, None), (pair, [1, 3]), (box, [0.5]), (both, (2, 0.5)),
        (named, {"mve": 1}),
    ]  # fmt: skip
    assert not_refused(act, [(*case, "rule returned") for case in wrong]) == []


# -- learning ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "changes",
    [
        {"observation_filter": "mean_std", "lr": [[0, 1e-2], [40, 1e-3]]},
        {"model": {**SMALL, "use_lstm": True}},
        {"exploration": {"type": "curiosity"}},
        {"_target_": "lightning_rl.policies.IMPALA"},
        {"_target_": "lightning_rl.policies.DQN"},
    ],
)
def test_one_policy_of_several_learns_as_it_does_alone(changes: dict[str, Any]) -> None:
    """Weights, filters, metrics and counters are equal after each of three iterations."""
    entry = {**(DQN_ENTRY if "_target_" in changes else PPO_ENTRY), **changes, "seed": 5}
    policy = several({"shared": entry})
    part = policy.get_policy()
    alone = type(part)(*CARTPOLE.spaces(), **{name: value for name, value in entry.items() if name != "_target_"})
    for seed in range(3):
        fragment = fragment_of(alone, seed=seed)
        expected = alone.learn_on_batch(fragment)
        found = policy.learn_on_batch(MultiAgentBatch({"shared": fragment}, env_steps(fragment)))
        assert found == policy.iteration_metrics == {f"shared/{name}": value for name, value in expected.items()}
        assert_same(weights_of(part), weights_of(alone))
    assert counters(policy) == counters(part) == counters(alone) and min(counters(alone).values()) > 0


def test_policies_of_two_algorithms_learn_and_frozen_ones_stay_the_same() -> None:
    filtered = {**PPO_ENTRY, "observation_filter": "mean_std"}
    entries = {"first": filtered, "second": DQN_ENTRY, "third": {**filtered, "reward_filter": "return_std"}}
    mapping = {**FIRST_AND_SECOND, "cart_2": "third"}
    policy = several(entries, mapping, carts=3, policies_to_train=["second", "first"])
    before = {name: weights_of(part) for name, part in policy.policies.items()}
    policy.learn_on_batch(sample(policy))
    changed = {name for name, part in policy.policies.items() if differ(before[name], weights_of(part))}
    assert changed == {"first", "second"}
    assert list(dict.fromkeys(name.split("/")[0] for name in policy.iteration_metrics)) == ["second", "first"]
    assert policy.policies["third"].env_steps == 0 < policy.policies["first"].env_steps == policy.env_steps
    assert policy.gradient_steps == sum(part.gradient_steps for part in policy.policies.values())


def test_a_policy_without_experience_is_skipped() -> None:
    policy = two_ppo()
    batch = sample(policy)
    batch["second"]["valid"] = torch.zeros_like(batch["second"].valid)
    before = weights_of(policy.policies["second"])
    for given in (batch, MultiAgentBatch({"first": batch["first"]}, batch.env_steps)):
        assert {name.split("/")[0] for name in policy.learn_on_batch(given)} == {"first"}
        assert_same(before, weights_of(policy.policies["second"]))
    assert (policy.iterations, policy.policies["first"].iterations, policy.policies["second"].iterations) == (2, 2, 0)


def test_a_policy_with_few_rows_takes_fewer_gradient_steps() -> None:
    """Three rows make three minibatches of the eight, where alone they would be refused."""
    policy = several({"shared": {**PPO_ENTRY, "passes": 1, "minibatches": 8}})
    fragment = fragment_of(policy.get_policy(), lanes=1, length=3)
    policy.learn_on_batch(MultiAgentBatch({"shared": fragment}, 3))
    assert policy.gradient_steps == 1  # two rows per minibatch at least
    with pytest.raises(ValueError, match="3 rows; minibatches=8"):
        PPO(*CARTPOLE.spaces(), model=SMALL, minibatches=8).learn_on_batch(fragment)


@pytest.mark.parametrize(("count_steps_by", "factor"), [("env_steps", 1), ("agent_steps", 2)])
def test_steps_are_counted_by_environment_or_by_agent(count_steps_by: str, factor: int) -> None:
    policy = ppo_and_dqn(count_steps_by=count_steps_by)
    policy.learn_on_batch(sample(policy, lanes=1, length=8))
    assert policy.env_steps == 8 * factor
    assert {part.env_steps for part in policy.policies.values()} == {policy.env_steps}
    policy.learn_on_batch(GradientUpdates([(0, MultiAgentGradientUpdate({}, env_steps=10, agent_steps=20), True)]))
    assert policy.env_steps == 18 * factor and policy.steps_by_unit == {"env_steps": 18, "agent_steps": 36}
    checkpoint: dict[str, Any] = {"state_dict": policy.state_dict()}
    policy.on_save_checkpoint(checkpoint)
    twin = ppo_and_dqn(count_steps_by=count_steps_by)
    twin.on_load_checkpoint(checkpoint)
    assert twin.env_steps == 18 * factor and twin.steps_by_unit == policy.steps_by_unit


def test_schedules_of_trained_policies_follow_the_common_env_steps() -> None:
    policy = several({"shared": {**PPO_ENTRY, "lr": [[0, 1.0e-3], [1000, 0.0]]}})
    fragment = fragment_of(policy.get_policy())
    metrics = policy.learn_on_batch(MultiAgentBatch({"shared": fragment}, 500))
    assert metrics["shared/lr"] == pytest.approx(5.0e-4)


class Peeking(PPO):
    """Keeps what it gets of the other agents."""

    others: Any = None

    def postprocess_trajectory(self, batch: SampleBatch, other_agent_batches: Any = None) -> SampleBatch:
        self.others = other_agent_batches
        return super().postprocess_trajectory(batch, other_agent_batches)


class Alone(PPO):
    """Overrides the method without the argument."""

    def postprocess_trajectory(self, batch: SampleBatch) -> SampleBatch:  # type: ignore[override]
        return super().postprocess_trajectory(batch)


def test_postprocess_trajectory_gets_the_fragments_of_the_other_policies() -> None:
    first, second = ({**PPO_ENTRY, "_target_": kind} for kind in (Peeking, Alone))
    mapping = {**FIRST_AND_SECOND, "cart_2": "third"}
    policy = several({"first": first, "second": second, "third": "random"}, mapping, carts=3)
    batch = sample(policy)
    policy.learn_on_batch(batch)
    others = policy.policies["first"].others
    assert others.keys() == {"second", "third"}
    assert others["third"][0] is policy.policies["third"] and others["third"][1] is batch["third"]
    assert policy.policies["second"].gradient_steps > 0
    alone = Peeking(*CARTPOLE.spaces(), model=SMALL)
    alone.learn_on_batch(fragment_of(alone))
    assert alone.others is None


def test_postprocess_trajectory_gets_the_fragment_of_a_policy_that_replays() -> None:
    policy = several({"first": {**PPO_ENTRY, "_target_": Peeking}, "second": DQN_ENTRY}, FIRST_AND_SECOND)
    feeds = RolloutDataModule(CARTPOLE).feeds
    feeds["second"] = ReplayFeed(batch_size=4, learning_starts=8)
    feeds.prepare(policy)
    batch = sample(policy)
    policy.learn_on_batch(feeds.feed(batch))
    (other, fragment) = policy.policies["first"].others["second"]
    assert other is policy.policies["second"] and fragment.obs is batch["second"].obs
    assert other.gradient_steps == env_steps(batch) - 8


def test_a_batch_of_one_agent_or_an_unknown_policy_or_numbers_that_are_not_finite_is_refused() -> None:
    policy = ppo_and_dqn()
    batch = sample(policy)
    unknown = MultiAgentBatch({"thrid": batch["first"]}, 1)
    cases = [(batch["first"], "MultiAgentBatch.*Fragment"), (unknown, "'thrid'")]
    assert not_refused(policy.learn_on_batch, cases) == []
    batch["second"]["rewards"] = torch.full_like(batch["second"].rewards, torch.nan)
    with pytest.raises(NonFiniteError, match="'second'"):
        policy.learn_on_batch(batch)


def test_gradients_are_computed_and_applied_by_policy() -> None:
    policy = two_ppo()
    gradients, metrics = policy.compute_gradients(sample(policy))
    assert gradients.keys() == {"first", "second"} and "first/loss" in metrics
    before = weights_of(policy)
    policy.apply_gradients(gradients)
    assert policy.gradient_steps == 2 and differ(before, weights_of(policy))


# -- in a Trainer -----------------------------------------------------------------------------------------------------
class StepHook(Callback):
    """A hook around gradient steps, so that they go through Lightning."""

    def __init__(self) -> None:
        self.optimizers: list[Any] = []

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        self.optimizers.append(optimizer)


@pytest.mark.parametrize("through_lightning", [False, True])
def test_policies_learn_in_a_trainer_as_they_do_without_one(through_lightning: bool, tmp_path: Path) -> None:
    policy, alone, hook = ppo_and_dqn(), ppo_and_dqn(), StepHook()
    batches = [sample(alone, seed=seed) for seed in range(3)]
    for batch in batches:
        alone.learn_on_batch(batch)
    trainer = trainer_of(tmp_path, callbacks=[hook] if through_lightning else [])
    trainer.fit(policy, loader(*batches))
    assert_same(weights_of(policy), weights_of(alone))
    assert trainer.global_step == policy.gradient_steps == alone.gradient_steps > 0
    own = [part.learner.optimizer.torch_optimizer for part in policy.policies.values()]
    assert trainer.optimizers == own
    if through_lightning:
        steps = [part.gradient_steps for part in policy.policies.values()]
        assert [sum(each is optimizer for each in hook.optimizers) for optimizer in own] == steps


def test_a_fit_without_a_policy_that_learns_says_so(tmp_path: Path) -> None:
    policy = several({"first": "random", "second": PPO_ENTRY}, FIRST_AND_SECOND, policies_to_train=[])
    before = weights_of(policy)
    with pytest.warns(UserWarning, match="learns"):
        trainer_of(tmp_path).fit(policy, loader(sample(policy)))
    assert_same(before, weights_of(policy))
    assert policy.env_steps > 0 and policy.iterations == 1
    assert policy.configure_optimizers() is None  # which Lightning takes for a fit without optimizers


@pytest.mark.filterwarnings("ignore:.*val_dataloader.*does not have many workers")
def test_evaluation_logs_the_return_of_each_policy(tmp_path: Path) -> None:
    episodes = SampleBatch(episode_returns=torch.tensor([3.0, 5.0]), episode_lengths=torch.tensor([10, 20]))
    episodes["policy_returns.first"] = torch.tensor([1.0, 2.0])
    (result,) = trainer_of(tmp_path).validate(ppo_and_dqn(), loader(episodes), verbose=False)
    assert result == {"eval/ep_rew_mean": 4.0, "eval/ep_len_mean": 15.0, "eval/first/ep_rew_mean": 1.5}


@pytest.mark.parametrize(("fn", "logged"), [("fit", False), ("validate", True)])
def test_returns_of_policies_are_means_over_all_ranks(fn: str, logged: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy that did not act in an episode has no return there: NaN, which the mean leaves out."""
    policy = ppo_and_dqn()
    policy._trainer = SimpleNamespace(state=SimpleNamespace(fn=fn))  # type: ignore[assignment]
    logs: dict[str, Any] = {}
    monkeypatch.setattr(policy, "log", lambda name, value, **how: logs.update({name: (value.item(), how)}))
    column = torch.tensor([1.0, torch.nan, 2.0])
    policy.validation_step(
        SampleBatch(episode_returns=column, episode_lengths=column, **{"policy_returns.second": column})
    )
    assert [*logs] == ["eval/ep_rew_mean", "eval/ep_len_mean", "eval/second/ep_rew_mean"]
    how = {"on_epoch": True, "logger": logged, "batch_size": 3, "sync_dist": True}
    assert logs["eval/second/ep_rew_mean"] == (1.5, how)


# -- weights and state -------------------------------------------------------------------------------------------------
def test_weights_are_set_by_policy_id() -> None:
    policy, other = ppo_and_dqn(seed=1), ppo_and_dqn(seed=2)
    before = weights_of(other.policies["second"])
    other.set_weights({"first": policy.get_weights()["first"]})
    assert_same(weights_of(other.policies["first"]), weights_of(policy.policies["first"]))
    assert_same(weights_of(other.policies["second"]), before)
    with pytest.raises(ConfigError, match="'third'"):
        other.set_weights({"third": {}})


def test_another_policy_with_the_same_state_learns_the_same() -> None:
    """Without the optimizers' moments the second iteration would end with other weights."""
    policy, other = ppo_and_dqn(seed=1), ppo_and_dqn(seed=1)
    batches = [sample(policy, seed=seed) for seed in range(2)]
    policy.learn_on_batch(batches[0])
    other.env_steps = policy.env_steps
    for part, twin in zip(policy.policies.values(), other.policies.values(), strict=True):
        twin.set_state(pickle.loads(pickle.dumps(part.get_state())))
    for each in (policy, other):
        each.learn_on_batch(batches[1])
    assert_same(weights_of(other), weights_of(policy))
    assert [counters(part) for part in other.policies.values()] == [counters(part) for part in policy.policies.values()]


# -- adding policies --------------------------------------------------------------------------------------------------
def copy_of(policy: PolicySet) -> PolicySet:
    """As a worker process builds it."""
    spaces_, keywords = pickle.loads(pickle.dumps(policy.constructor_arguments()))
    return PolicySet(*spaces_, **keywords)


def test_a_policy_is_added_and_copies_in_workers_follow() -> None:
    policy = several({"main": PPO_ENTRY, "other": "random"}, {"cart_0": "main", "cart_1": "other"})
    worker, late = copy_of(policy), copy_of(policy)
    assert not pack(policy)["additions"]
    snapshot = policy.policies["main"].copy_for_acting()
    policy.add_policy("main_1", snapshot, policy_mapping={"cart_0": "main", "cart_1": ["other", "main_1"]})
    assert policy.policies_to_train == ["main"]
    assert policy.agents_of("main_1") == ["cart_1"] and not policy.mapping.static
    policy.learn_on_batch(sample(policy, "main"))
    unpack(worker, pickle.loads(pickle.dumps(pack(policy))))
    assert_same(weights_of(worker), weights_of(policy))
    assert worker.agents_of("main_1") == ["cart_1"] and worker.generation == policy.generation
    mapping = worker.mapping
    unpack(worker, pack(policy))
    assert worker.mapping is mapping  # nothing new
    policy.set_policy_mapping({"cart_0": "main", "cart_1": "main_1", "*": "other"})
    for each in (worker, late):  # which gets both changes at once
        unpack(each, pack(policy))
        assert each.generation == policy.generation == 2 and each.agents_of("main_1") == ["cart_1"]
        assert each.mapping.policy_of("cart_1") == policy.mapping.policy_of("cart_1") == "main_1"


def test_additions_without_a_generation_count_as_one_change() -> None:
    policy = several({"main": PPO_ENTRY})
    policy.add_policies({"late": {**PPO_ENTRY, "spaces_of": "cart_0"}}, {"*": "main"})
    assert policy.generation == policy.additions["generation"] == 1
    policy.add_policies({}, {"cart_0": "late", "*": "main"})
    assert policy.generation == 2 and policy.agents_of("late") == ["cart_0"]


def test_added_policies_are_in_the_mode_of_the_others() -> None:
    policy = several({"main": PPO_ENTRY})
    assert policy.add_policy("past", policy.policies["main"].copy_for_acting(), spaces_of="cart_0").training
    policy.eval()
    assert not policy.add_policy("late", PPO_ENTRY, spaces_of="cart_0").training


def test_trained_policies_begin_with_the_common_env_steps() -> None:
    own, late = (PPO(*CARTPOLE.spaces(), model=SMALL) for _ in range(2))
    own.env_steps = late.env_steps = 1_000_000
    policy = several({"main": own})
    assert own.env_steps == policy.env_steps == 0
    policy.learn_on_batch(sample(policy))
    policy.add_policy("late", late, trained=True, spaces_of="cart_0")
    assert late.env_steps == own.env_steps == policy.env_steps > 0


def test_policies_to_train_cannot_be_added_while_several_ranks_train() -> None:
    policy = several({"main": PPO_ENTRY})
    trainer = type("TwoRanks", (), {"world_size": 2, "training": True})()
    policy.trainer = trainer  # type: ignore[assignment]  # pyright: ignore
    with pytest.raises(ConfigError, match=r"add_policy\('late', trained=True\)"):
        policy.add_policy("late", PPO_ENTRY, trained=True, spaces_of="cart_0")
    assert policy.add_policy("late", PPO_ENTRY, spaces_of="cart_0").trainer == trainer


def test_an_addition_that_cannot_work_changes_nothing() -> None:
    policy = several({"main": PPO_ENTRY, "other": "random"}, {"cart_0": "main", "cart_1": "other"})
    mapping = policy.mapping
    cases: tuple[tuple[str, Any, dict[str, Any], str], ...] = (
        ("main", PPO_ENTRY, {}, "there is a policy 'main' already"),
        ("a.b", PPO_ENTRY, {}, "the id 'a.b' has"),
        ("late", PPO_ENTRY, {}, "no agent has this policy"),
        ("late", {**PPO_ENTRY, "gamma": 2.0}, {"spaces_of": "cart_0"}, r"policies\.late: policy\.gamma=2\.0"),
        ("late", "random", {"spaces_of": "cart_0", "trained": True}, "a RandomPolicy, which never learns"),
        ("late", PPO_ENTRY, {"policy_mapping": {"*": "lat"}}, "'lat' is none of the policies .* 'late'"),
        ("late", policy.policies["main"], {"spaces_of": "cart_0"}, "the same object as another policy"),
    )
    for policy_id, entry, keywords, message in cases:
        with pytest.raises(ConfigError, match=message):
            policy.add_policy(policy_id, entry, **keywords)
    assert list(policy.policies) == ["main", "other"] and policy.mapping is mapping and not policy.additions
    assert PolicySet(*agent_spaces(), **policy.constructor_arguments()[1]).policies_to_train == ["main"]


def test_a_mapping_that_gives_a_policy_agents_of_other_spaces_changes_nothing() -> None:
    by_kind = {"cart_*": "carts", "pendulum_*": "pendulums"}
    policy = several({"carts": PPO_ENTRY, "pendulums": PPO_ENTRY}, by_kind, carts=1, pendulums=1)
    with pytest.raises(ConfigError, match=r"'carts'.*'cart_0'.*'pendulum_0'"):
        policy.set_policy_mapping({"*": "carts"})
    assert policy.mapping.given == by_kind and policy.generation == 0


def test_policies_are_frozen_and_trained_again_during_a_fit(tmp_path: Path) -> None:
    """The second iteration trains `second` alone, the third both, and the fourth none."""
    policy, steps = two_ppo(), []

    class Switch(Callback):
        def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
            policy.set_policies_to_train((["first", "second"], ["second"], ["first", "second"], [])[batch_idx])

        def on_train_batch_end(self, *_: Any) -> None:
            steps.append([part.gradient_steps for part in policy.policies.values()])

    trainer = trainer_of(tmp_path, callbacks=[Switch()])
    trainer.fit(policy, loader(*[sample(policy, seed=seed) for seed in range(4)]))
    assert steps == [[4, 4], [4, 8], [8, 12], [8, 12]]
    assert trainer.global_step == policy.gradient_steps == 20
    with pytest.raises(ConfigError, match="policies_to_train names 'third'"):
        policy.set_policies_to_train(["third"])


class WhenLearned(Callback):
    """Calls a function of the policy and the batch after each policy's learning."""

    def __init__(self, call: Callable[[Policy, SampleBatch], Any]) -> None:
        self.call = call

    def on_learn_on_batch(self, policy: Policy, train_batch: SampleBatch, result: dict[str, float]) -> None:
        assert "loss" in result
        self.call(policy, train_batch)


def test_naming_the_trained_policies_again_within_an_iteration_changes_nothing(tmp_path: Path) -> None:
    """The Trainer counts the gradient steps of the policy that learns after the callback, too."""
    both = two_ppo()
    trainer = trainer_of(tmp_path, callbacks=[WhenLearned(lambda *_: both.set_policies_to_train(["first", "second"]))])
    trainer.fit(both, loader(sample(both)))
    assert trainer.global_step == both.gradient_steps == 8


@pytest.mark.parametrize("through_lightning", [False, True])
@pytest.mark.parametrize("chosen", [["second"], ["first"], []])
def test_other_policies_are_trained_after_the_iteration_in_which_they_were_chosen(
    chosen: list[str], through_lightning: bool, tmp_path: Path
) -> None:
    both, follower, hook = two_ppo(), two_ppo(), StepHook()

    def choose(*_: Any) -> None:
        both.set_policies_to_train(chosen)
        follower.add_policies(**both.additions)
        assert follower.policies_to_train == ["first", "second"]

    trainer = trainer_of(tmp_path, callbacks=[WhenLearned(choose), *([hook] if through_lightning else [])])
    trainer.fit(both, loader(sample(both)))
    assert trainer.global_step == both.gradient_steps == 8 and both.policies_to_train == chosen
    for policy in both.policies.values():
        own = policy.learner.optimizer.torch_optimizer
        assert policy.gradient_steps == 4
        assert not through_lightning or sum(optimizer is own for optimizer in hook.optimizers) == 4
    follower.add_policies(**both.additions)
    assert follower.policies_to_train == chosen


def test_policies_added_within_an_iteration_learn_after_it(tmp_path: Path) -> None:
    every = several({"first": PPO_ENTRY})

    def add(*_: Any) -> None:
        for name in {"second", "third"} - every.policies.keys():
            every.add_policy(name, PPO_ENTRY, trained=True, spaces_of="cart_0")

    trainer = trainer_of(tmp_path, callbacks=[WhenLearned(add)])
    parts = fragment_of(every.get_policy())
    batches = [MultiAgentBatch(dict.fromkeys(names, parts), 32) for names in (["first"], ["first", "second", "third"])]
    trainer.fit(every, loader(*batches))
    assert sorted(every.policies_to_train) == ["first", "second", "third"]
    assert [every.policies[name].gradient_steps for name in ("first", "second", "third")] == [8, 4, 4]
    assert trainer.global_step == every.gradient_steps == 16


def test_frozen_policies_keep_env_steps_of_their_own_in_workers() -> None:
    """Exploration that fades out with the env steps of its own training does not start again."""
    old = DQN(*CARTPOLE.spaces(), model=SMALL)
    old.env_steps = 1_000_000
    policy = several({"first": PPO_ENTRY, "second": old}, FIRST_AND_SECOND, policies_to_train=["first"])
    worker = copy_of(policy)
    policy.env_steps = 10
    unpack(worker, pack(policy))
    worker.env_steps = 20
    assert [part.env_steps for part in worker.policies.values()] == [20, 1_000_000]


def test_hooks_of_callbacks_know_the_policy_by_its_id(tmp_path: Path) -> None:
    learned: list[Any] = []
    policy = ppo_and_dqn()
    batch = sample(policy)
    callback = WhenLearned(lambda policy, rows: learned.append((policy.policy_id, rows.count)))
    trainer_of(tmp_path, callbacks=[callback]).fit(policy, loader(batch))
    assert learned == [(name, env_steps(part)) for name, part in batch.policy_batches.items()]
