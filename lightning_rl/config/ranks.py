"""The number of processes that learn together, according to the config."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["devices_of", "ranks_of"]


def devices_of(config: Mapping[str, Any]) -> int:
    """Number of devices, and so of processes, on each node."""
    devices, accelerator = config["trainer"].get("devices", 1), config["trainer"].get("accelerator", "cpu")
    if isinstance(devices, list):
        return len(devices)
    if isinstance(devices, str) and devices.isdigit():
        return int(devices)
    if isinstance(devices, int) and devices >= 0:
        return max(1, devices)
    import torch

    return max(1, torch.cuda.device_count()) if accelerator in ("gpu", "cuda", "auto") else 1


def ranks_of(config: Mapping[str, Any]) -> int:
    """Number of processes of the whole run, on all nodes."""
    return devices_of(config) * int(config["trainer"].get("num_nodes", 1))
