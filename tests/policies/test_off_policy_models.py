"""Off-policy algorithms with models that have batch norm, dropout, noise, or read the previous step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.testing import assert_close

from lightning_rl.models import Model
from lightning_rl.models.noisy import resample_noise
from lightning_rl.policies import DQN, Rainbow
from lightning_rl.rollouts import RolloutWorker
from lightning_rl.sample_batch import SampleBatch
from tests.envs.classic_control import CARTPOLE
from tests.policies.off_policy_algorithms import CRITICS, NORMED, OBS, SMALL, TWO, Draws, small_policy, transitions


# -- modes of target networks -----------------------------------------------------------------------------------------
@torch.no_grad()
def targets(policy: Any, batch: SampleBatch, name: str) -> Tensor:
    """The target networks' values of the next observations."""
    if name == "dqn, plain":
        return policy.targets(batch)
    if name == "td3":
        return policy.bootstrap_values(batch)
    return policy.target_critic(policy.inputs_of(batch, following=True), batch.actions)


@pytest.mark.parametrize("name", ["dqn, plain", "td3", "sac"])
def test_targets_of_networks_with_batch_norm_depend_on_each_row_alone(name: str) -> None:
    """Neither the other rows nor acting change a row's target; learning does not change the target's statistics."""
    policy = small_policy(name, **NORMED, **({"target_noise": 0.0} if name == "td3" else {}))
    batch, critics = transitions(name, count=8), name in CRITICS
    target = policy.target_critic.encoder if critics else policy.target_model
    online = policy.critic.encoder if critics else policy.model
    policy.train()
    found = targets(policy, batch, name)
    policy.compute_single_action(np.zeros(3, np.float32))
    assert policy.training and not any(module.training for module in target.modules())
    assert_close(targets(policy, batch, name), found, rtol=0, atol=0)
    assert_close(targets(policy, batch[:2], name), found[..., :2])
    before, own = ([buffer.clone() for buffer in network.buffers()] for network in (target, online))
    policy.after_step = lambda: None  # the target would get the network's statistics with its weights
    policy.training_step(Draws([(batch, 1)]))
    assert all(map(torch.equal, before, target.buffers())) and not all(map(torch.equal, own, online.buffers()))


def test_dropout_and_noise_of_target_networks_are_active_in_train_mode_only() -> None:
    """DroQ's target critics have dropout, and Rainbow's target network has its own noise."""
    policy, batch = small_policy("sac", critic_dropout=0.5), transitions("sac")
    rainbow: Any = Rainbow(OBS, TWO, num_atoms=5, **SMALL)
    for mode in (True, False):
        policy.train(mode)
        dropped = [policy.target_critic(policy.input_dict(batch.obs), batch.actions) for _ in range(2)]
        assert torch.equal(*dropped) != mode
        rainbow.train(mode)
        noisy = []
        for _ in range(2):
            resample_noise(rainbow.target_model)
            noisy.append(rainbow.q_values(rainbow.target_model, transitions())[0])
        assert torch.equal(*noisy) != mode


# -- previous steps ---------------------------------------------------------------------------------------------------
class ReadsBefore(Model):
    """Its outputs depend on the previous action and reward only."""

    prev_actions = prev_rewards = 1

    def __init__(self, obs_space: Any, action_space: Any, num_outputs: int, **keywords: Any) -> None:
        super().__init__(obs_space, action_space, num_outputs, **keywords)
        self.layer = nn.Linear(3 if isinstance(action_space, spaces.Box) else 2, num_outputs)

    def forward(self, input_dict: Any, state: Any = (), seq_lens: Any = None) -> tuple[Tensor, list[Tensor]]:
        actions, rewards = input_dict["prev_actions"], input_dict["prev_rewards"]
        if rewards is None:  # in the forward that checks a custom model
            return self.layer(torch.zeros(len(input_dict["obs"]), self.layer.in_features)), []
        return self.layer(torch.cat([actions.float().view(len(rewards), -1), rewards.unsqueeze(1)], 1)), []


@pytest.mark.parametrize("name", ["dqn, plain", "sac", "td3", "tqc"])
def test_off_policy_models_read_the_previous_step_of_the_row_and_of_the_next_observation(name: str) -> None:
    policy = small_policy(name, model={"custom_model": ReadsBefore})
    batch = transitions(name)
    for column, value in {"prev_actions": batch.actions, "prev_rewards": torch.arange(6.0)}.items():
        batch[column], batch[f"next_{column}"] = value, value
    found = outputs_and_targets(policy, batch, name)
    for column in ("prev_rewards", "next_prev_rewards", "prev_actions", "next_prev_actions"):
        other = batch.copy()
        other[column] = batch[column] + 1
        assert not torch.equal(outputs_and_targets(policy, other, name), found), column


def test_rows_of_a_fragment_have_the_previous_step_of_the_next_observation() -> None:
    """An action is the previous one of what it led to; so is its reward."""
    policy = DQN(*CARTPOLE.spaces(), model={"custom_model": ReadsBefore})
    fragment = RolloutWorker(CARTPOLE, policy, num_envs=2, fragment_length=30, seed=1).sample()
    rows = policy.postprocess_trajectory(fragment)
    assert torch.equal(rows["next_prev_actions"], rows.actions)
    assert torch.equal(rows["next_prev_rewards"], rows.rewards)
    assert "next_prev_actions" not in fragment


@torch.no_grad()
def outputs_and_targets(policy: Any, batch: SampleBatch, name: str) -> Tensor:
    """The model's outputs and the targets of the rows."""
    torch.manual_seed(0)
    if name == "dqn, plain":
        return torch.cat([policy.q_values(policy.model, batch)[0].flatten(), policy.targets(batch)])
    if name == "td3":
        own, following = policy.actor_actions(policy.model, policy.inputs_of(batch)), policy.bootstrap_values(batch)
        return torch.cat([own.flatten(), following])
    own = policy.inputs_and_distribution(batch)[1].deterministic_sample()
    return torch.cat([own.flatten(), policy.targets(batch, torch.tensor(0.1)).flatten()])
