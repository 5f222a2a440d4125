"""On-policy algorithms learn the known values of the probes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from lightning_rl.envs import EnvCreator
from lightning_rl.policies import A2C, APPO, IMPALA, PG, PPO, Policy
from tests.families import each
from tests.training import probes

RAW = {"lr": 5e-3, "reward_filter": "none"}  # the known values are those of raw rewards
CRITICS = {
    "ppo": (PPO, {**RAW, "passes": 4, "minibatches": 2}),
    "a2c": (A2C, {**RAW, "optimizer": "adam"}),
    "impala": (IMPALA, {**RAW, "max_grad_norm": None}),
    "appo": (APPO, {**RAW, "passes": 2, "minibatches": 2, "target_update_interval": 4}),
}
ACTORS = {**CRITICS, "pg": (PG, {"lr": 1e-2})}


def train(name: str, probe: type[probes.Probe], iterations: int, **changes: Any) -> Policy:
    policy_class, keywords = ACTORS[name]
    env = EnvCreator(probe)
    settings = {**keywords, "gamma": 0.5, "model": {"fcnet_hiddens": [32]}, "seed": 1, **changes}
    policy = policy_class(*env.spaces(), **settings)
    probes.learn_by_hand(policy, env, iterations)
    return policy


def values(policy: Policy, *observations: float) -> list[float]:
    obs = torch.tensor(observations).view(1, -1, 1)
    return policy.values(obs)[0].tolist()


@pytest.mark.parametrize("name", each(CRITICS, default=["ppo"]))  # test_impala.py has values of IMPALA
@pytest.mark.parametrize(
    ("probe", "known"),
    [
        (probes.ConstantReward, {0.0: 1.0}),
        (probes.ObservedReward, {-1.0: -1.0, 1.0: 1.0}),
        (probes.DelayedReward, {0.0: 0.5, 1.0: 1.0}),  # γ = ½
        (probes.TimeLimited, {0.0: 2.0}),  # 1 / (1 − ½)
        (probes.Terminating, {0.0: 1.9375, 4.0: 1.0}),  # 1 + ½ + ¼ + ⅛ + 1/16, and the last step alone
    ],
)
def test_on_policy_algorithms_learn_known_values(
    name: str, probe: type[probes.Probe], known: dict[float, float]
) -> None:
    policy = train(name, probe, iterations=40 if "passes" in CRITICS[name][1] else 120)
    np.testing.assert_allclose(values(policy, *known), list(known.values()), atol=0.12)


@pytest.mark.parametrize("name", ACTORS)
def test_the_paying_action_is_learned(name: str) -> None:
    policy = train(name, probes.ChosenReward, iterations=40)
    assert policy.compute_single_action(np.zeros(1, np.float32)) == 1
    logp = policy.compute_log_likelihoods(torch.tensor([1]), np.zeros((1, 1), np.float32))
    assert logp.exp().item() > 0.9


@pytest.mark.parametrize("name", each(ACTORS))
def test_the_action_that_matches_the_observation_is_learned(name: str) -> None:
    assert probes.best_actions(train(name, probes.MatchedReward, iterations=40)).tolist() == [0, 1]


@pytest.mark.parametrize("name", each(ACTORS, default=["ppo"]))
def test_a_continuous_action_lands_where_it_pays(name: str) -> None:
    """The best actions are 0 and 4 in an action space of [−2, 6]."""
    # A Gaussian that narrows too soon stops short of the best action; a deviation that is a single parameter narrows
    # at the pace of its learning rate.
    changes = {"lr": 2e-3, "reward_filter": "return_std"} if name == "ppo" else {}
    iterations = 60 if changes else 300 if ACTORS[name][0].free_log_std else 100
    policy = train(name, probes.MatchedBox, iterations, **changes)
    np.testing.assert_allclose(probes.best_actions(policy), [0.0, 4.0], atol=0.6)
