"""R2D2: burn-in, sequences, priorities and rescaled targets."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from lightning_rl.losses.value import value_rescale
from lightning_rl.policies import R2D2
from lightning_rl.rollouts import RolloutWorker
from lightning_rl.sample_batch import SampleBatch
from tests.envs.classic_control import CARTPOLE
from tests.policies.off_policy_algorithms import (
    OBS,
    TWO,
    gradients,
    set_constant_q,
    small_policy,
    td_errors,
    transitions,
)


def sequences(**columns: Any) -> SampleBatch:
    """Two sequences of 5 and 3 rows; the first two rows and the first row of them are burn-in."""
    state = SampleBatch({"0": torch.zeros(2, 4), "1": torch.zeros(2, 4)})
    burn_in = torch.tensor([True, True, False, False, False, True, False, False])
    rows = {"seq_lens": torch.tensor([5, 3]), "burn_in": burn_in, "bootstrap_rows": torch.arange(8)}
    return transitions(count=8, **{**rows, "state_in": state, "next_state_in": state, **columns})


def recurrent_policy(**changes: Any) -> Any:
    return R2D2(OBS, TWO, model={"fcnet_hiddens": [8], "use_lstm": True, "lstm_cell_size": 4}, **changes)


def test_burn_in_rows_add_nothing_to_the_loss_or_its_gradient() -> None:
    """Rewards of 1e6 or NaN in burn-in rows leave loss and gradients as they were; in trained rows they do not."""
    policy, burn_in, rewards = recurrent_policy(), sequences()["burn_in"], sequences().rewards
    plain = gradients(policy, sequences())
    other = gradients(policy, sequences(rewards=torch.where(burn_in, 1e6, rewards)))
    assert_close(plain, other, rtol=0, atol=0)
    batch = sequences(rewards=torch.where(burn_in, torch.nan, rewards))
    loss, metrics = policy.loss(batch)
    assert bool(torch.isfinite(loss)) and bool(torch.isfinite(metrics["td_errors"]).all())
    trained = gradients(policy, sequences(rewards=torch.where(burn_in, rewards, 1e6)))
    assert any(not torch.equal(value, trained[key]) for key, value in plain.items())


def test_burn_in_rows_change_the_state_that_trained_rows_start_in() -> None:
    policy, burn_in = recurrent_policy(), sequences()["burn_in"]
    plain, other = sequences(), sequences()
    other["obs"] = torch.where(burn_in.unsqueeze(1), other.obs + 1.0, other.obs)
    assert not torch.equal(td_errors(policy, plain), td_errors(policy, other))


def test_r2d2_s_gradient_stops_at_the_end_of_the_burn_in() -> None:
    """Compared with a loop over the LSTM's steps that detaches the state in the burn-in rows."""
    policy, batch = recurrent_policy(rescale=False, double=False, dueling=False), sequences()
    targets = torch.randn(8)
    policy.targets = lambda rows: targets  # type: ignore[method-assign]
    network, lstm = policy.model.wrapped, policy.model.wrapped.rnn
    found = gradients(policy, batch)
    policy.zero_grad()
    losses, start = [], 0
    for length in batch.seq_lens.tolist():
        state = (torch.zeros(1, 1, 4), torch.zeros(1, 1, 4))
        for row in range(start, start + length):
            features, _ = network.wrapped({"obs_flat": batch.obs[row : row + 1]})
            hidden, state = lstm(features.unsqueeze(0), state)
            if batch["burn_in"][row]:
                state = (state[0].detach(), state[1].detach())
            else:
                taken = policy.model.advantages(hidden[0])[0, batch.actions[row]]
                losses.append(nn.functional.huber_loss(taken, targets[row]))
        start += length
    torch.stack(losses).mean().backward()
    for name, parameter in policy.model.named_parameters():
        if parameter.grad is not None and bool(parameter.grad.any()):
            assert_close(found[f"model.{name}"], parameter.grad, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("memory", ["use_lstm", "use_gru", "use_attention"])
def test_burn_in_works_under_autocast(memory: str) -> None:
    policy = R2D2(OBS, TWO, model={"fcnet_hiddens": [8], memory: True})
    batch = sequences()
    initial = [part.expand(2, *part.shape) for part in policy.model.get_initial_state()]
    batch["state_in"] = batch["next_state_in"] = SampleBatch({str(i): part for i, part in enumerate(initial)})
    with torch.autocast("cpu", torch.bfloat16):
        loss, _ = policy.loss(batch)
    assert bool(loss.isfinite())


def test_sequences_of_a_fragment_hold_the_next_observations_actions_and_states() -> None:
    """Each row has the next step's columns, each sequence the state before its second row."""
    env = CARTPOLE
    model = {"fcnet_hiddens": [8], "use_lstm": True, "lstm_cell_size": 4, "max_seq_len": 5}
    policy = R2D2(*env.spaces(), model={**model, "lstm_use_prev_action": True}, reward_filter="sign", gamma=0.75)
    fragment = RolloutWorker(env, policy, num_envs=2, fragment_length=32, seed=2).sample()
    fragment["place"], fragment["rewards"] = torch.arange(64).view(32, 2), fragment.rewards * 5.0
    found = policy.learner.rows_of(fragment)
    assert found.count == int(fragment.valid.sum()) and not fragment.valid.all()
    assert set(found.rewards.tolist()) == {1.0} and set(found["discounts"].tolist()) == {0.75}
    for row, place in enumerate(found["place"].tolist()):
        step, env_index = divmod(place, 2)
        for name in ("obs", "prev_actions"):
            assert torch.equal(found[name][row], fragment[name][step, env_index])
            assert torch.equal(found[f"next_{name}"][row], fragment[name][step + 1, env_index])
    starts = found["place"][found.seq_lens.cumsum(0) - found.seq_lens].tolist()
    assert len(starts) > 12
    for sequence, place in enumerate(starts):
        step, env_index = divmod(place, 2)
        for name in ("0", "1"):
            assert torch.equal(found.state_in[name][sequence], fragment.state_in[name][step, env_index])
            assert torch.equal(found["next_state_in"][name][sequence], fragment.state_in[name][step + 1, env_index])


def test_r2d2_trains_every_row_without_a_burn_in() -> None:
    """Priorities of the errors 1, 2, 6, 1, 2: 0.9 · 6 + 0.1 · 12 / 5 = 5.64; of −4, 2, 6: 0.9 · 6 + 0.1 · 4 = 5.8.

    Their Huber losses are ½, 1½, 5½, ½, 1½, 3½, 1½, 5½.
    """
    policy, batch = recurrent_policy(), sequences().without("burn_in")
    errors = torch.tensor([1.0, 2.0, 6.0, 1.0, 2.0, -4.0, 2.0, 6.0])
    loss, priorities = policy.td_loss(errors, batch)
    assert loss.item() == pytest.approx(2.5)
    assert_close(priorities, torch.tensor([5.64, 5.8]))
    plain, found = policy.td_loss(errors, transitions(count=8))  # of a model without memory
    assert plain.item() == pytest.approx(2.5) and torch.equal(found, errors)


@pytest.mark.parametrize("training", [True, False])
def test_burn_in_rows_pass_the_model_in_eval_mode_without_gradient(training: bool) -> None:
    """Sequences with equally many burn-in rows run together, in eval mode; then the model is in its former mode.

    The trained rows, 3 and 2, are padded to 6 rows; without a burn-in, 5 and 3 are padded to 10.
    """
    policy, seen = recurrent_policy().train(training), []
    policy.model.register_forward_hook(
        lambda model, inputs, outputs: seen.append(
            (len(outputs[0]), model.training, inputs[0]["is_training"], outputs[0].requires_grad)
        )
    )
    policy.q_values(policy.model, sequences())
    assert sorted(seen) == [(1, False, False, False), (2, False, False, False), (6, training, training, True)]
    assert policy.model.training is training
    seen.clear()
    policy.q_values(policy.model, sequences(burn_in=torch.zeros(8, dtype=torch.bool)))
    assert seen == [(10, training, training, True)]
    seen.clear()
    with torch.no_grad():  # targets need no cut: one forward over whole sequences
        policy.q_values(policy.model, sequences())
    assert seen == [(10, training, training, False)]


def test_r2d2_masks_forbidden_actions_after_a_burn_in() -> None:
    policy, batch = recurrent_policy(), sequences(action_mask=torch.tensor([[True, False]]).expand(8, 2))
    values, returns = policy.q_values(policy.model, batch)
    assert bool(values[~batch["burn_in"], 1].isneginf().all()) and bool(returns.isfinite().all())
    assert_close(values[:, 0], returns[:, 0])


def test_q_values_after_a_burn_in_equal_those_of_one_forward() -> None:
    """A forward that cuts the gradient after the burn-in gives the Q-values of one over whole sequences."""
    policy, batch = recurrent_policy(), sequences()
    apart, _ = policy.q_values(policy.model, batch)
    with torch.no_grad():
        whole, _ = policy.q_values(policy.model, batch)
    assert apart.requires_grad
    assert_close(apart.detach(), whole)


def test_r2d2_s_target_is_h_of_the_return() -> None:
    """The target network gives h(3), so V = 3; r + γ V = 1 + ½ · 3 = 2.5; h(2.5) = √3.5 − 1 + 0.0025 = 0.873329."""
    policy = small_policy("r2d2", dueling=False)
    set_constant_q(policy.model, 0.0, 0.0)
    set_constant_q(policy.target_model, *[value_rescale(torch.tensor(3.0)).item()] * 2)
    batch = transitions("r2d2", rewards=torch.ones(6), discounts=torch.full((6,), 0.5))
    assert_close(td_errors(policy, batch), torch.full((6,), -0.873329), rtol=0, atol=1e-5)
    plain = small_policy("r2d2", rescale=False, dueling=False)
    set_constant_q(plain.model, 0.0, 0.0)
    set_constant_q(plain.target_model, 3.0, 3.0)
    assert_close(td_errors(plain, batch), torch.full((6,), -2.5))


def test_n_step_targets_of_sequences_bootstrap_after_the_last_summed_row() -> None:
    """Row 2 sums the rewards of rows 2 and 3, so it bootstraps from the value after row 3."""
    policy = recurrent_policy(rescale=False, double=False)
    ends = torch.arange(8)
    ends[2] = 3
    plain, summed = sequences(), sequences(bootstrap_rows=ends)
    with torch.no_grad():
        of_rows, found = policy.bootstrap_values(plain), policy.bootstrap_values(summed)
    assert_close(found[2], of_rows[3], rtol=0, atol=0)
    assert_close(found[torch.arange(8) != 2], of_rows[torch.arange(8) != 2], rtol=0, atol=0)


def test_a_sequence_s_priority_mixes_its_largest_and_mean_error_and_its_weight_scales_its_rows() -> None:
    """η = 0.9 over the trained rows: of errors 1, 2, 6 it is 0.9 · 6 + 0.1 · 3 = 5.7; of −4, 2: 0.9 · 4 + 0.1 · 3.

    Their Huber losses are ½, 1½, 5½ and 3½, 1½.
    """
    policy = recurrent_policy()
    errors = torch.tensor([9.0, 9.0, 1.0, 2.0, 6.0, 9.0, -4.0, 2.0])
    loss, priorities = policy.td_loss(errors, sequences(weights=torch.tensor([1.0, 0.5])))
    assert_close(priorities, torch.tensor([5.7, 3.9]))
    assert loss.item() == pytest.approx((0.5 + 1.5 + 5.5 + 0.5 * (3.5 + 1.5)) / 5)
