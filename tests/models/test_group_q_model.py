"""The network that a group's members share, against loops over members and sequences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor
from torch.testing import assert_close

from lightning_rl.models import FullyConnectedNetwork, Preprocessor
from lightning_rl.policies import QMIX, VDN
from lightning_rl.sample_batch import SampleBatch
from tests.policies.group_tasks import Remembered, group_rows

MEMBERS, ACTIONS = 3, 3
GRU = {"fcnet_hiddens": [8], "use_gru": True, "lstm_cell_size": 4}


def policy(policy_class: Any = VDN, members: int = MEMBERS, **keywords: Any) -> Any:
    env = Remembered(members)
    return policy_class(env.observation_space, env.action_space, **{"model": {"fcnet_hiddens": [8]}, **keywords})


def member_inputs(made: Any, rows: SampleBatch, member: int) -> Tensor:
    """What the network reads for one member: its observation, last action and number."""
    parts = [rows.obs["agents"][str(member)]]
    if made.model.last_action:
        last = rows["prev_actions"][str(member)]
        parts.append(torch.stack([(last == action).float() for action in range(ACTIONS)], dim=1))
    if made.model.agent_id:
        parts.append(torch.eye(MEMBERS)[member].expand(rows.count, -1))
    return torch.cat(parts, dim=1)


def rows_with_last_actions(count: int = 6) -> SampleBatch:
    rows = group_rows(Remembered(MEMBERS), count)
    last = {str(member): torch.arange(count) % (ACTIONS + 1) - 1 for member in range(MEMBERS)}
    rows["prev_actions"] = SampleBatch(last)
    return rows


@pytest.mark.parametrize("agent_id", [True, False])
@pytest.mark.parametrize("last_action", [True, False])
def test_members_share_one_network(agent_id: bool, last_action: bool) -> None:
    """Its outputs for each member alone, −∞ at actions that the member's mask forbids."""
    made, rows = policy(agent_id=agent_id, last_action=last_action), rows_with_last_actions()
    found = made.q_values(made.model, rows)
    assert made.prev_actions == int(last_action)
    for member in range(MEMBERS):
        inputs = member_inputs(made, rows, member)
        values, _ = made.model.wrapped({"obs": inputs, "obs_flat": inputs})
        mask = rows.obs["action_masks"][str(member)].bool()
        mask = mask | ~mask.any(1, keepdim=True)
        assert_close(found[:, member], values.masked_fill(~mask, -torch.inf))


def test_before_the_first_action_the_last_one_is_the_zero_vector() -> None:
    made, rows = policy(), rows_with_last_actions()
    first = made.initial_previous_step(rows.count)["prev_actions"]
    assert all(first[str(member)].tolist() == [-1] * rows.count for member in range(MEMBERS))
    rows["prev_actions"] = first
    assert not member_inputs(made, rows, 0)[:, 2:5].any()


@pytest.mark.parametrize("memory", ["use_gru", "use_lstm", "use_attention"])
def test_sequences_of_a_group_are_those_of_its_members_alone(memory: str) -> None:
    """Sequences of 4 and 2 rows in one pass equal steps one by one, in which each member has a state of its own."""
    model = {"fcnet_hiddens": [8], memory: True, "lstm_cell_size": 4, "attention_dim": 8}
    made, rows = policy(model=model), rows_with_last_actions()
    rows["seq_lens"] = torch.tensor([4, 2])
    initial = made.get_initial_state(2)
    rows["state_in"] = SampleBatch({str(index): part for index, part in enumerate(initial)})
    found = made.q_values(made.model, rows)
    with torch.no_grad():
        for start, length in ((0, 4), (4, 2)):
            state = made.get_initial_state(1)
            assert all(part.shape[:2] == (1, MEMBERS) for part in state)
            for row in range(start, start + length):
                one = rows.without("seq_lens", "state_in")[row : row + 1]
                inputs = made.input_dict(one.obs, prev_actions=one["prev_actions"])
                values, state = made.model(inputs, state, None)
                assert_close(found[row].detach(), values.view(MEMBERS, ACTIONS), rtol=1e-4, atol=1e-5)


def test_a_member_s_own_state_does_not_reach_the_others() -> None:
    made, rows = policy(model=GRU), rows_with_last_actions(1)
    inputs = made.input_dict(rows.obs, prev_actions=rows["prev_actions"])
    state = [torch.zeros(1, MEMBERS, 4)]
    plain, _ = made.model(inputs, state, None)
    state[0][0, 1] = 1.0
    other, _ = made.model(inputs, state, None)
    changed = (plain != other).view(MEMBERS, ACTIONS).any(1)
    assert changed.tolist() == [False, True, False]


