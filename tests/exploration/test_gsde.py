"""gSDE: noise as a function of the state, its duration, and its density."""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch.testing import assert_close

from lightning_rl.envs import EnvCreator
from lightning_rl.errors import ConfigError, UnsupportedSpaceError
from lightning_rl.exploration import GSDE, Actor
from lightning_rl.models import FullyConnectedNetwork, Model
from lightning_rl.models.gsde_head import StateDependentHead
from lightning_rl.policies import A2C, PPO, SAC, TD3, TQC, Policy
from lightning_rl.rollouts import RolloutWorker
from tests.envs.classic_control import PENDULUM
from tests.refusals import not_refused

OBS, ACTIONS = spaces.Box(-1.0, 1.0, (3,), np.float32), spaces.Box(-2.0, 2.0, (2,), np.float32)
MEMORY = {"use_lstm": True, "lstm_cell_size": 8}


def gsde_policy(
    kind: type[Policy] = PPO, model: dict[str, Any] | None = None, space: Any = ACTIONS, **keywords: Any
) -> Any:
    exploration = {"type": "gsde", **keywords}
    return kind(OBS, space, model={"fcnet_hiddens": [5], **(model or {})}, exploration=exploration, seed=1)


def spread(policy: Any) -> None:
    """Another σ for every feature and action."""
    with torch.no_grad():
        log_std = policy.model.head.log_std
        log_std.copy_(torch.linspace(-1.5, 0.7, log_std.numel()).view_as(log_std))


