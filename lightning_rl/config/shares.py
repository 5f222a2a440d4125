"""Makes env steps of what a run's config gives as shares of its `total_env_steps`: once, where the run is built.

Constructors and workers receive numbers. The run's config.yaml keeps the shares, so that they follow a resumed run that
gets more steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from lightning_rl.config.schema import SECTIONS
from lightning_rl.errors import import_object
from lightning_rl.schedules import Schedule, Share, check_schedule, in_env_steps
from lightning_rl.signatures import keywords_of

__all__ = ["in_env_steps_of_run"]


def in_env_steps_of_run(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config with numbers where it has shares of `total_env_steps`.

    What may be one is said by annotations: keywords that are a `Schedule` or `EnvSteps` in the constructor of the
    policy, of the exploration strategy (and the one under it), of the DataModule and of the checkpoint callback.

    Args:
        config: plain containers whose keys and types are those of the constructors.

    Raises:
        ConfigError: what should be a schedule is none.
    """
    from lightning_rl.callbacks.checkpoint import RLCheckpoint

    total, own = config["total_env_steps"], dict(config)
    for section in ("policy", "data"):
        target = own[section]["_target_"]
        hints = _hints(import_object(target) if isinstance(target, str) else target)
        own[section] = _resolved(section, own[section], hints, total)
    if isinstance(own["policy"].get("exploration"), Mapping):
        own["policy"]["exploration"] = _explored("exploration", own["policy"]["exploration"], total)
    own["checkpoint"] = _resolved("checkpoint", own["checkpoint"], _hints(RLCheckpoint), total)
    own["evaluation"] = _resolved("evaluation", own["evaluation"], SECTIONS["evaluation"], total)
    return own


def _explored(section: str, exploration: Mapping[str, Any], total: int) -> dict[str, Any]:
    from lightning_rl.exploration.making import strategy_class

    hints = _hints(strategy_class(exploration.get("type", "stochastic_sampling")))
    own = _resolved(section, exploration, hints, total)
    if isinstance(own.get("sub_exploration"), Mapping):
        own["sub_exploration"] = _explored(f"{section}.sub_exploration", own["sub_exploration"], total)
    return own


def _resolved(section: str, values: Mapping[str, Any], hints: Mapping[str, Any], total: int) -> dict[str, Any]:
    own = dict(values)
    for key, hint in hints.items():
        if own.get(key) is None:
            continue
        if hint in (Schedule, Schedule | None):
            own[key] = in_env_steps(own[key], total)
            check_schedule(f"{section}.{key}", own[key])
        elif Share in get_args(hint):
            own[key] = in_env_steps(own[key], total)
    return own


def _hints(target: Any) -> dict[str, Any]:
    return {name: keyword.annotation for name, keyword in keywords_of(target).items()}
