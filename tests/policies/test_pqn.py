"""PQN and PQN-VDN: returns, masks and losses with numbers worked by hand, and what is learned."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch.testing import assert_close

from lightning_rl.envs import EnvCreator
from lightning_rl.errors import UnsupportedSpaceError
from lightning_rl.losses import lambda_returns
from lightning_rl.policies import PQN, PQNVDN
from lightning_rl.rollouts import RolloutWorker
from lightning_rl.sample_batch import SampleBatch
from tests.envs.classic_control import CARTPOLE, PENDULUM
from tests.policies.off_policy_algorithms import OBS, SMALL, TWO, set_constant_q
from tests.training import probes

RAW: dict[str, Any] = {**SMALL, "reward_filter": "none"}


def fragment(steps: int, **columns: Any) -> SampleBatch:
    """A fragment of one environment in which every reward is 1; `columns` replace its columns."""
    no = torch.zeros(steps, 1, dtype=torch.bool)
    made = SampleBatch(
        obs=torch.randn(steps + 1, 1, 3, generator=torch.Generator().manual_seed(3)),
        actions=torch.zeros(steps, 1, dtype=torch.long),
        rewards=torch.ones(steps, 1),
        terminated=no,
        truncated=no,
        valid=~no,
    )
    for name, column in columns.items():
        made[name] = column
    return made


def flags(*values: int) -> torch.Tensor:
    return torch.tensor(values).bool().unsqueeze(1)


# -- returns ----------------------------------------------------------------------------------------------------------
def test_q_lambda_returns_of_cleanrl() -> None:
    """The numbers are those of the loop in CleanRL's pqn.py with the same Q-values; λ = 0.65, γ = 0.9.

    Episodes end after step 1 of the first environment and step 3 of the second one.
    """
    rewards = torch.tensor([[1.0, 0.0], [0.0, 2.0], [2.0, -1.0], [-1.0, 0.5], [0.5, 1.0]])
    first = [[0.5, 1.0], [2.0, 1.5], [-1.0, -0.5], [0.2, 0.1], [1.0, 4.0], [3.0, 2.0]]
    second = [[0.0, -1.0], [0.25, 0.5], [1.0, 3.0], [2.0, 1.0], [0.5, 0.75], [-1.0, -2.0]]
    q_values = torch.tensor([first, second]).transpose(0, 1)
    terminated = torch.zeros(5, 2, dtype=torch.bool)
    terminated[1, 0] = terminated[3, 1] = True
    found = lambda_returns(
        rewards, q_values.amax(-1), terminated=terminated, truncated=~terminated & False, gamma=0.9, lam=0.65
    )
    known = [[1.6300, 1.8538], [0.0000, 2.8997], [3.3102, -0.0775], [2.1320, 0.5000], [3.2000, 0.1000]]
    assert_close(found, torch.tensor(known), atol=1e-4, rtol=0)


def test_pqn_returns_bootstrap_at_the_fragment_s_end_and_at_time_limits_only() -> None:
    """Q = (4, 2), so V = 4; γ = ½, λ = ½, r = 1.

    The rows are: a step, a truncated one, the reset, a terminated step, the reset, a step. Truncated and last: 1 + ½·4
    = 3; before it 1 + ½ (½·4 + ½·3) = 2.75; terminated: 1. Resets are no experience.
    """
    policy = PQN(OBS, TWO, gamma=0.5, q_lambda=0.5, **RAW)
    set_constant_q(policy.model, 4.0, 2.0)
    ends = {"truncated": flags(0, 1, 0, 0, 0, 0), "terminated": flags(0, 0, 0, 1, 0, 0)}
    rows = policy.postprocess_trajectory(fragment(6, **ends, valid=flags(1, 1, 0, 1, 0, 1)))
    assert_close(rows.value_targets, torch.tensor([2.75, 3.0, 1.0, 3.0]))


@pytest.mark.parametrize("place", ["obs", "info"])
def test_pqn_returns_bootstrap_from_the_best_allowed_action(place: str) -> None:
    """Q = (4, 2), and action 0 is forbidden: 1 + ½·2 = 2; a mask of infos has no row for the last observation: 3."""
    vector = spaces.Box(-1, 1, (3,))
    obs_space = spaces.Dict(x=vector, action_mask=spaces.MultiBinary(2)) if place == "obs" else vector
    policy = PQN(obs_space, TWO, gamma=0.5, q_lambda=0.0, **RAW)
    set_constant_q(policy.model, 4.0, 2.0)
    batch = fragment(2, actions=torch.ones(2, 1, dtype=torch.long))
    masks = torch.tensor([0, 1]).expand(3, 1, 2)
    if place == "obs":
        batch["obs"] = SampleBatch(x=batch.obs, action_mask=masks)
    else:
        batch["action_mask"] = masks[:2].bool()
    assert_close(
        policy.postprocess_trajectory(batch).value_targets, torch.tensor([2.0, 2.0 if place == "obs" else 3.0])
    )


def test_pqn_targets_carry_no_gradient_and_its_loss_is_the_squared_error() -> None:
    """Q(s, 0) = 4 and the targets are 3: (4 − 3)² = 1, whose gradient lowers Q(s, 0) by 2 and not Q(s, 1)."""
    policy = PQN(OBS, TWO, gamma=0.5, q_lambda=0.0, **RAW)
    set_constant_q(policy.model, 4.0, 2.0)
    rows = policy.learner.rows_of(fragment(2))
    loss, metrics = policy.loss(rows)
    loss.backward()
    assert not rows.value_targets.requires_grad
    found = torch.stack([loss.detach(), metrics["q_mean"], metrics["td_error"]])
    assert_close(found, torch.tensor([1.0, 4.0, 1.0]))
    assert_close(policy.model.advantages.linear.bias.grad, torch.tensor([2.0, 0.0]))


def test_pqn_refuses_continuous_actions_and_says_what_takes_them() -> None:
    with pytest.raises(UnsupportedSpaceError, match=r"PQN compares all actions.*sac"):
        PQN(*PENDULUM.spaces())


# -- groups -----------------------------------------------------------------------------------------------------------
def test_pqn_vdn_adds_the_values_of_the_members_that_are_present() -> None:
    """Each member's Q is (4, 2): both chose 0, 0 and then 1, 0; in the second row only member 0 takes part.

    V is 8, 4 and 8; targets 1 + ½·4 = 3 and 1 + ½·8 = 5; Q_tot 8 and 2; (5² + 3²) / 2 = 17.
    """
    observation = spaces.Dict(agents=spaces.Tuple([OBS, OBS]), present=spaces.MultiBinary(2))
    policy = PQNVDN(observation, spaces.Tuple([TWO, TWO]), gamma=0.5, q_lambda=0.0, last_action=False, **RAW)
    set_constant_q(policy.model.wrapped, 4.0, 2.0)
    batch = fragment(2)
    each = SampleBatch({"0": batch.obs, "1": batch.obs})
    batch["obs"] = SampleBatch(agents=each, present=torch.tensor([[[1, 1]], [[1, 0]], [[1, 1]]]))
    batch["actions"] = SampleBatch({"0": torch.tensor([[0], [1]]), "1": torch.tensor([[0], [0]])})
    rows = policy.learner.rows_of(batch)
    assert_close(rows.value_targets, torch.tensor([3.0, 5.0]))
    assert_close(policy.loss(rows)[0].detach(), torch.tensor(17.0))


# -- learning ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("probe", "known"),
    [
        (probes.TimeLimited, {0.0: 2.0}),  # 1 / (1 − ½): γ = ½
        (probes.Terminating, {0.0: 1.9375, 4.0: 1.0}),  # 1 + ½ + ¼ + ⅛ + 1/16, and the last step alone
    ],
)
def test_pqn_learns_known_values(probe: type[probes.Probe], known: dict[float, float]) -> None:
    env = EnvCreator(probe)
    policy = PQN(*env.spaces(), **{**RAW, "gamma": 0.5, "minibatches": 2, "lr": 5e-3, "seed": 1})
    probes.learn_by_hand(policy, env, 30)
    found = policy.values(torch.tensor([*known]).view(1, -1, 1))[0]
    np.testing.assert_allclose(found, list(known.values()), atol=0.12)


def test_pqn_balances_the_pole() -> None:
    """In 300 steps an environment ends 13 episodes with random actions."""
    steps = 20_000
    policy = PQN(
        *CARTPOLE.spaces(),
        model={"fcnet_hiddens": [64, 64], "fcnet_activation": "relu", "layer_norm": True},
        exploration={"type": "epsilon_greedy", "epsilon_timesteps": steps // 5},
        lr=[[0, 3e-3], [steps, 0.0]],
        q_lambda=0.95,
        passes=2,
    )
    worker = RolloutWorker(CARTPOLE, policy, num_envs=32, fragment_length=32, vectorization="native", seed=1)
    while policy.env_steps < steps:
        policy.learn_on_batch(worker.sample())
    judge = RolloutWorker(CARTPOLE, policy, num_envs=16, fragment_length=300, explore=False, vectorization="native")
    assert judge.sample().terminated.sum() / 16 < 4