def observations(rows: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(rows, 3, generator=torch.Generator().manual_seed(seed)) * 2 - 1


# -- the distribution -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("full_std", [True, False])
@pytest.mark.parametrize("use_expln", [True, False])
def test_variance_and_log_density_are_those_of_the_paper_entry_by_entry(full_std: bool, use_expln: bool) -> None:
    """σⱼ(s)² = Σᵢ zᵢ² σᵢⱼ² + 10⁻⁶; log N(a; μ, σ(s)²), by loops over rows, actions and features."""
    policy = gsde_policy(full_std=full_std, use_expln=use_expln)
    spread(policy)
    obs, head = observations(4), policy.model.head
    outputs, _ = policy.model({"obs_flat": obs})
    z = policy.model.trunk(obs).tolist()
    actions = outputs[:, :2] + torch.tensor([[0.3, -0.2]])
    logp = policy.distribution(outputs).logp(actions)
    for row in range(4):
        expected = 0.0
        for action in range(2):
            variance = 1e-6
            for feature in range(5):
                x = head.log_std[feature, action if full_std else 0].item()
                sigma = 1 + math.log(1 + x) if use_expln and x > 0 else math.exp(x)
                variance += z[row][feature] ** 2 * sigma**2
            mean = sum(head.mean.weight[action, i].item() * z[row][i] for i in range(5)) + head.mean.bias[action].item()
            assert outputs[row, 2 + action].item() == pytest.approx(0.5 * math.log(variance), rel=1e-5)
            distance = actions[row, action].item() - mean
            expected += -0.5 * distance**2 / variance - 0.5 * math.log(2 * math.pi * variance)
        assert logp[row].item() == pytest.approx(expected, rel=1e-4)


def test_the_gradient_of_sigma_is_the_paper_s() -> None:
    """∂ log π / ∂ log σᵢⱼ = ((aⱼ − μⱼ)² / σⱼ(s)² − 1) · zᵢ² σᵢⱼ² / σⱼ(s)² (equation 5, with σ = exp x)."""
    policy = gsde_policy()
    spread(policy)
    obs, head = observations(1), policy.model.head
    outputs, _ = policy.model({"obs_flat": obs})
    policy.distribution(outputs).logp(torch.tensor([[0.4, -0.9]])).sum().backward()
    z, mean, variance = policy.model.trunk(obs)[0], outputs[0, :2], (2 * outputs[0, 2:]).exp()
    distance = (torch.tensor([0.4, -0.9]) - mean).square() / variance - 1
    assert_close(head.log_std.grad, distance * z.square().unsqueeze(1) * head.log_std.exp().square() / variance)


@pytest.mark.parametrize(
    ("kind", "learn_features", "reaches"), [(PPO, None, False), (SAC, None, True), (PPO, True, True)]
)
def test_the_gradient_of_the_deviation_reaches_the_features_with_learn_features_only(
    kind: Any, learn_features: bool | None, reaches: bool
) -> None:
    policy = gsde_policy(kind, learn_features=learn_features)
    policy.model({"obs_flat": observations(3)})[0][:, 2:].sum().backward()
    weight = policy.model.trunk.layers[0].weight
    assert (weight.grad is not None and bool(weight.grad.any())) == reaches
    assert bool(policy.model.head.log_std.grad.all())


def test_gsde_does_not_change_the_mean_actions() -> None:
    plain = PPO(OBS, ACTIONS, model={"fcnet_hiddens": [5]}, seed=1)
    means = [policy.compute_actions(observations(6), explore=False)[0] for policy in (plain, gsde_policy())]
    assert_close(*means)


# -- the noise --------------------------------------------------------------------------------------------------------
def noise(policy: Any, obs: torch.Tensor, steps: int = 1) -> torch.Tensor:
    """What exploring adds to the mean action, `[steps, N, A]`."""
    mean = policy.compute_actions(obs, explore=False)[0]
    return torch.stack([policy.compute_actions(obs)[0] - mean for _ in range(steps)])


def test_noise_stays_for_sample_freq_steps_and_is_another_in_every_environment() -> None:
    drawn = noise(gsde_policy(sample_freq=3), observations(1).expand(4, 3), 7)
    assert_close(drawn[:3], drawn[:1].expand(3, 4, 2))
    assert_close(drawn[3:6], drawn[3:4].expand(3, 4, 2))
    assert all((drawn[before] - drawn[before + 1]).abs().min() > 1e-4 for before in (2, 5))
    assert len(drawn[0, :, 0].unique()) == 4


def test_an_episode_s_start_draws_noise_in_that_environment_only() -> None:
    """Environment 1 begins an episode after the second step, and counts its own steps from there."""
    policy = gsde_policy(sample_freq=3)
    policy.exploration.begin_fragment(Actor(num_envs=2))
    obs = observations(1).expand(2, 3)
    first = noise(policy, obs, 2)
    policy.exploration.on_episode_start([1])
    after = noise(policy, obs, 4)
    assert_close(after[0, 0], first[0, 0])  # its third step
    assert (after[1, 0] - first[0, 0]).abs().min() > 1e-4
    assert (after[0, 1] - first[0, 1]).abs().min() > 1e-4
    assert_close(after[:3, 1], after[:1, 1].expand(3, 2))
    assert (after[3, 1] - after[2, 1]).abs().min() > 1e-4


def test_without_a_frequency_noise_lasts_until_the_episode_ends() -> None:
    policy = gsde_policy(sample_freq=None)
    policy.exploration.begin_fragment(Actor(num_envs=1))
    drawn = noise(policy, observations(1), 30)
    assert_close(drawn, drawn[:1].expand(30, 1, 2))
    policy.exploration.on_episode_start([0])
    assert (noise(policy, observations(1))[0] - drawn[0]).abs().min() > 1e-4


def test_noise_is_a_linear_function_of_the_features() -> None:
    """θ of five steps in five states predicts the noise in a sixth."""
    policy = gsde_policy(sample_freq=None, log_std_init=0.0)
    obs = observations(6)
    added = torch.stack([noise(policy, each.unsqueeze(0))[0, 0] for each in obs])
    z = policy.model.trunk(obs).detach()
    theta = torch.linalg.solve(z[:5], added[:5])
    assert_close(z[5] @ theta, added[5], rtol=1e-3, atol=1e-4)


def test_noise_has_the_deviation_of_its_density() -> None:
    """20,000 matrices in one state: five standard errors of a deviation are 2.5 %."""
    policy = gsde_policy(sample_freq=1)
    spread(policy)
    obs = observations(1).expand(20_000, 3)
    expected = policy.model({"obs_flat": obs[:1]})[0][0, 2:].exp()
    assert_close(noise(policy, obs)[0].std(0), expected, rtol=0.025, atol=0.0)


def test_noise_has_the_deviation_of_a_distribution_that_bounds_it() -> None:
    """A squashed Gaussian's log σ is at most 2; 5,000 matrices in one state, and how many actions lie inside."""
    policy = gsde_policy(sample_freq=1, log_std_init=2.0, model={"custom_action_dist": "SquashedGaussian"})
    obs = observations(1).expand(5000, 3)
    outputs = policy.model({"obs_flat": obs[:1]})[0]
    deviation = policy.distribution(outputs).log_std.exp()[0]
    assert (outputs[0, 2:].exp() > 1.05 * deviation).any()
    actions = policy.compute_actions(obs)[0]
    normal = torch.distributions.Normal(outputs[0, :2], deviation)
    edge = torch.full((2,), 0.99).atanh()
    inside = normal.cdf(edge) - normal.cdf(-edge)
    assert_close((actions.abs() < 0.99).float().mean(0), inside, rtol=0, atol=5 * 0.5 / 5000**0.5)


@pytest.mark.parametrize(("log_std_init", "bound"), [(3.0, 1.0), (-3.0, 0.5)])
def test_bounds_of_the_log_deviation_bound_the_noise_itself(log_std_init: float, bound: float) -> None:
    """With equal matrices the noise is smaller (or larger) by σ clipped / σ."""
    free, bounded = (
        gsde_policy(model={"log_std_clip_param": clip}, log_std_init=log_std_init) for clip in (20.0, bound)
    )
    obs = observations(3)
    outputs = free.model({"obs_flat": obs})[0]
    assert_close(bounded.model({"obs_flat": obs})[0], outputs)
    log_std = outputs[:, 2:]
    assert (log_std.abs() > bound).all()
    expected = noise(free, obs)[0] * (log_std.clamp(-bound, bound) - log_std).exp()
    assert_close(noise(bounded, obs)[0], expected, rtol=1e-3, atol=1e-6)


def test_a_learning_step_changes_the_noise_and_its_density_alike() -> None:
    """The matrix that is kept is of standard normal numbers: twice σ, twice the noise."""
    policy = gsde_policy(sample_freq=None)
    first = noise(policy, observations(1))
    with torch.no_grad():
        policy.model.head.log_std += math.log(2.0)
    assert_close(noise(policy, observations(1)), 2 * first)


def test_evaluation_takes_the_mean_and_uses_no_noise_up() -> None:
    policy = gsde_policy(sample_freq=2)
    obs = observations(2)
    first = noise(policy, obs)  # takes the mean, then explores
    for _ in range(3):
        actions = policy.compute_actions(obs, explore=False)[0]
        assert_close(actions, policy.model({"obs_flat": obs})[0][:, :2])
    assert_close(noise(policy, obs), first)
    assert (noise(policy, obs) - first).abs().min() > 1e-4


def test_random_steps_are_uniform_and_end() -> None:
    policy = gsde_policy(SAC, random_timesteps=10)
    actions, _, extra = policy.compute_actions(observations(500), timestep=9)
    assert actions.abs().mean().item() == pytest.approx(0.5, abs=0.05)
    assert_close(extra["action_logp"], torch.full((500,), -math.log(4)))
    assert policy.compute_actions(observations(500), timestep=10)[0].abs().mean().item() < 0.4


# -- in workers -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("kind", "model"), [(PPO, {}), (A2C, MEMORY), (SAC, {}), (TQC, {})], ids=["ppo", "a2c-lstm", "sac", "tqc"]
)
def test_learning_reads_the_log_probabilities_that_acted(kind: Any, model: dict[str, Any]) -> None:
    policy = kind(*PENDULUM.spaces(), model=model, exploration={"type": "gsde"}, seed=1)
    worker = RolloutWorker(PENDULUM, policy, num_envs=2, fragment_length=20, seed=1)
    worker.sample()
    rows = policy.flatten_fragment(worker.sample())
    logp = policy.distribution_of(rows).logp(rows.actions)
    assert (logp - rows.action_logp).abs().max() < 1e-5  # a forward of 40 rows rounds otherwise than one of 2
    before = policy.model.head.log_std.clone()
    for _ in range(2):
        policy.learn_on_batch(worker.sample())
    assert not torch.equal(policy.model.head.log_std, before)
    worker.stop()


