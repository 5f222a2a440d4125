"""The kinds of data that policies learn from, and the check that a pipeline feeds a policy's kind."""

from __future__ import annotations

from typing import Any

from lightning_rl.errors import ConfigError

__all__ = ["SERVE_SEVERAL_AGENTS", "check_kind_of_data", "kind_of_data"]

SERVE_SEVERAL_AGENTS = (
    "lightning_rl.data.source:SyncSource",
    "lightning_rl.data.async_source:AsyncSource",
    "lightning_rl.data.gradient_source:GradientSource",
    "lightning_rl.data.replay_feed:ReplayFeed",
    "lightning_rl.data.offline.source:OfflineSource",
)
"""Import paths of the sources that serve several agents; a `ReplayFeed` or `OfflineSource` is one policy's own."""

KINDS_OF_DATA = {
    "rollouts": "rollouts of its own policy",
    "episodes": "whole episodes of any policy",
    "transitions": "replayed transitions",
    "populations": "the returns of perturbed policies",
}


def kind_of_data(policy_class: type) -> str:
    """The kind of data that policies of a class learn from, a key of `KINDS_OF_DATA`."""
    if getattr(policy_class, "off_policy", False):
        return "transitions"
    if getattr(policy_class, "imitates", False):
        return "episodes"
    return "populations" if getattr(policy_class, "evolves", False) else "rollouts"


def check_kind_of_data(policy_class: Any, source_class: Any) -> None:
    """Check that policies of a class learn from the kind of data that a source gives.

    `config/check.py` calls it for every composed config, and `Source.prepare` for sources that are made in Python.

    Raises:
        ConfigError: they learn from another kind; names the pipeline to use.
    """
    needed = kind_of_data(policy_class)
    if needed not in source_class.gives:
        learns = f"{policy_class.__name__} learns from {KINDS_OF_DATA[needed]}"
        asked = getattr(policy_class, "data", "on_policy")
        if needed == "rollouts" and asked == "replay":
            raise ConfigError(f"{learns}; set the class attribute off_policy = True if it learns from replay")
        raise ConfigError(
            f"{learns}, and {source_class.__name__} gives {KINDS_OF_DATA[source_class.gives[0]]}: use data={asked}"
        )
