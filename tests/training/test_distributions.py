"""PPO with each continuous distribution finds the best actions of a one-step task."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from lightning_rl.envs import EnvCreator
from lightning_rl.policies import PPO
from lightning_rl.rollouts import RolloutWorker
from tests.training import probes


class MatchedShares(probes.ObservedReward):
    """One step; shares cost their squared distance from (.7, .2, .1) or, at the other sign, (.1, .1, .8)."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = gym.spaces.Box(0.0, 1.0, (3,), np.float32)

    def reward(self, action: Any) -> float:
        best = np.array([0.7, 0.2, 0.1]) if self.obs[0] > 0 else np.array([0.1, 0.1, 0.8])
        return -float(((action - best) ** 2).sum())


class Agreement(probes.ObservedReward):
    """One step; three sides for each of two dice: pays 1 if they agree, at the other sign if the second is one on."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = gym.spaces.MultiDiscrete([3, 3])

    def reward(self, action: Any) -> float:
        return float((action[0] + (self.obs[0] < 0)) % 3 == action[1])


def train(
    probe: type[probes.Probe], dist: str, lr: float, iterations: int, seed: int = 1, **keywords: Any
) -> tuple[PPO, float]:
    """A policy that has learned; also the largest |first KL| of an iteration."""
    env, model = EnvCreator(probe), {"fcnet_hiddens": [32], "custom_action_dist": dist}
    settings = {"gamma": 0.5, "lr": lr, "passes": 4, "minibatches": 2, "model": model, "seed": seed, **keywords}
    policy = PPO(*env.spaces(), **settings)
    return policy, max(abs(metrics["first_kl"]) for metrics in probes.learn_by_hand(policy, env, iterations, seed))


@pytest.mark.parametrize(
    ("dist", "lr"),  # a Gaussian narrows too soon at the larger rate, and its samples beyond the bounds do not teach
    [
        ("SquashedGaussian", 2e-3),
        ("Beta", 5e-3),
        *(pytest.param(dist, 1e-3, marks=pytest.mark.every) for dist in ("DiagGaussian", "SquashedGaussian", "Beta")),
    ],
)
def test_bounded_actions_land_where_they_pay(dist: str, lr: float) -> None:
    """The best actions are 0 and 4 in [−2, 6]; the first importance ratio of every iteration is 1."""
    policy, first_kl = train(probes.MatchedBox, dist, lr, iterations=60)
    np.testing.assert_allclose(probes.best_actions(policy), [0.0, 4.0], atol=0.5)
    assert first_kl < 1e-6


@pytest.mark.parametrize("dist", ["SquashedGaussian", "Beta"])
def test_a_large_entropy_bonus_makes_bounded_actions_uniform(dist: str) -> None:
    """The most that [−1, 1] allows is log 2; a Gaussian's own entropy would grow without end, at the bounds."""
    policy, _ = train(probes.MatchedBox, dist, 5e-3, iterations=20, entropy_coef=5.0)
    assert policy.iteration_metrics["entropy"] == pytest.approx(np.log(2), abs=0.05)


@pytest.mark.every
def test_shares_become_the_best_shares() -> None:
    policy, first_kl = train(MatchedShares, "Dirichlet", 2e-3, iterations=70)
    np.testing.assert_allclose(probes.best_actions(policy), [[0.1, 0.1, 0.8], [0.7, 0.2, 0.1]], atol=0.05)
    assert first_kl < 1e-6


def test_an_autoregressive_policy_stays_open_in_the_first_part_and_follows_it_in_the_second() -> None:
    """With an entropy bonus, log 3 = 1.10 of entropy comes for free: independent dice must give it up to agree."""
    policy, first_kl = train(Agreement, "Autoregressive", 5e-3, iterations=40, seed=2, entropy_coef=0.3)
    worker = RolloutWorker(EnvCreator(Agreement), policy, num_envs=8, fragment_length=50, vectorization="sync", seed=2)
    fragment = worker.sample()
    assert float(fragment.rewards[fragment.valid].mean()) > 0.85
    assert policy.iteration_metrics["entropy"] > 0.85
    assert first_kl < 1e-6
