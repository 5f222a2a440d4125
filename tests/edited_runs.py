"""Single entries of the files of a run, read and changed: of status.json, config.yaml and checkpoints/last.ckpt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import yaml

__all__ = [
    "config_of",
    "contents",
    "edit_checkpoint",
    "edit_config",
    "edit_status",
    "last_checkpoint",
    "states",
    "status_of",
]


def status_of(run_dir: Path) -> dict[str, Any]:
    """What status.json holds."""
    found: dict[str, Any] = json.loads((run_dir / "status.json").read_text())
    return found


def states(directory: Path) -> list[str]:
    """The states of the jobs of a sweep, in their order."""
    return [status_of(file.parent)["state"] for file in sorted(directory.glob("*/status.json"))]


def config_of(run_dir: Path) -> dict[str, Any]:
    """What config.yaml holds."""
    found: dict[str, Any] = yaml.safe_load((run_dir / "config.yaml").read_text())
    return found


def last_checkpoint(run_dir: Path) -> dict[str, Any]:
    """What last.ckpt holds."""
    found: dict[str, Any] = torch.load(run_dir / "checkpoints" / "last.ckpt", weights_only=True)
    return found


def contents(run_dir: Path) -> dict[str, bytes]:
    """All files of a run."""
    return {str(path.relative_to(run_dir)): path.read_bytes() for path in run_dir.rglob("*") if path.is_file()}


def edit_status(run_dir: Path, **fields: Any) -> None:
    """Replace fields of status.json."""
    (run_dir / "status.json").write_text(json.dumps({**status_of(run_dir), **fields}))


def edit_config(run_dir: Path, key: str, value: Any) -> None:
    """Replace the value of a dotted key of config.yaml; `...` deletes it."""
    config = config_of(run_dir)
    _set(config, key, value)
    (run_dir / "config.yaml").write_text(yaml.safe_dump(config, explicit_end=True))


def edit_checkpoint(run_dir: Path, entry: str, value: Any) -> None:
    """Replace an entry of last.ckpt, named as `optimizer_states.0.state`; `...` deletes it."""
    content = last_checkpoint(run_dir)
    _set(content, entry, value)
    torch.save(content, run_dir / "checkpoints" / "last.ckpt")


def _set(content: Any, entry: str, value: Any) -> None:
    *path, name = [int(part) if part.isdigit() else part for part in entry.split(".")]
    for part in path:
        content = content[part]
    if value is ...:
        del content[name]
    else:
        content[name] = value
