"""The kinds of data that policies learn from, and the check that a pipeline feeds a policy's kind."""

from __future__ import annotations

from typing import Any

from lightning_rl.errors import ConfigError

__all__ = ["SERVE_SEVERAL_AGENTS", "check_kind_of_data", "kind_of_data"]

SERVE_SEVERAL_AGENTS = (
    "lightning_rl.data.datamodule:RolloutDataModule",
    "lightning_rl.data.async_datamodule:AsyncDataModule",
    "lightning_rl.data.gradient_datamodule:GradientDataModule",
    "lightning_rl.data.replay_datamodule:ReplayDataModule",
)
"""Import paths of the DataModules that feed several agents."""

KINDS_OF_DATA = {
    "rollouts": "rollouts of its own policy",
    "transitions": "replayed transitions",
    "populations": "the returns of perturbed policies",
}


def kind_of_data(policy_class: type) -> str:
    """The kind of data that policies of a class learn from: "rollouts", "transitions" or "populations"."""
    if getattr(policy_class, "off_policy", False):
        return "transitions"
    return "populations" if getattr(policy_class, "evolves", False) else "rollouts"


def check_kind_of_data(policy_class: Any, data_class: Any) -> None:
    """Check that policies of a class learn from the kind of data that a DataModule feeds.

    `config/check.py` calls it for every composed config, and `RolloutDataModule.setup` for DataModules that are made in
    Python, both unless the user has given a plan. Pipelines that cannot serve another kind whatever the plan call it
    themselves.

    Raises:
        ConfigError: they learn from another kind; names the pipeline to use.
    """
    needed = kind_of_data(policy_class)
    if data_class.feeds != needed:
        raise ConfigError(
            f"{policy_class.__name__} learns from {KINDS_OF_DATA[needed]}, and {data_class.__name__} feeds "
            f"{KINDS_OF_DATA[data_class.feeds]}: use data={getattr(policy_class, 'data', 'on_policy')}"
        )
