"""Updates status.json while a run trains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, Trainer

from lightning_rl.callbacks.checkpoint import RLCheckpoint
from lightning_rl.callbacks.metric_names import ESTIMATORS, EVAL_RETURN, TRAIN_RETURN
from lightning_rl.callbacks.metrics import MetricsCallback
from lightning_rl.callbacks.stop import StopCallback
from lightning_rl.run_directory.process_identity import Heartbeat
from lightning_rl.run_directory.status import write_status

__all__ = ["StatusCallback"]


class StatusCallback(Callback):
    """Writes status.json when training starts, every few seconds, after each checkpoint, and at the end or an error.

    Args:
        path: RUN_DIR/status.json.
        metrics: callback whose numbers are written.
        stop: its `reason` says whether the run was interrupted.
        checkpoint: its best file is written; `None`: no checkpoints.
    """

    def __init__(
        self, path: str | Path, metrics: MetricsCallback, stop: StopCallback, checkpoint: RLCheckpoint | None = None
    ) -> None:
        self.path, self.metrics, self.stop, self.checkpoint = Path(path), metrics, stop, checkpoint
        self._heartbeat: Heartbeat | None = None

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Write "running", and repeat that from a thread, because an iteration or an evaluation may take hours."""
        self._write(trainer, pl_module, "running")
        if trainer.is_global_zero:
            self._heartbeat = Heartbeat(lambda: self._write(trainer, pl_module, "running"))
        if self.checkpoint is not None:  # a run that is killed has at least the env steps of its checkpoint
            self.checkpoint.after_save = lambda: self._write_after_save(trainer, pl_module)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Update the numbers."""
        self._write(trainer, pl_module, "running")

    def on_fit_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Write the final state, after the last checkpoint."""
        self._stop_heartbeat()
        self._write(trainer, pl_module, "interrupted" if self.stop.reason == "interrupted" else "ok")

    def on_exception(self, trainer: Trainer, pl_module: Any, exception: BaseException) -> None:
        """Write "failed" or "interrupted", with the first line of the error."""
        self._stop_heartbeat()
        interrupted = isinstance(exception, KeyboardInterrupt)
        lines = str(exception).strip().splitlines() or [""]
        error = None if interrupted else f"{type(exception).__name__}: {lines[0]}"
        self._write(trainer, pl_module, "interrupted" if interrupted else "failed", error)

    def _write_after_save(self, trainer: Trainer, policy: Any) -> None:
        if self._heartbeat is not None:  # the final state is not written yet
            self._write(trainer, policy, "running")

    def _stop_heartbeat(self) -> None:
        if self._heartbeat is not None:
            self._heartbeat.stop()
            self._heartbeat = None

    def _write(self, trainer: Trainer, policy: Any, state: str, error: str | None = None) -> None:
        if not trainer.is_global_zero:
            return
        numbers: dict[str, Any] = {
            "return": self.metrics.latest.get(TRAIN_RETURN),
            "best_return": self.metrics.best_return,
        }
        numbers |= {"evaluation": self.metrics.latest.get(EVAL_RETURN), "evaluated_at": self.metrics.evaluated_at}
        latest = self.metrics.latest
        estimates = {name: latest[f"eval/{name}"] for name in ("behavior", *ESTIMATORS) if f"eval/{name}" in latest}
        numbers["estimates"] = estimates or None
        numbers |= self._policy_fields(policy)
        write_status(
            self.path,
            state,
            env_steps=int(policy.env_steps),
            **numbers,
            **self._evaluation_fields(trainer),
            seconds=round(self.metrics.seconds, 3),
            error=error,
        )

    def _policy_fields(self, policy: Any) -> dict[str, Any]:
        """Of several agents: the newest mean returns of each policy's agents, in training and evaluated."""
        found: dict[str, dict[str, float]] = {}
        for name in (each.policy_id for each in policy.policies.values() if each.policy_id is not None):
            values = {"return": f"rollout/{name}/ep_rew_mean", "evaluation": f"eval/{name}/ep_rew_mean"}
            latest = self.metrics.latest
            found[name] = {key: latest[metric] for key, metric in values.items() if metric in latest}
        return {"policies": found} if found else {}

    def _evaluation_fields(self, trainer: Trainer) -> dict[str, Any]:
        epochs = getattr(getattr(trainer, "datamodule", None), "epochs", None)
        found: dict[str, Any] = {}
        if epochs is not None:
            share = epochs.seconds / epochs.total_seconds if epochs.done else 0.0
            found["evaluations"] = {
                "done": epochs.done,
                "postponed": epochs.postponed,
                "share_of_time": round(share, 4),
            }
        if self.checkpoint is not None and self.checkpoint.best_model_path:
            file = Path(self.checkpoint.best_model_path)
            value = {"metric": self.checkpoint.monitor, "value": self.checkpoint.best.get(file.name)}
            found["best_checkpoint"] = {"file": f"{file.parent.name}/{file.name}", **value}
        return found
