"""Learning the probes from gradients of other copies, and from returns of perturbed policies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from lightning_rl.data.population_source import evaluate_perturbations
from lightning_rl.envs import EnvCreator
from lightning_rl.learning.gradients import GradientUpdates
from lightning_rl.policies import A3C, ARS, ES, Policy
from lightning_rl.policies.evolution import EvolutionStrategy
from lightning_rl.rollouts import RolloutWorker
from tests.training import probes

KINDS: dict[str, tuple[type[EvolutionStrategy], dict[str, Any]]] = {
    "es": (ES, {"lr": 0.05, "sigma": 0.2, "weight_decay": 0.0}),
    "ars": (ARS, {"lr": 0.1, "sigma": 0.2, "top_directions": 4}),
}


def train_by_gradients(probe: type[probes.Probe], rounds: int) -> Policy:
    """Three workers with copies of the policy; each steps the learner once a round, then gets its weights."""
    env = EnvCreator(probe)
    how: dict[str, Any] = {"model": {"fcnet_hiddens": [32]}, "lr": 5e-3, "gamma": 0.5}
    how |= {"reward_filter": "none", "max_grad_norm": None}
    learner = A3C(*env.spaces(), seed=1, **how)
    workers = [
        RolloutWorker(env, learner.copy_for_acting(), num_envs=4, fragment_length=16, worker_index=index, seed=1)
        for index in range(3)
    ]
    for _ in range(rounds):
        # Computed before any of them steps: the third is two gradient steps old when it is its turn.
        contributions = [worker.contribute() for worker in workers]
        for worker, contribution in zip(workers, contributions, strict=True):
            learner.learner.update(GradientUpdates([(worker.worker_index, contribution, True)]))
            worker.set_weights(learner.get_weights())
    return learner


def train_by_returns(name: str, probe: type[probes.Probe], iterations: int) -> Policy:
    """Eight directions an iteration, each with the mean return of sixteen episodes of one step."""
    kind, keywords = KINDS[name]
    env = EnvCreator(probe)
    policy = kind(*env.spaces(), model={"fcnet_hiddens": []}, observation_filter="none", seed=1, **keywords)
    how: dict[str, Any] = {"fragment_length": 1, "batch_mode": "complete_episodes", "vectorization": "sync"}
    worker = RolloutWorker(env, policy, num_envs=16, explore=False, seed=1, **how)
    for iteration in range(iterations):
        policy.learn_on_batch(evaluate_perturbations(worker, seeds=range(8 * iteration, 8 * iteration + 8)).torch())
    return policy


def test_old_gradients_of_other_copies_learn_the_action_that_pays() -> None:
    assert probes.best_actions(train_by_gradients(probes.MatchedReward, rounds=25)).tolist() == [0, 1]


@pytest.mark.every
def test_a3c_learns_the_known_values_from_old_gradients_of_copies() -> None:
    """V(0) = 1 + ½ + ¼ + ⅛ + 1/16, V(4) = 1."""
    policy = train_by_gradients(probes.Terminating, rounds=100)
    found = policy.values(torch.tensor([0.0, 4.0]).view(1, -1, 1))[0].tolist()
    np.testing.assert_allclose(found, [1.9375, 1.0], atol=0.12)


@pytest.mark.parametrize("name", KINDS)
def test_es_and_ars_learn_the_action_that_matches_the_observation(name: str) -> None:
    assert probes.best_actions(train_by_returns(name, probes.MatchedReward, iterations=30)).tolist() == [0, 1]


@pytest.mark.every
@pytest.mark.parametrize("name", KINDS)
def test_returns_alone_move_a_continuous_action_to_where_it_pays(name: str) -> None:
    """The best actions are 0 and 4 in an action space of [−2, 6]."""
    best = probes.best_actions(train_by_returns(name, probes.MatchedBox, iterations=60))
    np.testing.assert_allclose(best, [0.0, 4.0], atol=0.6)
