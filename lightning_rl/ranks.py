"""Starts the other processes of a run on several devices, each from the resolved config in the run directory.

Lightning would start them with the command line of this process, and a command line composes anew: another time stamp,
hence another run directory, and under `-m` the whole sweep in every rank.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

__all__ = ["Launch", "local_ranks", "main", "meeting"]

Launch = Callable[[Path, Path | None], None]

GRACE_SECONDS = 30.0  # for a rank to end after the first one has

# Set by torchrun, SLURM and the like: then the processes are there already.
STARTED_ELSEWHERE = ("LOCAL_RANK", "TORCHELASTIC_RUN_ID", "SLURM_PROCID")


def local_ranks(config: Mapping[str, Any]) -> int:
    """How many processes this machine is to run; 1 if somebody else starts them."""
    if any(name in os.environ for name in STARTED_ELSEWHERE):
        return 1
    devices, accelerator = config["trainer"].get("devices", 1), config["trainer"].get("accelerator", "cpu")
    if isinstance(devices, list):
        return len(devices)
    if isinstance(devices, str) and devices.isdigit():
        return int(devices)
    if isinstance(devices, int) and devices >= 0:
        return max(1, devices)
    import torch

    return max(1, torch.cuda.device_count()) if accelerator in ("gpu", "cuda", "auto") else 1


@contextmanager
def meeting(ranks: int) -> Iterator[Launch]:
    """Make this process rank 0 of `ranks` (1 changes nothing): a Trainer built inside waits for the others to join.

    Yields:
        `launch(config_file, ckpt_path)` starts the others, once the config is known to be good and written. They are
        gone when the context ends: left alone to finish if it ended well, killed if not.
    """
    processes: list[subprocess.Popen[bytes]] = []
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "NODE_RANK": "0", "WORLD_SIZE": str(ranks)}
    before = dict(os.environ)

    def launch(config_file: Path, ckpt_path: Path | None) -> None:
        command = [
            sys.executable,
            "-m",
            "lightning_rl.ranks",
            str(config_file),
            *([str(ckpt_path)] if ckpt_path else []),
        ]
        for rank in range(1, ranks):
            processes.append(subprocess.Popen(command, env={**os.environ, "LOCAL_RANK": str(rank)}))

    if ranks > 1:
        os.environ.update(place, LOCAL_RANK="0")
    try:
        yield launch
        for process in processes:
            process.wait(GRACE_SECONDS)
    finally:
        for process in processes:
            process.kill()
            process.wait()
        if ranks > 1:
            leave_group()
            for name in (*place, "LOCAL_RANK"):
                os.environ.pop(name, None)  # Lightning removes some of them itself
            os.environ.update(before)


def leave_group() -> None:
    """Forget the other ranks: Lightning stays in the group, and the next job of a sweep would talk to the dead."""
    from torch import distributed

    if distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()


def free_port() -> int:
    """A TCP port of the loopback interface that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    """One rank but the first: `python -m lightning_rl.ranks RUN_DIR/config.yaml [CHECKPOINT]`."""
    from lightning_rl.callbacks import StopSignals
    from lightning_rl.run import build, fit

    config = yaml.safe_load(Path(sys.argv[1]).read_text(encoding="utf-8"))
    with StopSignals() as signals:
        fit(*build(config, signals), Path(sys.argv[2]) if len(sys.argv) > 2 else None)


if __name__ == "__main__":
    main()
