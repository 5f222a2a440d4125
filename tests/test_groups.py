"""The parts of a group's spaces, and the errors for spaces that are not a group's."""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import spaces

from lightning_rl.errors import UnsupportedSpaceError
from lightning_rl.sample_batch import SampleBatch
from lightning_rl.spaces.groups import GroupSpaces
from tests.refusals import not_refused

BOX, TWO = spaces.Box(-1, 1, (2,)), spaces.Discrete(2)
PAIR, ACTIONS = spaces.Tuple([BOX, BOX]), spaces.Tuple([TWO, TWO])
BIT = spaces.MultiBinary(2)


def dict_space(**parts: Any) -> spaces.Dict:
    return spaces.Dict({"agents": PAIR, **parts})


def test_spaces_that_are_not_a_group_s_are_one_clear_error() -> None:
    cases = [
        (BOX, TWO, r"Discrete\(2\).*env.group_agents=all"),
        (BOX, ACTIONS, r"env.group_agents=all"),
        (spaces.Dict({"x": PAIR}), ACTIONS, "Dict"),
        (dict_space(extra=BOX), ACTIONS, "Dict"),
        (PAIR, spaces.Tuple([TWO] * 3), "2 observations and 3 actions"),
        (PAIR, spaces.Tuple([TWO, spaces.Discrete(3)]), r"member 1 has Discrete\(3\)"),
        (spaces.Tuple([BOX, spaces.Box(-1, 1, (3,))]), ACTIONS, "equal spaces"),
        (PAIR, spaces.Tuple([BOX, BOX]), "Box"),
        (dict_space(present=spaces.MultiBinary(3)), ACTIONS, r"'present' .*; expected shape \[2\]"),
        (dict_space(action_masks=spaces.Tuple([spaces.MultiBinary(3)] * 2)), ACTIONS, r"'action_masks.0'.*shape \[2\]"),
    ]
    assert not_refused(lambda obs, actions: GroupSpaces(obs, actions, "QMIX"), cases, UnsupportedSpaceError) == []


def test_a_tuple_has_all_members_present_and_no_masks() -> None:
    group = GroupSpaces(PAIR, ACTIONS, "QMIX")
    obs = (torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0]]))
    assert group.members(obs).tolist() == [[[1.0, 2.0], [3.0, 4.0]]]
    assert group.present(obs) is None and group.action_masks(obs) is None
    assert group.stack_actions(SampleBatch({"0": torch.tensor([1]), "1": torch.tensor([0])})).tolist() == [[1, 0]]


def test_masks_are_found_beside_the_members_and_in_them() -> None:
    """A mask that allows nothing, as an absent member's, allows everything."""
    first, second = torch.tensor([[1, 0]]), torch.tensor([[0, 0]])
    beside = GroupSpaces(dict_space(action_masks=spaces.Tuple([BIT, BIT])), ACTIONS, "QMIX")
    obs: Any = {"agents": (torch.zeros(1, 2), torch.zeros(1, 2)), "action_masks": (first, second)}
    assert beside.action_masks(obs).tolist() == [[[True, False], [True, True]]]
    member = spaces.Dict({"action_mask": BIT, "x": BOX})
    inside = GroupSpaces(spaces.Tuple([member, member]), ACTIONS, "QMIX")
    obs = ({"action_mask": first, "x": torch.zeros(1, 2)}, {"action_mask": second, "x": torch.ones(1, 2)})
    assert inside.action_masks(obs).tolist() == [[[True, False], [True, True]]]
    assert inside.members(obs)["x"].tolist() == [[[0.0, 0.0], [1.0, 1.0]]]
