"""Algorithms that learn Q-values of recorded actions: their losses by hand, and what they learn from data alone."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from gymnasium import spaces
from torch.testing import assert_close

from lightning_rl.policies import DQN, DiscreteCQL, Policy
from lightning_rl.sample_batch import SampleBatch
from tests.policies.off_policy_algorithms import OBS, SMALL, TWO, set_constant_q

STEPS, ROWS = 400, 64


def bandit(actions: torch.Tensor, rewards: torch.Tensor) -> SampleBatch:
    """Episodes of one step whose observations are noise."""
    count = len(actions)
    obs = torch.randn(count, 3, generator=torch.Generator().manual_seed(0))
    return SampleBatch(
        obs=obs,
        next_obs=obs,
        actions=actions,
        rewards=rewards,
        terminated=torch.ones(count, dtype=torch.bool),
        discounts=torch.full((count,), 0.9),
    )


def learn(policy: Policy, rows: SampleBatch, steps: int = STEPS) -> None:
    """Gradient steps on random rows of a fixed data set."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        policy.learn_on_batch(rows[torch.randint(rows.count, (ROWS,), generator=generator)])


# -- discrete CQL -----------------------------------------------------------------------------------------------------
def test_discrete_cql_adds_the_gap_to_dqn_s_loss() -> None:
    """Q = (4, 2): log(e⁴ + e²) = 4.126928, less 4 for the first row and 2 for the second one: the mean is 1.126928."""
    rows = bandit(torch.tensor([0, 1]), torch.tensor([3.0, -1.0]))
    losses = {}
    for policy_class, keywords in ((DQN, {}), (DiscreteCQL, {"min_q_weight": 10.0})):
        policy = policy_class(OBS, TWO, **SMALL, **keywords)
        set_constant_q(policy.model, 4.0, 2.0)
        losses[policy_class] = policy.loss(rows)[0].detach()
    assert_close(losses[DiscreteCQL] - losses[DQN], torch.tensor(11.26928))


def test_forbidden_actions_are_not_made_unlikely_by_discrete_cql() -> None:
    """Q = (4, 2), and only action 1 is allowed: there is no gap, and no gradient for Q(s, 0)."""
    space = spaces.Dict(x=OBS, action_mask=spaces.MultiBinary(2))
    policy = DiscreteCQL(space, TWO, **SMALL)
    set_constant_q(policy.model, 4.0, 2.0)
    rows = bandit(torch.tensor([1, 1]), torch.tensor([2.0, 2.0]))
    obs = SampleBatch(x=rows.obs, action_mask=torch.tensor([[0, 1], [0, 1]]))
    rows["obs"] = rows["next_obs"] = obs
    loss, metrics = policy.loss(rows)
    loss.backward()
    assert_close(metrics["conservative_gap"].detach(), torch.tensor(0.0))
    assert_close(policy.model.advantages.linear.bias.grad, torch.zeros(2))


@pytest.mark.parametrize("head", [{}, {"num_quantiles": 5}, {"dueling": True}], ids=["plain", "quantiles", "dueling"])
def test_discrete_cql_keeps_to_actions_of_the_data_and_dqn_does_not(head: dict[str, Any]) -> None:
    """The only recorded action costs 1; the other one was never tried."""
    rows = bandit(torch.zeros(256, dtype=torch.long), -torch.ones(256))
    chosen = {}
    for policy_class in (DQN, DiscreteCQL):
        policy = policy_class(OBS, TWO, model={"fcnet_hiddens": [16]}, lr=5e-3, **head)
        learn(policy, rows)
        chosen[policy_class] = policy.compute_actions(rows.obs, explore=False)[0].float().mean().item()
    assert chosen[DQN] > 0.9 and chosen[DiscreteCQL] < 0.1


def test_discrete_cql_chooses_the_better_of_the_recorded_actions() -> None:
    """Action 0 earns 1, action 1 nothing: with equal shares in the data the gap is least at equal Q-values."""
    actions = torch.arange(256) % 2
    policy = DiscreteCQL(OBS, TWO, model={"fcnet_hiddens": [16]}, lr=5e-3)
    rows = bandit(actions, 1.0 - actions.float())
    learn(policy, rows)
    assert policy.compute_actions(rows.obs, explore=False)[0].float().mean() < 0.1
    assert math.isfinite(policy.iteration_metrics["conservative_gap"])
