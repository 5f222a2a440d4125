"""Replaces shares of `total_env_steps` in a run's config by numbers of env steps, once, when the run is built.

Constructors and workers receive numbers. The run's config.yaml keeps the shares, so they also apply to a run that is
resumed with more steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightning_rl.errors import import_object
from lightning_rl.schedules import is_share, to_env_steps
from lightning_rl.schema.signatures import keywords_of

__all__ = ["fractions_to_env_steps"]

INNER = ("exploration", "sub_exploration", "data")  # keys of a policy that are sections themselves


def fractions_to_env_steps(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config with env steps in place of shares of `total_env_steps`, also in schedules and in callbacks' defaults.

    Args:
        config: checked (`check_config`), so that shares are only where constructors take env steps or schedules.
    """
    total, own = config["total_env_steps"], dict(config)
    for section in ("policy", "data", "checkpoint", "evaluation"):
        own[section] = _section(own[section], total)
    own["policies"] = {name: _section(each, total) for name, each in own["policies"].items()}
    own["callbacks"] = [_callback(entry, total) for entry in own["callbacks"]]
    own["report_every_env_steps"] = to_env_steps(own["report_every_env_steps"], total)
    return own


def _section(values: Mapping[str, Any], total: int) -> dict[str, Any]:
    return {
        key: _section(value, total) if key in INNER and isinstance(value, Mapping) else to_env_steps(value, total)
        for key, value in values.items()
    }


def _callback(entry: Any, total: int) -> Any:
    """An entry of `callbacks`: an object or an import path stays as it is, unless defaults of its class are shares."""
    keywords = dict(entry) if isinstance(entry, Mapping) else {"callback": entry}
    target = keywords.get("callback", keywords.get("_target_"))
    found = import_object(target) if isinstance(target, str) else target
    if not isinstance(found, type):
        return entry
    defaults = {name: keyword.default for name, keyword in keywords_of(found).items() if is_share(keyword.default)}
    return _section({**defaults, **keywords}, total)
