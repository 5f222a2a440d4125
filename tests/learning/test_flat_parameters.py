"""Parameters that are views of one tensor, and the step that Adam's kernel takes on it alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lightning_rl.learning.fast_steps import adam_step, is_plain_adam
from lightning_rl.learning.flat_parameters import (
    FlatParameters,
    is_small,
    pad_parts,
    unpad_parts,
)


def flattened() -> tuple[nn.Linear, FlatParameters]:
    layer = nn.Linear(3, 2)
    return layer, FlatParameters(list(layer.parameters()))


def views(layer: nn.Linear, flat: FlatParameters) -> bool:
    """Whether parameters and gradients are those of the flat tensor."""
    where = {flat.parameter.data_ptr(), flat.gradient.data_ptr()}
    grads = [parameter.grad for parameter in layer.parameters()]
    begins = layer.weight.data_ptr() == flat.parameter.data_ptr() and grads[0] is not None
    return begins and grads[0].data_ptr() == flat.gradient.data_ptr() and len(where) == 2  # type: ignore[union-attr]


def test_parts_begin_at_multiples_of_sixteen_and_zeros_are_between() -> None:
    """3, 16 and 17 numbers take 16, 16 and 32 places."""
    values = torch.arange(1.0, 37.0)
    spread = pad_parts(values, [3, 16, 17])
    expected = torch.zeros(64)
    expected[:3], expected[16:32], expected[32:49] = values[:3], values[3:19], values[19:]
    assert torch.equal(spread, expected) and torch.equal(unpad_parts(spread, [3, 16, 17]), values)


def test_gradients_begin_at_zero_in_the_memory_of_the_flat_one() -> None:
    layer, flat = flattened()
    assert views(layer, flat) and flat.parameter.grad is flat.gradient
    assert not flat.gradient.any() and flat.gradient.shape == flat.parameter.shape == (32,)


def test_what_is_attached_stays_as_it_is() -> None:
    layer, flat = flattened()
    layer(torch.ones(1, 3)).sum().backward()
    gradient, where = flat.gradient, flat.parameter.data_ptr()
    flat.attach()
    assert flat.gradient is gradient and gradient.any() and flat.parameter.data_ptr() == where


@pytest.mark.parametrize("lost", ["a parameter's gradient", "the flat gradient", "the last parameter's place"])
def test_what_was_detached_is_attached_again(lost: str) -> None:
    layer, flat = flattened()
    flat.gradient.fill_(9.0)
    if lost == "a parameter's gradient":
        layer.weight.grad = None
    elif lost == "the flat gradient":
        flat.parameter.grad = None
    else:
        layer.bias.data = layer.bias.data + 3.0
    before = [parameter.detach().clone() for parameter in layer.parameters()]
    flat.attach()
    assert views(layer, flat) and flat.parameter.grad is flat.gradient and not flat.gradient.any()
    assert all(torch.equal(now, then) for now, then in zip(layer.parameters(), before, strict=True))
    layer(torch.ones(1, 3)).sum().backward()
    assert flat.gradient[:6].tolist() == [1.0] * 6 and flat.gradient[16:18].tolist() == [1.0] * 2
    with torch.no_grad():
        flat.parameter.add_(1.0)
    assert torch.equal(layer.bias, before[1] + 1.0)


# -- which are stepped so ---------------------------------------------------------------------------------------------
def parameters(*sizes: int, **how: Any) -> list[nn.Parameter]:
    return [nn.Parameter(torch.empty(size, device="meta", **how)) for size in sizes]


class Own(nn.Parameter):
    """A parameter that knows more than its numbers."""


@pytest.mark.parametrize(
    ("groups", "small"),
    [
        ([parameters(2_000_000)], True),
        ([parameters(2_000_001)], False),
        ([parameters(1_000_000, 5), parameters(1_000_000)], False),
        ([parameters(4, 4), parameters(4)], True),
        ([parameters(4), []], False),
        ([[*parameters(4), *parameters(4, dtype=torch.float64)]], False),
        ([[*parameters(4), nn.Parameter(torch.zeros(4))]], False),
        ([[*parameters(4), Own(torch.empty(4, device="meta"))]], False),
    ],
    ids=["the most", "one too many", "together too many", "two groups", "an empty group", "dtypes", "devices", "types"],
)
def test_groups_of_one_kind_and_few_parameters_are_small(groups: list[Any], small: bool) -> None:
    assert is_small([{"params": group} for group in groups]) is small


class OwnAdam(torch.optim.Adam):
    """A user's, whose step may do anything."""


