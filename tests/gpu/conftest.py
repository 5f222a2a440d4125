"""The device of the tests on a GPU."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

from tests.gpu.simulated_cuda import simulated_cuda

# "cpu" runs the tests marked gpu on the CPU, to try their bodies where no card is at hand.
PLACE = os.environ.get("LIGHTNING_RL_GPU_TESTS_ON", "cuda")
SIMULATED = pytest.param("simulated", id="simulated")


@pytest.fixture
def real_device() -> str:
    """The type of the device; skips without a card."""
    if PLACE == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device; LIGHTNING_RL_GPU_TESTS_ON=cpu tries the test itself on the CPU")
    return PLACE


@pytest.fixture(params=[SIMULATED, pytest.param("real", id="gpu", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """The type of the device: simulated on the CPU, or a card's, which tests marked gpu need."""
    if request.param == "simulated":
        with simulated_cuda():
            yield "cuda"
    else:
        yield request.getfixturevalue("real_device")
