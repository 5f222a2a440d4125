"""What an optimizer takes over from a file: numbers of the right shape, and no choice of how they are computed."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import torch

from lightning_rl.errors import CheckpointError
from lightning_rl.learning.optimizer_states import compatible_state


class Own(torch.optim.SGD):
    """An optimizer of a user's own."""


def learned(kind: Any, *groups: dict[str, Any], **keywords: Any) -> tuple[Any, dict[str, Any]]:
    """An optimizer of parameters `[2, 3]` after a step, and a copy of its state."""
    parameters = [torch.ones(2, 3, requires_grad=True) for _ in groups or (0,)]
    own = groups or ({},)
    optimizer = kind([{"params": [p], **group} for p, group in zip(parameters, own, strict=True)], **keywords)
    for parameter in parameters:
        parameter.grad = torch.ones(2, 3)
    optimizer.step(lambda: torch.tensor(1.0)) if kind is torch.optim.LBFGS else optimizer.step()
    return optimizer, deepcopy(optimizer.state_dict())


def options(kind: Any, file: dict[str, Any], **keywords: Any) -> dict[str, Any]:
    """The first group's after a file that says so."""
    optimizer, state = learned(kind, **keywords)
    state["param_groups"][0].update(file)
    optimizer.load_state_dict(compatible_state(optimizer, state))
    return optimizer.param_groups[0]


# -- options ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("kind", "name", "built", "filed"),
    [
        (torch.optim.SGD, "nesterov", False, True),
        (torch.optim.RMSprop, "centered", False, True),
        (torch.optim.AdamW, "decoupled_weight_decay", True, False),
        (torch.optim.LBFGS, "line_search_fn", None, "strong_wolfe"),
        (torch.optim.LBFGS, "line_search_fn", "strong_wolfe", None),
        (torch.optim.SGD, "maximize", True, False),
        (torch.optim.Adam, "fused", None, True),
    ],
)
def test_switches_and_names_stay_as_they_were_built(kind: Any, name: str, built: Any, filed: Any) -> None:
    keywords = {} if name == "decoupled_weight_decay" else {name: built}
    assert options(kind, {name: filed}, **keywords)[name] is built


@pytest.mark.parametrize(
    ("name", "filed"),
    [
        ("weight_decay", 0.25),
        ("weight_decay", 1),
        ("lr", torch.tensor(0.5)),
        ("lr", torch.tensor([0.5])),
        ("betas", [0.5, 0.75]),
        ("betas", (0, 0.75)),
    ],
)
def test_numbers_are_the_file_s(name: str, filed: Any) -> None:
    found = options(torch.optim.Adam, {name: filed})[name]
    assert list(found) == list(filed) if name == "betas" else float(found) == float(filed)


@pytest.mark.parametrize(
    ("name", "filed"),
    [
        ("lr", True),
        ("lr", None),
        ("lr", float("inf")),
        ("lr", float("nan")),
        ("lr", "0.5"),
        ("lr", [0.5]),
        ("lr", torch.tensor([0.5, 0.5])),
        ("betas", 0.5),
        ("betas", (0.5,)),
        ("betas", (0.5, 0.5, 0.5)),
        ("betas", (0.5, True)),
        ("betas", {0.5: 1, 0.25: 1}),
    ],
    ids=str,
)
def test_what_is_no_number_where_one_was_is_refused(name: str, filed: Any) -> None:
    with pytest.raises(CheckpointError, match=f"has {name}=.*; expected the like of .*: it was changed, or is another"):
        options(torch.optim.Adam, {name: filed})


def test_a_number_that_is_infinite_as_built_may_stay_so() -> None:
    infinite = float("inf")
    assert options(torch.optim.Adam, {"weight_decay": infinite}, weight_decay=infinite)["weight_decay"] == infinite


def test_options_that_a_file_adds_come_along_but_not_whose_parameters_they_are_of() -> None:
    group = options(torch.optim.Adam, {"noted": "x", "params": [7], "every": 3, "lr_scale": 2.0})
    assert group["noted"] == "x" and len(group["params"]) == 1 and not {"every", "lr_scale"} & set(group)


def test_of_an_optimizer_of_a_user_s_own_any_option_comes_along() -> None:
    assert options(Own, {"lr": "as you like", "nesterov": True}, lr=0.1)["lr"] == "as you like"


