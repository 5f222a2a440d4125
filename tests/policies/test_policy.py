"""Policies alone, without a Trainer: acting, learning, states, and which spaces they take."""

from __future__ import annotations

import pickle
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from lightning_rl import PolicySet, RandomPolicy, ScratchPolicy, ScriptedPolicy
from lightning_rl.envs import EnvCreator
from lightning_rl.errors import NonFiniteError, UnsupportedSpaceError
from lightning_rl.fast_torch import in_eval_mode
from lightning_rl.policies import A2C, PG, PPO, Policy
from lightning_rl.policies.checkpoints import counters
from lightning_rl.policies.kl import acting_distribution, mean_kl
from lightning_rl.rollouts import RolloutWorker
from lightning_rl.sample_batch import SampleBatch
from tests.envs.classic_control import CARTPOLE, PENDULUM
from tests.feature_matrix import AnySpaces
from tests.models.parameters import parameter_vector
from tests.refusals import not_refused
from tests.rollouts.small_worker import small_worker
from tests.shipped_policies import POLICIES, policy_class

ALGORITHMS = [PPO, A2C, PG]


def test_classes_say_what_they_are() -> None:
    """The pipelines ask the class; the base class says no to all of it."""
    shipped = {name: policy_class(name) for name in POLICIES}
    on_policy = {
        name for name in POLICIES if shipped[name].data in ("on_policy", "async", "gradients", "population", "offline")
    }
    replayed, in_sequences = {*POLICIES} - on_policy, {"r2d2", "recurrent_sac", "qmix", "vdn", "independent_q"}
    continuous = {"ddpg", "td3", "sac", "recurrent_sac", "tqc", "crossq", "xqc", "maddpg", "matd3"}
    continuous |= {"awac", "cql", "rebrac", "td3_bc"}
    expected = {
        "off_policy": replayed,
        "supports_recurrent": on_policy | in_sequences,
        "evolves": {"es", "ars"},
        "has_loss": {*POLICIES},
        "uses_every_parameter": {*POLICIES} - continuous - {"bc", "pg"},
        "reads_outputs": {"a2c", "a3c", "ppo", "ddppo", "maddpg", "matd3"},
    }
    found = {attribute: {name for name in POLICIES if getattr(shipped[name], attribute)} for attribute in expected}
    assert found == expected and not any(getattr(Policy, attribute) for attribute in [*expected, "acts_for_group"])
    assert all(each.has_model for each in shipped.values())
    assert not any(each.has_model for each in (PolicySet, RandomPolicy, ScratchPolicy, ScriptedPolicy))


# -- acting -----------------------------------------------------------------------------------------------------------
def test_compute_actions_draws_by_the_exploration_seed() -> None:
    policy = PPO(*CARTPOLE.spaces(), seed=1)
    obs = np.zeros((64, 4), np.float32)
    drawn = []
    for seed in (5, 5, 6):
        policy.seed_exploration(seed)
        drawn.append(policy.compute_actions(obs)[0].tolist())
    assert drawn[0] == drawn[1] != drawn[2]


def test_compute_log_likelihoods_gives_the_recorded_action_logp() -> None:
    policy = PPO(*PENDULUM.spaces(), seed=1)
    obs = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    actions, _, extra = policy.compute_actions(obs)
    torch.testing.assert_close(policy.compute_log_likelihoods(actions, obs), extra["action_logp"])
    env_actions = policy.env_actions(actions)
    inside = np.abs(env_actions) < 2.0
    again = policy.compute_log_likelihoods(env_actions, obs, actions_normalized=False)
    torch.testing.assert_close(again[inside[:, 0]], extra["action_logp"][inside[:, 0]], rtol=1e-4, atol=1e-4)