@pytest.mark.parametrize(
    ("kind", "keywords", "plain"),
    [
        (torch.optim.Adam, {}, True),
        (torch.optim.AdamW, {}, True),
        (torch.optim.Adam, {"fused": False}, False),
        (torch.optim.Adam, {"amsgrad": True}, False),
        (torch.optim.Adam, {"maximize": True}, False),
        (torch.optim.SGD, {}, False),
        (OwnAdam, {}, False),
    ],
)
def test_plain_adam_is_torch_s_own_with_its_fused_kernel(kind: Any, keywords: dict[str, Any], plain: bool) -> None:
    optimizer = kind([torch.zeros(2, requires_grad=True)], lr=0.1, **{"fused": True, **keywords})
    assert is_plain_adam(optimizer) is plain
    optimizer.add_param_group({"params": [torch.zeros(2, requires_grad=True)], "capturable": True})
    assert not is_plain_adam(optimizer), "one group that is not is enough"


# -- how they are -----------------------------------------------------------------------------------------------------
def stepped(kind: Any, by: Any, keywords: dict[str, Any]) -> list[Tensor]:
    """Two groups after four steps on gradients that differ, the second without one in step three."""
    groups = [torch.linspace(-1.0, 1.0, 5).requires_grad_(), torch.linspace(2.0, 3.0, 4).requires_grad_()]
    optimizer = kind([{"params": [each]} for each in groups], lr=0.1, fused=True, **keywords)
    optimizer.param_groups[1]["lr"] = 0.01
    for number in range(4):
        for group in groups:
            group.grad = torch.cos(number + torch.arange(float(len(group))))
        if number == 2:
            groups[1].grad = None
        by(optimizer, number)
    return [*groups, *(state[name] for state in optimizer.state.values() for name in ("step", "exp_avg", "exp_avg_sq"))]


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
@pytest.mark.parametrize(
    "keywords", [{}, {"weight_decay": 0.5, "betas": (0.5, 0.8), "eps": 0.1}], ids=["defaults", "others"]
)
def test_adam_s_kernel_alone_computes_what_its_step_computes(kind: Any, keywords: dict[str, Any]) -> None:
    def alone(optimizer: Any, number: int) -> None:
        with torch.no_grad():
            assert adam_step(optimizer) is (number > 0), "the first step makes the moments"
        if number == 0:
            optimizer.step()

    ours, theirs = stepped(kind, alone, keywords), stepped(kind, lambda optimizer, _: optimizer.step(), keywords)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=0)


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
def test_a_group_without_moments_leaves_the_whole_step_to_the_optimizer(kind: Any) -> None:
    groups = [torch.zeros(2, requires_grad=True) for _ in range(2)]
    optimizer = kind([{"params": [each]} for each in groups], lr=0.1, fused=True)
    groups[0].grad = torch.ones(2)
    optimizer.step()
    before = groups[0].detach().clone()
    groups[1].grad = torch.ones(2)
    with torch.no_grad():
        assert adam_step(optimizer) is False
    assert torch.equal(groups[0], before) and optimizer.state[groups[0]]["step"] == 1


def test_weight_decay_is_decoupled_where_the_group_says_so() -> None:
    """Torch's AdamW is an Adam with this option, and a file may hold a group without it."""
    ends = []
    for kind, says in ((torch.optim.Adam, True), (torch.optim.AdamW, True), (torch.optim.AdamW, None)):
        weight = torch.ones(2, requires_grad=True)
        optimizer = kind([weight], lr=0.1, fused=True, weight_decay=0.5)
        weight.grad = torch.ones(2)
        optimizer.step()
        with torch.no_grad():
            weight.fill_(1.0)
        for state in optimizer.state.values():
            state["exp_avg"].zero_()
        optimizer.param_groups[0]["decoupled_weight_decay"] = says
        if says is None:
            del optimizer.param_groups[0]["decoupled_weight_decay"]
        weight.grad = torch.zeros(2)
        with torch.no_grad():
            adam_step(optimizer)
        ends.append(weight.tolist())
    assert ends == [pytest.approx([0.95, 0.95])] * 3, "1 − lr · weight_decay"
