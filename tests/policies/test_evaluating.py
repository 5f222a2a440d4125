"""What a policy's model is given to read, in which mode, and in which precision its values come out."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.testing import assert_close

from lightning_rl.models import Model
from lightning_rl.models.noisy import NoisyLinear
from lightning_rl.policies import DQN, PPO, Policy
from lightning_rl.sample_batch import SampleBatch, leading_shape, row_count

OBS, ACTION = spaces.Box(-1, 1, (3,)), spaces.Discrete(4)


class Reads(Model):
    """Gives what it reads of the steps before: logits that grow with the action, values that are sums of the rewards.

    Keeps what it was given.
    """

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


def reading(actions: int, rewards: int) -> PPO:
    return PPO(
        OBS, ACTION, model={"custom_model": Reads, "custom_model_config": {"actions": actions, "rewards": rewards}}
    )


def none_or_list(value: Tensor | None) -> Any:
    return None if value is None else value.tolist()


# -- what came before -------------------------------------------------------------------------------------------------
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
def test_where_there_was_no_step_yet_a_model_reads_what_stands_for_none(
    actions: int, rewards: int, before: tuple[Any, Any]
) -> None:
    policy = reading(actions, rewards)
    inputs = policy.input_dict(torch.zeros(2, 3))
    assert (none_or_list(inputs["prev_actions"]), none_or_list(inputs["prev_rewards"])) == before
    assert policy.read_before() == ["prev_actions"] * (actions > 0) + ["prev_rewards"] * (rewards > 0)
    assert (policy.prev_actions, policy.prev_rewards) == (actions, rewards)


def test_what_is_given_is_read_beside_what_stands_for_the_rest() -> None:
    policy, obs = reading(1, 1), torch.zeros(2, 3)
    inputs = policy.input_dict(obs, prev_actions=torch.tensor([2, 3]))
    assert inputs["prev_actions"].tolist() == [2, 3] and inputs["prev_rewards"].tolist() == [0.0, 0.0]
    inputs = policy.input_dict(obs, prev_rewards=torch.tensor([0.5, 4.0]))
    assert inputs["prev_actions"].tolist() == [-1, -1] and inputs["prev_rewards"].tolist() == [0.5, 4.0]


@pytest.mark.parametrize(
    ("actions", "rewards", "expected"), [(1, 0, [2.0, 3.0]), (0, 1, [5.0, 7.0]), (1, 1, [7.0, 10.0])]
)
def test_models_without_state_learn_from_the_steps_before_too(
    actions: int, rewards: int, expected: list[float]
) -> None:
    """Observations of 0: values are the sum of the action and the reward before, as far as the model reads them."""
    policy = reading(actions, rewards)
    rows = SampleBatch(obs=torch.zeros(2, 3), prev_actions=torch.tensor([2, 3]), prev_rewards=torch.tensor([5.0, 7.0]))
    dist, values = policy.evaluate(rows)
    assert values.tolist() == expected
    assert_close(policy.distribution_of(rows).logp(torch.zeros(2)), dist.logp(torch.zeros(2)))
    fragment = SampleBatch({name: value.unsqueeze(1) for name, value in rows.items()})
    assert policy.values(fragment.obs, fragment).tolist() == [[value] for value in expected]
    assert policy.values(fragment.obs).tolist() == [[-1.0 * actions]] * 2, "as at an episode's start"


def test_rows_that_follow_are_read_with_what_came_before_them() -> None:
    policy = reading(1, 1)
    rows = SampleBatch(
        obs=torch.zeros(1, 3),
        next_obs=torch.ones(1, 3),
        prev_actions=torch.tensor([1]),
        next_prev_actions=torch.tensor([2]),
        prev_rewards=torch.tensor([5.0]),
        next_prev_rewards=torch.tensor([7.0]),
    )
    read = [policy.inputs_of(rows), policy.inputs_of(rows, following=True)]
    assert [(i["obs"].tolist(), i["prev_actions"].item(), i["prev_rewards"].item()) for i in read] == [
        ([[0.0] * 3], 1, 5.0),
        ([[1.0] * 3], 2, 7.0),
    ]


@pytest.mark.parametrize("training", [True, False])
def test_a_model_is_told_its_mode(training: bool) -> None:
    policy, obs = reading(0, 0).train(training), torch.zeros(2, 3)
    assert policy.input_dict(obs)["is_training"] is training
    assert policy.input_dict(obs, is_training=not training)["is_training"] is not training
    assert policy.inputs_of(SampleBatch(obs=obs))["is_training"] is training
    assert policy.inputs_of(SampleBatch(obs=obs), is_training=not training)["is_training"] is not training
    other = reading(0, 0).train(not training).model
    for recurrent in ({}, {"prev_actions": torch.zeros(2)}):
        policy.outputs_of(SampleBatch(obs=obs, **recurrent), other)
        assert other.read["is_training"] is not training, "the model's own mode, and not the policy's"


# -- observations -----------------------------------------------------------------------------------------------------
def test_nested_observations_of_a_batch_reach_a_model_as_the_environment_nests_them() -> None:
    space = spaces.Dict({"pair": spaces.Tuple((OBS, spaces.Discrete(2))), "action_mask": spaces.MultiBinary(4)})
    policy = PPO(space, ACTION, model={"custom_model": Reads})
    obs = SampleBatch(
        pair=(torch.ones(2, 3), torch.tensor([0, 1])), action_mask=torch.tensor([[1, 0, 0, 0], [1, 1, 1, 0]])
    )
    dist = policy.distribution_of(SampleBatch(obs=obs))
    read = policy.model.read["obs"]
    assert type(read) is dict and type(read["pair"]) is tuple and read["pair"][0].tolist() == [[1.0] * 3] * 2
    assert dist.logp(torch.tensor([0, 0]))[0] == 0.0, "the only action that the mask allows"
    inputs = policy.input_dict(read)
    assert inputs["obs"] is read and torch.equal(inputs["obs_flat"], policy.flat_observations(read))


def test_a_column_of_masks_stands_above_one_in_the_observation_and_may_be_of_numbers() -> None:
    policy = PPO(OBS, ACTION)
    rows = SampleBatch(
        obs=torch.zeros(1, 3),
        next_obs=torch.zeros(1, 3),
        action_mask=torch.tensor([[1, 0, 1, 0]], dtype=torch.int8),
        next_action_mask=torch.tensor([[0, 0, 0, 1]], dtype=torch.int8),
    )
    assert policy.mask_of(rows).tolist() == [[True, False, True, False]]  # type: ignore[union-attr]
    assert policy.mask_of(rows, following=True).tolist() == [[False, False, False, True]]  # type: ignore[union-attr]
    assert policy.mask_of(SampleBatch(obs=torch.zeros(1, 3))) is None


def test_the_distribution_that_acted_is_that_of_its_inputs_and_its_mask() -> None:
    """Equal logits and two allowed actions of four: each has probability ½."""
    policy = PPO(OBS, ACTION)
    rows = SampleBatch(
        obs=torch.zeros(1, 3),
        action_dist_inputs=torch.ones(1, 4),
        action_mask=torch.tensor([[True, False, True, False]]),
    )
    assert policy.acting_distribution(rows).logp(torch.tensor([2])).exp().item() == pytest.approx(0.5)


# -- state ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("model", [{"use_gru": True}, {"use_lstm": True}], ids=str)
def test_a_state_that_is_given_is_not_that_of_an_episode_s_start(model: dict[str, Any]) -> None:
    """A GRU has one tensor of state, an LSTM two."""
    policy = PPO(OBS, ACTION, model={"lstm_cell_size": 4, "fcnet_hiddens": [4], **model}, seed=1)
    obs, actions, start = torch.ones(2, 3), torch.tensor([0, 1]), policy.get_initial_state(2)
    assert all(part.shape == (2, 4) for part in start)
    none, zero = (policy.compute_log_likelihoods(actions, obs, state) for state in ((), start))
    other = policy.compute_log_likelihoods(actions, obs, [part + 2.0 for part in start])
    fragment = SampleBatch(
        obs=obs.unsqueeze(0),
        state_in={str(number): part.unsqueeze(0) + 2.0 for number, part in enumerate(start)},
    )
    assert not torch.allclose(policy.values(fragment.obs), policy.values(fragment.obs, fragment), rtol=1e-3)
    assert torch.equal(none, zero) and (none - other).abs().max() > 1e-3


# -- precision --------------------------------------------------------------------------------------------------------
def test_values_are_float32_in_whatever_precision_a_network_computes() -> None:
    policy = PPO(OBS, ACTION, model={"fcnet_hiddens": [4]})
    rows = SampleBatch(obs=torch.ones(2, 3))
    with torch.autocast("cpu", torch.bfloat16):
        assert policy.model(policy.input_dict(rows.obs), (), None)[0].dtype == torch.bfloat16
        assert policy.model.value_function().dtype == torch.bfloat16
        assert policy.evaluate(rows)[1].dtype == torch.float32
        assert policy.values(rows.obs.unsqueeze(0)).dtype == torch.float32


# -- modes ------------------------------------------------------------------------------------------------------------
def modes(policy: Policy) -> dict[str, bool]:
    return {name: module.training for name, module in policy.named_modules()}


@pytest.mark.parametrize("training", [True, False])
def test_eval_mode_ends_as_it_began_even_by_an_error(training: bool) -> None:
    policy = PPO(OBS, ACTION).train(training)
    before = modes(policy)
    assert before["model"] is training
    with pytest.raises(KeyError), policy.in_eval_mode():
        assert not any(modes(policy).values())
        raise KeyError
    assert modes(policy) == before


def noisy_dqn() -> DQN:
    return DQN(OBS, ACTION, model={"fcnet_hiddens": [4]}, noisy=True)


def test_target_networks_rest_but_for_their_noise() -> None:
    policy = noisy_dqn()
    policy.train()
    targets = [module for name, module in policy.named_modules() if name.startswith("target_")]
    noisy = [module for module in targets if isinstance(module, NoisyLinear)]
    assert 0 < len(noisy) < len(targets) and all(module.training for module in noisy)
    assert not any(module.training for module in targets if module not in noisy)
    assert all(module.training for module in policy.modules() if module not in targets)
    assert not any(modes(policy.eval()).values())


def test_modes_are_the_same_where_the_modules_are_listed_once() -> None:
    """Until the list is dropped, behind an error too: then a module that was added is switched as well."""
    policy, plain = noisy_dqn().train(), noisy_dqn()
    with pytest.raises(KeyError), policy.switching_modes():
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
def test_sizes_are_those_of_the_arrays_however_they_are_nested(nest: Any) -> None:
    obs = nest(torch.zeros(5, 2, 3))
    assert row_count(obs) == 5 and leading_shape(obs) == (5, 2)