def test_compute_log_likelihoods_are_those_of_eval_mode_without_a_gradient() -> None:
    policy = PPO(*CARTPOLE.spaces(), model={"custom_model": "docs.examples.batch_norm:BatchNormNet"})
    obs, actions = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32), torch.tensor([0, 1] * 3)
    found = [policy.train(mode).compute_log_likelihoods(actions, obs) for mode in (True, False)]
    assert torch.equal(*found) and not found[0].requires_grad and not policy.training


def test_without_explore_actions_are_those_of_training() -> None:
    obs = np.zeros((64, 4), np.float32)
    drawn = []
    for explore in (None, True, False):
        policy = PPO(*CARTPOLE.spaces(), seed=1)
        drawn.append(policy.compute_actions(obs, explore=explore)[0].tolist())
    assert drawn[0] == drawn[1] and len(set(drawn[0])) == 2 and len(set(drawn[2])) == 1


def test_compute_actions_keeps_the_mode_and_draws_nothing_from_global_generators() -> None:
    policy = PPO(*CARTPOLE.spaces()).train()
    before = torch.random.get_rng_state(), np.random.get_state()[1].tolist()  # type: ignore[index]
    policy.compute_actions(np.zeros((2, 4), np.float32))
    assert policy.training
    assert torch.equal(before[0], torch.random.get_rng_state())
    assert before[1] == np.random.get_state()[1].tolist()  # type: ignore[index]


def test_a_policy_s_first_weights_follow_its_seed_and_not_the_global_generator() -> None:
    before = torch.random.get_rng_state()
    first, second, other = (parameter_vector(PPO(*CARTPOLE.spaces(), seed=seed)) for seed in (1, 1, 2))
    assert torch.equal(before, torch.random.get_rng_state())
    assert torch.equal(first, second) and not torch.equal(first, other)


IDS = ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "Blackjack-v1", "MountainCarContinuous-v0"]


@pytest.mark.parametrize("id", IDS)
def test_compute_single_action_gives_an_action_of_the_environment_s_space(id: str) -> None:
    env = EnvCreator(id).make_single()
    policy = PPO(env.observation_space, env.action_space)
    obs, _ = env.reset(seed=0)
    assert env.action_space.contains(policy.compute_single_action(obs))
    action, state, extra = policy.compute_single_action(obs, explore=True, full_fetch=True)
    assert env.action_space.contains(action) and state == [] and extra["action_logp"].shape == ()


# -- learning ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("env", [CARTPOLE, PENDULUM], ids=["discrete", "continuous"])
def test_learn_on_batch_counts_env_steps_iterations_and_gradient_steps(algorithm: Any, env: EnvCreator) -> None:
    policy = algorithm(*env.spaces(), seed=1)
    fragment = small_worker(policy, env).sample()
    metrics = policy.learn_on_batch(fragment)
    steps = policy.passes * policy.learner.minibatch_count(policy.postprocess_trajectory(fragment))
    assert (policy.env_steps, policy.iterations, policy.gradient_steps) == (int(fragment.valid.sum()), 1, steps)
    assert metrics["grad_norm"] > 0


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_policies_with_equal_seeds_learn_equal_weights(algorithm: Any) -> None:
    """As one whose state another gave it, pickled, after the first iteration."""
    keywords: dict[str, Any] = {"observation_filter": "mean_std", "seed": 4}
    policy, twin, restored = (algorithm(*PENDULUM.spaces(), **keywords) for _ in range(3))
    fragments = [small_worker(policy, PENDULUM).sample() for _ in range(3)]
    for number, fragment in enumerate(fragments):
        for each in (policy, twin) if number == 0 else (policy, twin, restored):
            each.learn_on_batch(fragment)
        if number == 0:
            restored.set_state(pickle.loads(pickle.dumps(policy.get_state())))
    for each in (twin, restored):
        assert torch.equal(parameter_vector(policy), parameter_vector(each)) and counters(policy) == counters(each)


