"""Room for worker processes on a Ray cluster: reserved for all before the first one starts, or refused with reasons."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ray
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from lightning_rl.errors import ConfigError, did_you_mean

__all__ = ["STRATEGIES", "Room"]

STRATEGIES = ("pack", "spread", "strict_pack", "strict_spread")
BUILT_IN = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
LISTED_NODES = 8


class Room:
    """A placement group with a bundle of resources for each of `count` processes.

    Args:
        count: processes.
        placement: "pack" on few nodes, "spread" over many, or "strict_pack" and "strict_spread": on one node, on as
            many as there are processes.
        resources: of each process: "CPU", "GPU", "memory" (bytes), and resources of the cluster's own, by which nodes
            can be chosen: a node started with `ray start --resources='{"rollout": 8}'` takes 8 processes of
            `{"CPU": 1, "rollout": 1}`, and others none.
        timeout_s: how long the cluster may take to make room.
        asked: whose keys these are, for messages: "workers.ray" or "launcher".

    Raises:
        ConfigError: a name is unknown, or there is no room; says what is asked and what there is.
    """

    def __init__(
        self,
        count: int,
        placement: str = "pack",
        resources: Mapping[str, float] | None = None,
        timeout_s: float = 60.0,
        asked: str = "workers.ray",
    ) -> None:
        if placement not in STRATEGIES:
            raise ConfigError(
                f"{asked}.placement={placement!r}; expected {', '.join(STRATEGIES)}."
                f"{did_you_mean(placement, STRATEGIES)}"
            )
        self.bundle = {"CPU": 1.0, **(resources or {})}
        if wrong := {name: amount for name, amount in self.bundle.items() if not _is_amount(amount)}:
            raise ConfigError(f"{asked}.resources has {wrong}; expected numbers, none below 0")
        self._group: Any = placement_group([self.bundle] * count, strategy=placement.upper())
        if not self._group.wait(timeout_s):
            what, number, timeout = (
                ("rollout processes", "workers.num_workers", "workers.ray.placement_timeout_s")
                if asked == "workers.ray"
                else ("ranks", "trainer.devices", f"{asked}.timeout_s")
            )
            there_is = _there_is()
            self.leave()
            raise ConfigError(
                f"no room in the Ray cluster within {timeout_s:g} s for {count} {what} with {_listed(self.bundle)} "
                f"each ({asked}.placement={placement}): {there_is}. Lower {number} or {asked}.resources, add nodes, "
                f"or raise {timeout}"
            )

    def options(self) -> dict[str, Any]:
        """Of an actor that takes one of the bundles, whichever is free: of one, too, that died before."""
        named = {keyword: self.bundle[name] for name, keyword in BUILT_IN.items() if self.bundle.get(name)}
        own = {name: amount for name, amount in self.bundle.items() if name not in BUILT_IN and amount}
        return {
            "num_cpus": 0,
            **named,
            "resources": own,
            "scheduling_strategy": PlacementGroupSchedulingStrategy(self._group),
        }

    def leave(self) -> None:
        """Give the room back; safe to call again."""
        group, self._group = self._group, None
        if group is not None and ray.is_initialized():
            remove_placement_group(group)


def _is_amount(amount: Any) -> bool:
    return isinstance(amount, int | float) and not isinstance(amount, bool) and amount >= 0


def _there_is() -> str:
    """What the nodes have, and how much of all that is free."""
    nodes = [node for node in ray.nodes() if node["Alive"]]
    told = [f"{node['NodeManagerAddress']} has {_listed(node['Resources'])}" for node in nodes[:LISTED_NODES]]
    told += [f"{len(nodes) - LISTED_NODES} more nodes"] if len(nodes) > LISTED_NODES else []
    return f"free are {_listed(ray.available_resources()) or 'none'}; {'; '.join(told)}"


def _listed(resources: Mapping[str, float]) -> str:
    """Without what Ray adds for itself."""
    hidden = ("node:", "object_store_memory", "accelerator_type:")
    shown = sorted(name for name in resources if not name.startswith(hidden) and "_group_" not in name)
    return ", ".join(f"{name} {resources[name]:g}" for name in shown)
