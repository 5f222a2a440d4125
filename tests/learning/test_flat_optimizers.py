"""Optimizers of flat parameters compute, save and load what torch's own classes do."""

from __future__ import annotations

import pickle
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lightning_rl.errors import CheckpointError
from lightning_rl.learning.flat_optimizers import (
    FLAT_OPTIMIZERS,
    FlatAdam,
    FlatAdamW,
    FlatParameters,
    FlatRMSprop,
    FlatSGD,
    FlatSteps,
    is_small,
)
from lightning_rl.learning.policy_optimizer import OPTIMIZERS
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


def test_join_starts_each_part_at_a_multiple_of_16_with_zeros_between_and_split_views_the_parts() -> None:
    """3, 16 and 17 numbers occupy 16, 16 and 32."""
    parts = [torch.arange(1.0, 4.0), torch.arange(4.0, 20.0).view(4, 4), torch.arange(20.0, 37.0)]
    flat = FlatParameters([nn.Parameter(torch.zeros_like(part)) for part in parts])
    joined = flat.join(parts)
    expected = torch.zeros(64)
    expected[:3], expected[16:32], expected[32:49] = parts[0], parts[1].flatten(), parts[2]
    assert torch.equal(joined, expected)
    for view, part in zip(flat.split(joined), parts, strict=True):
        assert torch.equal(view, part) and view.untyped_storage().data_ptr() == joined.data_ptr()


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


# -- steps and states -------------------------------------------------------------------------------------------------
OTHERS = {"weight_decay": 0.5, "betas": (0.5, 0.8), "eps": 0.1}
CASES: list[tuple[Any, Any, dict[str, Any]]] = [
    *((FlatAdam, torch.optim.Adam, keywords) for keywords in ({}, OTHERS, {"fused": False}, {"amsgrad": True})),
    *((FlatAdamW, torch.optim.AdamW, keywords) for keywords in ({}, OTHERS, {"maximize": True})),
    (FlatAdam, torch.optim.Adam, {"decoupled_weight_decay": True, **OTHERS}),
    *((FlatRMSprop, torch.optim.RMSprop, keywords) for keywords in ({}, {"momentum": 0.5, "centered": True})),
    *((FlatSGD, torch.optim.SGD, keywords) for keywords in ({}, {"momentum": 0.9, "fused": True})),
]
EVERY_CASE = pytest.mark.parametrize(("flat", "plain", "keywords"), CASES)


class Twins:
    """The same four parameters in two groups, stepped by an optimizer."""

    def __init__(self, kind: Any, keywords: dict[str, Any]) -> None:
        shapes = ((2, 3), (3,), (4, 4), ())
        self.parameters = [nn.Parameter(torch.full(shape, 0.1 * number)) for number, shape in enumerate(shapes)]
        fused = {"fused": True} if kind not in (FlatRMSprop, torch.optim.RMSprop, FlatSGD, torch.optim.SGD) else {}
        groups = [{"params": self.parameters[:2]}, {"params": self.parameters[2:], "lr": 0.01}]
        self.optimizer = kind(groups, **{"lr": 0.1, **fused, **keywords})

    def step(self, *numbers: int, skipped: int | None = None) -> None:
        """Steps with gradients that depend on `numbers`; group 2 gets none at step `skipped`."""
        for number in numbers:
            self.optimizer.zero_grad()
            losses = [
                (p * torch.cos(number + torch.arange(float(p.numel())).view_as(p))).sum() for p in self.parameters
            ]
            sum(losses, torch.zeros(())).backward()
            for parameter in self.optimizer.param_groups[1]["params"] if number == skipped else ():
                parameter.grad = None
            self.optimizer.step()

    def values(self) -> Tensor:
        return torch.cat([parameter.detach().flatten() for parameter in self.parameters])


@EVERY_CASE
def test_flat_optimizers_step_and_skip_as_torch_s_class(flat: Any, plain: Any, keywords: dict[str, Any]) -> None:
    own, theirs = Twins(flat, keywords), Twins(plain, keywords)
    for twin in (own, theirs):
        twin.step(0, 1, 2, 3, skipped=2)
    torch.testing.assert_close(own.values(), theirs.values(), rtol=1e-6, atol=1e-7)


@EVERY_CASE
def test_state_dict_is_that_of_torch_s_class(flat: Any, plain: Any, keywords: dict[str, Any]) -> None:
    """The same entries, per parameter; each step count is a tensor of its own."""
    own, theirs = Twins(flat, keywords), Twins(plain, keywords)
    for twin in (own, theirs):
        twin.step(0, 1)
    state, expected = own.optimizer.state_dict(), theirs.optimizer.state_dict()
    assert state["param_groups"] == expected["param_groups"]
    torch.testing.assert_close(state["state"], expected["state"], rtol=1e-6, atol=1e-7)
    counts = [entry["step"].data_ptr() for entry in state["state"].values() if "step" in entry]
    assert len(set(counts)) == len(counts)


@EVERY_CASE
def test_flat_and_plain_optimizers_go_on_from_each_other_s_state(
    flat: Any, plain: Any, keywords: dict[str, Any]
) -> None:
    for first, second in ((flat, plain), (plain, flat)):
        whole, begun, ended = Twins(first, keywords), Twins(first, keywords), Twins(second, keywords)
        whole.step(0, 1, 2, 3)
        begun.step(0, 1)
        for own, given in zip(ended.parameters, begun.parameters, strict=True):
            own.data.copy_(given.detach())
        ended.optimizer.load_state_dict(deepcopy(begun.optimizer.state_dict()))
        ended.step(2, 3)
        torch.testing.assert_close(ended.values(), whole.values(), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("copy", [deepcopy, lambda twin: pickle.loads(pickle.dumps(twin))])
def test_a_copy_steps_its_own_parameters(copy: Any) -> None:
    original = Twins(FlatAdam, {})
    original.step(0)
    before = original.values()
    twin = copy(original)
    twin.optimizer.attach()
    twin.step(1)
    assert torch.equal(original.values(), before)
    original.step(1)
    assert torch.equal(original.values(), twin.values()) and not torch.equal(original.values(), before)


def test_a_state_before_the_first_step_is_empty_and_loads() -> None:
    twin = Twins(FlatAdam, {})
    state = twin.optimizer.state_dict()
    assert state["state"] == {} and [group["params"] for group in state["param_groups"]] == [[0, 1], [2, 3]]
    twin.step(0)
    twin.optimizer.load_state_dict(state)
    assert twin.optimizer.state_dict()["state"] == {}


def test_load_state_dict_refuses_parameters_of_a_group_that_were_not_stepped_equally_often() -> None:
    twin = Twins(FlatAdam, {})
    twin.step(0)
    for change in (lambda states: states.pop(1), lambda states: states[1].update(step=torch.tensor(7.0))):
        state = deepcopy(twin.optimizer.state_dict())
        change(state["state"])
        with pytest.raises(CheckpointError, match="group 0"):
            twin.optimizer.load_state_dict(state)


def test_every_named_optimizer_has_a_flat_class_derived_from_torch_s() -> None:
    assert FLAT_OPTIMIZERS.keys() == OPTIMIZERS.keys()
    assert all(issubclass(FLAT_OPTIMIZERS[name], OPTIMIZERS[name]) for name in OPTIMIZERS)


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
        assert isinstance(policy.learner.optimizer.torch_optimizer, FlatSteps) == (optimizer == name)
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
