"""FlatParameters, parameters that are views of one tensor, and adam_step, which calls Adam's kernel directly."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lightning_rl.fast_torch import adam_step, is_plain_adam
from lightning_rl.learning.flat_parameters import FlatParameters, is_small, pad_parts, unpad_parts
from lightning_rl.policies import PPO
from tests.envs.classic_control import CARTPOLE
from tests.models.parameters import parameter_vector
from tests.rollouts.small_worker import small_worker


def layer_and_flat() -> tuple[nn.Linear, FlatParameters]:
    layer = nn.Linear(3, 2)
    return layer, FlatParameters(list(layer.parameters()))


def are_views(layer: nn.Linear, flat: FlatParameters) -> bool:
    """Whether parameters and gradients are views of the flat tensors."""
    assert layer.weight.grad is not None and flat.parameter.data_ptr() != flat.gradient.data_ptr()
    begins = (layer.weight.data_ptr(), layer.weight.grad.data_ptr())
    return begins == (flat.parameter.data_ptr(), flat.gradient.data_ptr())


def test_pad_parts_starts_each_part_at_a_multiple_of_16_and_fills_with_zeros() -> None:
    """3, 16 and 17 numbers occupy 16, 16 and 32."""
    values = torch.arange(1.0, 37.0)
    spread = pad_parts(values, [3, 16, 17])
    expected = torch.zeros(64)
    expected[:3], expected[16:32], expected[32:49] = values[:3], values[3:19], values[19:]
    assert torch.equal(spread, expected) and torch.equal(unpad_parts(spread, [3, 16, 17]), values)


def test_gradients_start_as_zeros_that_are_views_of_the_flat_gradient_and_attach_leaves_them() -> None:
    layer, flat = layer_and_flat()
    assert are_views(layer, flat) and flat.parameter.grad is flat.gradient
    assert not flat.gradient.any() and flat.gradient.shape == flat.parameter.shape == (32,)
    layer(torch.ones(1, 3)).sum().backward()
    gradient, where = flat.gradient, flat.parameter.data_ptr()
    flat.attach()
    assert flat.gradient is gradient and gradient.any() and flat.parameter.data_ptr() == where


@pytest.mark.parametrize("lost", ["a parameter's gradient", "the flat gradient", "the last place", "all places"])
def test_attach_restores_views_that_were_replaced(lost: str) -> None:
    layer, flat = layer_and_flat()
    flat.gradient.fill_(9.0)
    if lost == "a parameter's gradient":
        layer.weight.grad = None
    elif lost == "the flat gradient":
        flat.parameter.grad = None
    for parameter in {"the last place": [layer.bias], "all places": [*layer.parameters()]}.get(lost, []):
        parameter.data = parameter.data + 3.0
    before = [parameter.detach().clone() for parameter in layer.parameters()]
    flat.attach()
    assert are_views(layer, flat) and flat.parameter.grad is flat.gradient and not flat.gradient.any()
    assert all(torch.equal(now, then) for now, then in zip(layer.parameters(), before, strict=True))
    layer(torch.ones(1, 3)).sum().backward()
    assert flat.gradient[:6].tolist() == [1.0] * 6 and flat.gradient[16:18].tolist() == [1.0] * 2
    with torch.no_grad():
        flat.parameter.add_(1.0)
    assert torch.equal(layer.bias, before[1] + 1.0)


# -- which optimizers -------------------------------------------------------------------------------------------------
def parameters(*sizes: int, **how: Any) -> list[nn.Parameter]:
    return [nn.Parameter(torch.empty(size, device="meta", **how)) for size in sizes]


class Own(nn.Parameter):
    """A subclass of Parameter, which may hold more than numbers."""


def test_is_small_accepts_groups_of_one_dtype_device_and_type_with_2_million_numbers_at_most() -> None:
    four = parameters(4)
    for groups, small in (
        ([parameters(2_000_000)], True),
        ([parameters(2_000_001)], False),
        ([parameters(1_000_000, 5), parameters(1_000_000)], False),
        ([parameters(4, 4), four], True),
        ([four, []], False),
        ([[*four, *parameters(4, dtype=torch.float64)]], False),
        ([[*four, nn.Parameter(torch.zeros(4))]], False),  # on another device
        ([[*four, Own(torch.empty(4, device="meta"))]], False),
    ):
        assert is_small([{"params": group} for group in groups]) is small, groups


class OwnAdam(torch.optim.Adam):
    """A subclass of Adam, whose step may do anything."""


def test_is_plain_adam_accepts_torch_s_adam_and_adamw_with_fused_kernels_only() -> None:
    settings = ({"fused": False}, {"amsgrad": True}, {"maximize": True})
    others = [(torch.optim.SGD, {}), (OwnAdam, {}), *((torch.optim.Adam, keywords) for keywords in settings)]
    for kind, keywords in ((torch.optim.Adam, {}), (torch.optim.AdamW, {}), *others):
        optimizer = kind([torch.zeros(2, requires_grad=True)], lr=0.1, **{"fused": True, **keywords})
        assert is_plain_adam(optimizer) is ((kind, keywords) not in others), (kind, keywords)
        optimizer.add_param_group({"params": [torch.zeros(2, requires_grad=True)], "capturable": True})
        assert not is_plain_adam(optimizer), "not every group is plain"


# -- adam_step --------------------------------------------------------------------------------------------------------
def state_after_steps(kind: Any, step: Any, keywords: dict[str, Any]) -> list[Tensor]:
    """Parameters and moments of two groups after four steps by `step`; the second group has no gradient in step 3."""
    groups = [torch.linspace(-1.0, 1.0, 5).requires_grad_(), torch.linspace(2.0, 3.0, 4).requires_grad_()]
    optimizer = kind([{"params": [each]} for each in groups], lr=0.1, fused=True, **keywords)
    optimizer.param_groups[1]["lr"] = 0.01
    for number in range(4):
        for group in groups:
            group.grad = torch.cos(number + torch.arange(float(len(group))))
        if number == 2:
            groups[1].grad = None
        step(optimizer, number)
    return [*groups, *(state[name] for state in optimizer.state.values() for name in ("step", "exp_avg", "exp_avg_sq"))]


OTHERS = {"weight_decay": 0.5, "betas": (0.5, 0.8), "eps": 0.1}


@pytest.mark.parametrize(
    ("kind", "keywords"),
    [
        *((kind, keywords) for kind in (torch.optim.Adam, torch.optim.AdamW) for keywords in ({}, OTHERS)),
        (torch.optim.Adam, {"decoupled_weight_decay": True, **OTHERS}),
    ],
)
def test_adam_step_equals_the_step_of_torch_s_optimizer(kind: Any, keywords: dict[str, Any]) -> None:
    """AdamW is an Adam with `decoupled_weight_decay`; a group of AdamW from a file may lack that option."""

    def step_by_kernel(optimizer: Any, number: int) -> None:
        for group in optimizer.param_groups if kind is torch.optim.AdamW and number > 0 else []:
            group.pop("decoupled_weight_decay", None)
        with torch.no_grad():
            assert adam_step(optimizer) is (number > 0), "the first step makes the moments"
        if number == 0:
            optimizer.step()

    theirs = state_after_steps(kind, lambda optimizer, _: optimizer.step(), keywords)
    torch.testing.assert_close(state_after_steps(kind, step_by_kernel, keywords), theirs, rtol=0, atol=0)


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
def test_adam_step_steps_nothing_while_a_group_has_no_moments(kind: Any) -> None:
    groups = [torch.zeros(2, requires_grad=True) for _ in range(2)]
    optimizer = kind([{"params": [each]} for each in groups], lr=0.1, fused=True)
    groups[0].grad = torch.ones(2)
    optimizer.step()
    before = groups[0].detach().clone()
    groups[1].grad = torch.ones(2)
    with torch.no_grad():
        assert adam_step(optimizer) is False
    assert torch.equal(groups[0], before) and optimizer.state[groups[0]]["step"] == 1


# -- in a policy ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "path", "keywords"),
    [
        ("adam", "torch.optim.Adam", {}),
        ("adam", "torch.optim.Adam", {"weight_decay": 0.1, "betas": (0.8, 0.9), "eps": 1e-3}),
        ("adam", "torch.optim.Adam", {"amsgrad": True}),
        ("adamw", "torch.optim.AdamW", {"weight_decay": 0.1}),
        ("sgd", "torch.optim.SGD", {"momentum": 0.9}),
        ("rmsprop", "torch.optim.RMSprop", {}),
    ],
)
def test_a_policy_with_flat_parameters_learns_what_one_with_a_list_learns(
    name: str, path: str, keywords: dict[str, Any]
) -> None:
    ends = []
    for optimizer in (name, path):  # optimizers given by import path step a list of tensors
        policy = PPO(*CARTPOLE.spaces(), seed=4, optimizer=optimizer, optimizer_kwargs=keywords)
        source = small_worker(policy)
        for _ in range(3):
            policy.learn_on_batch(source.sample())
        assert bool(policy.learner.optimiser.flat) == (optimizer == name)
        ends.append(parameter_vector(policy))
    torch.testing.assert_close(*ends, rtol=1e-4, atol=1e-5)


def test_flat_parameters_have_the_alignment_of_separate_tensors() -> None:
    """With another alignment a worker's matrix products would differ from the learner's in the last digits."""
    layers = [torch.nn.Linear(3, 5), torch.nn.Linear(5, 7)]
    before = [p.detach().clone() for layer in layers for p in layer.parameters()]
    flattened = [p for layer in layers for p in layer.parameters()]
    flat = FlatParameters(flattened)
    assert all(p.data_ptr() % 64 == flat.parameter.data_ptr() % 64 for p in flattened)
    assert all(torch.equal(p, old) for p, old in zip(flattened, before, strict=True))


def test_a_policy_goes_on_learning_a_parameter_whose_data_were_replaced() -> None:
    policy = PPO(*CARTPOLE.spaces(), seed=1)
    source = small_worker(policy)
    policy.learn_on_batch(source.sample())
    replaced = policy.model.head.linear.weight
    replaced.data = replaced.data.clone()
    before = replaced.detach().clone()
    policy.learn_on_batch(source.sample())
    assert (replaced.detach() - before).abs().min() > 0
