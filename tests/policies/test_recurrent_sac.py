"""Recurrent SAC: what actor and critics remember, burn-in, priorities, and a task that only memory solves."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor
from torch.testing import assert_close

from lightning_rl.envs import EnvCreator
from lightning_rl.policies import SAC, RecurrentSAC
from lightning_rl.replay.sequences import SequenceReplayBuffer
from lightning_rl.rollouts import RolloutWorker
from lightning_rl.sample_batch import SampleBatch
from tests.policies.off_policy_algorithms import BOX, OBS, TWO, gradients

MEMORY: dict[str, Any] = {"fcnet_hiddens": [8], "use_lstm": True, "lstm_cell_size": 4}
LENS = (5, 3)


def recurrent_policy(action_space: gym.Space[Any] = TWO, **changes: Any) -> Any:
    """With target critics that differ from the critics."""
    policy = RecurrentSAC(OBS, action_space, **{"model": MEMORY, **changes})
    for parameter in policy.target_critic.parameters():
        parameter.data.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(5)))
    return policy


def sequences(discrete: bool = True, **columns: Any) -> SampleBatch:
    """Two sequences of 5 and 3 rows: their first two rows and first row are burn-in, sums of two rewards end with them.

    The second sequence ends with a termination.
    """
    generator = torch.Generator().manual_seed(3)
    obs = [torch.randn(length + 1, 3, generator=generator) for length in LENS]
    state = SampleBatch({name: torch.randn(2, 4, generator=generator) for name in ("0", "1")})
    rows = {
        "obs": torch.cat([part[:-1] for part in obs]),
        "next_obs": torch.cat([part[1:] for part in obs]),
        "actions": torch.arange(8) % 2 if discrete else torch.rand(8, 2, generator=generator) - 0.5,
        "rewards": torch.randn(8, generator=generator),
        "terminated": torch.tensor([False] * 6 + [True] * 2),
        "discounts": torch.tensor([0.81, 0.81, 0.81, 0.81, 0.9, 0.81, 0.81, 0.9]),
        "bootstrap_rows": torch.tensor([1, 2, 3, 4, 4, 6, 7, 7]),
        "burn_in": torch.tensor([True, True, False, False, False, True, False, False]),
        "seq_lens": torch.tensor(LENS),
        "state_in": state,
        "next_state_in": state,
        "weights": torch.tensor([1.0, 0.5]),
    }
    return SampleBatch({**rows, **columns})


def by_hand(policy: Any, batch: SampleBatch) -> tuple[Tensor, Tensor]:
    """The loss of discrete actions (Christodoulou 2019, eq. 10 to 12) and the priorities, one row after the other."""

    def memories(model: Any, observations: Tensor, state: tuple[Tensor, Tensor]) -> list[Tensor]:
        outputs = []
        for row in observations:
            features, _ = model.wrapped({"obs_flat": row[None]})
            _, state = model.rnn(features[None], state)
            outputs.append(state[0][0] if model.head is None else model.head(state[0][0]))
        return outputs

    alpha, start = policy.log_alpha.exp().detach(), 0
    critic_losses, actor_losses, entropies, priorities = [], [], [], []
    for number, length in enumerate(LENS):
        end = start + length
        observations = torch.cat([batch.obs[start:end], batch["next_obs"][end - 1 : end]])
        acted = tuple(batch.state_in[name][number].view(1, 1, 4) for name in ("0", "1"))
        empty = (torch.zeros(1, 1, 4), torch.zeros(1, 1, 4))
        actor = [torch.log_softmax(row[0], 0) for row in memories(policy.model, observations, acted)]
        critic = [policy.critic.networks(row)[:, 0] for row in memories(policy.critic.encoder, observations, empty)]
        target = [
            policy.target_critic.networks(row)[:, 0].detach()
            for row in memories(policy.target_critic.encoder, observations, empty)
        ]
        errors = []
        for row in range(length):
            place = start + row
            if batch["burn_in"][place]:
                continue
            after = int(batch["bootstrap_rows"][place]) - start + 1
            logp = actor[after].detach()
            value = (logp.exp() * (target[after].amin(0) - policy.backup_entropy * alpha * logp)).sum()
            goal = batch.rewards[place] + batch["discounts"][place] * value * (~batch.terminated[place])
            found = critic[row][:, batch.actions[place]]
            critic_losses.append(0.5 * (found - goal).square().sum() * batch["weights"][number])
            errors.append((found - goal).abs().mean().detach())
            logp = actor[row]
            actor_losses.append((logp.exp() * (alpha * logp - critic[row].detach().amin(0))).sum())
            entropies.append(-(logp.exp() * logp).sum().detach())
        size = torch.stack(errors)
        priorities.append(0.9 * size.max() + 0.1 * size.mean())
        start = end
    temperature = policy.log_alpha * (torch.stack(entropies).mean() - policy.target_entropy)
    loss = torch.stack(critic_losses).mean() + torch.stack(actor_losses).mean() + temperature
    return loss, torch.stack(priorities)


@pytest.mark.parametrize("backup_entropy", [True, False])
def test_loss_gradients_and_priorities_are_those_of_a_loop_over_steps(backup_entropy: bool) -> None:
    policy, batch = recurrent_policy(backup_entropy=backup_entropy), sequences()
    found = gradients(policy, batch)
    policy.zero_grad()
    loss, priorities = by_hand(policy, batch)
    loss.backward()
    again, metrics = policy.loss(batch)
    assert_close(again, loss, rtol=1e-5, atol=1e-6)
    assert_close(metrics["td_errors"], priorities, rtol=1e-5, atol=1e-6)
    assert any(name.startswith("critic.encoder.rnn") for name in found)
    for name, parameter in policy.named_parameters():
        if parameter.grad is not None:
            assert_close(found[name], parameter.grad, rtol=1e-4, atol=1e-6, msg=name)


def test_burn_in_rows_change_what_is_remembered_and_are_in_no_loss() -> None:
    policy, batch = recurrent_policy(BOX), sequences(discrete=False)
    plain = gradients(policy, batch)
    nothing = torch.where(batch["burn_in"], torch.nan, batch.rewards)
    assert_close(plain, gradients(policy, sequences(discrete=False, rewards=nothing)), rtol=0, atol=0)
    seen = torch.where(batch["burn_in"].unsqueeze(1), batch.obs + 1.0, batch.obs)
    other = gradients(policy, sequences(discrete=False, obs=seen))
    assert not torch.equal(plain["critic.encoder.rnn.weight_hh_l0"], other["critic.encoder.rnn.weight_hh_l0"])


def test_the_actor_s_loss_changes_only_the_actor() -> None:
    policy, batch = recurrent_policy(BOX), sequences(discrete=False)
    rows, _ = policy.remembered(batch)
    policy.policy_loss(rows, torch.tensor(0.1))[0].backward()
    changed = {name.split(".")[0] for name, parameter in policy.named_parameters() if parameter.grad is not None}
    assert changed == {"model"}


def test_without_memory_it_is_sac() -> None:
    policies = [kind(OBS, BOX, model={"fcnet_hiddens": [8]}, seed=2) for kind in (SAC, RecurrentSAC)]
    batch = sequences(discrete=False)
    batch = SampleBatch({name: batch[name] for name in ("obs", "next_obs", "actions", "rewards", "terminated")})
    batch["discounts"] = torch.full((8,), 0.9)
    first, second = (gradients(policy, batch.copy()) for policy in policies)
    assert_close(first, second, rtol=0, atol=0)


class Recalled(gym.Env[np.ndarray, np.ndarray]):
    """Two steps: a sign is shown, and then nothing; the second action pays by how far it goes to the sign."""

    def __init__(self) -> None:
        self.observation_space, self.action_space = spaces.Box(-1, 1, (1,)), spaces.Box(-1, 1, (1,))
        self.sign, self.t = 0.0, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.sign, self.t = float(self.np_random.choice([-1.0, 1.0])), 0
        return np.array([self.sign], np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.t += 1
        return np.zeros(1, np.float32), float(self.sign * action[0]) * (self.t == 2), self.t == 2, False, {}


def test_what_was_shown_is_remembered() -> None:
    """From random actions; the best actions then go to the sign that was shown, and Q(s, a) is γ at the first step."""
    env = EnvCreator(Recalled)
    settings: dict[str, Any] = {"initial_alpha": 1e-2, "target_entropy": None, "tau": 0.1, "lr": 5e-3, "gamma": 0.5}
    model = {"fcnet_hiddens": [16], "use_lstm": True, "lstm_cell_size": 16}
    policy = RecurrentSAC(*env.spaces(), model=model, exploration={"type": "random"}, seed=1, **settings)
    worker = RolloutWorker(env, policy, num_envs=8, fragment_length=32, vectorization="sync", seed=1)
    buffer = SequenceReplayBuffer(10_000, burn_in=0, length=2, gamma=0.5)
    generator = np.random.default_rng(1)
    for _ in range(40):
        buffer.add(policy.learner.take_experience(worker.sample()))
        for _ in range(8):
            policy.learn_on_batch(buffer.sample(32, generator))
    shown = torch.tensor([[-1.0], [1.0]])
    _, state, _ = policy.compute_actions(shown, explore=False)
    actions = policy.compute_actions(torch.zeros(2, 1), state, explore=False)[0]
    np.testing.assert_allclose(actions, shown, atol=0.25)
