"""Reserves resources of a Ray cluster for all worker processes before the first one starts, or says why it cannot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ray
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from lightning_rl.errors import ConfigError, did_you_mean

__all__ = ["STRATEGIES", "Reservation"]

STRATEGIES = ("pack", "spread", "strict_pack", "strict_spread")
BUILT_IN = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
MAX_LISTED = 8


class Reservation:
    """A placement group with a bundle of resources for each of `count` processes.

    Args:
        count: processes.
        placement: "pack" on few nodes, "spread" over many, or "strict_pack" and "strict_spread": on one node, on as
            many as there are processes.
        resources: the resources of each process: "CPU", "GPU", "memory" (bytes), and resources of the cluster's own, by
            which nodes
            can be chosen: a node started with `ray start --resources='{"rollout": 8}'` takes 8 processes of
            `{"CPU": 1, "rollout": 1}`, and others none.
        timeout_s: how long to wait for the resources, seconds.
        section: the section of the config that has these keys, for messages: "workers.ray" or "rank_launcher".

    Raises:
        ConfigError: a name is unknown, or the cluster has no room; names the requested and the free resources.
    """

    def __init__(
        self,
        count: int,
        placement: str = "pack",
        resources: Mapping[str, float] | None = None,
        timeout_s: float = 60.0,
        section: str = "workers.ray",
    ) -> None:
        if placement not in STRATEGIES:
            raise ConfigError(
                f"{section}.placement={placement!r}; expected {', '.join(STRATEGIES)}."
                f"{did_you_mean(placement, STRATEGIES)}"
            )
        self.bundle = {"CPU": 1.0, **(resources or {})}
        if wrong := {name: amount for name, amount in self.bundle.items() if not _is_amount(amount)}:
            raise ConfigError(f"{section}.resources has {wrong}; expected numbers, none below 0")
        self._group: Any = placement_group([self.bundle] * count, strategy=placement.upper())
        if not self._group.wait(timeout_s):
            what, number, timeout = (
                ("rollout processes", "workers.num_workers", "workers.ray.placement_timeout_s")
                if section == "workers.ray"
                else ("ranks", "trainer.devices", f"{section}.timeout_s")
            )
            cluster = _describe_cluster()
            self.release()
            raise ConfigError(
                f"no room in the Ray cluster within {timeout_s:g} s for {count} {what} with "
                f"{_format_resources(self.bundle)} each ({section}.placement={placement}): {cluster}. Lower {number} "
                f"or {section}.resources, add nodes, or raise {timeout}"
            )

    def options(self) -> dict[str, Any]:
        """Options of an actor that takes any free bundle, also that of an actor that has died."""
        named = {keyword: self.bundle[name] for name, keyword in BUILT_IN.items() if self.bundle.get(name)}
        own = {name: amount for name, amount in self.bundle.items() if name not in BUILT_IN and amount}
        return {
            "num_cpus": 0,
            **named,
            "resources": own,
            "scheduling_strategy": PlacementGroupSchedulingStrategy(self._group),
        }

    def release(self) -> None:
        """Give the resources back; safe to call again."""
        group, self._group = self._group, None
        if group is not None and ray.is_initialized():
            remove_placement_group(group)


def _is_amount(amount: Any) -> bool:
    return isinstance(amount, int | float) and not isinstance(amount, bool) and amount >= 0


def _describe_cluster() -> str:
    """The resources of the nodes, and those that are free."""
    nodes = [node for node in ray.nodes() if node["Alive"]]
    lines = [f"{node['NodeManagerAddress']} has {_format_resources(node['Resources'])}" for node in nodes[:MAX_LISTED]]
    lines += [f"{len(nodes) - MAX_LISTED} more nodes"] if len(nodes) > MAX_LISTED else []
    return f"free are {_format_resources(ray.available_resources()) or 'none'}; {'; '.join(lines)}"


def _format_resources(resources: Mapping[str, float]) -> str:
    """Names and amounts, without the resources that Ray adds for itself."""
    hidden = ("node:", "object_store_memory", "accelerator_type:")
    shown = sorted(name for name in resources if not name.startswith(hidden) and "_group_" not in name)
    return ", ".join(f"{name} {resources[name]:g}" for name in shown)
