"""Connects the ranks of one machine, and disconnects them after a run."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

__all__ = ["Store", "environment", "leave_group", "loopback_store", "store_of_the_run"]

Store = Any  # torch.distributed.Store; torch is imported only in runs with several ranks

ANSWER_SECONDS = 30.0


@contextmanager
def loopback_store() -> Iterator[Store]:
    """A store by which ranks connect, served by this process on the loopback interface only.

    By default, torch would listen on all interfaces.
    """
    from torch.distributed import TCPStore  # pyright: ignore[reportPrivateImportUsage]

    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    store = TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())
    loopback = next((name for _, name in socket.if_nameindex() if name.startswith("lo")), "lo")
    interfaces = {name: os.environ.get(name, loopback) for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")}
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "NODE_RANK": "0"}
    with environment(**place, **interfaces, TORCHELASTIC_USE_AGENT_STORE="True"):  # all ranks are clients of this store
        yield store


@contextmanager
def environment(**variables: str) -> Iterator[None]:
    """Context with environment variables, restored afterwards; Lightning removes some of them itself."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def leave_group() -> None:
    """Leave the process group: Lightning stays in it, and the next job of a sweep would wait for dead ranks."""
    from torch import distributed

    if distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()


def store_of_the_run() -> Store:
    """The store of the first rank, as a client in another rank."""
    from torch.distributed import TCPStore  # pyright: ignore[reportPrivateImportUsage]

    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return TCPStore(*address, is_master=False, timeout=timedelta(seconds=ANSWER_SECONDS))
