"""status.json: how a run is doing, for people and programs that look at its directory."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, Trainer

from lightning_rl.callbacks.checkpoint_io import write_atomically
from lightning_rl.callbacks.metric_names import TRAIN_RETURN
from lightning_rl.callbacks.metrics import MetricsCallback
from lightning_rl.callbacks.stop import StopCallback

__all__ = ["StatusCallback", "read_status", "write_status"]

log = logging.getLogger(__name__)


def write_status(path: Path, state: str, **fields: Any) -> None:
    """Replace the status file.

    Args:
        path: RUN_DIR/status.json.
        state: "running", "ok", "failed" or "interrupted".
        fields: of env_steps, return, best_return, seconds, error; the ones left out are null.
    """
    status = {"env_steps": 0, "return": None, "best_return": None, "seconds": 0.0, "error": None, **fields}
    try:
        write_atomically(path, json.dumps({"state": state, **status}, indent=1).encode(), durable=False)
    except OSError as error:
        log.error("%s could not be written (%s)", path, error)


def read_status(path: Path) -> dict[str, Any]:
    """What `write_status` wrote; nothing where there is no file."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


class StatusCallback(Callback):
    """Writes status.json when training starts, after each epoch, and when it ends, however it ends.

    Args:
        path: RUN_DIR/status.json.
        metrics: whose numbers are written.
        stop: who knows whether the run was interrupted.
    """

    def __init__(self, path: str | Path, metrics: MetricsCallback, stop: StopCallback) -> None:
        self.path, self.metrics, self.stop = Path(path), metrics, stop

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Running."""
        self._write(trainer, pl_module, "running")

    def on_train_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Still running."""
        self._write(trainer, pl_module, "running")

    def on_fit_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Done, and the last checkpoint is written."""
        self._write(trainer, pl_module, "interrupted" if self.stop.reason == "interrupted" else "ok")

    def on_exception(self, trainer: Trainer, pl_module: Any, exception: BaseException) -> None:
        """Over; the error's first line is kept."""
        interrupted = isinstance(exception, KeyboardInterrupt)
        lines = str(exception).strip().splitlines() or [""]
        error = None if interrupted else f"{type(exception).__name__}: {lines[0]}"
        self._write(trainer, pl_module, "interrupted" if interrupted else "failed", error)

    def _write(self, trainer: Trainer, policy: Any, state: str, error: str | None = None) -> None:
        if not trainer.is_global_zero:
            return
        numbers = {"return": self.metrics.latest.get(TRAIN_RETURN), "best_return": self.metrics.best_return}
        write_status(
            self.path,
            state,
            env_steps=int(policy.env_steps),
            **numbers,
            seconds=round(self.metrics.seconds, 3),
            error=error,
        )
