"""Batch norm in custom models: gradient steps update its statistics, acting and evaluation only read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.testing import assert_close

from lightning_rl.algorithm import Algorithm
from lightning_rl.envs import EnvCreator
from lightning_rl.models import Model
from lightning_rl.policies import A2C, PPO, Policy
from lightning_rl.rollouts import RolloutWorker
from tests.envs.classic_control import CARTPOLE

OBS, ACTION = spaces.Box(-1, 1, (4,)), spaces.Discrete(2)


class Normed(Model):
    """Batch norm of the observation and of a hidden layer; records `is_training` of its inputs."""

    def __init__(self, obs_space, action_space, num_outputs):
        super().__init__(obs_space, action_space, num_outputs)
        self.norm = nn.BatchNorm1d(self.preprocessor.size)
        self.body = nn.Sequential(nn.Linear(self.preprocessor.size, 16), nn.BatchNorm1d(16), nn.Tanh())
        self.head, self.value = nn.Linear(16, num_outputs), nn.Linear(16, 1)
        self.modes: list[bool] = []

    def forward(self, input_dict, state=(), seq_lens=None):
        self.modes.append(input_dict["is_training"])
        self.features = self.body(self.norm(input_dict["obs_flat"]))
        return self.head(self.features), list(state)

    def value_function(self):
        return self.value(self.features).squeeze(1)


def policy_and_worker(policy_class: type[Policy] = PPO, **keywords: Any) -> tuple[Policy, RolloutWorker]:
    policy = policy_class(*CARTPOLE.spaces(), model={"custom_model": Normed}, seed=1, **keywords)
    return policy, RolloutWorker(CARTPOLE, policy, num_envs=4, fragment_length=16, vectorization="sync", seed=1)


def statistics(policy: Any) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in policy.model.named_buffers() if "running" in name or "num_" in name}


def obs(count: int = 8) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(count, 4)).astype(np.float32)


WAYS_TO_ACT = {
    "compute_actions": lambda policy: policy.compute_actions(obs()),
    "compute_single_action": lambda policy: policy.compute_single_action(obs()[0]),
    "compute_log_likelihoods": lambda policy: policy.compute_log_likelihoods(torch.zeros(8), obs()),
    "values": lambda policy: policy.values(torch.from_numpy(obs()).unsqueeze(0)),
}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("act", WAYS_TO_ACT.values(), ids=WAYS_TO_ACT)
def test_acting_changes_no_statistic_whatever_the_mode_and_keeps_the_mode(act, training):
    policy, worker = policy_and_worker()
    policy.learn_on_batch(worker.sample())
    policy.train(training)
    before = statistics(policy)
    policy.model.modes.clear()
    act(policy)
    assert_close(statistics(policy), before, rtol=0, atol=0)
    assert policy.training == training and policy.model.modes == [False]


@pytest.mark.parametrize("collect", [RolloutWorker.sample, lambda worker: worker.run_episodes(1)])
def test_collecting_changes_no_statistic_after_learning(collect):
    policy, worker = policy_and_worker()
    policy.learn_on_batch(worker.sample())
    assert policy.training
    before = statistics(policy)
    policy.model.modes.clear()
    collect(worker)
    assert_close(statistics(policy), before, rtol=0, atol=0)
    assert policy.model.modes and not any(policy.model.modes)


def test_acting_reads_the_running_statistics():
    """In train mode a row would be normalised by its own batch, and another batch would change its action."""
    policy, worker = policy_and_worker()
    policy.learn_on_batch(worker.sample())
    policy.train()
    alone = policy.compute_log_likelihoods(torch.zeros(1), obs()[:1])
    among = policy.compute_log_likelihoods(torch.zeros(8), obs())
    assert_close(alone, among[:1])


@pytest.mark.parametrize(("policy_class", "steps"), [(PPO, 3 * 2), (A2C, 1)])
def test_statistics_learn_from_each_gradient_step_once(policy_class, steps):
    """The value estimates of the rollout are another forward, which must not count."""
    policy, worker = policy_and_worker(policy_class, **({"passes": 3, "minibatches": 2} if policy_class is PPO else {}))
    policy.learn_on_batch(worker.sample())
    assert policy.gradient_steps == steps == int(policy.model.norm.num_batches_tracked)


def test_the_running_mean_is_that_of_the_rows_learned_from():
    """Momentum 0.1 from 0: a tenth of the batch's mean."""
    policy, worker = policy_and_worker(passes=1, minibatches=1)
    fragment = worker.sample()
    policy.learn_on_batch(fragment)
    assert_close(policy.model.norm.running_mean, 0.1 * fragment.obs[:-1][fragment.valid].mean(0))


def test_statistics_travel_with_the_weights():
    policy, worker = policy_and_worker()
    policy.learn_on_batch(worker.sample())
    twin, _ = policy_and_worker()
    twin.set_weights(policy.get_weights())
    assert_close(statistics(twin), statistics(policy), rtol=0, atol=0)
    assert_close(statistics(policy.copy_for_acting()), statistics(policy), rtol=0, atol=0)


def test_batch_norm_is_learned_synced_unchanged_by_evaluation_and_saved_in_a_run(tmp_path: Path):
    overrides = [f"run_dir={tmp_path}", "workers.envs_per_worker=2", "evaluation.episodes=2"]
    config = {"model": {"custom_model": f"{__name__}:Normed"}}
    algorithm = Algorithm("ppo", "cartpole", overrides=overrides, config={"policy": config})
    for _ in range(2):
        algorithm.train()
    learned = statistics(algorithm.policy)
    steps = int(learned["norm.num_batches_tracked"])
    assert steps == algorithm.policy.gradient_steps > 0 and learned["norm.running_mean"].abs().sum() > 0

    algorithm.evaluate()
    algorithm.compute_single_action(obs()[0])
    assert_close(statistics(algorithm.policy), learned, rtol=0, atol=0)
    assert_close(statistics(algorithm.datamodule.evaluation_workers.policy), learned, rtol=0, atol=0)

    path = algorithm.save()
    loaded, restored = Policy.load(str(path)), Algorithm.restore(path)
    for policy in (loaded, restored.policy):
        assert_close(statistics(policy), learned, rtol=0, atol=0)
        ours, _, _ = algorithm.policy.compute_actions(obs(), explore=False)
        assert torch.equal(policy.compute_actions(obs(), explore=False)[0], ours)
    restored.train()
    assert int(restored.policy.model.norm.num_batches_tracked) == restored.policy.gradient_steps > steps
    algorithm.stop()
    restored.stop()


def test_normalised_observations_of_any_scale_are_learned_from():
    """One step, the action must match the sign of an observation that is 1000 ± 1."""
    from tests.training.probes import MatchedReward

    class FarAway(MatchedReward):
        def __init__(self) -> None:
            super().__init__()
            self.observation_space = spaces.Box(-2000, 2000, (1,))

        def observe(self) -> np.ndarray:
            return super().observe() + 1000.0

        def reward(self, action: Any) -> float:
            return 1.0 if (action == 1) == (self.obs[0] > 1000) else -1.0

    env = EnvCreator(FarAway)
    policy = PPO(*env.spaces(), model={"custom_model": Normed}, lr=5e-3, passes=4, minibatches=2, gamma=0.5, seed=1)
    worker = RolloutWorker(env, policy, num_envs=8, fragment_length=32, vectorization="sync", seed=1)
    for _ in range(30):
        policy.learn_on_batch(worker.sample())
    chosen = [policy.compute_single_action(np.array([1000.0 + sign], np.float32)) for sign in (-1, 1)]
    assert chosen == [0, 1]