def test_a_network_may_read_earlier_actions_and_rewards_itself() -> None:
    keys = {**GRU, "lstm_use_prev_action": True, "lstm_use_prev_reward": True}
    made, rows = policy(model=keys, last_action=False), rows_with_last_actions(2)
    assert made.prev_actions == 1 and made.prev_rewards == 1
    before = {"prev_actions": rows["prev_actions"], "prev_rewards": torch.tensor([0.0, 5.0])}
    plain, _ = made.model(made.input_dict(rows.obs, **before), made.get_initial_state(2), None)
    before["prev_rewards"] = torch.tensor([0.0, 6.0])
    other, _ = made.model(made.input_dict(rows.obs, **before), made.get_initial_state(2), None)
    allowed = plain > -torch.inf
    assert torch.equal(plain[0], other[0]) and not torch.equal(plain[1][allowed[1]], other[1][allowed[1]])


class Doubled(Preprocessor):
    """A member's observation times two."""

    def _init_shape(self, obs_space: Any, options: dict[str, Any]) -> tuple[int, ...]:
        return obs_space.shape

    def transform_batch(self, obs: Tensor) -> Tensor:
        return 2.0 * obs


def test_custom_models_and_preprocessors_are_those_of_one_member() -> None:
    rows = rows_with_last_actions()
    model = {"custom_preprocessor": Doubled, "custom_model": PulledNetwork}  # which outputs Q-values itself
    made = policy(model=model, agent_id=False, last_action=False)
    network = made.model.wrapped.wrapped
    assert isinstance(network, PulledNetwork) and network.num_outputs == ACTIONS
    found = made.q_values(made.model, rows)
    values, _ = network({"obs_flat": 2.0 * rows.obs["agents"]["1"]})
    allowed = found[:, 1] > -torch.inf
    assert_close(found[:, 1][allowed], values[allowed])


def test_the_observation_filter_sees_members_and_state() -> None:
    made, rows = policy(QMIX, observation_filter="mean_std"), rows_with_last_actions(50)
    assert made.preprocessor.size == MEMBERS * 2 + MEMBERS + 1
    before = made.q_values(made.model, rows)
    made.update_filters(rows)
    after = made.q_values(made.model, rows)
    assert not torch.equal(before, after)
    state = made.mixing_state(rows.obs)
    assert state.shape == (50, MEMBERS + 1)
    assert_close(state.mean(0), torch.zeros(MEMBERS + 1), rtol=0, atol=1e-4)


def test_members_that_see_images_use_convolutions_and_their_numbers() -> None:
    image = spaces.Box(0, 255, (12, 12, 3), np.uint8)
    obs_space, action_space = spaces.Tuple([image, image]), spaces.Tuple([spaces.Discrete(2)] * 2)
    model = {"conv_filters": [[4, 4, 2]], "post_fcnet_hiddens": [8]}
    made = VDN(obs_space, action_space, model=model)
    rows = SampleBatch(obs=SampleBatch({str(i): torch.full((3, 12, 12, 3), 50, dtype=torch.uint8) for i in range(2)}))
    rows["prev_actions"] = SampleBatch({str(i): torch.tensor([-1, 0, 1]) for i in range(2)})
    found = made.q_values(made.model, rows)
    assert found.shape == (3, 2, 2)
    assert not torch.equal(found[:, 0], found[:, 1]) and not torch.equal(found[0, 0], found[1, 0])
    plain = VDN(obs_space, action_space, model=model, agent_id=False, last_action=False)
    same = plain.q_values(plain.model, rows)
    assert_close(same[:, 0], same[:, 1])


class PulledNetwork(FullyConnectedNetwork):
    """Adds the mean of what it has read to the loss."""

    def custom_loss(self, policy_loss: Tensor, loss_inputs: SampleBatch) -> Tensor:
        return policy_loss + loss_inputs.obs.mean()


def test_a_custom_loss_gets_the_rows_of_the_members() -> None:
    made = policy(model={"custom_model": PulledNetwork, "fcnet_hiddens": [8]}, last_action=False)
    rows = rows_with_last_actions()
    made.q_values(made.model, rows)
    inputs = torch.stack([member_inputs(made, rows, member) for member in range(MEMBERS)], dim=1)
    assert_close(made.model.custom_loss(torch.tensor(2.0), rows), 2.0 + inputs.mean())
