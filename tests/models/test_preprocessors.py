"""Preprocessors: hand-made vectors, agreement with Gymnasium's flatten, and any nesting."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given
from torch.testing import assert_close

from lightning_rl.errors import ConfigError, UnsupportedSpaceError
from lightning_rl.models.preprocessors import Preprocessor, make_preprocessor
from lightning_rl.sample_batch import to_nested_batch
from tests.models.networks import sample_space
from tests.space_cases import NESTED, SUPPORTED


def test_a_float_vector_is_not_copied():
    obs = torch.randn(4, 3)
    assert make_preprocessor(spaces.Box(-1, 1, (3,))).transform_batch(obs) is obs


def test_dict_parts_are_read_by_name_in_the_order_of_the_space():
    space = spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Box(-9, 9, (2,))})
    obs = {"b": torch.tensor([[3.0, 4.0]]), "a": torch.tensor([1])}
    preprocessor = make_preprocessor(space)
    assert preprocessor.transform_batch(obs).tolist() == [[0, 1, 3, 4]]
    assert preprocessor.transform_batch(to_nested_batch(obs)).tolist() == [[0, 1, 3, 4]]


@pytest.mark.parametrize("space", SUPPORTED, ids=str)
def test_agrees_with_gymnasium_and_single_equals_batch(space):
    preprocessor = make_preprocessor(space)
    singles, batch = sample_space(space, 3)
    vectors = preprocessor.transform_batch(batch)
    assert vectors.dtype == torch.float32 and vectors.shape == (3, preprocessor.size)
    expected = np.stack([spaces.flatten(space, single) for single in singles]).astype(np.float32)
    assert_close(vectors, torch.from_numpy(expected).reshape(3, preprocessor.size))
    assert_close(torch.from_numpy(preprocessor.transform(singles[0])).flatten(), vectors[0])


@given(NESTED)
def test_size_is_the_width_of_the_output_for_any_nesting(space):
    preprocessor = make_preprocessor(space)
    _, batch = sample_space(space, 2)
    vectors = preprocessor.transform_batch(to_nested_batch(batch))
    assert vectors.shape == (2, preprocessor.size)
    assert preprocessor.observation_space.shape == preprocessor.shape
    assert preprocessor.size == spaces.flatdim(space)


def test_the_error_for_an_unsupported_space_names_alternatives():
    with pytest.raises(UnsupportedSpaceError, match=r"part 'note'.*token ids"):
        make_preprocessor(spaces.Dict({"note": spaces.Text(4)}))


class Halved(Preprocessor):
    """Written as in RLlib: a shape and a function of one observation."""

    def _init_shape(self, obs_space, options):
        return (2,)

    def transform(self, obs):
        return obs["x"] / 2


def test_a_subclass_with_only_transform_works_on_batches():
    preprocessor = Halved(spaces.Dict({"x": spaces.Box(-9, 9, (2,))}))
    assert preprocessor.transform_batch({"x": torch.tensor([[2.0, 4.0], [6.0, 8.0]])}).tolist() == [[1, 2], [3, 4]]


def test_a_subclass_without_transform_is_refused():
    class Nothing(Preprocessor):
        def _init_shape(self, obs_space, options):
            return (2,)

    with pytest.raises(ConfigError, match="neither transform"):
        Nothing(spaces.Discrete(2))
