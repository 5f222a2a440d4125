"""Reads and writes status.json, the state and progress of a run."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

from lightning_rl.errors import ConfigError, short_repr
from lightning_rl.run_directory.atomic import write_atomically
from lightning_rl.run_directory.process_identity import now, this_process
from lightning_rl.run_directory.regular_files import read_text

__all__ = ["FIELDS", "STATUS_FILE", "read_status", "read_status_or_empty", "update_status", "write_status"]

STATUS_FILE = "status.json"
MOST_BYTES = 2**20

FIELDS: dict[str, Any] = {
    "env_steps": 0,
    "return": None,  # mean return of the training window
    "best_return": None,  # best mean return of an evaluation, or else of the training window
    "evaluations": None,  # done, postponed, share_of_time
    "evaluation": None,  # mean return of the newest evaluation
    "evaluated_at": None,  # env steps of the evaluated policy
    "estimates": None,  # off-policy estimator → its newest mean discounted return of the policy
    "best_checkpoint": None,  # file, metric, value
    "policies": None,  # of several agents: id → return, evaluation
    "seconds": 0.0,
    "error": None,
}

STATES = ("running", "ok", "failed", "interrupted")
KINDS = {  # of those that may be absent or null
    (int, float): ("env_steps", "return", "best_return", "evaluation", "evaluated_at", "seconds"),
    (str,): ("error",),
    (dict,): ("evaluations", "best_checkpoint", "policies", "estimates"),
}

log = logging.getLogger(__name__)


def write_status(path: Path, state: str, **fields: Any) -> None:
    """Replace the status file; pid, host and heartbeat are set for this process.

    A failed write does not stop a run; it is logged.

    Args:
        path: RUN_DIR/status.json.
        state: one of STATES.
        fields: some of FIELDS; the others keep their defaults.
    """
    status = {**FIELDS, **fields}
    process = this_process()
    del process["born"]
    status = {"state": state, **status, **process, "heartbeat": now()}
    try:
        write_atomically(path, json.dumps(status, indent=1).encode(), durable=False)
    except OSError as error:
        log.error("%s could not be written (%s)", path, error.strerror or error)


def update_status(run_dir: Path, **changes: Any) -> None:
    """Replace some fields of a run's status.json, and keep the others; with the process, it names this one."""
    file = run_dir / STATUS_FILE
    write_status(file, **{**read_status_or_empty(file), **changes})


def read_status(path: Path) -> dict[str, Any]:
    """Read a status file; empty if there is none.

    Raises:
        ConfigError: the file is damaged; names it, and says that it may be deleted.
    """
    if not os.path.lexists(path):
        return {}
    try:
        status = json.loads(read_text(path, most=MOST_BYTES))
    except (OSError, RecursionError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"{path} is damaged ({reason}): delete it, a run continues without it") from error
    if not isinstance(status, dict) or status.get("state") not in STATES:
        raise ConfigError(f"{path} is damaged (it holds no state): delete it, a run continues without it")
    for kinds, names in KINDS.items():
        for name in names:
            if not isinstance(value := status.get(name), (*kinds, type(None))):
                raise ConfigError(
                    f"{path} is damaged ({name}={short_repr(value)}): delete it, a run continues without it"
                )
    return status


def read_status_or_empty(path: Path) -> dict[str, Any]:
    """Read a status file; empty if there is none, or a damaged one."""
    try:
        return read_status(path)
    except ConfigError:
        return {}
