"""Explains where a value of a config, or of a run, comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lightning_rl.config import descriptions
from lightning_rl.config.compose import compose_config
from lightning_rl.config.hydra_errors import ALL_GROUPS
from lightning_rl.config.keys import dotted_keys, value_at
from lightning_rl.config.origins import changed_keys, settings_of
from lightning_rl.errors import ConfigError, no_such_key, printable
from lightning_rl.run_directory.config_file import CONFIG_FILE, HISTORY_FILE, read_config, read_history, trust_in_config

__all__ = ["all_as_text", "as_text", "explain", "explain_all", "explain_run", "overrides_of_run"]

FILLED = ("run_dir", "policies")  # which the start of a run completes
NO_OVERRIDES = "holds no overrides"


def explain(key: str, overrides: Sequence[str]) -> dict[str, Any]:
    """Where a value of a config that is composed now comes from.

    Args:
        key: dotted.
        overrides: Hydra overrides, as typed on the command line.

    Returns:
        key, value, settings (key, value, place and reason of each place that sets it; the last one holds), changes (of
        resumed runs), text (its documentation with the constructor's default) and note.

    Raises:
        ConfigError: there is no such key, or the overrides do not compose.
    """
    config = compose_config(overrides)
    return _explained(key, config, overrides)


def explain_run(run_dir: Path, key: str, trust: str | Sequence[str] = ()) -> dict[str, Any]:
    """Where a value of a run comes from: its overrides, today's files, and the changes when it was resumed.

    Args:
        run_dir: the directory of the run.
        key: dotted.
        trust: packages that the run's overrides may name.

    Returns:
        As `explain`; "note" says if today's files give another value than the run has.

    Raises:
        ConfigError: there is no run, no such key, or the run's overrides name code that is not trusted.
    """
    config = read_config(run_dir)
    overrides = overrides_of_run(run_dir, config)
    with trust_in_config(config, run_dir, trust).restrict_imports():
        found = _explained(key, config, overrides)
        composed = value_at(compose_config(overrides), key) if overrides is not None else None
    for entry in read_history(run_dir / HISTORY_FILE):
        for changed, (before, after) in entry["changes"].items():
            if key == changed or key.startswith(f"{changed}."):
                found["changes"].append(
                    {"at": entry["at"], "env_steps": entry["env_steps"], "before": before, "after": after}
                )
    if overrides is None:
        found["note"] = f"{run_dir} {NO_OVERRIDES}: only the value is known"
    elif composed != found["value"] and not found["changes"] and not key.startswith(FILLED):
        found["note"] = (
            f"today's files give {composed!r}: they, or the package, have changed since, or Python code set the value"
        )
    return found


def overrides_of_run(run_dir: Path, config: Mapping[str, Any]) -> list[str] | None:
    """The overrides that a run was started with; `None` if its config.yaml has none.

    Raises:
        ConfigError: they are not a list of texts, or set Hydra's own keys, which can import packages.
    """
    if "overrides" not in config:
        return None
    overrides = config["overrides"]
    if not isinstance(overrides, list) or not all(isinstance(override, str) for override in overrides):
        raise ConfigError(f"{run_dir / CONFIG_FILE}: overrides={overrides!r}; expected a list of key=value texts")
    if strange := [override for override in overrides if override.lstrip("+~").startswith("hydra")]:
        raise ConfigError(f"{run_dir / CONFIG_FILE}: overrides hold {strange[0]!r}, which a file may not set")
    return overrides


def explain_all(
    overrides: Sequence[str], run_dir: Path | None = None, trust: str | Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Key, value, default and place of each key that differs from its choices' defaults, or that a resume changed.

    Args:
        overrides: Hydra overrides, as typed on the command line.
        run_dir: the directory of a run, whose overrides and values are taken instead.
        trust: see `explain_run`.

    Raises:
        ConfigError: the overrides do not compose, or the run has none, or they name code that is not trusted.
    """
    if run_dir is None:
        return _changed(overrides, {})
    config = read_config(run_dir)
    given = overrides_of_run(run_dir, config)
    if given is None:
        raise ConfigError(f"{run_dir} {NO_OVERRIDES}; explain its keys one by one")
    with trust_in_config(config, run_dir, trust).restrict_imports():
        rows = {row["key"]: row for row in _changed(given, config)}
        composed = compose_config(given)
    for entry in read_history(run_dir / HISTORY_FILE):
        for key in entry["changes"]:
            default = rows[key]["default"] if key in rows else value_at(composed, key)
            place = f"resumed at {entry['env_steps']:,} env steps"
            rows[key] = {"key": key, "value": value_at(config, key), "default": default, "place": place}
    return [*rows.values()]


def _changed(overrides: Sequence[str], config: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {"key": key, "value": value_at(config, key) if config else value, "default": default, "place": place}
        for key, (value, default, place) in changed_keys(overrides).items()
    ]


def _explained(key: str, config: Mapping[str, Any], overrides: Sequence[str] | None) -> dict[str, Any]:
    known = list(dotted_keys(config))
    if key not in known:
        raise ConfigError(no_such_key(key, known, ALL_GROUPS), key=key)
    settings = [] if overrides is None else settings_of(key, overrides)
    return {
        "key": key,
        "value": value_at(config, key),
        "settings": [asdict(setting) for setting in settings],
        "changes": [],
        "text": descriptions.key_text(settings[-1].key if settings else key, config),
        "note": "",
    }


def as_text(found: Mapping[str, Any]) -> str:
    """What `explain` gave, as lines: the value, each place with the last one marked, the key's documentation."""
    value = f"{len(found['value'])} keys" if isinstance(found["value"], dict) else repr(found["value"])
    lines = [f"{found['key']} = {value}"]
    rows = [
        (
            setting["place"],
            f"{setting['key']}={setting['value']}",
            f"({setting['reason']})" if setting["reason"] else "",
        )
        for setting in found["settings"]
    ]
    rows += [
        (f"resumed at {change['env_steps']:,} env steps", f"{change['before']!r} → {change['after']!r}", change["at"])
        for change in found["changes"]
    ]
    width = max((len(place) for place, *_ in rows), default=0)
    for number, (place, written, reason) in enumerate(rows, start=1):
        mark = "→" if number == len(rows) else " "
        lines.append(f"{mark} {number}. {place:{width}}  {written}  {reason}".rstrip())
    lines += [f"note: {found['note']}"] if found["note"] else []
    return "\n".join(printable(line) for line in lines) + (f"\n{found['text']}" if found["text"] else "")


def all_as_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """What `explain_all` gave, as a table."""
    if not rows:
        return "every key has the default of its choices"
    return descriptions.table([{name: str(value) for name, value in row.items()} for row in rows])
