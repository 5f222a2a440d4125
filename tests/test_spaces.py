"""Spaces: the table of what is supported, plain data and back, and the border between policy and environment."""

from __future__ import annotations

import enum
import json
import pickle
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, iterate
from hypothesis import given
from hypothesis import strategies as st

from lightning_rl.envs import EnvCreator
from lightning_rl.errors import UnsupportedSpaceError
from lightning_rl.policies import PPO
from lightning_rl.rollouts import RolloutWorker
from lightning_rl.sample_batch import from_nested_batch, to_nested_batch
from lightning_rl.spaces import (
    ActionTransform,
    check_supported,
    leaf_spaces,
    leaf_values,
    pack_leaves,
    space_difference,
    space_from_json,
    space_to_json,
    squash,
    unsquash,
)
from tests.space_cases import ACTIONS, BOX, GRAPH, NESTED, SUPPORTED, TABLE

names = str


@pytest.mark.parametrize(("space", "as_obs", "as_action", "word"), TABLE, ids=names)
def test_table_of_supported_spaces(space, as_obs, as_action, word):
    for role, works in (("observation", as_obs), ("action", as_action)):
        if works:
            check_supported(space, role)
        else:
            with pytest.raises(UnsupportedSpaceError, match=f"{role} space.*{word}"):
                check_supported(space, role)


@pytest.mark.parametrize("space", SUPPORTED, ids=names)
def test_plain_data_gives_an_equal_space_back_through_json(space):
    again = space_from_json(json.loads(json.dumps(space_to_json(space))))
    assert again == space
    assert space_difference(again, space) is None
    for (_, ours), (_, theirs) in zip(leaf_spaces(again), leaf_spaces(space), strict=True):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
        if isinstance(ours, spaces.Box):  # Box.__eq__ is only approximate
            assert np.array_equal(ours.low, theirs.low) and np.array_equal(ours.high, theirs.high)


def test_an_image_space_is_written_in_a_line():
    assert len(json.dumps(space_to_json(spaces.Box(0, 255, (84, 84, 4), dtype=np.uint8)))) < 120


def test_order_of_keys_survives_plain_data():
    space = spaces.Dict([("z", spaces.Discrete(2)), ("a", spaces.Discrete(3))])
    assert list(space_from_json(space_to_json(space)).spaces) == ["z", "a"]


@pytest.mark.parametrize("space", [spaces.Text(3), GRAPH], ids=names)
def test_unsupported_spaces_are_not_written(space):
    with pytest.raises(UnsupportedSpaceError):
        space_to_json(space)


def test_unknown_type_in_plain_data_is_named():
    with pytest.raises(UnsupportedSpaceError, match="'Blob'"):
        space_from_json({"type": "Blob"})


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        (spaces.Discrete(2), spaces.Discrete(3), "Discrete(2) against Discrete(3)"),
        (spaces.Discrete(2), BOX, "Discrete(2) against Box"),
        (spaces.Dict({"a": BOX}), spaces.Dict({"b": BOX}), "keys ['a'] against ['b']"),
        (spaces.Tuple([BOX]), spaces.Tuple([BOX, BOX]), "1 parts against 2"),
        (
            spaces.Dict({"a": spaces.Tuple([BOX, spaces.Discrete(2)])}),
            spaces.Dict({"a": spaces.Tuple([BOX, spaces.Discrete(5)])}),
            "a.1: Discrete(2) against Discrete(5)",
        ),
    ],
)
def test_difference_names_the_leaf(first, second, words):
    assert words in str(space_difference(first, second))


