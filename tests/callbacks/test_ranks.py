"""Callbacks on two ranks: both stop and save at the same iteration, also when the first rank's disk is full."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

PROGRAM = """
    import errno, json, sys
    from pathlib import Path
    from lightning.pytorch import Callback
    from lightning_rl.callbacks import AtomicCheckpointIO, MetricsCallback, RLCheckpoint, StopCallback
    from tests.callbacks.small_run import STEPS, SmallData, SmallPolicy, small_trainer

    class Full(AtomicCheckpointIO):
        def save_checkpoint(self, checkpoint, path, storage_options=None):
            if checkpoint.get("counters", {}).get("iterations") == 2:
                raise OSError(errno.ENOSPC, "No space left on device")
            super().save_checkpoint(checkpoint, path, storage_options)

    class Reports(Callback):
        def on_train_end(self, trainer, policy):
            found = {"iterations": policy.iterations, "reason": rule.reason, "failures": checkpoint.failures}
            Path(f"rank{trainer.global_rank}.json").write_text(json.dumps({**found, "cuts": data.cuts}))

    class Policy(SmallPolicy):
        def on_train_start(self):
            rule.target_return = 5.0 if self.global_rank == 1 else None  # only the second rank sees the return

    rule = StopCallback(target_return=5.0, min_episodes=1)
    checkpoint = RLCheckpoint("checkpoints", every_env_steps=STEPS, every_seconds=None)
    data = SmallData()
    trainer = small_trainer(Path("."), [MetricsCallback(), rule, Reports(), checkpoint], plugins=[Full()],
                            strategy="ddp_fork", devices=2, limit_val_batches=0, use_distributed_sampler=False)
    trainer.fit(Policy(), data)
"""


def test_ranks_stop_and_save_together_and_survive_a_failed_write(tmp_path: Path):
    """The return 5 comes with the 5th iteration; the write of the 2nd one fails on rank 0 while rank 1 waits for it."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=100)
    assert done.returncode == 0, done.stderr
    first, second = (json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in (0, 1))
    assert (first["iterations"], second["iterations"]) == (5, 5)
    assert (first["reason"], second["reason"]) == ("another rank", "return")
    assert (first["cuts"], second["cuts"]) == (5, 5)
    files = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert files == ["last.ckpt", *(f"step_000000{step}.ckpt" for step in (300, 400, 500))]
