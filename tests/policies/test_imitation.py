"""BC and MARWIL: returns, scale and losses with numbers worked by hand, and what is learned from recorded actions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from lightning_rl.envs import EnvCreator
from lightning_rl.policies import BC, MARWIL, Policy, RandomPolicy
from lightning_rl.rollouts import RolloutWorker
from lightning_rl.sample_batch import SampleBatch
from tests.policies.off_policy_algorithms import BOX, OBS, SMALL, TWO, set_constant_values
from tests.training import probes

RAW: dict[str, Any] = {**SMALL, "reward_filter": "none"}


def recorded(probe: type[probes.Probe], steps: int = 64) -> tuple[EnvCreator, SampleBatch]:
    """A fragment of 8 environments in which uniformly random actions were taken."""
    env = EnvCreator(probe)
    worker = RolloutWorker(env, RandomPolicy(*env.spaces()), num_envs=8, fragment_length=steps, seed=1)
    return env, worker.sample()


def test_bc_raises_the_likelihood_of_recorded_actions() -> None:
    """The loss is −mean log π(a|s): log 2 of two actions that are equally likely."""
    policy = BC(OBS, TWO, **SMALL)
    set_constant_values(policy.model, 0.0)
    loss, _ = policy.loss(SampleBatch(obs=torch.zeros(4, 3), actions=torch.tensor([0, 1, 1, 1])))
    assert_close(loss.detach(), torch.tensor(math.log(2.0)))


def test_marwil_bootstraps_the_return_at_a_cut_and_not_after_a_termination() -> None:
    """V = 4, γ = ½, r = 1: terminated 1; the fragment's end 1 + ½ · 4 = 3, before it 1 + ½ · 3 = 2.5.

    A = G − V: [−3, −1.5, −1], whose mean square 4.0833 moves c² from 1 to 1.030833 at a rate of 0.01.
    """
    policy = MARWIL(OBS, TWO, gamma=0.5, minibatches=1, **RAW)
    set_constant_values(policy.model, 4.0)
    ends = torch.tensor([[True], [False], [False]])
    no = torch.zeros(3, 1, dtype=torch.bool)
    fragment = SampleBatch(
        obs=torch.zeros(4, 1, 3),
        actions=torch.zeros(3, 1, dtype=torch.long),
        rewards=torch.ones(3, 1),
        terminated=ends,
        truncated=no,
        valid=~no,
    )
    rows = policy.postprocess_trajectory(fragment)
    assert_close(rows.value_targets, torch.tensor([1.0, 2.5, 3.0]))
    loss, metrics = policy.loss(rows)
    assert_close(policy.squared_advantage, torch.tensor(1.0308333))
    weights = np.exp(np.array([-3.0, -1.5, -1.0]) / math.sqrt(1.0308333))
    assert_close(metrics["policy_loss"].detach(), torch.tensor(float(weights.mean() * math.log(2.0))))
    assert_close(metrics["value_loss"].detach(), torch.tensor(4.0833333 / 2))
    assert_close(loss, metrics["policy_loss"] + metrics["value_loss"])


def test_the_scale_of_marwil_is_saved_with_its_weights() -> None:
    policy = MARWIL(OBS, TWO, norm_start=7.0, **RAW)
    assert_close(torch.as_tensor(policy.get_weights()["squared_advantage"]), torch.tensor(7.0))


def test_marwil_finds_the_better_actions_of_random_ones_and_bc_does_not() -> None:
    """Actions that match the sign shown earn 1, others −1; the data hold both alike."""
    env, fragment = recorded(probes.MatchedReward)
    probabilities = {}
    for policy_class in (BC, MARWIL):
        policy = policy_class(*env.spaces(), model={"fcnet_hiddens": [16]}, passes=30, lr=5e-3)
        policy.learn_on_batch(fragment)
        signs = torch.tensor([[-1.0], [1.0]])
        right = policy.compute_log_likelihoods(torch.tensor([0, 1]), signs).exp()
        probabilities[policy_class] = right.min() if policy_class is MARWIL else right.max()
    assert probabilities[BC] < 0.7 and probabilities[MARWIL] > 0.8


def test_marwil_finds_the_better_actions_of_a_box() -> None:
    """The best actions are 0 and 4, the mean of the random ones is 2."""
    env, fragment = recorded(probes.MatchedBox)
    policy = MARWIL(*env.spaces(), beta=3.0, model={"fcnet_hiddens": [16]}, passes=60, lr=5e-3)
    fragment["actions"] = policy.action_transform.from_env(fragment.actions)  # of a policy that has no transform
    policy.learn_on_batch(fragment)
    low, high = probes.best_actions(policy)
    assert abs(low) < 0.7 and abs(high - 4.0) < 0.7


@pytest.mark.parametrize("policy_class", [BC, MARWIL])
def test_recorded_episodes_without_states_teach_memory(policy_class: type[Policy]) -> None:
    """A sign is shown in the first of two steps, and the action of the second one names it."""
    signs = torch.randint(2, (1, 64, 1), generator=torch.Generator().manual_seed(0))
    no = torch.zeros(2, 64, dtype=torch.bool)
    last = torch.tensor([[False], [True]]).expand(2, 64)
    fragment = SampleBatch(
        obs=torch.cat([2.0 * signs - 1.0, torch.zeros(2, 64, 1)]).expand(3, 64, 3).contiguous(),
        actions=torch.cat([torch.zeros_like(signs), signs])[:, :, 0],
        rewards=torch.zeros(2, 64),
        t=torch.tensor([[0], [1]]).expand(2, 64),
        terminated=last,
        truncated=no,
        valid=~no,
    )
    memory = {"fcnet_hiddens": [16], "use_lstm": True, "lstm_cell_size": 16}
    policy: Any = policy_class(OBS, TWO, model=memory, passes=40, minibatches=4, lr=1e-2)
    policy.learn_on_batch(fragment)
    assert policy.loss(policy.learner.rows_of(fragment))[1]["policy_loss"] < 0.05


def test_actions_of_a_box_are_cloned() -> None:
    """The recorded actions are half of the first two observations, with noise of 0.05."""
    obs = torch.rand(512, 3, generator=torch.Generator().manual_seed(0)) * 2 - 1
    noise = 0.05 * torch.randn(512, 2, generator=torch.Generator().manual_seed(1))
    policy = BC(OBS, BOX, model={"fcnet_hiddens": [32]}, passes=40, lr=5e-3)
    policy.learn_on_batch(SampleBatch(obs=obs, actions=0.5 * obs[:, :2] + noise))
    found = policy.compute_actions(torch.tensor([[0.6, -0.4, 0.0]]), explore=False)[0]
    assert_close(found, torch.tensor([[0.3, -0.2]]), atol=0.05, rtol=0)
