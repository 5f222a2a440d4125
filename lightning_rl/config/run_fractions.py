"""Replaces shares of `total_env_steps` in a run's config by numbers of env steps, once, when the run is built.

Constructors and workers receive numbers. The run's config.yaml keeps the shares, so they also apply to a run that is
resumed with more steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightning_rl.errors import import_object
from lightning_rl.schedules import to_env_steps
from lightning_rl.schema.signatures import hints_of, keywords_of, may_be_share

__all__ = ["fractions_to_env_steps", "section_to_env_steps"]


def fractions_to_env_steps(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config with env steps in place of shares of `total_env_steps`.

    Annotations decide where shares are allowed: keywords of type `Schedule` or `EnvSteps` in the constructors of the
    policy, of the exploration strategy (and a wrapped one), of the DataModule, of the checkpoint callback and of the
    user's callbacks.

    Args:
        config: plain containers whose keys and types are those of the constructors.
    """
    from lightning_rl.callbacks.checkpoint import RLCheckpoint
    from lightning_rl.data.evaluator import EVALUATION

    total, own = config["total_env_steps"], dict(config)
    own["policy"], own["data"] = _policy_to_env_steps(own["policy"], total), _to_env_steps(own["data"], total)
    own["policies"] = {name: _policy_to_env_steps(each, total) for name, each in own.get("policies", {}).items()}
    own["checkpoint"] = section_to_env_steps(own["checkpoint"], hints_of(RLCheckpoint), total)
    own["evaluation"] = section_to_env_steps(own["evaluation"], EVALUATION.hints, total)
    own["callbacks"] = [_callback_to_env_steps(entry, total) for entry in own["callbacks"]]
    own["report_every_env_steps"] = to_env_steps(own["report_every_env_steps"], total)
    return own


def _to_env_steps(section: Mapping[str, Any], total: int) -> dict[str, Any]:
    """A section with `_target_`."""
    target = section["_target_"]
    hints = hints_of(import_object(target) if isinstance(target, str) else target)
    return section_to_env_steps(section, hints, total)


def _callback_to_env_steps(entry: Any, total: int) -> Any:
    """An entry of `callbacks`: an object or an import path stays as it is, unless defaults of its class are shares."""
    keywords = dict(entry) if isinstance(entry, Mapping) else {"callback": entry}
    target = keywords.get("callback", keywords.get("_target_"))
    found = import_object(target) if isinstance(target, str) else target
    if not isinstance(found, type):
        return entry
    hints = hints_of(found)
    shares = {
        name: parameter.default
        for name, parameter in keywords_of(found).items()
        if may_be_share(parameter.default, hints.get(name))
    }
    return section_to_env_steps({**shares, **keywords}, hints, total)


def _policy_to_env_steps(policy: Mapping[str, Any], total: int) -> dict[str, Any]:
    if "_target_" not in policy:  # from a checkpoint
        return dict(policy)
    own = _to_env_steps(policy, total)
    if isinstance(own.get("exploration"), Mapping):
        own["exploration"] = _exploration_to_env_steps(own["exploration"], total)
    if isinstance(own.get("data"), Mapping):
        own["data"] = _to_env_steps(own["data"], total)
    return own


def _exploration_to_env_steps(exploration: Mapping[str, Any], total: int) -> dict[str, Any]:
    from lightning_rl.exploration.catalog import strategy_class

    hints = hints_of(strategy_class(exploration.get("type", "stochastic_sampling")))
    own = section_to_env_steps(exploration, hints, total)
    if isinstance(own.get("sub_exploration"), Mapping):
        own["sub_exploration"] = _exploration_to_env_steps(own["sub_exploration"], total)
    return own


def section_to_env_steps(values: Mapping[str, Any], hints: Mapping[str, Any], total: int) -> dict[str, Any]:
    """The values of a section with shares replaced by env steps, where type hints allow shares."""
    return {
        key: to_env_steps(value, total) if may_be_share(value, hints.get(key)) else value
        for key, value in values.items()
    }
