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

from lightning_rl.models import Model
from lightning_rl.policies import A2C, PPO, Policy
from lightning_rl.rollouts import RolloutWorker
from lightning_rl.runs.algorithm import Algorithm
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
    "compute_actions": lambda policy, worker: policy.compute_actions(obs()),
    "compute_single_action": lambda policy, worker: policy.compute_single_action(obs()[0]),
    "compute_log_likelihoods": lambda policy, worker: policy.compute_log_likelihoods(torch.zeros(8), obs()),
    "values": lambda policy, worker: policy.values(torch.from_numpy(obs()).unsqueeze(0)),
    "sample": lambda policy, worker: worker.sample(),
    "run_episodes": lambda policy, worker: worker.run_episodes(1),
}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("way", WAYS_TO_ACT)
def test_acting_changes_no_statistic_whatever_the_mode_and_keeps_the_mode(way, training):
    policy, worker = policy_and_worker()
    policy.learn_on_batch(worker.sample())
    policy.train(training)
    before = statistics(policy)
    policy.model.modes.clear()
    WAYS_TO_ACT[way](policy, worker)
    assert_close(statistics(policy), before, rtol=0, atol=0)
    assert set(policy.model.modes) == {False} and (policy.training == training or way in ("sample", "run_episodes"))


def test_acting_reads_the_running_statistics():
    """In train mode a row would be normalized by its own batch, and another batch would change its action."""
    policy, worker = policy_and_worker()
    policy.learn_on_batch(worker.sample())
    policy.train()
    alone = policy.compute_log_likelihoods(torch.zeros(1), obs()[:1])
    among = policy.compute_log_likelihoods(torch.zeros(8), obs())
    assert_close(alone, among[:1])


@pytest.mark.parametrize(("policy_class", "keywords"), [(PPO, {"passes": 1, "minibatches": 1}), (A2C, {})])
def test_the_running_mean_is_that_of_the_rows_learned_from(policy_class, keywords):
    """Momentum 0.1 from 0: a tenth of the batch's mean; the value estimates of the rollout do not count."""
    policy, worker = policy_and_worker(policy_class, **keywords)
    fragment = worker.sample()
    policy.learn_on_batch(fragment)
    assert_close(policy.model.norm.running_mean, 0.1 * fragment.obs[:-1][fragment.valid].mean(0))


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
