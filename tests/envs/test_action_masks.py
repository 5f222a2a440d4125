"""Masks in every form that Gymnasium and PettingZoo use are one flat form; masks that do not fit are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from lightning_rl.envs.action_masks import ActionMasks, sample_allowed
from lightning_rl.errors import EnvApiError
from tests.envs.masked_envs import ACTIONS, allows, as_lists, random_mask

ON, OFF = np.ones(2, np.int8), np.array([0, 1], np.int8)


@pytest.mark.parametrize("name", ACTIONS)
def test_a_mask_as_arrays_or_lists_allows_what_gymnasium_s_sample_would(name: str) -> None:
    space, rng = ACTIONS[name], np.random.default_rng(1)
    masks = ActionMasks(space, "an environment")
    space.seed(1)
    for _ in range(20):
        mask = random_mask(space, rng)
        flat = masks.flat(mask)
        assert flat.shape == (masks.width,) and flat.dtype == bool
        assert np.array_equal(flat, masks.flat(as_lists(mask))) and np.array_equal(flat, masks.flat(flat.tolist()))
        assert allows(space, mask, sample_allowed(space, flat, rng)) and allows(space, mask, space.sample(mask))


@pytest.mark.parametrize(
    ("space", "mask", "flat"),
    [
        (spaces.Discrete(2), (False, True), [0, 1]),
        (spaces.Discrete(2), np.array([0.0, 1.0]), [0, 1]),
        (spaces.Discrete(2), np.array([0, 1], dtype=object), [0, 1]),
        (spaces.MultiDiscrete([2, 2]), np.array([[0, 1], [1, 1]]), [0, 1, 1, 1]),
        (spaces.MultiDiscrete([2, 2]), [0, 1, 1, 1], [0, 1, 1, 1]),
        (spaces.MultiDiscrete([2, 2]), np.array([OFF, ON], dtype=object), [0, 1, 1, 1]),
        (spaces.MultiBinary(2), np.array([[0, 1], [1, 1]]), [0, 1, 1, 1]),
        (spaces.Tuple((spaces.Discrete(2), spaces.Box(0, 1, (2,)))), (OFF, None), [0, 1]),
        (spaces.Dict(a=spaces.Discrete(2), b=spaces.Discrete(2)), {"b": OFF}, [1, 1, 0, 1]),
        (spaces.Dict(a=spaces.Discrete(2), b=spaces.Box(0, 1, (2,))), OFF, [0, 1]),
    ],
)
def test_other_forms_of_masks(space: spaces.Space[Any], mask: Any, flat: list[int]) -> None:
    assert ActionMasks(space, "an environment").flat(mask).tolist() == [bool(value) for value in flat]


@pytest.mark.parametrize(
    ("space", "mask", "width"),
    [
        (spaces.Discrete(3), np.ones(2, np.int8), 3),
        (spaces.Discrete(3), 1, 3),
        (spaces.MultiDiscrete([2, 3]), (ON, ON), 5),
        (spaces.Dict(a=spaces.Discrete(2)), {"A": ON}, 2),
        (spaces.Box(0, 1, (2,)), ON, 0),
    ],
)
def test_a_mask_of_another_form_is_refused_with_its_width(space: spaces.Space[Any], mask: Any, width: int) -> None:
    with pytest.raises(EnvApiError, match=rf"(?s)'E'.*action_mask=.*expected {width} bools"):
        ActionMasks(space, "E").flat(mask)