def test_ppo_s_kl_is_0_on_the_first_minibatch_of_an_iteration() -> None:
    """Weights and filter statistics that learn are those that acted."""
    policy = PPO(*PENDULUM.spaces(), observation_filter="mean_std", reward_filter="return_std", passes=2, seed=1)
    source = small_worker(policy, PENDULUM)
    for _ in range(4):
        metrics = policy.learn_on_batch(source.sample())
        assert abs(metrics["first_kl"]) < 1e-6
    assert metrics["approx_kl"] > 1e-6


def test_the_learning_rate_s_schedule_follows_env_steps() -> None:
    policy = PPO(*CARTPOLE.spaces(), lr=[[0, 1e-3], [128, 0.0]], passes=1, minibatches=1)
    source = small_worker(policy)
    assert policy.learn_on_batch(source.sample())["lr"] == pytest.approx(1e-3 * (1 - policy.env_steps / 128))
    while policy.env_steps < 128:
        metrics = policy.learn_on_batch(source.sample())
    assert metrics["lr"] == 0.0


def test_ppo_stops_its_sweeps_when_kl_passes_target_kl() -> None:
    policy = PPO(*CARTPOLE.spaces(), lr=5e-2, target_kl=1e-3, passes=10, seed=1)
    policy.learn_on_batch(small_worker(policy).sample())
    assert 0 < policy.gradient_steps < 40


@pytest.mark.parametrize(("lr", "adapted"), [(3e-2, 0.3), (0.0, 0.1)])
def test_ppo_adapts_kl_coef_to_kl_target(lr: float, adapted: float) -> None:
    policy = PPO(*PENDULUM.spaces(), kl_coef=0.2, kl_target=0.01, lr=lr, passes=5, seed=1)
    metrics = policy.learn_on_batch(small_worker(policy, PENDULUM).sample())
    assert policy.kl_coef.item() == pytest.approx(adapted)
    assert (metrics["kl"] > 0.02) is (lr > 0)


def kl_now(policy: PPO, rows: SampleBatch) -> float:
    """The mean KL between the distributions that acted and those of the policy."""
    with torch.no_grad(), in_eval_mode(policy):
        return policy.distribution(rows.action_dist_inputs).kl(policy.distribution_of(rows)).mean().item()


def test_ppo_adapts_kl_coef_by_the_kl_after_the_last_step() -> None:
    """One gradient step: the KL is 0 before it and above 2 × kl_target after it, so kl_coef grows from 0.2 to 0.3."""
    policy = PPO(*PENDULUM.spaces(), kl_coef=0.2, kl_target=0.01, lr=3e-2, passes=1, minibatches=1, seed=1)
    fragment = small_worker(policy, PENDULUM).sample()
    rows = policy.learner.rows_of(fragment)
    metrics = policy.learn_on_batch(fragment)
    assert kl_now(policy, rows) > 0.02 and metrics["kl"] == pytest.approx(kl_now(policy, rows), rel=1e-5)
    assert policy.kl_coef.item() == pytest.approx(0.3)


def test_mean_kl_is_the_mean_over_all_rows_of_sequences_of_different_lengths() -> None:
    """Minibatches keep sequences whole, so their row counts differ."""
    memory = {"use_lstm": True, "lstm_cell_size": 8}
    policy = PPO(*CARTPOLE.spaces(), kl_coef=0.2, lr=3e-2, minibatches=4, model=memory, seed=1)
    rows = policy.learner.rows_of(small_worker(policy).sample())
    assert abs(mean_kl(policy, rows, partial(acting_distribution, policy))) < 1e-6
    policy.learn_on_batch(rows)
    assert kl_now(policy, rows) > 1e-4
    assert mean_kl(policy, rows, partial(acting_distribution, policy)) == pytest.approx(kl_now(policy, rows), rel=1e-4)


class NaNLoss(PPO):
    def loss(self, batch: SampleBatch) -> tuple[Tensor, dict[str, Tensor]]:
        loss, metrics = super().loss(batch)
        return loss * torch.nan, metrics


