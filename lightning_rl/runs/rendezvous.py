"""Where the ranks of one machine find each other, and how they part."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

__all__ = ["Store", "environment", "leave_group", "loopback_store", "store_of_the_run"]

Store = Any  # torch.distributed.Store; torch is imported by those who have other ranks only

ANSWER_SECONDS = 30.0


@contextmanager
def loopback_store() -> Iterator[Store]:
    """Where the ranks find each other: a store that is served here, and listens on the loopback interface only.

    Left to itself, torch would listen on all interfaces for it.
    """
    from torch.distributed import TCPStore  # pyright: ignore[reportPrivateImportUsage]

    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    store = TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())
    loopback = next((name for _, name in socket.if_nameindex() if name.startswith("lo")), "lo")
    interfaces = {name: os.environ.get(name, loopback) for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")}
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "NODE_RANK": "0"}
    with environment(**place, **interfaces, TORCHELASTIC_USE_AGENT_STORE="True"):  # all ranks are its clients
        yield store


@contextmanager
def environment(**variables: str) -> Iterator[None]:
    """Environment variables that are as before afterwards; Lightning removes some of them itself."""
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
    """Forget the other ranks: Lightning stays in the group, and the next job of a sweep would talk to the dead."""
    from torch import distributed

    if distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()


def store_of_the_run() -> Store:
    """What the first rank serves, in another one."""
    from torch.distributed import TCPStore  # pyright: ignore[reportPrivateImportUsage]

    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return TCPStore(*address, is_master=False, timeout=timedelta(seconds=ANSWER_SECONDS))