# -- the border -------------------------------------------------------------------------------------------------------
def policy_actions(transform: ActionTransform, count: int, seed: int = 0) -> Any:
    """Random batch of `count` policy-space actions as nested tensors."""
    transform.policy_space.seed(seed)
    samples = [leaf_values(transform.policy_space, transform.policy_space.sample()) for _ in range(count)]
    leaves = [torch.from_numpy(np.stack(column)) for column in zip(*samples, strict=True)]
    return pack_leaves(transform.policy_space, iter(leaves))


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("space", ACTIONS, ids=names)
def test_every_action_arrives_inside_the_space_in_its_dtype_and_comes_back(space, normalize):
    transform = ActionTransform(space, normalize=normalize, clip=True)
    actions = policy_actions(transform, 5)
    arrived = transform.to_env(actions)
    batched = batch_space(space, 5)
    assert all(space.contains(single) for single in iterate(batched, arrived))
    for (_, leaf), value in zip(leaf_spaces(space), leaf_values(space, arrived), strict=True):
        assert value.dtype == leaf.dtype and value.shape == (5, *leaf.shape)
    back = leaf_values(space, transform.from_env(arrived))
    for ours, theirs in zip(leaf_values(space, actions), back, strict=True):
        assert ours.dtype == theirs.dtype
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


HALF_OPEN = spaces.Box(np.array([0.0, -np.inf], np.float32), np.array([np.inf, np.inf], np.float32))
TEN = spaces.Box(0.0, 10.0, (1,))


def test_actions_are_stretched_to_finite_bounds_and_clipped() -> None:
    for space, keywords, actions, arrived in (
        (TEN, {"normalize": True}, [[-1.0], [0.5], [3.0]], [[0.0], [7.5], [10.0]]),  # 3 → 25 → 10
        (TEN, {"normalize": False, "clip": True}, [[-1.0], [0.5], [30.0]], [[0.0], [0.5], [10.0]]),
        (TEN, {"normalize": False, "clip": False}, [[-1.0], [30.0]], [[-1.0], [30.0]]),
        (HALF_OPEN, {"normalize": True}, [[-5.0, -5.0], [7.0, 7.0]], [[0.0, -5.0], [7.0, 7.0]]),  # clipped alone
    ):
        assert ActionTransform(space, **keywords).to_env(torch.tensor(actions)).tolist() == arrived
    assert ActionTransform(TEN, normalize=True).policy_space == spaces.Box(-1.0, 1.0, (1,))


def test_integer_box_and_start_are_counted_from_zero_by_the_policy():
    box = ActionTransform(spaces.Box(-3, 4, (2,), dtype=np.int32))
    assert box.policy_space == spaces.MultiDiscrete([8, 8])
    assert box.to_env(torch.tensor([[0, 7]])).tolist() == [[-3, 4]]
    discrete = ActionTransform(spaces.Discrete(3, start=5))
    assert discrete.policy_space == spaces.Discrete(3)
    assert discrete.to_env(torch.tensor([0, 2])).tolist() == [5, 7]


def test_nested_actions_come_from_dicts_and_from_nested_batches():
    space = spaces.Dict({"b": spaces.Discrete(3, start=1), "a": spaces.Tuple([BOX, spaces.MultiBinary(2)])})
    transform = ActionTransform(space)
    actions = policy_actions(transform, 4)
    from_dict, from_batch = transform.to_env(actions), transform.to_env(to_nested_batch(actions))
    assert isinstance(from_batch["a"], tuple)
    for ours, theirs in zip(leaf_values(space, from_dict), leaf_values(space, from_batch), strict=True):
        assert np.array_equal(ours, theirs)


def test_order_of_insertion_never_matters():
    space = spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Discrete(9)})
    assert leaf_values(space, {"b": 8, "a": 1}) == [1, 8]


def test_float_actions_are_copied_because_environments_may_write_into_them():
    actions = torch.zeros(2, 2)
    ActionTransform(BOX, normalize=False).to_env(actions)[:] = 7.0
    assert actions.eq(0).all()


@given(st.floats(-1, 1), st.floats(-100, 100), st.floats(0.01, 100))
def test_squash_inverts_unsquash(action, low, width):
    assert squash(unsquash(action, low, low + width), low, low + width) == pytest.approx(action, abs=1e-6)


