"""Initial priorities that workers compute: the TD errors of learning, computed here row by row."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from lightning_rl.data.apex_hooks import InitialPriorities, initial_priorities
from lightning_rl.errors import ConfigError
from lightning_rl.policies import DQN, SAC, SimpleQ
from lightning_rl.policies.apex import ApexDQN
from lightning_rl.replay.buffer import ReplayBuffer
from lightning_rl.rollouts import RolloutWorker
from lightning_rl.sample_batch import SampleBatch
from tests.envs.classic_control import CARTPOLE, PENDULUM

SMALL: dict[str, Any] = {"model": {"fcnet_hiddens": [16]}, "gamma": 0.9, "seed": 3}


def policy_with_errors(**keywords: Any) -> ApexDQN:
    """A policy whose target network is another one than its own."""
    policy = ApexDQN(*CARTPOLE.spaces(), **{**SMALL, "exploration": {"type": "random"}, **keywords})
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(5)
        for parameter in policy.target_model.parameters():
            parameter += torch.randn_like(parameter) / 4
    return policy


def collect(policy: Any, length: int = 60, **options: Any) -> SampleBatch:
    return RolloutWorker(CARTPOLE, policy, num_envs=3, fragment_length=length, seed=2, **options).sample()


@torch.no_grad()
def by_hand(policy: DQN, fragment: SampleBatch, n_step: int) -> torch.Tensor:
    """|Q(s, a) − (Σ γⁱ rᵢ + γᵐ Q_target(s⁽ᵐ⁾, argmax Q(s⁽ᵐ⁾, ·)))| with m ≤ n rows up to an end or the last one."""

    def values(model: Any, obs: torch.Tensor) -> torch.Tensor:
        return model(policy.input_dict(obs[None]), [], None)[0][0]

    steps, environments = fragment.valid.shape
    found = torch.zeros(steps, environments)
    for env in range(environments):
        for start in range(steps):
            if not fragment.valid[start, env]:
                continue
            total, discount = 0.0, 1.0
            for last in range(start, min(start + n_step, steps)):
                total += discount * float(fragment.rewards[last, env])
                discount *= policy.gamma
                if fragment.terminated[last, env] or fragment.truncated[last, env]:
                    break
            after = fragment.obs[last + 1, env]
            if not fragment.terminated[last, env]:
                best = values(policy.model, after).argmax()
                total += discount * float(values(policy.target_model, after)[best])
            value = values(policy.model, fragment.obs[start, env])[fragment.actions[start, env]]
            found[start, env] = abs(float(value) - total)
    return found


@pytest.mark.parametrize("n_step", [1, 3])
def test_initial_priorities_are_the_td_errors_of_the_rows_that_a_buffer_would_draw(n_step: int) -> None:
    policy = policy_with_errors()
    fragment = collect(policy, callbacks=[InitialPriorities(n_step)])
    assert fragment.terminated.any() and not fragment.valid.all()
    expected = by_hand(policy, fragment, n_step)
    assert expected.std() > 0.1  # rows differ, so a mix-up shows
    assert_close(fragment["priorities"], expected, atol=1e-4, rtol=1e-4)


def test_rewards_are_clipped_before_initial_priorities_are_computed() -> None:
    policy = policy_with_errors(reward_filter="sign")
    fragment = collect(policy)
    fragment["rewards"] = fragment.rewards * 7.0
    InitialPriorities(3).on_sample_end(worker=SimpleNamespace(policy=policy), samples=fragment)
    assert set(fragment.rewards[fragment.valid].tolist()) == {1.0}
    assert_close(fragment["priorities"], by_hand(policy, fragment, 3), atol=1e-4, rtol=1e-4)


def test_hooks_of_a_user_run_before_initial_priorities_are_computed() -> None:
    """It doubles the rewards; the errors are those of doubled rewards."""

    def double(*, worker: Any, samples: SampleBatch) -> None:
        samples["rewards"] = samples.rewards * 2.0

    policy = policy_with_errors()
    fragment = collect(policy, callbacks=[SimpleNamespace(on_sample_end=double), InitialPriorities(3)])
    assert fragment.rewards.max() == 2.0
    assert_close(fragment["priorities"], by_hand(policy, fragment, 3), atol=1e-4, rtol=1e-4)


def test_a_fragment_without_experience_has_initial_priorities_of_zero() -> None:
    """One row, which is the reset after an end."""
    policy = policy_with_errors()
    fragment = collect(policy)
    step, env = (~fragment.valid).nonzero()[0].tolist()
    rows = {name: slice(step, step + 1 + (name == "obs")) for name in fragment}
    reset = SampleBatch({name: column[rows[name], env : env + 1] for name, column in fragment.items()})
    assert initial_priorities(policy, reset, 3).tolist() == [[0.0]]


def test_a_last_row_whose_next_action_mask_is_unknown_gets_the_largest_error() -> None:
    policy = policy_with_errors()
    fragment = collect(policy)
    fragment["action_mask"] = torch.ones(*fragment.valid.shape, 2, dtype=torch.bool)
    assert fragment.valid[-1].any()
    priorities, plain = initial_priorities(policy, fragment, 1), by_hand(policy, fragment, 1)
    waiting = torch.zeros_like(fragment.valid)
    waiting[-1] = fragment.valid[-1] & ~fragment.terminated[-1]
    known = fragment.valid & ~waiting
    assert_close(priorities[known], plain[known], atol=1e-4, rtol=1e-4)
    assert waiting.any() and (priorities[waiting] == priorities[known].max()).all()


def test_initial_priorities_follow_the_weights() -> None:
    policy, fragment = policy_with_errors(), collect(policy_with_errors())
    before = initial_priorities(policy, fragment, 3)
    with torch.no_grad():
        next(iter(policy.model.parameters())).mul_(2.0)
    assert not torch.allclose(before, initial_priorities(policy, fragment, 3))


def test_initial_priorities_change_no_weights_gradients_mode_or_random_state() -> None:
    """SAC's error draws actions; these come from the fragment's seed."""
    policy = SAC(*PENDULUM.spaces(), **SMALL).train()
    fragment = RolloutWorker(PENDULUM, policy, num_envs=2, fragment_length=8, seed=2).sample()
    policy.train()
    weights, generator = policy.get_weights(), torch.get_rng_state()
    priorities = [initial_priorities(policy, fragment, 1) for _ in range(2)]
    assert torch.equal(*priorities) and (priorities[0] > 0).all() and not priorities[0].requires_grad
    assert torch.equal(torch.get_rng_state(), generator) and policy.training
    assert all(parameter.grad is None for parameter in policy.parameters())
    np.testing.assert_equal(policy.get_weights(), weights)


def test_initial_priorities_scale_rewards_as_learning_does() -> None:
    """Two policies, one of which divides rewards by a deviation that it has not seen yet: by √1e-8."""
    fragment = collect(policy_with_errors())
    buffer = ReplayBuffer(1000, gamma=0.9)
    buffer.add(fragment)
    rows = buffer.sample(50, np.random.default_rng(1))
    scaled, plain = policy_with_errors(reward_filter="return_std"), policy_with_errors()
    fragment["t"] = torch.zeros_like(fragment.t)
    scaled.reward_filter.update(fragment)
    by_learning = rows.copy()
    by_learning["rewards"] = scaled.reward_filter.filter_rewards(rows.rewards)
    errors = plain.loss(by_learning)[1]["td_errors"]
    assert not torch.equal(by_learning.rewards, rows.rewards)
    assert_close(scaled.learner.initial_priorities(rows.copy()), errors.abs())


class WithoutErrors(SimpleQ):
    """Its loss gives no TD errors."""

    def loss(self, batch: SampleBatch) -> Any:
        loss, metrics = super().loss(batch)
        del metrics["td_errors"]
        return loss, metrics


def test_an_algorithm_without_td_errors_is_refused() -> None:
    policy = WithoutErrors(*CARTPOLE.spaces(), **SMALL)
    with pytest.raises(ConfigError, match=r"WithoutErrors\.loss.*data\.initial_priorities=false"):
        initial_priorities(policy, collect(policy), 1)
