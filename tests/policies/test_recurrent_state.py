"""Policies with recurrent models: states, sequences, padding and previous steps, from acting to learning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from torch import Tensor, nn
from torch.testing import assert_close

from lightning_rl.envs import EnvCreator
from lightning_rl.models import FullyConnectedNetwork
from lightning_rl.models.recurrent import RecurrentModel
from lightning_rl.policies import A2C, PG, PPO
from lightning_rl.policies.advantages import all_values
from lightning_rl.rollouts import RolloutWorker
from lightning_rl.sample_batch import SampleBatch
from tests.envs.classic_control import CARTPOLE
from tests.envs.nested_spaces import Nested
from tests.families import each
from tests.policies.memories import MEMORIES
from tests.policies.rows_of_an_older_policy import perturb_weights
from tests.rollouts.small_worker import small_worker


def policy_and_fragments(
    env: EnvCreator, model: dict[str, Any], mode: AutoresetMode = AutoresetMode.NEXT_STEP, fragments: int = 2
) -> tuple[PPO, list[SampleBatch]]:
    """A policy whose outputs depend on its input, and fragments that a worker sampled with it."""
    policy = PPO(*env.spaces(), model=model, minibatches=1)
    perturb_weights(policy)
    worker = RolloutWorker(env, policy, num_envs=3, fragment_length=30, mode=mode)
    return policy, [worker.sample() for _ in range(fragments)]


NESTED = EnvCreator(Nested)


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.name)
@pytest.mark.parametrize("env", [CARTPOLE, NESTED], ids=["CartPole", "Nested"])
@pytest.mark.parametrize("memory", each(MEMORIES, default=("lstm", "attention", "previous")))
def test_evaluate_gives_the_recorded_logp_and_values_for_every_memory(memory: str, env: Any, mode: Any) -> None:
    """Sequences end at episode ends, fragment ends and max_seq_len, with and without padding."""
    policy, fragments = policy_and_fragments(env, MEMORIES[memory], mode)
    for fragment in fragments:
        rows = policy.postprocess_trajectory(fragment)
        dist, values = policy.distribution_and_values(rows)
        assert_close(dist.logp(rows.actions), rows.action_logp, atol=2e-5, rtol=1e-4)
        assert_close(values, rows.vf_preds, atol=2e-5, rtol=1e-4)
        assert rows.action_logp.std() > 0.01


@pytest.mark.parametrize("memory", MEMORIES)
def test_all_autoreset_modes_record_the_same_first_sequence(memory: str) -> None:
    """Equal seeds give equal actions up to the first end; compared are log π and values up to there."""
    first = []
    for mode in AutoresetMode:
        policy, (fragment,) = policy_and_fragments(NESTED, MEMORIES[memory], mode, fragments=1)
        end = int((fragment.terminated[:, 0] | fragment.truncated[:, 0]).nonzero()[0])
        values = policy.values(fragment.obs, fragment)
        first.append((fragment.action_logp[: end + 1, 0], values[: end + 2, 0]))
    for logp, values in first[1:]:
        assert_close(logp, first[0][0])
        assert_close(values, first[0][1])


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.name)
@pytest.mark.parametrize("model", [{"vf_share_layers": True}, MEMORIES["lstm"]], ids=["shared", "lstm"])
def test_all_values_equals_values_computed_anew(model: Any, mode: AutoresetMode) -> None:
    """Including final observations, which SAME_STEP does not act on, and the last observations."""
    policy, fragments = policy_and_fragments(NESTED, model, mode)
    for fragment in fragments:
        assert "vf_preds" in fragment and not bool(fragment.valid.all())
        assert_close(all_values(policy, fragment), policy.values(fragment.obs, fragment), atol=1e-5, rtol=1e-4)


def test_recorded_states_are_zero_exactly_at_episode_starts_and_go_on_in_the_next_fragment() -> None:
    _, fragments = policy_and_fragments(CARTPOLE, MEMORIES["lstm"])
    for fragment in fragments:
        hidden = fragment.state_in["0"][:-1].abs().sum(-1)
        assert torch.equal((hidden == 0)[fragment.valid], (fragment.t == 0)[fragment.valid])
    one, two = (fragment.state_in["0"] for fragment in fragments)
    assert_close(one[-1], two[0])
    assert one.shape == (31, 3, 6)


def test_prev_actions_and_prev_rewards_are_those_of_the_previous_step() -> None:
    _, (fragment, _) = policy_and_fragments(CARTPOLE, MEMORIES["previous"])
    going_on = (fragment.t > 0) & fragment.valid
    assert torch.equal(fragment.prev_actions[1:-1][going_on[1:]], fragment.actions[:-1][going_on[1:]])
    assert bool((fragment.prev_rewards[:-1][going_on] == 1).all())
    starts = (fragment.t == 0) & fragment.valid
    assert bool((fragment.prev_actions[:-1][starts] == -1).all() and (fragment.prev_rewards[:-1][starts] == 0).all())


def test_a_window_of_prev_actions_ends_with_the_newest() -> None:
    _, (fragment, _) = policy_and_fragments(CARTPOLE, MEMORIES["attention"])
    assert fragment.prev_actions.shape == (31, 3, 3) and fragment.prev_rewards.shape == (31, 3, 2)
    assert fragment.prev_actions[2, 0].tolist() == [-1, *fragment.actions[:2, 0].tolist()]


@pytest.mark.parametrize("memory", each(MEMORIES, default=("lstm", "attention")))
@pytest.mark.parametrize("algorithm", [PPO, A2C, PG])
def test_padding_of_sequences_changes_neither_loss_nor_gradients(algorithm: Any, memory: str) -> None:
    """The loss of sequences padded together is the mean of the losses of each alone."""
    over_the_batch: dict[Any, dict[str, Any]] = {PG: {"standardize_returns": False, "baseline": "none"}}
    alone_too = over_the_batch.get(algorithm, {"standardize_advantages": False})
    policy = algorithm(*CARTPOLE.spaces(), model=MEMORIES[memory], **alone_too)
    rows = policy.postprocess_trajectory(RolloutWorker(CARTPOLE, policy, num_envs=3, fragment_length=33).sample())
    assert len(set(rows.seq_lens.tolist())) > 1
    together, _ = policy.loss(rows)
    parts = rows.minibatches(len(rows.seq_lens), torch.Generator())
    alone = torch.stack([policy.loss(part)[0] * part.count / rows.count for part in parts]).sum()
    assert_close(together, alone, atol=1e-5, rtol=1e-4)
    parameters = list(policy.model.parameters())
    expected, found = (torch.autograd.grad(loss, parameters, allow_unused=True) for loss in (together, alone))
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            assert_close(ours, theirs, atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("memory", MEMORIES)
def test_nan_in_padding_does_not_reach_the_outputs(memory: str) -> None:
    """NaN after the end of the shorter sequence leaves all outputs as they were."""
    policy = PPO(spaces.Box(-1, 1, (2,)), spaces.Discrete(2), model=MEMORIES[memory]).eval()
    obs, before, outputs = torch.randn(2, 4, 2), policy.initial_previous_step(8), []
    for end in (obs[1, 2:].clone(), torch.nan):
        obs[1, 2:] = end
        inputs = policy.input_dict(obs.flatten(0, 1), **before)
        outputs.append(policy.model(inputs, policy.get_initial_state(2), torch.tensor([4, 2]))[0][:6])
    assert bool(outputs[1].isfinite().all())
    assert_close(*outputs)


def test_compute_single_action_with_returned_states_equals_one_sequence() -> None:
    """Four steps one by one give the log-probabilities of one sequence of four."""
    policy = PPO(*CARTPOLE.spaces(), model=MEMORIES["lstm"])
    obs = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)
    state: list[Tensor] = []
    alone = []
    for step in obs:
        _, state, extra = policy.compute_single_action(step, state)
        alone.append(extra["action_logp"])
    start = {"0": torch.zeros(1, 6), "1": torch.zeros(1, 6)}
    dist = policy.distribution_of(SampleBatch(obs=torch.from_numpy(obs), seq_lens=torch.tensor([4]), state_in=start))
    assert_close(torch.stack(alone), dist.logp(dist.deterministic_sample()), atol=1e-5, rtol=1e-4)


class CustomGRU(RecurrentModel):
    """A custom GRU model, in RLlib's form."""

    def __init__(self, obs_space: Any, action_space: Any, num_outputs: int, *, width: int = 5, **keywords: Any) -> None:
        super().__init__(obs_space, action_space, num_outputs, **keywords)
        self.cell = nn.GRU(self.preprocessor.size, width, batch_first=True)
        self.outputs, self.values = nn.Linear(width, num_outputs), nn.Linear(width, 1)

    def get_initial_state(self) -> list[Tensor]:
        return [torch.zeros(self.cell.hidden_size)]

    def forward_rnn(self, inputs: Tensor, state: Any, seq_lens: Tensor | None) -> tuple[Tensor, list[Tensor]]:
        self.hidden, after = self.cell(inputs, state[0].unsqueeze(0).contiguous())
        return self.outputs(self.hidden), [after.squeeze(0)]

    def value_function(self) -> Tensor:
        return self.values(self.hidden).reshape(-1)


