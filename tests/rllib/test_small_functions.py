"""RLlib's functions of arrays, spaces and schedules, and its helpers of tests, give what they give there."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from gymnasium import spaces

from lightning_rl.rllib.utils import (
    ConstantSchedule,
    ExponentialSchedule,
    LinearSchedule,
    PiecewiseSchedule,
    PolynomialSchedule,
    check,
    deprecation_warning,
    force_list,
    framework_iterator,
    try_import_tf,
)
from lightning_rl.rllib.utils.debug import log_once, summarize
from lightning_rl.rllib.utils.deprecation import Deprecated
from lightning_rl.rllib.utils.numpy import (
    SMALL_NUMBER,
    convert_to_numpy,
    fc,
    huber_loss,
    l2_loss,
    one_hot,
    relu,
    sigmoid,
    softmax,
)
from lightning_rl.rllib.utils.spaces.space_utils import (
    clip_action,
    flatten_space,
    flatten_to_single_ndarray,
    get_base_struct_from_space,
    normalize_action,
    unbatch,
    unsquash_action,
)
from lightning_rl.rllib.utils.timer import TimerStat
from lightning_rl.rllib.utils.torch_ops import global_norm


def test_functions_of_arrays_are_those_of_torch() -> None:
    x = np.array([[-3.0, 0.5], [2.0, 0.0]])
    tensor = torch.from_numpy(x)
    check(softmax(x), torch.softmax(tensor, 1))
    assert softmax([-1000.0, 1000.0]).tolist() == [SMALL_NUMBER, 1.0]
    check(sigmoid(x), torch.sigmoid(tensor))
    check(sigmoid(np.array([0.25]), derivative=True), [0.1875])
    check(relu(x), torch.relu(tensor))
    check(relu(x, 0.1), torch.nn.functional.leaky_relu(tensor, 0.1))
    check(huber_loss(x, 2.0), torch.nn.functional.huber_loss(tensor, 0 * tensor, reduction="none", delta=2.0))
    assert l2_loss(x) == 0.5 * (9 + 0.25 + 4)
    assert one_hot(np.array([[1], [0]])).tolist() == [[[0, 1]], [[1, 0]]]
    assert one_hot(2, depth=4, on_value=5.0).tolist() == [0, 0, 5, 0]
    layer = torch.nn.Linear(2, 3).double()
    check(fc(x, layer.weight, layer.bias, framework="torch"), layer(tensor))
    check(fc(x, np.ones((2, 1))), [[-2.5], [2.0]])
    found = convert_to_numpy({"a": (tensor, torch.tensor(2)), "b": "text"})
    assert found["a"][0].dtype == np.float32 and found["a"][1] == 2 and found["b"] == "text"


def test_schedules_reach_their_numbers() -> None:
    assert [LinearSchedule(10, 0.0, initial_p=1.0)(t) for t in (0, 5, 10, 99)] == [1.0, 0.5, 0.0, 0.0]
    assert [PolynomialSchedule(10, 1.0, "torch", 2.0)(t) for t in (0, 5, 10)] == [2.0, 1.25, 1.0]
    assert [ExponentialSchedule(10, initial_p=2.0, decay_rate=0.25).value(t) for t in (0, 5, 10, 20)] == [
        2,
        1,
        0.5,
        0.125,
    ]
    assert ConstantSchedule(3.0)(7) == 3.0
    pieces = PiecewiseSchedule([(0, 20.0), (500, 30.0), (600, 0.0)], outside_value=-1.0)
    assert [pieces(t) for t in (0, 400, 500, 550, 600)] == [20.0, 28.0, 30.0, 15.0, -1.0]
    with pytest.raises(ValueError, match="outside_value"):
        PiecewiseSchedule([(0, 1.0), (1, 2.0)])(1)
    with pytest.raises(ValueError, match="rising"):
        PiecewiseSchedule([(5, 1.0), (1, 2.0)])


def test_actions_of_nested_spaces_are_scaled_and_clipped() -> None:
    box = spaces.Box(np.array([-2.0, 0.0]), np.array([2.0, 10.0]), dtype=np.float64)
    space = spaces.Dict({"a": box, "b": spaces.Tuple([spaces.Discrete(3), half := spaces.Box(-np.inf, 1.0, (1,))])})
    struct = get_base_struct_from_space(space)
    assert struct["b"][0] == spaces.Discrete(3) and flatten_space(space) == [box, spaces.Discrete(3), half]
    action = {"a": np.array([0.5, 3.0]), "b": (2, np.array([7.0]))}
    check(unsquash_action(action, struct), {"a": [1.0, 10.0], "b": (2, [7.0])})
    check(clip_action(action, space), {"a": [0.5, 3.0], "b": (2, [1.0])})
    check(normalize_action({"a": np.array([1.0, 5.0]), "b": (1, [0.5])}, struct), {"a": [0.5, 0.0], "b": (1, [0.5])})
    assert flatten_to_single_ndarray([np.ones((1, 2)), np.array(3.0)]).tolist() == [1, 1, 3]
    rows = unbatch({"a": np.array([1, 2]), "b": (np.array([3, 4]),)})
    assert rows == [{"a": 1, "b": (3,)}, {"a": 2, "b": (4,)}]


def test_check_finds_what_differs() -> None:
    check({"a": [torch.tensor([1.0]), None, "b"]}, {"a": [np.array([1.000001]), None, "b"]})
    check(1.0, 1.05, atol=0.1)
    check(1.0, 1.1, false=True)
    for left, right in (({"a": 1}, {"b": 1}), ([1, 2], [1]), ("a", "b"), (1.0, 1.1), (np.ones(2), np.zeros(2))):
        with pytest.raises(AssertionError):
            check(left, right)
    with pytest.raises(AssertionError, match="is the same"):
        check(1, 1, false=True)


def test_the_only_framework_is_torch() -> None:
    config = {"framework": "tf"}
    assert list(framework_iterator(config)) == ["torch"] and config == {"framework": "torch"}
    assert not list(framework_iterator(config, frameworks="tf"))
    assert try_import_tf() == (None, None, None)
    with pytest.raises(ImportError, match="try_import_torch"):
        try_import_tf(error=True)


def test_old_names_warn() -> None:
    with pytest.warns(DeprecationWarning, match="old is deprecated. Use new"):
        deprecation_warning("old", "new")
    with pytest.raises(KeyError, match="do this"):
        deprecation_warning("old", help="do this", error=KeyError)

    @Deprecated(new="after")
    def before(value: int) -> int:
        return value

    @Deprecated()
    class Before: ...

    with pytest.warns(DeprecationWarning, match="before is deprecated. Use after"):
        assert before(3) == 3
    with pytest.warns(DeprecationWarning, match="Before"):
        assert isinstance(Before(), Before)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(DeprecationWarning):
            Before()


def test_the_global_norm_is_that_of_all_entries() -> None:
    assert global_norm([torch.tensor([3.0]), torch.tensor([[4.0]])]) == 5.0


def test_timers_and_summaries_count() -> None:
    timer = TimerStat(window_size=2)
    for seconds in (100.0, 1.0, 3.0):
        timer.push(seconds)
        timer.push_units_processed(10)
    assert (timer.mean, timer.mean_throughput, timer.mean_units_processed) == (2.0, 5.0, 10.0)
    assert (timer.units_processed, timer.count) == (30, 3)
    with timer:
        pass
    assert 0.0 < timer.mean < 3.0 and timer.count == 4
    assert log_once("a key of this test") and not log_once("a key of this test")
    assert "shape=(2,), dtype=float32, min=1.000, max=1.000" in summarize({"a": [torch.ones(2)]})
    assert force_list() == [] and force_list(1) == [1] and force_list([1, 2], to_tuple=True) == (1, 2)
