"""Policy.compute_actions: random actions, precision, and which columns workers record."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor
from torch.testing import assert_close

from lightning_rl.models import Model, ModelCatalog
from lightning_rl.models.distributions import Categorical
from lightning_rl.policies import A2C, DQN, PG, PPO, Policy
from lightning_rl.policies.acting import can_skip_model
from lightning_rl.policies.advantages import standardize_over_ranks
from lightning_rl.rollouts import RolloutWorker
from lightning_rl.sample_batch import SampleBatch
from tests.envs.classic_control import CARTPOLE

OBS = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
RANDOM = {"type": "epsilon_greedy", "epsilon_schedule": 1.0}


def sample_fragment(policy: Policy, **keywords: Any) -> Any:
    return RolloutWorker(CARTPOLE, policy, num_envs=2, fragment_length=16, seed=1, **keywords).sample()


# -- random actions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["extra_action_out", "distribution", "_mask"])
def test_the_model_runs_for_random_actions_too_if_a_method_of_the_policy_reads_its_outputs(method: str) -> None:
    own = type("Own", (DQN,), {method: lambda self, *arguments: getattr(DQN, method)(self, *arguments)})
    spaces_of_env, same = CARTPOLE.spaces(), type("Same", (DQN,), {})
    assert can_skip_model(same(*spaces_of_env), OBS)
    assert can_skip_model(DQN(*spaces_of_env), OBS) and not can_skip_model(own(*spaces_of_env), OBS)


class FirstActionOnly(Categorical):
    """Allows the first action only."""

    def __init__(self, inputs: Tensor, model: Any = None, mask: Any = None) -> None:
        super().__init__(inputs, model, torch.tensor([[True, False]]).expand(len(inputs), 2))


def test_random_actions_keep_to_the_mask_of_a_custom_distribution() -> None:
    ModelCatalog.register_custom_action_dist("first", FirstActionOnly)
    policy = PG(*CARTPOLE.spaces(), model={"custom_action_dist": "first"}, exploration=RANDOM)
    assert policy.dist_class is not Categorical
    assert not policy.compute_actions(OBS, logp=False)[0].any()


class StepCounter(Model):
    """A recurrent model whose state counts the steps of an episode."""

    forbids_actions = False

    def get_initial_state(self) -> list[Tensor]:
        return [torch.zeros(1)]

    def forward(self, input_dict: Any, state: Any = (), seq_lens: Any = None) -> Any:
        return torch.zeros(len(state[0]), self.num_outputs), [state[0] + 1]


def test_a_recurrent_model_s_state_advances_while_actions_are_random() -> None:
    policy = PG(*CARTPOLE.spaces(), model={"custom_model": StepCounter}, exploration=RANDOM)
    _, (steps,), _ = policy.compute_actions(OBS, policy.get_initial_state(64), logp=False)
    assert steps.tolist() == [[1.0]] * 64


def test_compute_actions_draws_a_random_action_for_each_row_of_nested_observations() -> None:
    """Five rows of a Dict with three entries."""
    space = spaces.Dict({name: spaces.Box(-1, 1, (2,)) for name in "xyz"})
    policy = DQN(space, spaces.Discrete(3), exploration=RANDOM)
    actions, _, _ = policy.compute_actions({name: np.zeros((5, 2), np.float32) for name in "xyz"}, logp=False)
    assert actions.shape == (5,)


# -- workers ----------------------------------------------------------------------------------------------------------
def test_act_computes_in_full_precision_under_autocast() -> None:
    """bfloat16 has 8 bits; the first ratio of an iteration would not be 1."""
    policy = PPO(*CARTPOLE.spaces(), seed=1)
    plain = policy.act(OBS, explore=False)[2]["action_logp"]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        within = policy.act(OBS, explore=False)[2]["action_logp"]
        assert not torch.equal(policy.compute_actions(OBS, explore=False)[2]["action_logp"], plain)
    assert torch.equal(within, plain)


class WithoutLogp(PPO):
    """Its `compute_actions` has no keyword `logp`."""

    def compute_actions(
        self, obs: Any, state: Any = (), *, explore: bool = True, timestep: int | None = None, action_mask: Any = None
    ) -> Any:
        return super().compute_actions(obs, state, explore=explore, timestep=timestep, action_mask=action_mask)


def test_workers_do_not_pass_logp_to_a_compute_actions_without_that_keyword() -> None:
    fragment = sample_fragment(WithoutLogp(*CARTPOLE.spaces()), record_logp=False)
    assert bool((fragment.action_logp < 0).all())


class OwnLearning(Policy):
    """Learns by `learn_on_batch` alone."""

    def learn_on_batch(self, batch: SampleBatch) -> dict[str, float]:
        return {}


class OwnLossAndLearning(OwnLearning):
    """Has a loss, too."""

    def loss(self, batch: SampleBatch) -> Any:
        return self.distribution_and_values(batch)[1].mean(), {}


@pytest.mark.parametrize(("kind", "has_next"), [(Policy, False), (OwnLearning, True), (OwnLossAndLearning, False)])
def test_own_learning_without_a_loss_gets_transitions_and_every_policy_a_model(kind: Any, has_next: bool) -> None:
    policy = kind(*CARTPOLE.spaces())
    fragment = sample_fragment(policy)
    assert list(policy.parameters()) and fragment.action_logp.shape == (16, 2)
    assert ("next_obs" in policy.postprocess_trajectory(fragment)) is has_next


# -- values that acting records ---------------------------------------------------------------------------------------
NOISE = {"type": "parameter_noise", "random_timesteps": 0}


@pytest.mark.parametrize(
    ("shared", "exploration", "recorded"),
    [(True, None, True), (False, None, False), (True, NOISE, False), (False, NOISE, False)],
)
def test_values_are_recorded_with_shared_layers_and_without_parameter_noise_only(
    shared: bool, exploration: Any, recorded: bool
) -> None:
    """Separate value layers would cost a forward, and values of a noisy network belong to another policy."""
    policy = PPO(*CARTPOLE.spaces(), model={"vf_share_layers": shared}, exploration=exploration)
    assert ("vf_preds" in sample_fragment(policy)) is recorded


@pytest.mark.parametrize(("in_trainer", "expected"), [(True, [-1.0, 0.0, 1.0]), (False, [-(1.5**0.5), 0.0, 1.5**0.5])])
def test_advantages_are_standardized_over_all_ranks_inside_a_trainer(
    in_trainer: bool, expected: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All ranks: mean 3, deviation 2. These rows alone: mean 3, deviation √(8/3), and 2 / √(8/3) = √1.5."""
    of_all_ranks = torch.tensor(3.0), torch.tensor(2.0)
    monkeypatch.setattr("lightning_rl.policies.advantages.moments_over_ranks", lambda advantages: of_all_ranks)
    monkeypatch.setattr(PPO, "in_trainer", in_trainer)
    found = standardize_over_ranks(PPO(*CARTPOLE.spaces()), torch.tensor([1.0, 3.0, 5.0]))
    assert_close(found, torch.tensor(expected))


def test_a2c_standardizes_the_advantages_of_a_rollout_if_it_is_told_to() -> None:
    plain, standardized = (A2C(*CARTPOLE.spaces(), seed=1, standardize_advantages=on) for on in (False, True))
    fragment = sample_fragment(plain)
    own = plain.postprocess_trajectory(fragment).advantages
    found = standardized.postprocess_trajectory(fragment).advantages
    assert_close(found, (own - own.mean()) / own.std(correction=0), atol=1e-4, rtol=1e-4)