def test_learn_on_batch_refuses_a_loss_that_is_not_finite_before_any_step() -> None:
    policy = NaNLoss(*CARTPOLE.spaces())
    before = parameter_vector(policy)
    with pytest.raises(NonFiniteError, match=r"model\.trunk.*policy\.lr"):
        policy.learn_on_batch(small_worker(policy).sample())
    assert torch.equal(before, parameter_vector(policy))


# -- weights and state -------------------------------------------------------------------------------------------------
def test_get_state_and_get_weights_give_copies_that_later_learning_does_not_change() -> None:
    policy = PPO(*CARTPOLE.spaces(), seed=1)
    fragments = [small_worker(policy).sample() for _ in range(2)]
    policy.learn_on_batch(fragments[0])
    state, weights, before = policy.get_state(), policy.get_weights(), parameter_vector(policy)
    ends = []
    for _ in range(2):
        policy.learn_on_batch(fragments[1])
        ends.append(parameter_vector(policy))
        policy.set_state(state)
    assert torch.equal(*ends) and not torch.equal(before, ends[0])
    policy.learn_on_batch(fragments[1])
    policy.set_weights(weights)
    assert torch.equal(before, parameter_vector(policy))


def test_apply_gradients_of_another_policy_s_gradients_equals_learning() -> None:
    here, there = (PPO(*CARTPOLE.spaces(), passes=1, minibatches=1, seed=1) for _ in range(2))
    fragment = small_worker(here).sample()
    gradients, info = here.compute_gradients(fragment)
    there.env_steps = int(fragment.valid.sum())
    there.apply_gradients(gradients)
    here.learn_on_batch(fragment)
    torch.testing.assert_close(parameter_vector(here).double(), parameter_vector(there).double())
    assert np.isfinite(info["loss"])


# -- what is not supported --------------------------------------------------------------------------------------------
VECTOR, DISCRETE = spaces.Box(-1, 1, (3,)), spaces.Discrete(3)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_unsupported_spaces_are_refused_by_name(algorithm: type[Policy]) -> None:
    cases = [
        (spaces.Text(5), DISCRETE, "Text"),
        (spaces.Graph(VECTOR, None), DISCRETE, "Graph"),
        (VECTOR, spaces.Text(5), "Text"),
        (VECTOR, spaces.Sequence(DISCRETE), "Sequence"),
    ]
    assert not_refused(algorithm, cases, UnsupportedSpaceError) == []


IMAGE = spaces.Box(0, 255, (84, 84, 3), np.uint8)
NESTED = spaces.Dict({"a": VECTOR, "b": spaces.Tuple((DISCRETE, spaces.MultiBinary(2)))})
PAIR = spaces.MultiDiscrete([2, 3])
OBSERVATIONS = [VECTOR, DISCRETE, PAIR, spaces.MultiBinary(3), IMAGE, NESTED, spaces.Box(-1, 1, (2, 3))]
ACTIONS = [
    DISCRETE,
    spaces.Discrete(3, start=5),
    PAIR,
    spaces.Box(-2, 5, (2,)),
    spaces.Box(0, 4, (2,), np.int64),
    NESTED,
]


@pytest.mark.parametrize("observation", OBSERVATIONS, ids=str)
@pytest.mark.parametrize("action", ACTIONS, ids=str)
def test_ppo_samples_and_learns_in_every_supported_space(observation: gym.Space[Any], action: gym.Space[Any]) -> None:
    env = EnvCreator(AnySpaces, {"observation_space": observation, "action_space": action})
    policy = PPO(observation, action, passes=1, minibatches=2)
    source = RolloutWorker(env, policy, num_envs=2, fragment_length=4, vectorization="sync")
    metrics = policy.learn_on_batch(source.sample())
    assert np.isfinite(metrics["loss"]) and abs(metrics["first_kl"]) < 1e-5