def test_a_transform_can_be_pickled():
    transform = pickle.loads(pickle.dumps(ActionTransform(spaces.Tuple([BOX, spaces.Discrete(2)]))))
    assert len(transform.to_env((torch.zeros(1, 2), torch.zeros(1, dtype=torch.int64)))) == 2


# -- any nesting ------------------------------------------------------------------------------------------------------


@given(NESTED)
def test_any_nested_space_survives_plain_data(space):
    assert space_from_json(json.loads(json.dumps(space_to_json(space)))) == space


@given(NESTED)
def test_any_nested_action_arrives_inside_the_space(space):
    transform = ActionTransform(space)
    arrived = transform.to_env(policy_actions(transform, 2))
    assert all(space.contains(single) for single in iterate(batch_space(space, 2), arrived))


@given(NESTED)
def test_leaves_packed_again_are_the_value(space):
    value = space.sample()
    again = pack_leaves(space, iter(leaf_values(space, value)))
    for ours, theirs in zip(leaf_values(space, again), leaf_values(space, value), strict=True):
        assert np.array_equal(ours, theirs)


def test_a_dict_may_have_integer_keys_in_observations_and_actions() -> None:
    """Batches name their parts by text; environments get the keys that their space has."""
    inner = spaces.Dict({7: spaces.Box(-1.0, 1.0, (2,), np.float32), 5: spaces.Tuple((spaces.Discrete(2),))})
    space = spaces.Dict({0: spaces.Discrete(3), 1: inner})
    value = space.sample()
    batch = to_nested_batch(value)
    for ours, theirs in zip(leaf_values(space, batch), leaf_values(space, value), strict=True):
        assert np.array_equal(ours, theirs)
    back = from_nested_batch(space, batch)
    assert space.contains(back) and back[1].keys() == {5, 7}
    assert space_from_json(json.loads(json.dumps(space_to_json(space)))) == space

    class Keyed(gym.Env[Any, Any]):
        observation_space, action_space = space, spaces.Dict({3: spaces.Discrete(2), 4: spaces.Discrete(3)})

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            self.observation_space.seed(seed)
            return self.observation_space.sample(), {}

        def step(self, action: Any) -> Any:
            assert action.keys() == {3, 4}
            return self.observation_space.sample(), 1.0, False, False, {}

    policy = PPO(space, Keyed.action_space, model={"fcnet_hiddens": [8]})
    worker = RolloutWorker(EnvCreator(Keyed, check=False), policy, num_envs=2, fragment_length=8)
    assert np.isfinite(policy.learn_on_batch(worker.sample())["loss"])


class Layer(enum.IntEnum):
    WALL = 1
    ROAD = 2


class Color(enum.StrEnum):
    RED = "red"


class Part(enum.Enum):
    BODY = "body"


class Named(str, enum.Enum):  # noqa: UP042  its str() is "Named.ARM", which batches take for names
    ARM = "arm"


@pytest.mark.parametrize("key", [Layer.WALL, Color.RED, np.int64(4)], ids=repr)
def test_members_of_enumerations_that_equal_plain_keys_are_written_as_these(key: Any) -> None:
    space = spaces.Dict({"map": spaces.Dict([(key, spaces.MultiBinary(2))])})
    check_supported(space, "observation")
    written = space_to_json(space)
    assert type(written["spaces"][0][1]["spaces"][0][0]) in (int, str)
    again = space_from_json(json.loads(json.dumps(written)))
    assert again == space and space_difference(space, again) is None
    assert again.contains(space.sample())


@pytest.mark.parametrize("key", [Part.BODY, Named.ARM, (0, 1), None], ids=repr)
@pytest.mark.parametrize("role", ["observation", "action"])
def test_keys_that_no_file_can_hold_are_refused_before_training(key: Any, role: str) -> None:
    space = spaces.Dict({"map": spaces.Dict([(key, spaces.Discrete(2))])})
    with pytest.raises(UnsupportedSpaceError, match="rename"):
        check_supported(space, role)
