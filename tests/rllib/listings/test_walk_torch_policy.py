"""A policy with a model: its loss is a function, and its model may have copies for devices."""

from __future__ import annotations

from typing import Any

import numpy as np

from lightning_rl.rllib.agents.dqn.dqn_torch_policy import DQNTorchPolicy, build_q_losses
from lightning_rl.rllib.policy.torch_policy import TorchPolicy
from lightning_rl.sample_batch import to_tensors
from tests.envs.classic_control import CARTPOLE
from tests.rollouts.small_worker import small_worker


class MyPolicy(DQNTorchPolicy):
    loss = build_q_losses  # (policy, model, dist_class, train_batch)

    def compute_actions(self, obs_batch, state_batches=None, **kwargs):
        actions, state_out, info = super().compute_actions(obs_batch, state_batches, **kwargs)
        return actions, state_out, {**info, "asked": np.ones(len(obs_batch))}


def test_its_model_distribution_and_loss_are_attributes() -> None:
    policy: Any = MyPolicy(*CARTPOLE.spaces())
    assert isinstance(policy, TorchPolicy) and policy.model_gpu_towers[0] is policy.model
    outputs, state = policy.model(policy.input_dict(to_tensors(np.zeros((2, 4), np.float32), policy.device)), [], None)
    dist = policy.dist_class(outputs, policy.model)
    assert dist.sample().shape == dist.entropy().shape == (2,) and state == []
    fragment = small_worker(policy).sample()
    assert fragment["asked"].shape == (16, 4)
    rows = policy.postprocess_trajectory(fragment)
    loss, metrics = policy.loss(rows)
    assert loss > 0 and metrics["td_errors"].shape == (rows.count,)
    assert np.isfinite(policy.learn_on_batch(rows)["loss"])
