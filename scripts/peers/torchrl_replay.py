"""TorchRL's buffers (C++ trees) in the replay comparison; the last line printed is a JSON object.

Runs in its own environment: `python scripts/benchmark.py setup`.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from replay_work import ALPHA, BATCH, BETA, BLOCK, Columns, Kind, blocks, measure, rows_of
from tensordict import TensorDict


class Buffer:
    """`TensorDictReplayBuffer` over a `LazyTensorStorage`; its batches are tensors."""

    def __init__(self, kind: Kind, prioritized: bool) -> None:
        from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
        from torchrl.data.replay_buffers.samplers import PrioritizedSampler, RandomSampler

        sampler = PrioritizedSampler(kind.capacity, ALPHA, BETA) if prioritized else RandomSampler()
        storage = LazyTensorStorage(kind.capacity)
        self.buffer = TensorDictReplayBuffer(storage=storage, sampler=sampler, batch_size=BATCH)

    def add(self, block: Columns) -> None:
        tensors = {name: torch.from_numpy(column) for name, column in block.items()}
        self.buffer.extend(TensorDict(tensors, [BLOCK]))

    def sample(self) -> Any:
        return self.buffer.sample()

    def update(self, batch: Any, errors: np.ndarray) -> None:
        self.buffer.update_priority(batch["index"], torch.from_numpy(errors))


def build_trees() -> None:
    """Compile its C++ for this torch, if what its wheel brings was compiled for another and does not load."""
    loads = [sys.executable, "-c", "import torch, torchrl._torchrl"]
    if subprocess.run(loads, capture_output=True, check=False).returncode == 0:
        return
    spec = importlib.util.find_spec("torchrl")
    assert spec is not None and spec.origin is not None
    package = Path(spec.origin).parent
    from torch.utils.cpp_extension import load

    with tempfile.TemporaryDirectory() as folder:
        sources = [str(package / "csrc" / name) for name in ("pybind.cpp", "utils.cpp")]
        load("_torchrl", sources, extra_cflags=["-O3"], build_directory=folder, is_python_module=False)
        shutil.copy(Path(folder) / "_torchrl.so", next(package.glob("_torchrl*.so")))


if __name__ == "__main__":
    build_trees()
    measure(Buffer, lambda kind: [rows_of(block) for block in blocks(kind)])
