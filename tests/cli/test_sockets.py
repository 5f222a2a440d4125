"""Runs on one machine open no port that other machines can reach, neither Ray's processes nor DDP's ranks."""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path

import psutil
import pytest

from tests.run_processes import Run


def listening(run: Run) -> set[tuple[str, str]]:
    """(process name, address) of every socket on which a process of the run takes connections."""
    found: set[tuple[str, str]] = set()
    for process in run.all():
        try:
            connections = process.net_connections("inet")
            found |= {(process.name(), c.laddr.ip) for c in connections if c.status == psutil.CONN_LISTEN}
        except psutil.Error:  # it has just ended
            continue
    return found


def is_loopback(address: str) -> bool:
    ip = ipaddress.ip_address(address)
    mapped = getattr(ip, "ipv4_mapped", None)
    return (mapped or ip).is_loopback


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_no_socket_listens_off_loopback(tmp_path: Path) -> None:
    """Looked at again and again from the start: the ranks' store and Ray's ports come and go."""
    seen: set[tuple[str, str]] = set()

    def trains() -> bool:
        seen.update(listening(run))
        return (tmp_path / "out" / "metrics.csv").is_file()

    workers = ("workers.num_workers=2", "evaluation.num_workers=1", "evaluation.parallel=true")
    asked = ("policy=ppo", "env=cartpole", "trainer=ddp", "trainer.accelerator=cpu", *workers)
    endless = ("total_env_steps=100_000_000", "trainer.enable_progress_bar=false", "run_dir=out")
    with Run("train", *asked, *endless, cwd=tmp_path) as run:
        run.until(trains, 400)
        seen.update(listening(run))
        os.kill(run.process.pid, 2)
        assert run.wait(100) == 130, run.text
        run.until_gone(60)
    assert {name.split("::")[0] for name, _ in seen} >= {"gcs_server", "raylet", "ray"}  # the test does see sockets
    assert any("python" in name for name, _ in seen)  # of the ranks
    assert sorted(socket for socket in seen if not is_loopback(socket[1])) == []