def test_noise_goes_on_from_fragment_to_fragment() -> None:
    """Fragments of one step, as between the gradient steps of SAC: 4 steps in one state share a matrix."""

    def hold(env: Any) -> Any:
        return gym.wrappers.TransformObservation(env, lambda _: np.full(3, 0.5, np.float32), env.observation_space)

    policy = SAC(*PENDULUM.spaces(), exploration={"type": "gsde", "sample_freq": 4}, seed=1)
    worker = RolloutWorker(EnvCreator("Pendulum-v1", wrappers=[hold]), policy, fragment_length=1)
    actions = torch.cat([worker.sample().actions for _ in range(8)])[:, 0]
    assert_close(actions[:4], actions[:1].expand(4, 1))
    assert_close(actions[4:], actions[4:5].expand(4, 1))
    assert (actions[3] - actions[4]).abs().min() > 1e-4


def test_a_copy_of_a_gsde_policy_with_equal_weights_acts_alike() -> None:
    policy = gsde_policy(SAC)
    spread(policy)
    spaces, keywords = policy.constructor_arguments()
    twin = type(policy)(*spaces, **keywords)
    twin.set_weights(policy.get_weights())
    for each in (policy, twin):
        each.seed_exploration(3)
    assert torch.equal(policy.compute_actions(observations(4))[0], twin.compute_actions(observations(4))[0])


