"""Acting: when the model may rest, in which precision it works, and with which randomness."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor
from torch.testing import assert_close

from lightning_rl.models import Model, ModelCatalog
from lightning_rl.models.distributions import Categorical
from lightning_rl.policies import DQN, PG, PPO, Policy
from lightning_rl.policies.advantages import standardise_over_ranks
from lightning_rl.rollouts import RolloutWorker
from tests.envs.classic_control import CARTPOLE

OBS = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
RANDOM = {"type": "epsilon_greedy", "epsilon_schedule": 1.0}


def sampled(policy: Policy, **keywords: Any) -> Any:
    return RolloutWorker(CARTPOLE, policy, num_envs=2, fragment_length=16, seed=1, **keywords).sample()


# -- random actions ---------------------------------------------------------------------------------------------------
def test_random_actions_are_recorded_with_their_probability() -> None:
    """Where it is asked for: ε = 1 gives each of two actions ½."""
    _, _, columns = DQN(*CARTPOLE.spaces(), exploration=RANDOM).compute_actions(OBS)
    assert_close(columns["action_logp"], torch.full((64,), math.log(0.5)))


def test_random_actions_are_among_those_that_the_caller_s_mask_allows() -> None:
    policy = DQN(*CARTPOLE.spaces(), exploration=RANDOM)
    mask = torch.tensor([[True, False]]).expand(64, 2)
    assert not policy.compute_actions(OBS, action_mask=mask, logp=False)[0].any()
    assert policy.compute_actions(OBS, logp=False)[0].any()


class First(Categorical):
    """Always the first action."""

    def __init__(self, inputs: Tensor, model: Any = None, mask: Any = None) -> None:
        super().__init__(inputs, model, torch.tensor([[True, False]]).expand(len(inputs), 2))


def test_random_actions_are_among_those_that_a_distribution_of_one_s_own_allows() -> None:
    ModelCatalog.register_custom_action_dist("first", First)
    policy = PG(*CARTPOLE.spaces(), model={"custom_action_dist": "first"}, exploration=RANDOM)
    assert policy.dist_class is not Categorical
    assert not policy.compute_actions(OBS, logp=False)[0].any()


class Counting(Model):
    """Allows every action, and counts the steps of an episode."""

    forbids_actions = False

    def get_initial_state(self) -> list[Tensor]:
        return [torch.zeros(1)]

    def forward(self, input_dict: Any, state: Any = (), seq_lens: Any = None) -> Any:
        return torch.zeros(len(state[0]), self.num_outputs), [state[0] + 1]


def test_a_memory_takes_in_what_was_seen_while_actions_were_random() -> None:
    policy = PG(*CARTPOLE.spaces(), model={"custom_model": Counting}, exploration=RANDOM)
    _, (steps,), _ = policy.compute_actions(OBS, policy.get_initial_state(64), logp=False)
    assert steps.tolist() == [[1.0]] * 64


def test_there_is_a_random_action_for_each_row_of_nested_observations() -> None:
    """Five rows of three parts."""
    space = spaces.Dict({name: spaces.Box(-1, 1, (2,)) for name in "xyz"})
    policy = DQN(space, spaces.Discrete(3), exploration=RANDOM)
    actions, _, _ = policy.compute_actions({name: np.zeros((5, 2), np.float32) for name in "xyz"}, logp=False)
    assert actions.shape == (5,)


# -- workers ----------------------------------------------------------------------------------------------------------
def test_acting_within_a_gradient_step_of_low_precision_has_full_precision() -> None:
    """bfloat16 has 8 bits; the first ratio of an iteration would not be 1."""
    policy = PPO(*CARTPOLE.spaces(), seed=1)
    plain = policy.act(OBS, explore=False)[2]["action_logp"]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        within = policy.act(OBS, explore=False)[2]["action_logp"]
        assert not torch.equal(policy.compute_actions(OBS, explore=False)[2]["action_logp"], plain)
    assert torch.equal(within, plain)


class OwnWay(PPO):
    """Does not know the keyword "logp"."""

    def compute_actions(
        self, obs: Any, state: Any = (), *, explore: bool = True, timestep: int | None = None, action_mask: Any = None
    ) -> Any:
        return super().compute_actions(obs, state, explore=explore, timestep=timestep, action_mask=action_mask)


def test_workers_do_not_pass_logp_to_a_compute_actions_of_one_s_own() -> None:
    fragment = sampled(OwnWay(*CARTPOLE.spaces()), record_logp=False)
    assert bool((fragment.action_logp < 0).all())


def test_policy_itself_acts_and_makes_rows_with_a_model() -> None:
    """It defines neither `loss` nor a `learn_on_batch` of its own, and is not written from scratch all the same."""
    policy = Policy(*CARTPOLE.spaces())
    fragment = sampled(policy)
    assert list(policy.parameters()) and fragment.action_logp.shape == (16, 2)
    assert "next_obs" not in policy.postprocess_trajectory(fragment)


# -- values that acting records ---------------------------------------------------------------------------------------
NOISE = {"type": "parameter_noise", "random_timesteps": 0}


@pytest.mark.parametrize(
    ("shared", "exploration", "recorded"),
    [(True, None, True), (False, None, False), (True, NOISE, False), (False, NOISE, False)],
)
def test_values_are_recorded_where_they_are_at_hand_and_the_policy_s_own(
    shared: bool, exploration: Any, recorded: bool
) -> None:
    """With shared layers; but those of a disturbed network are of another policy."""
    policy = PPO(*CARTPOLE.spaces(), model={"vf_share_layers": shared}, exploration=exploration)
    assert ("vf_preds" in sampled(policy)) is recorded


@pytest.mark.parametrize(("in_trainer", "expected"), [(True, [-1.0, 0.0, 1.0]), (False, [-(1.5**0.5), 0.0, 1.5**0.5])])
def test_advantages_are_standardised_over_all_ranks_inside_a_trainer(
    in_trainer: bool, expected: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All ranks' mean is 3 and deviation 2; these rows alone have mean 3 and deviation √(8/3): 2 / √(8/3) = √1.5."""
    of_all_ranks = torch.tensor(3.0), torch.tensor(2.0)
    monkeypatch.setattr("lightning_rl.policies.advantages.moments_over_ranks", lambda advantages: of_all_ranks)
    monkeypatch.setattr(PPO, "in_trainer", in_trainer)
    found = standardise_over_ranks(PPO(*CARTPOLE.spaces()), torch.tensor([1.0, 3.0, 5.0]))
    assert_close(found, torch.tensor(expected))
