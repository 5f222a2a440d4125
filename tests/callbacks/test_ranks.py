"""Callbacks on two ranks: both stop and save at the same iteration, also when the first rank's disk is full."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback

from lightning_rl.callbacks import AtomicCheckpointIO, MetricsCallback, RLCheckpoint, StopCallback
from tests.callbacks.small_run import STEPS, SmallData, SmallPolicy, small_trainer
from tests.run_processes import Fork


def test_ranks_stop_and_save_together_and_survive_a_failed_write(tmp_path: Path):
    """The return 5 comes with the 5th iteration; the write of the 2nd one fails on rank 0 while rank 1 waits for it."""

    class Full(AtomicCheckpointIO):
        def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
            if checkpoint.get("counters", {}).get("iterations") == 2:
                raise OSError(errno.ENOSPC, "No space left on device")
            super().save_checkpoint(checkpoint, path, storage_options)

    class Reports(Callback):
        def on_train_end(self, trainer: Any, policy: Any) -> None:
            found = {"iterations": policy.iterations, "reason": rule.reason, "failures": checkpoint.failures}
            (tmp_path / f"rank{trainer.global_rank}.json").write_text(json.dumps(found))

    class Policy(SmallPolicy):
        def on_train_start(self) -> None:
            rule.target_return = 5.0 if self.global_rank == 1 else None  # only the second rank sees the return

    rule = StopCallback(target_return=5.0, min_episodes=1)
    checkpoint = RLCheckpoint(tmp_path / "checkpoints", every_env_steps=STEPS, every_seconds=None)

    def run() -> None:
        ranks: dict[str, Any] = {"strategy": "ddp_fork", "devices": 2, "use_distributed_sampler": False}
        callbacks = [MetricsCallback(), rule, Reports(), checkpoint]
        trainer = small_trainer(tmp_path, callbacks, plugins=[Full()], limit_val_batches=0, **ranks)
        trainer.fit(Policy(), SmallData())

    with Fork(run, tmp_path / "log.txt") as process:
        assert process.wait() == 0, process.text
    first, second = (json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in (0, 1))
    assert (first["iterations"], second["iterations"]) == (5, 5)
    assert (first["reason"], second["reason"]) == ("another rank", "return")
    files = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert files == ["last.ckpt", *(f"step_000000{step}.ckpt" for step in (300, 400, 500))]