# -- what it refuses --------------------------------------------------------------------------------------------------
class Headless(Model):
    """A custom model without the layer that it needs."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self.layer = torch.nn.Linear(3, self.num_outputs)

    def forward(self, input_dict: Any, state: Any = (), seq_lens: Any = None) -> Any:
        return self.layer(input_dict["obs_flat"]), list(state)

    def value_function(self) -> torch.Tensor:
        return torch.zeros(2)


def test_gsde_refuses_spaces_models_and_strategies_that_it_cannot_use() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"space": spaces.Discrete(2)}, r"GSDE.*epsilon_greedy"),
        ({"space": spaces.Tuple([ACTIONS, ACTIONS])}, "MultiActionDistribution"),
        ({"kind": TD3}, r"TD3.*SquashedDeterministic"),
        ({"model": {"custom_action_dist": "Beta"}}, "Beta"),
        ({"model": {"free_log_std": True}}, r"set model\.free_log_std=false"),
        ({"model": {"no_final_linear": True}}, r"leave model\.no_final_linear out"),
        ({"model": {"custom_model": Headless}}, "Headless"),
        ({"sample_freq": 0}, r"exploration\.sample_freq=0; expected at least 1"),
    ]
    refusals = (ConfigError, UnsupportedSpaceError)
    assert not_refused(lambda arguments: gsde_policy(**arguments), cases, refusals) == []


def test_gsde_works_under_intrinsic_rewards() -> None:
    policy = PPO(*PENDULUM.spaces(), exploration={"type": "rnd", "sub_exploration": {"type": "gsde"}}, seed=1)
    assert isinstance(policy.model.head, StateDependentHead) and isinstance(policy.exploration.sub_exploration, GSDE)
    policy.learn_on_batch(RolloutWorker(PENDULUM, policy, num_envs=2, fragment_length=8).sample())


def test_a_custom_model_with_a_head_of_this_package_is_taken() -> None:
    assert isinstance(gsde_policy(model={"custom_model": FullyConnectedNetwork}).model.head, StateDependentHead)
