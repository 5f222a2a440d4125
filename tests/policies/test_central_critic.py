"""The central critic of PPO and A2C: values of all agents' observations, an actor of its own observation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.testing import assert_close

from lightning_rl.losses.returns import gae
from lightning_rl.models import Model
from lightning_rl.models.central_critic import CentralCritic
from lightning_rl.models.simba import ResidualMLP
from lightning_rl.policies import A2C, PPO, Policy
from lightning_rl.policies.advantages import all_values
from lightning_rl.rollouts import RolloutWorker
from lightning_rl.sample_batch import SampleBatch, concat_samples
from tests.envs.classic_control import CARTPOLE
from tests.policies.fits_and_files import saved
from tests.policies.memories import MEMORIES
from tests.policies.rows_of_an_older_policy import perturb_weights
from tests.refusals import not_refused

S = 5
SPACES = CARTPOLE.spaces()
MODELS: dict[str, dict[str, Any]] = {"feed-forward": {}, **MEMORIES}


def made(cls: Any = PPO, **keywords: Any) -> Any:
    return cls(*SPACES, central_critic=True, central_obs_size=S, **keywords)


def shaken(cls: Any = PPO, **keywords: Any) -> Any:
    """With larger weights, so that outputs depend visibly on inputs."""
    policy = made(cls, **keywords)
    perturb_weights(policy)
    return policy


def fragment_of(policy: Policy, seed: int = 0) -> SampleBatch:
    """A sampled fragment `[T, B]` of a single-agent environment, with a made-up central observation."""
    fragment = RolloutWorker(CARTPOLE, policy, num_envs=3, fragment_length=30, seed=seed).sample().torch()
    generator = torch.Generator().manual_seed(seed)
    fragment["central_obs"] = torch.randn(*fragment.obs.shape[:2], S, generator=generator)
    return fragment


@pytest.mark.parametrize("cls", [PPO, A2C])
@pytest.mark.parametrize("name", MODELS)
def test_values_depend_on_the_central_observation_and_outputs_do_not(cls: Any, name: str) -> None:
    policy = shaken(cls, model=MODELS[name])
    rows = policy.postprocess_trajectory(fragment_of(policy))
    other = rows.copy()
    other["central_obs"] = rows.central_obs + 1.0
    (dist, values), (other_dist, other_values) = (
        policy.distribution_and_values(rows),
        policy.distribution_and_values(other),
    )
    assert torch.equal(dist.inputs, other_dist.inputs)
    assert bool((values != other_values).all())


@pytest.mark.parametrize("name", MODELS)
def test_recorded_logp_and_values_of_the_fragment_are_those_of_the_rows(name: str) -> None:
    """Rows in padded sequences take their own central observations along."""
    policy = shaken(model=MODELS[name])
    rows = policy.postprocess_trajectory(fragment_of(policy))
    dist, values = policy.distribution_and_values(rows)
    assert_close(dist.logp(rows.actions), rows.action_logp, atol=2e-5, rtol=1e-4)
    assert_close(values, rows.vf_preds, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_the_value_loss_has_no_gradient_in_the_actor_and_the_policy_loss_none_in_the_critic(name: str) -> None:
    policy = made(model=MODELS[name])
    rows = policy.postprocess_trajectory(fragment_of(policy))
    dist, values = policy.distribution_and_values(rows)
    actor = list(policy.model.wrapped.parameters())
    critic = [*policy.model.value_trunk.parameters(), *policy.model.value_head.parameters()]
    assert len(actor) + len(critic) == len(list(policy.parameters()))
    from_values = torch.autograd.grad(values.sum(), [*actor, *critic], retain_graph=True, allow_unused=True)
    assert [g is None for g in from_values] == [True] * len(actor) + [False] * len(critic)
    from_actions = torch.autograd.grad(dist.logp(rows.actions).sum(), [*actor, *critic], allow_unused=True)
    assert [g is None for g in from_actions] == [False] * len(actor) + [True] * len(critic)


def test_the_value_is_an_mlp_of_central_and_own_observation() -> None:
    policy = made(model={"fcnet_hiddens": [7], "fcnet_activation": "relu"})
    fragment = fragment_of(policy)
    joined = torch.cat([fragment.central_obs, fragment.obs], dim=2)
    expected = policy.model.value_head.linear(policy.model.value_trunk.layers[0](joined).relu()).squeeze(2)
    assert_close(policy.values(fragment.obs, fragment), expected)


def test_the_critic_has_residual_layers_where_the_actor_has() -> None:
    policy = made(model={"fcnet_hiddens": [7, 7], "fcnet_residual": True})
    fragment = fragment_of(policy)
    assert type(policy.model.value_trunk) is type(policy.model.wrapped.trunk) is ResidualMLP
    assert policy.values(fragment.obs, fragment).isfinite().all()


def test_advantages_are_those_of_the_central_values() -> None:
    policy = made(gae_lambda=0.9, gamma=0.8)
    fragment = fragment_of(policy)
    values = policy.values(fragment.obs, fragment)
    ends = {"terminated": fragment.terminated, "truncated": fragment.truncated, "valid": fragment.valid}
    expected = gae(fragment.rewards, values, **ends, gamma=0.8, lam=0.9)
    rows = policy.postprocess_trajectory(fragment)
    assert_close(rows.advantages, expected.flatten()[fragment.valid.flatten()])


def test_values_after_the_last_step_read_the_central_observation_after_it() -> None:
    """V-trace computes only the values that it does not have: those of final and last observations."""
    policy = made()
    fragment = fragment_of(policy)
    expected = policy.values(fragment.obs, fragment)
    known = fragment.copy()
    known["vf_preds"] = torch.where(fragment.valid, expected[:-1], 0.0)
    assert_close(all_values(policy, known), expected)


@pytest.mark.parametrize("cls", [PPO, A2C])
@pytest.mark.parametrize("keywords", [{}, {"reward_filter": "return_std", "observation_filter": "mean_std"}])
@pytest.mark.parametrize("name", ["feed-forward", "lstm"])
def test_an_iteration_moves_every_parameter(cls: Any, keywords: dict[str, Any], name: str) -> None:
    policy = made(cls, model=MODELS[name], **keywords)
    before = [parameter.detach().clone() for parameter in policy.parameters()]
    metrics = policy.learn_on_batch(fragment_of(policy))
    assert all(np.isfinite(value) for value in metrics.values()) and metrics["value_loss"] > 0
    assert not any(torch.equal(a, b) for a, b in zip(before, policy.parameters(), strict=True))


@pytest.mark.parametrize(("central", "low", "high"), [(True, 0.9, 1.0), (False, -0.2, 0.1)])
@pytest.mark.parametrize("cls", [PPO, pytest.param(A2C, marks=pytest.mark.every)])
def test_only_a_central_critic_learns_a_value_that_depends_on_another_agent(
    cls: Any, central: bool, low: float, high: float
) -> None:
    """Each agent sees a bit of its own; the reward is 1 if both bits are equal, whatever the agents do."""
    bit = spaces.Box(0.0, 1.0, (1,), np.float32)
    steps: dict[str, Any] = {"passes": 1, "minibatches": 1} if cls is PPO else {}
    policy = cls(bit, spaces.Discrete(2), central_critic=central, central_obs_size=2, lr=1e-2, **steps)
    generator, ended = torch.Generator().manual_seed(0), torch.ones(32, 16, dtype=torch.bool)
    fixed = {"terminated": ended, "truncated": ~ended, "valid": ended, "t": torch.zeros(32, 16, dtype=torch.int32)}
    explained = 0.0
    for _ in range(100):
        both = torch.randint(2, (33, 8, 2), generator=generator).float()  # T + 1 steps of 8 environments
        fragment = SampleBatch(
            obs=both.flatten(1, 2).unsqueeze(2),  # two lanes for each environment
            central_obs=both.repeat_interleave(2, dim=1),
            actions=torch.randint(2, (32, 16), generator=generator),
            action_logp=torch.full((32, 16), -np.log(2.0)),
            rewards=(both[:-1, :, 0] == both[:-1, :, 1]).float().repeat_interleave(2, dim=1),
            **fixed,
        )
        explained = policy.learn_on_batch(fragment)["explained_variance"]
    assert low <= explained <= high


def test_a_clipped_value_change_uses_central_values() -> None:
    policy = made(value_clip=0.1, passes=2)
    assert np.isfinite(policy.learn_on_batch(fragment_of(policy))["value_loss"])


def test_the_observation_filter_normalizes_central_observations_too() -> None:
    policy = made(observation_filter="mean_std")
    fragment = fragment_of(policy)
    fragment["central_obs"] = 100.0 + 3.0 * fragment.central_obs
    policy.learn_on_batch(fragment)
    seen = fragment.central_obs[:-1][fragment.valid]
    assert_close(policy.model.filter.shift, seen.mean(0))
    filtered = policy.model.filter(seen)
    assert_close(filtered.std(0, unbiased=False), torch.ones(S), atol=1e-4, rtol=1e-4)


def test_fragments_of_other_lengths_are_joined_with_their_central_observations() -> None:
    policy = made()
    first, second = fragment_of(policy), fragment_of(policy, seed=1)
    short = second.map(lambda column: column[: 10 + (len(column) == 31)])
    joined = concat_samples([first, short])
    assert joined.central_obs.shape == (31, 6, S)
    assert_close(joined.central_obs[:11, 3:], second.central_obs[:11])


def test_acting_needs_no_central_observation() -> None:
    assert made().compute_single_action(np.zeros(4, np.float32)) in (0, 1)


def test_a_loaded_checkpoint_has_the_critic(tmp_path: Path) -> None:
    policy = shaken()
    fragment = fragment_of(policy)
    loaded = Policy.load(saved(policy, tmp_path / "policy.ckpt"))
    assert_close(loaded.values(fragment.obs, fragment), policy.values(fragment.obs, fragment))


class Actor(Model):
    """An actor without values."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.layer = nn.Linear(self.preprocessor.size, self.num_outputs)

    def forward(self, input_dict: Any, state: Any = (), seq_lens: Any = None) -> tuple[Tensor, list[Tensor]]:
        assert "central_obs" not in input_dict
        return self.layer(input_dict["obs_flat"]), list(state)


