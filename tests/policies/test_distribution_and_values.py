"""Policy.distribution_and_values and its parts: inputs of the model, modes, masks, states, precision of values."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.testing import assert_close

from lightning_rl.fast_torch import in_eval_mode
from lightning_rl.learning.learner import fast_modes
from lightning_rl.models import Model
from lightning_rl.models.noisy import NoisyLinear
from lightning_rl.models.previous_step import previous_columns
from lightning_rl.policies import DQN, PPO, Policy
from lightning_rl.policies.kl import acting_distribution
from lightning_rl.sample_batch import SampleBatch, leading_shape, row_count

OBS, ACTION = spaces.Box(-1, 1, (3,)), spaces.Discrete(4)


class ReadsBefore(Model):
    """Values are the sum of observation, previous actions and previous rewards; keeps its last input in `read`."""

    def __init__(self, *args: Any, actions: int = 0, rewards: int = 0, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self.prev_actions, self.prev_rewards = actions, rewards
        self.layer = nn.Linear(1, self.num_outputs)
        self.read: dict[str, Any] = {}

    def forward(self, input_dict: Any, state: Any = (), seq_lens: Any = None) -> tuple[Tensor, list[Tensor]]:
        self.read = dict(input_dict)
        rows = input_dict["obs_flat"].sum(1)
        for name in ("prev_actions", "prev_rewards"):
            if getattr(self, name):
                rows = rows + input_dict[name].reshape(len(rows), -1).float().sum(1)
        self.value = rows
        return self.layer(rows.unsqueeze(1)), list(state)

    def value_function(self) -> Tensor:
        return self.value


def policy_that_reads(actions: int, rewards: int) -> PPO:
    config = {"actions": actions, "rewards": rewards}
    return PPO(OBS, ACTION, model={"custom_model": ReadsBefore, "custom_model_config": config})


def none_or_list(value: Tensor | None) -> Any:
    return None if value is None else value.tolist()


# -- previous steps ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("actions", "rewards", "before"),
    [
        (0, 0, (None, None)),
        (1, 0, ([-1, -1], None)),
        (0, 1, (None, [0.0, 0.0])),
        (1, 1, ([-1, -1], [0.0, 0.0])),
        (2, 0, ([[-1, -1]] * 2, None)),
        (1, 2, ([-1, -1], [[0.0, 0.0]] * 2)),
    ],
)
def test_models_read_action_minus_1_and_reward_0_before_the_first_step(actions: int, rewards: int, before: Any) -> None:
    policy = policy_that_reads(actions, rewards)
    inputs = policy.input_dict(torch.zeros(2, 3))
    assert (none_or_list(inputs["prev_actions"]), none_or_list(inputs["prev_rewards"])) == before
    assert previous_columns(policy.model) == ["prev_actions"] * (actions > 0) + ["prev_rewards"] * (rewards > 0)
    assert (policy.prev_actions, policy.prev_rewards) == (actions, rewards)


def test_input_dict_fills_in_the_previous_action_or_reward_that_is_not_given() -> None:
    policy, obs = policy_that_reads(1, 1), torch.zeros(2, 3)
    inputs = policy.input_dict(obs, prev_actions=torch.tensor([2, 3]))
    assert inputs["prev_actions"].tolist() == [2, 3] and inputs["prev_rewards"].tolist() == [0.0, 0.0]
    inputs = policy.input_dict(obs, prev_rewards=torch.tensor([0.5, 4.0]))
    assert inputs["prev_actions"].tolist() == [-1, -1] and inputs["prev_rewards"].tolist() == [0.5, 4.0]


@pytest.mark.parametrize(
    ("actions", "rewards", "expected"), [(1, 0, [2.0, 3.0]), (0, 1, [5.0, 7.0]), (1, 1, [7.0, 10.0])]
)
def test_evaluate_and_values_give_feed_forward_models_the_previous_actions_and_rewards(
    actions: int, rewards: int, expected: list[float]
) -> None:
    """Observations are 0, so values are the sum of those previous actions and rewards that the model reads."""
    policy = policy_that_reads(actions, rewards)
    rows = SampleBatch(obs=torch.zeros(2, 3), prev_actions=torch.tensor([2, 3]), prev_rewards=torch.tensor([5.0, 7.0]))
    dist, values = policy.distribution_and_values(rows)
    assert values.tolist() == expected
    assert_close(policy.distribution_of(rows).logp(torch.zeros(2)), dist.logp(torch.zeros(2)))
    fragment = SampleBatch({name: value.unsqueeze(1) for name, value in rows.items()})
    assert policy.values(fragment.obs, fragment).tolist() == [[value] for value in expected]
    assert policy.values(fragment.obs).tolist() == [[-1.0 * actions]] * 2, "as at an episode's start"


def test_inputs_of_gives_next_observations_with_their_own_previous_step() -> None:
    policy, zeros, ones = policy_that_reads(1, 1), torch.zeros(1, 3), torch.ones(1, 3)
    actions, rewards = torch.tensor([1, 2]).split(1), torch.tensor([5.0, 7.0]).split(1)
    rows = SampleBatch(obs=zeros, prev_actions=actions[0], prev_rewards=rewards[0])
    rows["next_obs"], rows["next_prev_actions"], rows["next_prev_rewards"] = ones, actions[1], rewards[1]
    for following, expected in ((False, (zeros, actions[0], rewards[0])), (True, (ones, actions[1], rewards[1]))):
        read = policy.inputs_of(rows, following=following)
        assert_close((read["obs"], read["prev_actions"], read["prev_rewards"]), expected)


@pytest.mark.parametrize("training", [True, False])
def test_is_training_in_the_input_is_the_mode_of_the_model_unless_given(training: bool) -> None:
    policy, obs = policy_that_reads(0, 0).train(training), torch.zeros(2, 3)
    assert policy.input_dict(obs)["is_training"] is training
    assert policy.input_dict(obs, is_training=not training)["is_training"] is not training
    assert policy.inputs_of(SampleBatch(obs=obs))["is_training"] is training
    assert policy.inputs_of(SampleBatch(obs=obs), is_training=not training)["is_training"] is not training
    other = policy_that_reads(0, 0).train(not training).model
    for recurrent in ({}, {"prev_actions": torch.zeros(2)}):
        policy.outputs_of(SampleBatch(obs=obs, **recurrent), other)
        assert other.read["is_training"] is not training, "the model's own mode, and not the policy's"


# -- observations -----------------------------------------------------------------------------------------------------
def test_models_read_nested_observations_as_the_environment_nests_them() -> None:
    space = spaces.Dict({"pair": spaces.Tuple((OBS, spaces.Discrete(2))), "action_mask": spaces.MultiBinary(4)})
    policy = PPO(space, ACTION, model={"custom_model": ReadsBefore})
    obs = SampleBatch(
        pair=(torch.ones(2, 3), torch.tensor([0, 1])), action_mask=torch.tensor([[1, 0, 0, 0], [1, 1, 1, 0]])
    )
    dist = policy.distribution_of(SampleBatch(obs=obs))
    read = policy.model.read["obs"]
    assert type(read) is dict and type(read["pair"]) is tuple and read["pair"][0].tolist() == [[1.0] * 3] * 2
    assert dist.logp(torch.tensor([0, 0]))[0] == 0.0, "the only action that the mask allows"
    inputs = policy.input_dict(read)
    assert inputs["obs"] is read and torch.equal(inputs["obs_flat"], policy.flat_observations(read))


def test_mask_of_converts_mask_columns_of_numbers_to_bool() -> None:
    policy, obs = PPO(OBS, ACTION), torch.zeros(1, 3)
    now, following = torch.tensor([[[1, 0, 1, 0]], [[0, 0, 0, 1]]], dtype=torch.int8)
    rows = SampleBatch(obs=obs, next_obs=obs, action_mask=now, next_action_mask=following)
    assert_close(policy.mask_of(rows), now.bool())
    assert_close(policy.mask_of(rows, following=True), following.bool())
    assert policy.mask_of(SampleBatch(obs=obs)) is None


def test_acting_distribution_is_that_of_the_recorded_inputs_and_mask() -> None:
    """Equal logits and two allowed actions of four: each has probability ½."""
    mask = torch.tensor([[True, False, True, False]])
    rows = SampleBatch(obs=torch.zeros(1, 3), action_dist_inputs=torch.ones(1, 4), action_mask=mask)
    dist = acting_distribution(PPO(OBS, ACTION), rows)
    assert dist.logp(torch.tensor([2])).exp().item() == pytest.approx(0.5)


# -- state ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("model", [{"use_gru": True}, {"use_lstm": True}], ids=str)
def test_likelihoods_and_values_use_the_given_state(model: dict[str, Any]) -> None:
    """A GRU has one tensor of state, an LSTM two."""
    policy = PPO(OBS, ACTION, model={"lstm_cell_size": 4, "fcnet_hiddens": [4], **model}, seed=1)
    obs, actions, start = torch.ones(2, 3), torch.tensor([0, 1]), policy.get_initial_state(2)
    later = [part + 2.0 for part in start]
    assert all(part.shape == (2, 4) for part in start)
    none, zero, other = (policy.compute_log_likelihoods(actions, obs, state) for state in ((), start, later))
    state_in = {str(number): part.unsqueeze(0) for number, part in enumerate(later)}
    fragment = SampleBatch(obs=obs.unsqueeze(0), state_in=state_in)
    assert not torch.allclose(policy.values(fragment.obs), policy.values(fragment.obs, fragment), rtol=1e-3)
    assert torch.equal(none, zero) and (none - other).abs().max() > 1e-3


# -- precision --------------------------------------------------------------------------------------------------------
def test_values_are_float32_under_autocast() -> None:
    policy = PPO(OBS, ACTION, model={"fcnet_hiddens": [4]})
    rows = SampleBatch(obs=torch.ones(2, 3))
    with torch.autocast("cpu", torch.bfloat16):
        assert policy.model(policy.input_dict(rows.obs), (), None)[0].dtype == torch.bfloat16
        assert policy.model.value_function().dtype == torch.bfloat16
        assert policy.distribution_and_values(rows)[1].dtype == torch.float32
        assert policy.values(rows.obs.unsqueeze(0)).dtype == torch.float32


# -- modes ------------------------------------------------------------------------------------------------------------
def modes(policy: Policy) -> dict[str, bool]:
    return {name: module.training for name, module in policy.named_modules()}


@pytest.mark.parametrize("training", [True, False])
def test_in_eval_mode_restores_each_module_s_mode_after_an_error_too(training: bool) -> None:
    policy = PPO(OBS, ACTION).train(training)
    before = modes(policy)
    assert before["model"] is training
    with pytest.raises(KeyError), in_eval_mode(policy):
        assert not any(modes(policy).values())
        raise KeyError
    assert modes(policy) == before


def noisy_dqn() -> DQN:
    return DQN(OBS, ACTION, model={"fcnet_hiddens": [4]}, noisy=True)


def test_train_leaves_target_networks_in_eval_mode_except_noisy_layers() -> None:
    policy = noisy_dqn()
    policy.train()
    targets = [module for name, module in policy.named_modules() if name.startswith("target_")]
    noisy = [module for module in targets if isinstance(module, NoisyLinear)]
    assert 0 < len(noisy) < len(targets) and all(module.training for module in noisy)
    assert not any(module.training for module in targets if module not in noisy)
    assert all(module.training for module in policy.modules() if module not in targets)
    assert not any(modes(policy.eval()).values())


def test_switching_modes_sets_the_same_modes_as_train_and_eval() -> None:
    """Within it modules are listed once; after it, after an error too, a module added since is switched as well."""
    policy, plain = noisy_dqn().train(), noisy_dqn()
    with pytest.raises(KeyError), fast_modes(policy):
        for mode in (True, False, True):
            assert policy.train(mode) is policy and modes(policy) == modes(plain.train(mode))
        raise KeyError
    policy.model.added = nn.Linear(1, 1)
    policy.eval()
    assert not policy.model.added.training
    policy.train()
    assert policy.model.added.training


# -- sizes ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("nest", [lambda x: x, lambda x: (x,), lambda x: {"a": (x,)}, lambda x: SampleBatch(a=x)])
def test_row_count_and_leading_shape_read_nested_observations(nest: Any) -> None:
    obs = nest(torch.zeros(5, 2, 3))
    assert row_count(obs) == 5 and leading_shape(obs) == (5, 2)
