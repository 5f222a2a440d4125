"""Parameter noise: one draw per episode and environment, adapted deviation, and no noise in evaluation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch.testing import assert_close

from lightning_rl.envs import EnvCreator
from lightning_rl.exploration import ParameterNoise
from lightning_rl.exploration.parameter_noise import row_distances
from lightning_rl.models.distributions import Categorical, DiagGaussian
from lightning_rl.policies import PPO, Policy
from lightning_rl.rollouts import RolloutWorker
from lightning_rl.runs.algorithm import Algorithm
from lightning_rl.sample_batch import SampleBatch
from tests.envs.classic_control import CARTPOLE, PENDULUM

OBS = np.zeros((4, 4), np.float32) + 0.1


def noisy_policy(env: EnvCreator = CARTPOLE, **keywords: Any) -> Policy:
    settings = {"type": "parameter_noise", "random_timesteps": 0, "initial_stddev": 0.5, **keywords.pop("noise", {})}
    return PPO(*env.spaces(), exploration=settings, seed=1, **keywords)


def outputs(policy: Policy, obs: np.ndarray = OBS, explore: bool = True) -> torch.Tensor:
    return policy.compute_actions(obs, explore=explore)[2]["action_dist_inputs"]


def weights(policy: Policy) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in policy.model.named_parameters()}


def test_every_environment_has_its_own_noise_and_keeps_it_for_an_episode() -> None:
    policy = noisy_policy()
    first = outputs(policy)  # four equal observations
    assert len(torch.unique(first, dim=0)) == 4
    assert_close(outputs(policy), first)
    policy.exploration.on_episode_start([2])
    again = outputs(policy)
    assert_close(again[[0, 1, 3]], first[[0, 1, 3]])
    assert not torch.equal(again[2], first[2])


def test_parameter_noise_is_normal_with_the_configured_deviation() -> None:
    """One linear layer: its disturbed outputs for e₁ less the clean ones are N(0, σ² + σ²) (weight and bias)."""
    policy = noisy_policy(model={"fcnet_hiddens": []}, noise={"initial_stddev": 0.3})
    obs = np.zeros((4000, 4), np.float32)
    obs[:, 0] = 1.0
    apart = outputs(policy, obs) - outputs(policy, obs, explore=False)
    assert apart.std().item() == pytest.approx(0.3 * 2**0.5, rel=0.03)
    assert apart.mean().item() == pytest.approx(0.0, abs=0.02)


def test_normalizing_layers_are_left_alone() -> None:
    policy = noisy_policy(model={"fcnet_hiddens": [8], "layer_norm": True}, noise={"initial_stddev": 0.1})
    exploration = policy.exploration
    outputs(policy)
    assert isinstance(exploration, ParameterNoise)
    (drawn, *_) = next(iter(exploration._noise.values()))
    assert drawn is not None and not any("norms" in name for name in drawn) and "head.linear.weight" in drawn


def test_the_log_probability_is_that_of_the_disturbed_policy() -> None:
    policy = noisy_policy()
    actions, _, extra = policy.compute_actions(OBS)
    disturbed = policy.distribution(extra["action_dist_inputs"])
    assert_close(extra["action_logp"], disturbed.logp(actions))


def test_recurrent_models_keep_a_state_for_each_environment() -> None:
    policy = noisy_policy(model={"use_lstm": True, "lstm_cell_size": 8})
    state = policy.get_initial_state(4)
    first, after, _ = policy.compute_actions(OBS, state)
    assert [part.shape for part in after] == [part.shape for part in state] and first.shape == (4,)
    assert len(torch.unique(after[0], dim=0)) == 4  # equal observations, other weights
    _, clean, _ = policy.compute_actions(OBS, state, explore=False)
    assert len(torch.unique(clean[0], dim=0)) == 1


# -- where it does not belong -----------------------------------------------------------------------------------------
def test_rllib_defect_noisy_weights_in_a_checkpoint(tmp_path: Path) -> None:
    """A checkpoint in the middle of an episode holds the weights without noise, and acting leaves them as they are."""
    overrides = f"""experiment=none exploration=parameter_noise exploration.random_timesteps=0
        exploration.initial_stddev=1.0 policy.lr=0.0 workers.envs_per_worker=2 workers.fragment_length=16
        run_dir={tmp_path}"""
    algorithm = Algorithm("ppo", "cartpole", overrides=overrides.split())
    before = weights(algorithm.policy)
    algorithm.train()  # acts with noise; learning rate 0
    loaded = Policy.load(str(algorithm.save()))
    algorithm.stop()
    assert_close(weights(loaded), before, rtol=0, atol=0)
    assert_close(loaded.exploration.state_dict()["stddev"], algorithm.policy.exploration.state_dict()["stddev"])


def test_learning_and_evaluation_are_not_disturbed() -> None:
    policy, twin = noisy_policy(), PPO(*CARTPOLE.spaces(), seed=1)
    outputs(policy)
    batch = SampleBatch(obs=torch.from_numpy(OBS))
    assert_close(outputs(policy, explore=False), twin.distribution_of(batch).inputs)
    assert_close(policy.distribution_of(batch).inputs, twin.distribution_of(batch).inputs)
    assert policy.compute_single_action(OBS[0]) == twin.compute_single_action(OBS[0])


def test_an_evaluation_between_two_fragments_does_not_change_the_noise() -> None:
    fragments = []
    for evaluated in (False, True):
        policy = noisy_policy()
        worker = RolloutWorker(CARTPOLE, policy, num_envs=2, fragment_length=8, seed=1)
        worker.sample()
        if evaluated:
            RolloutWorker(CARTPOLE, policy, num_envs=2, seed=1, stream="evaluation").run_episodes(2)
        fragments.append(worker.sample())
    assert torch.equal(fragments[0].action_dist_inputs, fragments[1].action_dist_inputs)


# -- adaptation -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("env", [CARTPOLE, PENDULUM], ids=["categorical", "gaussian"])
@pytest.mark.parametrize(("distance", "factor"), [(1e-9, 1 / 1.01), (1e9, 1.01)])
def test_the_deviation_is_steered_by_the_distance(env: EnvCreator, distance: float, factor: float) -> None:
    """Too far from the undisturbed policy: σ shrinks by 1 %; near enough: it grows by 1 %."""
    policy = noisy_policy(env, noise={"distance": distance})
    metrics = policy.learn_on_batch(RolloutWorker(env, policy, num_envs=2, fragment_length=32).sample())
    assert metrics["exploration/stddev"] == pytest.approx(0.5 * factor)
    assert not policy.exploration.measured.any()


def test_parameter_noise_measures_short_fragments_together_and_leaves_out_resets() -> None:
    """24 fragments of one step in two environments are 48 rows; the next one makes 50, at which σ is adapted once."""
    policy = noisy_policy()
    policy.env_steps = 1
    exploration: Any = policy.exploration
    fragment = RolloutWorker(CARTPOLE, policy, num_envs=2, fragment_length=1).sample()
    reset = fragment.copy()
    reset["valid"] = torch.zeros_like(fragment.valid)
    for _ in range(24):
        exploration.postprocess_trajectory(policy, fragment)
        exploration.postprocess_trajectory(policy, reset)
    assert exploration.stddev.item() == 0.5 and exploration.measured[1].item() == 48
    exploration.postprocess_trajectory(policy, fragment)
    assert exploration.stddev.item() in (pytest.approx(0.505), pytest.approx(0.5 / 1.01))
    assert not exploration.measured.any()


def test_short_fragments_adapt_sigma_by_the_mean_of_their_distances() -> None:
    """One row of two is 3 away: √(9/2) = 2.12 over both, which is beyond a distance of 2, though one row is not."""
    for distance, factor in ((2.2, 1.01), (2.0, 1 / 1.01)):
        policy = noisy_policy(PENDULUM, noise={"distance": distance})
        policy.env_steps = 1
        exploration: Any = policy.exploration
        fragment = RolloutWorker(PENDULUM, policy, num_envs=1, fragment_length=1).sample()
        for number in range(50):
            undisturbed = policy.distribution_of(policy.flatten_fragment(fragment)).inputs.detach()
            away = torch.tensor([3.0 * (number % 2), 0.0])
            shown = fragment.copy()
            shown["action_dist_inputs"] = (undisturbed + away).unsqueeze(0)
            exploration.postprocess_trajectory(policy, shown)
        assert exploration.stddev.item() == pytest.approx(0.5 * factor)


def test_distances_of_policies() -> None:
    """Means 1 and 3 apart: (1 + 9)/2; probabilities (½, ½) and (¼, ¾): ½ ln 2 + ½ ln ⅔ nats."""
    wide = DiagGaussian(torch.tensor([[0.0, 0.0, 2.0, 2.0]])), DiagGaussian(torch.tensor([[1.0, 3.0, 0.0, 0.0]]))
    assert_close(row_distances(*wide, best_actions=True), torch.tensor([5.0]))
    two = Categorical(torch.zeros(1, 2)), Categorical(torch.tensor([[0.25, 0.75]]).log())
    assert_close(row_distances(*two, best_actions=False), torch.tensor([2.0, 2 / 3]).log().sum(0, keepdim=True) / 2)


def test_learning_with_parameter_noise_starts_on_policy() -> None:
    """The first ratio compares the undisturbed policy with the disturbed one that acted: not 1, but the true one."""
    policy = noisy_policy(noise={"initial_stddev": 0.1}, minibatches=1, passes=1)
    fragment = RolloutWorker(CARTPOLE, policy, num_envs=2, fragment_length=8).sample()
    disturbed = policy.distribution(fragment.action_dist_inputs.flatten(0, 1))
    assert_close(fragment.action_logp.flatten(), disturbed.logp(fragment.actions.flatten()))
    assert np.isfinite(policy.learn_on_batch(fragment)["loss"])


def test_nested_observations_and_masks_reach_the_disturbed_model() -> None:
    space = spaces.Dict(x=spaces.Box(-1, 1, (2,), np.float32), action_mask=spaces.MultiBinary(3))
    policy = PPO(space, spaces.Discrete(3), exploration={"type": "parameter_noise", "random_timesteps": 0})
    mask = np.array([[1, 0, 0], [0, 0, 1]], np.int8)
    actions, _, _ = policy.compute_actions({"x": np.zeros((2, 2), np.float32), "action_mask": mask})
    assert actions.tolist() == [0, 2]