def test_a_custom_actor_needs_no_value_function() -> None:
    policy = made(model={"custom_model": Actor})
    assert isinstance(policy.model, CentralCritic) and isinstance(policy.model.wrapped, Actor)
    assert np.isfinite(policy.learn_on_batch(fragment_of(policy))["value_loss"])


def test_gsde_changes_the_actors_head() -> None:
    box = spaces.Box(-1.0, 1.0, (2,), np.float32)
    policy = PPO(SPACES[0], box, central_critic=True, central_obs_size=S, exploration={"type": "gsde"})
    actions, _, _ = policy.compute_actions(torch.zeros(3, 4))
    assert actions.shape == (3, 2)


def test_the_size_alone_gives_no_central_critic() -> None:
    policy = PPO(*SPACES, central_obs_size=S)
    assert policy.central_obs_size == 0 and not isinstance(policy.model, CentralCritic)


def test_a_central_critic_without_several_agents_or_with_shared_layers_is_refused() -> None:
    cases = [
        *((cls, {"central_critic": True}, "central_critic=true") for cls in (PPO, A2C)),
        (made, {"model": {"vf_share_layers": True}}, r"set model\.vf_share_layers=false"),
    ]

    def build(cls: Any, keywords: dict[str, Any]) -> Policy:
        return cls(**keywords) if cls is made else cls(*SPACES, **keywords)

    assert not_refused(build, cases) == []


def test_rows_without_central_observations_are_refused() -> None:
    policy = made()
    fragment = fragment_of(policy)
    cases = [(fragment.without("central_obs"), r"central_obs \[N, 5\]")]
    assert not_refused(policy.learn_on_batch, cases) == []
