"""Off-policy algorithms learn the known values of the probes from random actions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from lightning_rl.envs import EnvCreator
from lightning_rl.fast_torch import in_eval_mode
from lightning_rl.policies import DDPG, DQN, SAC, TD3, TQC, Policy, SimpleQ
from lightning_rl.replay import ReplayBuffer
from lightning_rl.rollouts import RolloutWorker
from lightning_rl.sample_batch import SampleBatch
from tests.families import each
from tests.training import probes

SOFT = {"initial_alpha": 1e-2, "target_entropy": None, "tau": 0.1}
DISCRETE: dict[str, tuple[type[Policy], dict[str, Any]]] = {
    "simple_q": (SimpleQ, {"target_update_interval": 8}),
    "dqn": (DQN, {"target_update_interval": 8, "dueling": True}),
    "dqn, 3 steps": (DQN, {"target_update_interval": 8}),
    "c51": (DQN, {"target_update_interval": 8, "num_atoms": 31, "v_min": -3.0, "v_max": 3.0}),
    "quantiles": (DQN, {"target_update_interval": 8, "num_quantiles": 5}),
    "sac, discrete": (SAC, SOFT),
}
CONTINUOUS: dict[str, tuple[type[Policy], dict[str, Any]]] = {
    "sac": (SAC, SOFT),
    "tqc": (TQC, {**SOFT, "num_quantiles": 5, "dropped_quantiles": 1}),
    "td3": (TD3, {"tau": 0.1}),
    "ddpg": (DDPG, {"tau": 0.1}),
}


def train_on_replay(name: str, probe: type[probes.Probe], iterations: int, gamma: float = 0.5) -> Policy:
    """Act at random, store, take eight gradient steps of 64 rows; repeat."""
    policy_class, keywords = {**DISCRETE, **CONTINUOUS}[name]
    env = EnvCreator(probe)
    settings = {"model": {"fcnet_hiddens": [32]}, "exploration": {"type": "random"}, "lr": 5e-3, **keywords}
    policy = policy_class(*env.spaces(), gamma=gamma, seed=1, **settings)
    worker = RolloutWorker(env, policy, num_envs=8, fragment_length=16, vectorization="sync", seed=1)
    buffer = ReplayBuffer(10_000, n_step=3 if name == "dqn, 3 steps" else 1, gamma=gamma)
    generator = np.random.default_rng(1)
    for _ in range(iterations):
        buffer.add(policy.learner.take_experience(worker.sample()))
        for _ in range(8):
            policy.learn_on_batch(buffer.sample(64, generator))
    return policy


def best_values(policy: Any, observations: list[float]) -> np.ndarray:
    """Q of the best action."""
    obs = np.array(observations, np.float32).reshape(-1, 1)
    rows = SampleBatch(obs=torch.from_numpy(obs))
    with torch.no_grad(), in_eval_mode(policy):
        if isinstance(policy, SimpleQ):
            return policy.q_values(policy.model, rows)[0].amax(1).numpy()
        inputs, actions = policy.inputs_of(rows), policy.compute_actions(obs, explore=False)[0]
        if getattr(policy, "discrete", False):
            return policy.critic(inputs).amin(0).amax(1).numpy()
        q_values = policy.critic(inputs, actions.flatten(1))
        return (q_values.mean(2) if isinstance(policy, TQC) else q_values).mean(0).numpy()


VALUES: list[tuple[type[probes.Probe], dict[float, float]]] = [
    (probes.TimeLimited, {0.0: 2.0}),  # 1 / (1 − ½): γ = ½
    (probes.Terminating, {0.0: 1.9375, 4.0: 1.0}),  # 1 + ½ + ¼ + ⅛ + 1/16, and the last step alone
]


@pytest.mark.parametrize("name", each(name for name in DISCRETE if name != "c51"))  # whose atoms would take much longer
@pytest.mark.parametrize(("probe", "known"), VALUES)
def test_off_policy_algorithms_learn_known_values(
    name: str, probe: type[probes.Probe], known: dict[float, float]
) -> None:
    found = best_values(train_on_replay(name, probe, iterations=30), list(known))
    np.testing.assert_allclose(found, list(known.values()), atol=0.15)


@pytest.mark.parametrize("name", each(DISCRETE))
def test_the_action_that_matches_the_observation_is_learned(name: str) -> None:
    policy = train_on_replay(name, probes.MatchedReward, iterations=20)
    assert probes.best_actions(policy).tolist() == [0, 1]
    np.testing.assert_allclose(best_values(policy, [-1.0, 1.0]), [1.0, 1.0], atol=0.15)


class PulledBox(probes.MatchedBox):
    """One step, an action in [−2, 6] pays by how far it goes in the direction of the sign shown."""

    def reward(self, action: Any) -> float:
        return float(self.obs[0] * (action[0] - 2.0) / 4.0)


class DelayedBox(probes.DelayedReward):
    """As `DelayedReward`, with an action in [−2, 6] that changes nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = probes.MatchedBox().action_space


@pytest.mark.parametrize("name", each(CONTINUOUS))
def test_continuous_actions_go_where_they_pay(name: str) -> None:
    best = probes.best_actions(train_on_replay(name, PulledBox, iterations=30))
    np.testing.assert_allclose(best, [-2.0, 6.0], atol=0.5)


@pytest.mark.parametrize("name", each(CONTINUOUS))
def test_values_of_continuous_actions_are_discounted_and_end(name: str) -> None:
    """γ = ½: V(first) = ½, V(second) = 1."""
    found = best_values(train_on_replay(name, DelayedBox, iterations=20), [0.0, 1.0])
    np.testing.assert_allclose(found, [0.5, 1.0], atol=0.15)