# -- moments ----------------------------------------------------------------------------------------------------------
MOMENTS = {torch.optim.Adam: "exp_avg", torch.optim.AdamW: "exp_avg_sq", torch.optim.RMSprop: "square_avg"}


@pytest.mark.parametrize(("kind", "name"), MOMENTS.items())
def test_a_moment_that_is_missing_is_named(kind: Any, name: str) -> None:
    optimizer, state = learned(kind, {}, {})
    del state["state"][1][name], state["state"][1]["step"]
    with pytest.raises(CheckpointError, match=f"optimizer lacks step and {name} of parameter 1: it was changed"):
        compatible_state(optimizer, state)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("exp_avg", torch.zeros(3, 2), r"holds exp_avg of shape \[3, 2\]; expected \[2, 3\]"),
        ("exp_avg", torch.zeros(6), r"holds exp_avg of shape \[6\]; expected \[2, 3\]"),
        ("exp_avg", torch.zeros(2, 3).to_sparse(), r"of shape \[2, 3\] \(torch\.sparse_coo\); expected \[2, 3\]"),
        ("exp_avg", None, "holds exp_avg=None; expected a tensor"),
        ("exp_avg", 0.0, r"holds exp_avg=0\.0; expected a tensor"),
        ("step", torch.zeros(2), r"holds step of shape \[2\]; expected \[\]"),
        ("step", None, "holds step=None; expected a tensor"),
        ("step", torch.ones(1).to_sparse(), r"holds step of shape \[1\] \(torch\.sparse_coo\); expected \[\]"),
    ],
)
def test_a_moment_of_another_shape_or_kind_is_refused(name: str, value: Any, message: str) -> None:
    optimizer, state = learned(torch.optim.Adam)
    state["state"][0][name] = value
    with pytest.raises(CheckpointError, match=message):
        compatible_state(optimizer, state)


@pytest.mark.parametrize("step", [3.0, 3, torch.tensor(3.0), torch.tensor([3.0])], ids=str)
def test_a_step_is_one_number_or_a_tensor_of_one(step: Any) -> None:
    optimizer, state = learned(torch.optim.Adam)
    state["state"][0]["step"] = step
    assert compatible_state(optimizer, state)["state"][0]["step"] is step


def test_momentum_that_has_not_begun_is_none() -> None:
    optimizer, state = learned(torch.optim.SGD, lr=0.1)
    state["state"][0] = {"momentum_buffer": None}
    assert compatible_state(optimizer, state)["state"][0] == {"momentum_buffer": None}


def test_a_moment_lies_in_memory_as_its_parameter_does_with_the_same_numbers() -> None:
    optimizer, state = learned(torch.optim.Adam)
    turned = torch.arange(6.0).reshape(3, 2).t()
    same = torch.arange(6.0).reshape(2, 3)
    state["state"][0] |= {"exp_avg": turned, "exp_avg_sq": same}
    checked = compatible_state(optimizer, state)["state"][0]
    assert checked["exp_avg"].is_contiguous() and torch.equal(checked["exp_avg"], turned)
    assert checked["exp_avg_sq"] is same and state["state"][0]["exp_avg"] is turned, "the given state stays as it was"


@pytest.mark.parametrize("kind", [torch.optim.Adafactor, torch.optim.LBFGS])
def test_optimizers_that_keep_other_shapes_are_restored_as_they_were(kind: Any) -> None:
    optimizer, state = learned(kind)
    again = compatible_state(optimizer, state)["state"]
    assert again.keys() == state["state"].keys() and again[0] is state["state"][0]


def test_moments_of_one_s_own_optimizer_are_checked_where_a_group_has_a_fused_kernel() -> None:
    """Fused kernels write as many numbers as the parameter has."""
    for groups, refused in (([{"fused": True}, {}], True), ([{}, {}], False)):
        optimizer, state = learned(Own, *groups, lr=0.1, momentum=0.5)
        state["state"][1]["momentum_buffer"] = torch.zeros(1)
        if refused:
            with pytest.raises(CheckpointError, match=r"holds momentum_buffer of shape \[1\]; expected \[2, 3\]"):
                compatible_state(optimizer, state)
        else:
            assert compatible_state(optimizer, state)["state"] == state["state"]


def test_another_number_of_groups_is_refused() -> None:
    optimizer, state = learned(torch.optim.Adam, {}, {})
    state["param_groups"].pop()
    with pytest.raises(CheckpointError, match="has 1 parameter groups, and not 2"):
        compatible_state(optimizer, state)
