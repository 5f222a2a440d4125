"""Import paths that files of earlier versions name, and the paths under which the objects are found now.

A checkpoint and the config.yaml of a run name classes by import path. When such a file is read, `with_current_paths`
replaces the old paths, so everything after it, the trust check included (`trust.py`), meets current ones only. What a
user types or passes in Python is not translated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightning_rl.trust import names_code

__all__ = ["RENAMED_PATHS", "current_path", "with_current_paths"]

RENAMED_PATHS = {  # old module or class -> new module or class, dotted; a class stands here if its name changed
    "lightning_rl.data.datasets.OnPolicyDataset": "lightning_rl.data.datasets.PlanDataset",
    "lightning_rl.data.execution": "lightning_rl.data.plans",
    "lightning_rl.data.hindsight": "lightning_rl.replay.hindsight",
    "lightning_rl.data.prioritized": "lightning_rl.replay.prioritized",
    "lightning_rl.data.replay": "lightning_rl.replay.buffer",
    "lightning_rl.data.reservoir": "lightning_rl.replay.reservoir",
    "lightning_rl.data.sequence_replay": "lightning_rl.replay.sequences",
    "lightning_rl.exploration.layered": "lightning_rl.exploration.wrapper",
    "lightning_rl.exploration.layered.LayeredExploration": "lightning_rl.exploration.wrapper.ExplorationWrapper",
    "lightning_rl.exploration.making": "lightning_rl.exploration.catalog",
    "lightning_rl.launchers": "lightning_rl.runs.launchers",
    "lightning_rl.models.classic": "lightning_rl.rllib.models",
    "lightning_rl.models.delegating": "lightning_rl.models.model_wrapper",
    "lightning_rl.models.delegating.Delegating": "lightning_rl.models.model_wrapper.ModelWrapper",
    "lightning_rl.models.distributions.classic": "lightning_rl.models.distributions.custom",
    "lightning_rl.models.encoded": "lightning_rl.models.encoder_model",
    "lightning_rl.models.encoded.EncodedModel": "lightning_rl.models.encoder_model.EncoderModel",
    "lightning_rl.models.wrapping": "lightning_rl.models.memory",
    "lightning_rl.policies.custom_losses": "lightning_rl.learning.custom_losses",
    "lightning_rl.policies.from_functions": "lightning_rl.policies.function_policy",
    "lightning_rl.policies.from_functions.FromFunctions": "lightning_rl.policies.function_policy.FunctionPolicy",
    "lightning_rl.ranks.launchers": "lightning_rl.runs.launchers",
    "lightning_rl.rllib_plans": "lightning_rl.rllib.plans",
    "lightning_rl.rollouts.atari": "lightning_rl.envs.atari",
    "lightning_rl.rollouts.env_check": "lightning_rl.envs.check",
    "lightning_rl.rollouts.envs": "lightning_rl.envs.creator",
    "lightning_rl.rollouts.goal_env": "lightning_rl.envs.goals",
    "lightning_rl.rollouts.registry": "lightning_rl.envs.registry",
    "lightning_rl.rollouts.sync_env": "lightning_rl.envs.sync_vector_env",
    "lightning_rl.rollouts.tasks": "lightning_rl.envs.toy_tasks",
    "lightning_rl.run": "lightning_rl.runs.run",
}


def current_path(path: str) -> str:
    """The import path under which an object is found now, for a path that may be of an earlier version.

    Args:
        path: "pkg.module:Name" or "pkg.module.Name"; returned unchanged if nothing of it was renamed.
    """
    dotted = f"{path.replace(':', '.')}."
    renamed = [old for old in RENAMED_PATHS if dotted.startswith(f"{old}.")]
    if not renamed:
        return path
    longest = max(renamed, key=len)  # a class before its module
    current = RENAMED_PATHS[longest] + path[len(longest) :]
    if ":" in path and ":" not in current:  # the colon stood inside the renamed part
        current = ":".join(current.rsplit(".", 1))
    return current


def with_current_paths(content: Any, place: str = "") -> Any:
    """A copy of a file's content in which every name of code is a current import path.

    Only values at the keys where a file may name code are changed (`trust.PLACES`).

    Args:
        content: plain containers within bounds (`trust.check_bounded`).
        place: dotted key of the content in a whole config; "" for a config itself.
    """
    prefix = f"{place}." if place else ""
    if isinstance(content, Mapping):
        return {key: with_current_paths(child, f"{prefix}{key}") for key, child in content.items()}
    if isinstance(content, list | tuple):
        return type(content)(with_current_paths(child, f"{prefix}{index}") for index, child in enumerate(content))
    if isinstance(content, str) and names_code(place):
        return current_path(content)
    return content
