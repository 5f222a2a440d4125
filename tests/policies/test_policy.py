"""Policies alone, without a Trainer: acting, learning, states, checkpoints, and which spaces they take."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from lightning_rl import policies
from lightning_rl.envs import EnvCreator
from lightning_rl.errors import CheckpointError, NonFiniteError, UnsupportedSpaceError
from lightning_rl.policies import A2C, PG, PPO, Policy
from lightning_rl.policies.kl import mean_kl
from lightning_rl.rollouts import RolloutWorker
from lightning_rl.sample_batch import SampleBatch
from tests.envs.classic_control import CARTPOLE, PENDULUM
from tests.models.parameters import parameter_vector
from tests.refusals import not_refused
from tests.rollouts.small_worker import small_worker

ALGORITHMS = [PPO, A2C, PG]


GROUPS = {"QMIX", "VDN", "IndependentQ", "MADDPG", "MATD3"}
ON_POLICY = {"A2C", "A3C", "APPO", "ARS", "ES", "IMPALA", "PG", "PPO"}
Q_LEARNERS = {"DQN", "ApexDQN", "Rainbow", "SimpleQ", "R2D2", "QMIX", "VDN", "IndependentQ"}
WITHOUT_MODEL = {"MultiAgentPolicy", "RandomPolicy", "ScratchPolicy", "ScriptedPolicy"}


# -- classes ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("attribute", "expected"),
    [
        ("supports_recurrent", {*ON_POLICY, "R2D2", "QMIX", "VDN", "IndependentQ"}),
        ("off_policy", {*Q_LEARNERS, "DDPG", "TD3", "SAC", "TQC", "MADDPG", "MATD3"}),
        ("acts_for_group", GROUPS),
        ("evolves", {"ES", "ARS"}),
        ("has_loss", {*ON_POLICY, *Q_LEARNERS, *GROUPS, "DDPG", "TD3", "SAC", "TQC"}),
        ("uses_every_parameter", {*ON_POLICY, *Q_LEARNERS} - {"PG"}),
        ("reads_outputs", {"A2C", "A3C", "PPO", "MADDPG", "MATD3"}),
    ],
)
def test_classes_say_what_they_are(attribute: str, expected: set[str]) -> None:
    """The pipelines ask the class; the base class says no to all of it."""
    classes = {
        name: each for name, each in vars(policies).items() if isinstance(each, type) and issubclass(each, Policy)
    }
    assert {name for name, each in classes.items() if getattr(each, attribute)} == expected
    assert {name for name, each in classes.items() if not each.has_model} == WITHOUT_MODEL


# -- acting -----------------------------------------------------------------------------------------------------------
def test_compute_actions_draws_by_the_exploration_seed() -> None:
    policy = PPO(*CARTPOLE.spaces(), seed=1)
    obs = np.zeros((64, 4), np.float32)
    drawn = []
    for seed in (5, 5, 6):
        policy.seed_exploration(seed)
        drawn.append(policy.compute_actions(obs)[0])
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


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
    first, second, other = (
        PPO(*CARTPOLE.spaces(), seed=1),
        PPO(*CARTPOLE.spaces(), seed=1),
        PPO(*CARTPOLE.spaces(), seed=2),
    )
    assert torch.equal(before, torch.random.get_rng_state())
    assert torch.equal(parameter_vector(first), parameter_vector(second))
    assert not torch.equal(parameter_vector(first), parameter_vector(other))


@pytest.mark.parametrize(
    "id", ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "Blackjack-v1", "MountainCarContinuous-v0"]
)
def test_compute_single_action_gives_an_action_of_the_environment_s_space(id: str) -> None:
    env = EnvCreator(id).make_single()
    policy = PPO(env.observation_space, env.action_space)
    obs, _ = env.reset(seed=0)
    action = policy.compute_single_action(obs)
    assert env.action_space.contains(action)
    env.step(action)
    action, state, extra = policy.compute_single_action(obs, explore=True, full_fetch=True)
    assert env.action_space.contains(action) and state == [] and extra["action_logp"].shape == ()


# -- learning ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("env", [CARTPOLE, PENDULUM], ids=["discrete", "continuous"])
def test_learn_on_batch_counts_steps_changes_weights_and_reports_finite_metrics(
    algorithm: type[Policy], env: EnvCreator
) -> None:
    policy = algorithm(*env.spaces(), seed=1)
    fragment = small_worker(policy, env).sample()
    before = parameter_vector(policy)
    metrics = policy.learn_on_batch(fragment)
    assert policy.env_steps == int(fragment.valid.sum()) and policy.iterations == 1
    assert policy.gradient_steps == policy.passes * policy.learner.minibatch_count(
        policy.postprocess_trajectory(fragment)
    )
    assert all(np.isfinite(value) for value in metrics.values()) and metrics["grad_norm"] > 0
    assert not torch.equal(before, parameter_vector(policy))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_policies_with_equal_seeds_learn_equal_weights(algorithm: type[Policy]) -> None:
    ends = []
    for _ in range(2):
        policy = algorithm(*CARTPOLE.spaces(), seed=4)
        source = small_worker(policy)
        for _ in range(3):
            policy.learn_on_batch(source.sample())
        ends.append(parameter_vector(policy))
    assert torch.equal(*ends)


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


@pytest.mark.parametrize(("lr", "grows"), [(3e-2, True), (0.0, False)])
def test_ppo_adapts_kl_coef_to_kl_target(lr: float, grows: bool) -> None:
    policy = PPO(*PENDULUM.spaces(), kl_coef=0.2, kl_target=0.01, lr=lr, passes=5, seed=1)
    metrics = policy.learn_on_batch(small_worker(policy, PENDULUM).sample())
    assert policy.kl_coef.item() == pytest.approx(0.3 if grows else 0.1)
    assert (metrics["kl"] > 0.02) is grows


def test_ppo_adapts_kl_coef_by_the_kl_after_the_last_step() -> None:
    """One gradient step: the KL is 0 before it and above 2 × kl_target after it, so kl_coef grows from 0.2 to 0.3."""
    policy = PPO(*PENDULUM.spaces(), kl_coef=0.2, kl_target=0.01, lr=3e-2, passes=1, minibatches=1, seed=1)
    fragment = small_worker(policy, PENDULUM).sample()
    rows = policy.learner.rows_of(fragment)
    metrics = policy.learn_on_batch(fragment)
    with torch.no_grad():
        kl = policy.distribution(rows.action_dist_inputs).kl(policy.distribution_of(rows)).mean().item()
    assert kl > 0.02 and metrics["kl"] == pytest.approx(kl, rel=1e-5)
    assert policy.kl_coef.item() == pytest.approx(0.3)


def test_mean_kl_is_the_mean_over_all_rows_of_sequences_of_different_lengths() -> None:
    """Minibatches keep sequences whole, so their row counts differ."""
    memory = {"use_lstm": True, "lstm_cell_size": 8}
    policy = PPO(*CARTPOLE.spaces(), kl_coef=0.2, lr=3e-2, minibatches=4, model=memory, seed=1)
    rows = policy.learner.rows_of(small_worker(policy).sample())
    before = mean_kl(policy, rows, policy.acting_distribution)
    policy.learn_on_batch(rows)
    with torch.no_grad(), policy.in_eval_mode():
        kl = policy.distribution(rows.action_dist_inputs).kl(policy.distribution_of(rows)).mean().item()
    assert abs(before) < 1e-6 and kl > 1e-4
    assert mean_kl(policy, rows, policy.acting_distribution) == pytest.approx(kl, rel=1e-4)


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


# -- custom losses ----------------------------------------------------------------------------------------------------


# -- weights, state, checkpoints --------------------------------------------------------------------------------------
def test_get_state_gives_a_copy_that_later_learning_does_not_change() -> None:
    policy, twin = (PPO(*CARTPOLE.spaces(), seed=1) for _ in range(2))
    fragments = [small_worker(policy).sample() for _ in range(2)]
    policy.learn_on_batch(fragments[0])
    state = policy.get_state()
    ends = []
    for _ in range(2):
        policy.learn_on_batch(fragments[1])
        ends.append(parameter_vector(policy))
        policy.set_state(state)
    assert torch.equal(*ends)
    twin.set_state(state)
    twin.learn_on_batch(fragments[1])
    assert torch.equal(parameter_vector(twin), ends[0])
    policy.learn_on_batch(fragments[1])
    assert torch.equal(parameter_vector(policy), ends[0])


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_policy_with_a_pickled_state_learns_as_the_one_that_gave_it(algorithm: type[Policy]) -> None:
    policy = algorithm(*PENDULUM.spaces(), observation_filter="mean_std", seed=1)
    fragments = [small_worker(policy, PENDULUM).sample() for _ in range(2)]
    policy.learn_on_batch(fragments[0])
    twin = algorithm(*PENDULUM.spaces(), observation_filter="mean_std", seed=1)
    twin.set_state(pickle.loads(pickle.dumps(policy.get_state())))
    for each in (policy, twin):
        each.learn_on_batch(fragments[1])
    assert torch.equal(parameter_vector(policy), parameter_vector(twin))
    assert policy.env_steps == twin.env_steps


def test_get_weights_gives_copies() -> None:
    policy = PPO(*CARTPOLE.spaces(), seed=1)
    kept = policy.get_weights()
    before = parameter_vector(policy)
    policy.learn_on_batch(small_worker(policy).sample())
    assert not torch.equal(before, parameter_vector(policy))
    policy.set_weights(kept)
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


def save(policy: Policy, path: Path) -> Path:
    checkpoint: dict[str, Any] = {"state_dict": policy.state_dict()}
    policy.on_save_checkpoint(checkpoint)
    torch.save(checkpoint, path)
    return path


def test_a_loaded_policy_gives_bitwise_equal_actions(tmp_path: Path) -> None:
    policy = PPO(
        *PENDULUM.spaces(), observation_filter="mean_std", model={"fcnet_hiddens": [8], "free_log_std": True}, seed=1
    )
    policy.learn_on_batch(small_worker(policy, PENDULUM).sample())
    loaded = Policy.load(str(save(policy, tmp_path / "policy.ckpt")))
    obs = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    assert isinstance(loaded, PPO) and loaded.env_steps == policy.env_steps
    assert torch.equal(loaded.compute_actions(obs, explore=False)[0], policy.compute_actions(obs, explore=False)[0])


def test_spec_names_a_keyword_that_has_no_import_path() -> None:
    policy = PPO(*CARTPOLE.spaces(), custom_losses=[lambda policy, batch: torch.zeros(())])
    with pytest.raises(CheckpointError, match=r"custom_losses\.0 .*import path"):
        policy.spec()


def test_load_refuses_damaged_and_foreign_files(tmp_path: Path) -> None:
    cases = [
        ("empty.ckpt", r"empty\.ckpt cannot be read"),
        ("damaged.ckpt", r"damaged\.ckpt cannot be read"),
        ("missing.ckpt", r"missing\.ckpt does not exist"),
        ("foreign.ckpt", r"foreign\.ckpt was not written"),
    ]
    (tmp_path / "empty.ckpt").touch()
    (tmp_path / "damaged.ckpt").write_bytes(b"not a checkpoint")
    torch.save({"weights": 1}, tmp_path / "foreign.ckpt")
    assert not_refused(lambda name: Policy.load(tmp_path / name), cases, CheckpointError) == []


def test_load_runs_no_code_of_a_pickle(tmp_path: Path) -> None:
    canary = tmp_path / "canary"

    class Payload:
        def __reduce__(self) -> Any:
            return Path.touch, (canary,)

    torch.save({"policy": Payload()}, tmp_path / "evil.ckpt")
    with pytest.raises(CheckpointError):
        Policy.load(str(tmp_path / "evil.ckpt"))
    assert not canary.exists()


def test_on_load_checkpoint_refuses_another_class_space_or_shape_before_it_changes_weights() -> None:
    policy = PPO(*CARTPOLE.spaces())
    other: dict[str, Any]
    for foreign, message in (
        (A2C(*CARTPOLE.spaces()), "a2c:A2C"),
        (PPO(*PENDULUM.spaces()), "observation_space"),
        (PPO(*CARTPOLE.spaces(), model={"fcnet_hiddens": [3]}), r"\[3, 4\].*\[64, 4\]"),
    ):
        other = {"state_dict": foreign.state_dict()}
        foreign.on_save_checkpoint(other)
        before = parameter_vector(policy)
        with pytest.raises(CheckpointError, match=message):
            policy.on_load_checkpoint(other)
        assert torch.equal(before, parameter_vector(policy))


# -- what is not supported --------------------------------------------------------------------------------------------
VECTOR, DISCRETE = spaces.Box(-1, 1, (3,)), spaces.Discrete(3)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(
    ("observation", "action", "model", "message"),
    [
        (spaces.Text(5), DISCRETE, None, "Text"),
        (spaces.Graph(VECTOR, None), DISCRETE, None, "Graph"),
        (VECTOR, spaces.Text(5), None, "Text"),
        (VECTOR, spaces.Sequence(DISCRETE), None, "Sequence"),
    ],
)
def test_unsupported_spaces_are_refused_by_name(
    algorithm: type[Policy], observation: gym.Space[Any], action: gym.Space[Any], model: Any, message: str
) -> None:
    with pytest.raises(UnsupportedSpaceError, match=message):
        algorithm(observation, action, model=model)


class WithoutSequences(PPO):
    """An algorithm whose loss reads no sequences."""

    supports_recurrent = False


def test_a_policy_without_supports_recurrent_refuses_models_with_memory() -> None:
    with pytest.raises(UnsupportedSpaceError, match="WithoutSequences"):
        WithoutSequences(VECTOR, DISCRETE, model={"use_lstm": True})


IMAGE = spaces.Box(0, 255, (84, 84, 3), np.uint8)
NESTED = spaces.Dict({"a": VECTOR, "b": spaces.Tuple((DISCRETE, spaces.MultiBinary(2)))})
OBSERVATIONS = [
    VECTOR,
    DISCRETE,
    spaces.MultiDiscrete([2, 3]),
    spaces.MultiBinary(3),
    IMAGE,
    NESTED,
    spaces.Box(-1, 1, (2, 3)),
]
ACTIONS = [
    DISCRETE,
    spaces.Discrete(3, start=5),
    spaces.MultiDiscrete([2, 3]),
    spaces.Box(-2, 5, (2,)),
    spaces.Box(0, 4, (2,), np.int64),
    NESTED,
]


class AnySpaces(gym.Env[Any, Any]):
    """Random observations, any action."""

    def __init__(self, observation_space: gym.Space[Any], action_space: gym.Space[Any]) -> None:
        self.observation_space, self.action_space = observation_space, action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.t = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), f"{action!r} is not in {self.action_space}"
        self.t += 1
        return self.observation_space.sample(), 1.0, self.t % 3 == 0, False, {}


@pytest.mark.parametrize("observation", OBSERVATIONS, ids=str)
@pytest.mark.parametrize("action", ACTIONS, ids=str)
def test_ppo_samples_and_learns_in_every_supported_space(observation: gym.Space[Any], action: gym.Space[Any]) -> None:
    env = EnvCreator(AnySpaces, {"observation_space": observation, "action_space": action})
    policy = PPO(observation, action, passes=1, minibatches=2)
    source = RolloutWorker(env, policy, num_envs=2, fragment_length=4, vectorization="sync")
    metrics = policy.learn_on_batch(source.sample())
    assert np.isfinite(metrics["loss"]) and abs(metrics["first_kl"]) < 1e-5


def test_ppo_acts_by_the_mask_in_the_observation() -> None:
    observation = spaces.Dict({"action_mask": spaces.MultiBinary(3), "x": VECTOR})
    policy = PPO(observation, DISCRETE)
    obs = {"action_mask": np.array([[1, 0, 0], [0, 1, 1]] * 50, np.int8), "x": np.zeros((100, 3), np.float32)}
    actions, _, _ = policy.compute_actions(obs)
    assert set(actions[::2].tolist()) == {0} and set(actions[1::2].tolist()) == {1, 2}