def test_ppo_learns_with_a_custom_recurrent_model() -> None:
    model = {"custom_model": CustomGRU, "custom_model_config": {"width": 7}, "max_seq_len": 5}
    policy = PPO(*CARTPOLE.spaces(), model=model, minibatches=2)
    before = policy.get_weights()["model.cell.weight_hh_l0"]
    metrics = policy.learn_on_batch(small_worker(policy).sample())
    assert policy.is_recurrent and abs(metrics["first_kl"]) < 1e-9
    assert not np.array_equal(before, policy.get_weights()["model.cell.weight_hh_l0"])


class CustomFeedForward(FullyConnectedNetwork):
    """A custom feed-forward model with a custom loss, metrics and an attribute."""

    scale = 3.0

    def custom_loss(self, policy_loss: Tensor, loss_inputs: SampleBatch) -> list[Tensor]:
        return [policy_loss, self.head.linear.weight.square().sum()]

    def metrics(self) -> dict[str, Any]:
        return {"weight": self.head.linear.weight.square().sum()}


@pytest.mark.parametrize("memory", ["lstm", "attention"])
def test_a_memory_around_a_custom_model_keeps_its_loss_metrics_and_attributes(memory: str) -> None:
    policy = PPO(*CARTPOLE.spaces(), model={**MEMORIES[memory], "custom_model": CustomFeedForward}, lr=0.0)
    metrics = policy.learn_on_batch(small_worker(policy).sample())
    assert policy.is_recurrent and metrics["model/weight"] > 0
    plain = metrics["policy_loss"] + policy.value_coef * metrics["value_loss"]
    assert metrics["loss"] == pytest.approx(plain + metrics["model/weight"], rel=1e-4)
    assert policy.model.scale == 3.0 and isinstance(policy.model.wrapped, CustomFeedForward)
