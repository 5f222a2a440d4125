"""PolyakUpdate, target_copy and frozen."""

from __future__ import annotations

import torch
from torch import nn
from torch.testing import assert_close

from lightning_rl.policies.targets import PolyakUpdate, frozen, target_copy


def test_polyak_update_moves_a_target_by_tau_towards_its_source() -> None:
    """Weights 0 and 8: with τ = ¼ the target is at 2, then 3.5; with τ = 1 at 8."""
    source = nn.Linear(1, 1)
    nn.init.zeros_(source.weight)
    nn.init.zeros_(source.bias)
    target = target_copy(source)
    update = PolyakUpdate(target, source)
    nn.init.constant_(source.weight, 8.0)
    positions = []
    for tau in (0.25, 0.25, 1.0):
        update(tau)
        positions.append(target.weight.item())
    assert positions == [2.0, 3.5, 8.0]


def test_polyak_update_with_tau_1_copies_whatever_the_target_was() -> None:
    source = nn.Linear(1, 1)
    target = target_copy(source)
    nn.init.constant_(target.weight, torch.inf)
    PolyakUpdate(target, source)(1.0)
    assert torch.equal(target.weight, source.weight)


def test_polyak_update_copies_buffers() -> None:
    source = nn.BatchNorm1d(2)
    target = target_copy(source)
    source(torch.randn(16, 2) + 3.0)
    PolyakUpdate(target, source)(0.01)
    assert torch.equal(target.running_mean, source.running_mean)  # type: ignore[arg-type]


def test_target_copy_requires_no_gradient() -> None:
    target = target_copy(nn.Linear(2, 2))
    assert not any(parameter.requires_grad for parameter in target.parameters())


def test_frozen_passes_the_gradient_to_inputs_and_not_to_parameters() -> None:
    critic, x = nn.Linear(2, 1), torch.ones(1, 2, requires_grad=True)
    with frozen(critic):
        frozen_output = critic(x).sum()
    frozen_output.backward()
    assert critic.weight.grad is None
    assert_close(x.grad, critic.weight.detach())
    critic(x).sum().backward()
    assert critic.weight.grad is not None  # it learns again outside


def test_frozen_leaves_parameters_frozen_that_were_frozen_before() -> None:
    critic = nn.Linear(2, 1)
    critic.bias.requires_grad_(False)
    with frozen(critic):
        pass
    assert critic.weight.requires_grad and not critic.bias.requires_grad
