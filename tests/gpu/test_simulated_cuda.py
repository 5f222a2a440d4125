"""The simulated device refuses what a real one refuses, and computes what a CPU computes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from tests.gpu.simulated_cuda import simulated_cuda

REFUSED: dict[str, Callable[[torch.Tensor], object]] = {
    "a sum of two devices": lambda own: own + torch.ones(3),
    "a scalar tensor of the host in a list": lambda own: torch.stack([own.sum(), torch.tensor(1.0)]),
    "numpy": lambda own: own.numpy(),
    "an array": lambda own: np.asarray(own),
    "an index of the device into the host": lambda own: torch.ones(3)[own.long()],
    "a generator of the host": lambda own: torch.empty_like(own).normal_(generator=torch.Generator()),
    "a generator of the device": lambda own: torch.rand(3, generator=torch.Generator("cuda")),
    "pinned memory of the device": lambda own: own.pin_memory(),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_gpu_refuses_is_refused(name: str):
    with simulated_cuda():
        own = torch.zeros(3, device="cuda")
        with pytest.raises((RuntimeError, TypeError)):
            REFUSED[name](own)


def test_a_network_learns_the_same_numbers_and_stays_the_same_object():
    def learned(device: str) -> tuple[torch.Tensor, torch.Tensor]:
        torch.manual_seed(0)
        layer = torch.nn.Linear(3, 2)
        weight = layer.weight
        assert layer.to(device).weight is weight
        optimizer = torch.optim.Adam(layer.parameters(), lr=0.1, fused=True)
        for _ in range(3):
            optimizer.zero_grad()
            layer(torch.arange(6.0, device=device).view(2, 3)).square().mean().backward()
            torch.nn.utils.clip_grad_norm_(layer.parameters(), 0.5)
            optimizer.step()
        assert layer.weight.device.type == device
        return layer.weight.detach().cpu().clone(), layer.bias.detach().cpu().clone()

    with simulated_cuda():
        ours = learned("cuda")
    assert all(torch.equal(first, second) for first, second in zip(ours, learned("cpu"), strict=True))
    assert not torch.cuda.is_available() or torch.cuda.get_device_name() != "simulated"


def test_scalars_of_the_host_and_forced_copies_are_allowed():
    with simulated_cuda():
        own = torch.arange(3.0).to("cuda")
        assert (own + torch.tensor(1.0)).tolist() == [1.0, 2.0, 3.0]
        assert own[torch.tensor([2, 0])].tolist() == [2.0, 0.0]  # a real device copies such an index
        assert own.numpy(force=True).tolist() == own.cpu().numpy().tolist() == [0.0, 1.0, 2.0]
